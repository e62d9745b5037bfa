"""What an experiment is: named runs, whose results are kept as one compact table, and the figures and tables that are made of it."""

import argparse
import dataclasses
import io
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from vbe.analysis import curves
from vbe.analysis.report import markdown_table, refresh
from vbe.analysis.statistics import headlines, variants
from vbe.training.checkpoint import write_aside
from vbe.training.train import train

RESULTS, IMAGES, DOCUMENT = Path("results"), Path("docs/images"), Path("docs/experiments.md")


def learning_curves(arguments: Mapping[str, Any], folder: Path) -> pl.DataFrame:
    """Trains, or continues, or reads what was trained; keeps a hundred points of each curve."""
    return compact(train(**arguments, out=folder, progress=True).table)


@dataclasses.dataclass(frozen=True)
class Run:
    """One call of `train`, and columns that tell its results from the others'.

    Attributes:
      name: of the run and its folder.
      arguments: of `train`.
      columns: what is added to each row of its results.
      measure: what is made of the arguments, in a folder; it does only what is not done there yet.
    """

    name: str
    arguments: Mapping[str, Any]
    columns: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    measure: Callable[[Mapping[str, Any], Path], pl.DataFrame] = learning_curves

    def table(self, folder: Path) -> pl.DataFrame:
        table = self.measure(self.arguments, folder)
        return table.with_columns(run=pl.lit(self.name), **{name: pl.lit(value) for name, value in self.columns.items()})


@dataclasses.dataclass(frozen=True)
class Experiment:
    """What runs, what is claimed of it, and how it is drawn.

    Attributes:
      name: of the experiment and its results.
      runs: what there is to run.
      figures: by file name: what draws them from the results, into the path that it is given.
      tables: by the name that they go by in the document: what makes them from the results.
    """

    name: str
    runs: tuple[Run, ...]
    figures: Mapping[str, Callable[[pl.DataFrame, Path], object]] = dataclasses.field(default_factory=dict)
    tables: Mapping[str, Callable[[pl.DataFrame], pl.DataFrame]] = dataclasses.field(default_factory=dict)

    def chosen(self, only: Sequence[str] = (), sizes: Sequence[int] = ()) -> list[Run]:
        """The runs whose names contain one of the words, if there are any, and that are of one of the sizes, if there are any."""
        named = [run for run in self.runs if not only or any(word in run.name for word in only)]
        return [run for run in named if not sizes or run.columns.get("size") in sizes]

    def run(self, folder: Path, results: Path, only: Sequence[str] = (), sizes: Sequence[int] = ()) -> None:
        """Runs what is not there yet (each run continues where it was stopped), and puts each into the compact results when it is done."""
        for run in self.chosen(only, sizes):
            self._keep(run, run.table(folder / run.name), results)

    def _keep(self, run: Run, rows: pl.DataFrame, results: Path) -> None:
        before = pl.read_parquet(results) if results.exists() else rows.clear()
        parts = [rows if other == run else before.filter(pl.col("run") == other.name) for other in self.runs]
        results.parent.mkdir(parents=True, exist_ok=True)
        buffer = io.BytesIO()
        pl.concat(parts, how="diagonal_relaxed").write_parquet(buffer, compression="zstd", compression_level=19)
        write_aside(results, buffer.getvalue())

    def draw(self, table: pl.DataFrame, images: Path) -> list[Path]:
        images.mkdir(parents=True, exist_ok=True)
        for name, draw in self.figures.items():
            draw(table, images / name)
        return [images / name for name in self.figures]

    def render(self, table: pl.DataFrame) -> dict[str, str]:
        """Its tables in Markdown, by name; under each, which runs diverged and are left out of it."""
        note = diverged_note(table)
        return {name: markdown_table(make(table)) + note for name, make in self.tables.items()}


def load(results: Path) -> pl.DataFrame:
    """The compact results of an experiment, as its figures and tables take them."""
    return pl.read_parquet(results).drop("run")


def diverged_note(table: pl.DataFrame) -> str:
    """A paragraph that says how many runs of which agents diverged; nothing if none did."""
    lost = table.filter(pl.col("metric") == "diverged").select(*variants(table), "seed").unique()
    counts = lost.group_by("agent").len().sort("agent").rows()
    return "\n\nDiverged and left out: " + ", ".join(f"{n} of {agent}" for agent, n in counts) + "." if counts else ""


def compact(table: pl.DataFrame) -> pl.DataFrame:
    """A results table with a hundred rows per run and metric, of the metrics that the paper reports."""
    parts = []
    for environment in table["environment"].unique(maintain_order=True):
        here = table.filter(pl.col("environment") == environment)
        for metric in (*headlines(environment), "diverged"):
            line = curves(here, metric).drop_nulls("value")
            parts.append(line.with_columns(metric=pl.lit(metric)))
    return pl.concat(parts)


def command_line(experiment: Experiment, arguments: Sequence[str] | None = None) -> None:
    """Runs an experiment from the command line; writes its compact results, figures and tables."""
    chosen = _parser(experiment).parse_args(arguments)
    if not chosen.draw:
        try:
            experiment.run(chosen.runs, chosen.results, chosen.only, chosen.sizes or ())
        except KeyboardInterrupt as stop:
            sys.exit(str(stop) or "stopped")
    if not chosen.results.exists():
        sys.exit(f"{chosen.results}: there is no such file; run the experiment first")
    report(experiment, chosen.results, chosen.images, chosen.document)


def report(experiment: Experiment, results: Path, images: Path = IMAGES, document: Path = DOCUMENT) -> None:
    """Draws the figures, prints the tables, and puts these into the document if there is one."""
    table = load(results)
    print(f"results: {results}")
    for path in experiment.draw(table, images):
        print(f"picture: {path}")
    for name, text in experiment.render(table).items():
        print(f"\n{name}:\n{text}")
        if document.exists():
            write_aside(document, refresh(document.read_text(), name, text).encode())


def _parser(experiment: Experiment) -> argparse.ArgumentParser:
    runs = ", ".join(run.name for run in experiment.runs)
    parser = argparse.ArgumentParser(description=f"Experiment {experiment.name}. Its runs: {runs}.")
    parser.add_argument("--runs", type=Path, default=Path("runs") / experiment.name, help="the runs' own folders")
    parser.add_argument("--results", type=Path, default=RESULTS / f"{experiment.name}.parquet", help="the compact results")
    parser.add_argument("--images", type=Path, default=IMAGES, help="where the figures go")
    parser.add_argument("--document", type=Path, default=DOCUMENT, help="where the tables go, between their markers")
    parser.add_argument("--only", nargs="*", default=[], metavar="WORD", help="only runs whose names contain one of these")
    parser.add_argument("--draw", action="store_true", help="run nothing: make figures and tables of the results that there are")
    sizes = sorted({run.columns["size"] for run in experiment.runs if "size" in run.columns})
    if sizes:
        parser.add_argument("--sizes", nargs="*", type=int, choices=sizes, default=[], help=f"only these (default: {sizes})")
    else:
        parser.set_defaults(sizes=[])
    return parser
