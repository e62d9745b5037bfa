"""Summaries for people to read."""

import polars as pl
from rich.console import Console
from rich.table import Table

from vbe.analysis.statistics import HEADLINES


def print_summary(summary: pl.DataFrame, console: Console | None = None) -> None:
    """Prints what `summarise` gives: the metrics that the paper reports, and what diverged; columns that never vary go in the title."""
    console = console or Console()
    reported = {(environment, metric) for environment, metrics in HEADLINES.items() for metric in (*metrics, "diverged")}
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
