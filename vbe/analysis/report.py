"""Summaries for people to read."""

import polars as pl
from rich.console import Console
from rich.table import Table

from vbe.analysis.statistics import headlines


def print_summary(summary: pl.DataFrame, console: Console | None = None) -> None:
    """Prints what `summarise` gives: the metrics that the paper reports, and what diverged; columns that never vary go in the title."""
    console = console or Console()
    reported = {(environment, metric) for environment in set(summary["environment"]) for metric in (*headlines(environment), "diverged")}
    shown = summary.filter(pl.struct("environment", "metric").map_elements(lambda row: tuple(row.values()) in reported, pl.Boolean))
    keys = summary.columns[: summary.columns.index("metric") + 1]
    constant = [key for key in keys if shown[key].n_unique() == 1]
    title = ", ".join(f"{key} {shown[key][0]}" for key in constant)
    varied = [key for key in keys if key not in constant]
    table = Table(*varied, "runs", "mean (95% interval)", title=f"At the end: {title}", title_justify="left")
    for row in shown.iter_rows(named=True):
        cells = [str(row[key]) for key in varied]
        if row["metric"] == "diverged":
            table.add_row(*cells, str(row["runs"]), "diverged, left out above", style="bold red")
        else:
            table.add_row(*cells, str(row["runs"]), f"{row['mean']:.4g} ({row['low']:.4g} to {row['high']:.4g})")
    console.print(table)


def markdown_table(frame: pl.DataFrame) -> str:
    """A Markdown table whose columns line up as plain text, too.

    Example:
      >>> print(markdown_table(pl.DataFrame({"agent": ["vbe"], "states": ["465"]})))
      | agent | states |
      | ----- | ------ |
      | vbe   | 465    |
    """
    cells = [frame.columns, *([str(cell) for cell in row] for row in frame.rows())]
    widths = [max(len(row[column]) for row in cells) for column in range(frame.width)]
    lines = [" | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in cells]
    rule = " | ".join("-" * width for width in widths)
    return "\n".join(f"| {line} |" for line in (lines[0], rule, *lines[1:]))


def refresh(document: str, name: str, text: str) -> str:
    """The document with new text between `<!-- results:NAME -->` and the next `<!-- end -->`; unchanged if it has no such place.

    Example:
      >>> refresh("<!-- results:x -->\\nold\\n<!-- end -->", "x", "new")
      '<!-- results:x -->\\nnew\\n<!-- end -->'
    """
    begin, end = f"<!-- results:{name} -->", "<!-- end -->"
    before, found, rest = document.partition(begin)
    _, closed, after = rest.partition(end)
    return f"{before}{begin}\n{text}\n{end}{after}" if found and closed else document
