"""What an experiment is: named runs, whose learning curves are kept as one compact table."""

import argparse
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl

from vbe.analysis import curves
from vbe.analysis.statistics import HEADLINES
from vbe.training.train import train


@dataclasses.dataclass(frozen=True)
class Run:
    """One call of `train`, and columns that tell its results from the others'."""

    name: str
    arguments: dict[str, Any]
    columns: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Experiment:
    name: str
    runs: tuple[Run, ...]

    def run(self, folder: Path, only: Sequence[str] = ()) -> pl.DataFrame:
        """Runs what is not there yet (each run continues where it was stopped); returns the curves of all."""
        tables = []
        for run in self.runs:
            if only and not any(word in run.name for word in only):
                continue
            results = train(**run.arguments, out=folder / run.name, progress=True)
            tables.append(compact(results.table).with_columns(**{name: pl.lit(value) for name, value in run.columns.items()}))
        return pl.concat(tables, how="diagonal_relaxed")


def compact(table: pl.DataFrame) -> pl.DataFrame:
    """A results table with a hundred rows per run and metric, of the metrics that the paper reports."""
    parts = []
    for environment in table["environment"].unique(maintain_order=True):
        here = table.filter(pl.col("environment") == environment)
        for metric in (*HEADLINES[environment], "diverged"):
            line = curves(here, metric).drop_nulls("value")
            parts.append(line.with_columns(metric=pl.lit(metric)))
    return pl.concat(parts)


def command_line(experiment: Experiment) -> None:
    """Runs an experiment from the command line and writes its compact results."""
    parser = argparse.ArgumentParser(description=f"experiment {experiment.name}: {', '.join(run.name for run in experiment.runs)}")
    parser.add_argument("--runs", type=Path, default=Path("runs") / experiment.name, help="the runs' own folders")
    parser.add_argument("--results", type=Path, default=Path("results") / f"{experiment.name}.parquet", help="the compact results")
    parser.add_argument("--only", nargs="*", default=[], metavar="WORD", help="only runs whose names contain one of these")
    chosen = parser.parse_args()
    table = experiment.run(chosen.runs, chosen.only)
    chosen.results.parent.mkdir(parents=True, exist_ok=True)
    table.write_parquet(chosen.results, compression="zstd")
    print(f"results: {chosen.results}")
