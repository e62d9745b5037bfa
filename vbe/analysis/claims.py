"""Claims held against results: numbers with their intervals, differences, and whether what is claimed was found."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from vbe.analysis.statistics import bootstrap_interval, difference_interval, outcomes, probability_of_improvement, without_diverged

NOT_RUN = "not run"


@dataclasses.dataclass(frozen=True)
class Claim:
    """What is claimed, what was measured, and whether that bears it out: "yes", "no", "undecided" or `NOT_RUN`."""

    text: str
    measured: str
    holds: str


def verdict(holds: bool | None) -> str:
    return {True: "yes", False: "no", None: NOT_RUN}[holds]


def claims_table(claims: Sequence[Claim]) -> pl.DataFrame:
    rows = [(claim.text, claim.measured, claim.holds) for claim in claims]
    return pl.DataFrame(rows, schema=["claim", "measured", "holds"], orient="row")


def is_best(text: str, values: Mapping[str, np.ndarray], agent: str = "vbe") -> Claim:
    """Claims that an agent's mean is the largest: measured is the difference to the best of the others."""
    if not all(len(runs) for runs in values.values()):
        return Claim(text, "", NOT_RUN)
    means = {other: runs.mean() for other, runs in values.items() if other != agent}
    second = max(means, key=lambda other: means[other])
    measured = f"{agent} - {second}, the best of the others: {difference(values[agent], values[second])}"
    return Claim(text, measured, above(values[agent], values[second]))


def final(table: pl.DataFrame, metric: str, **where: Any) -> np.ndarray:
    """(runs,): the outcomes of the runs that did not diverge and whose columns have these values; empty if there are none."""
    for column, value in where.items():
        if column not in table.columns:
            return np.zeros(0)
        table = table.filter(pl.col(column).eq_missing(pl.lit(value)))
    here = without_diverged(table).filter(pl.col("metric").cast(pl.String) == metric)
    return outcomes(here).sort("seed")["value"].to_numpy() if len(here) else np.zeros(0)


def overall(table: pl.DataFrame, metric: str, **where: Any) -> np.ndarray:
    """(runs,): likewise, the means over all of a run's steps: who learns sooner has more."""
    wanted = pl.lit(True)
    for column, value in where.items():
        wanted &= pl.col(column).eq_missing(pl.lit(value))
    here = without_diverged(table).filter(wanted, pl.col("metric").cast(pl.String) == metric)
    return here.group_by("seed").agg(pl.col("value").mean()).sort("seed")["value"].to_numpy()


def with_interval(values: np.ndarray) -> str:
    """The mean and its 95% bootstrap interval, in words; the mean alone if all runs agree.

    Example:
      >>> with_interval(np.array([465.0, 465.0]))
      '465'
    """
    if not len(values):
        return NOT_RUN
    low, high = bootstrap_interval(values)
    return _estimate(float(np.mean(values)), float(low), float(high))


def difference(ours: np.ndarray, theirs: np.ndarray) -> str:
    """The difference of the means and its 95% bootstrap interval, in words, with signs."""
    return _estimate(*difference_interval(ours, theirs), sign="+") if len(ours) and len(theirs) else NOT_RUN


def improvement(ours: np.ndarray, theirs: np.ndarray) -> str:
    """The probability that one of our runs beats one of theirs, and its 95% bootstrap interval, in words."""
    return _estimate(*probability_of_improvement(ours, theirs)) if len(ours) and len(theirs) else NOT_RUN


def above(ours: np.ndarray, theirs: np.ndarray) -> str:
    """Whether our mean is larger: "yes" or "no" if all of the difference's 95% interval lies on one side of zero.

    Example:
      >>> above(np.ones(3), np.zeros(3)), above(np.ones(3), np.ones(3))
      ('yes', 'undecided')
    """
    if not (len(ours) and len(theirs)):
        return NOT_RUN
    _, low, high = difference_interval(ours, theirs)
    return "yes" if low > 0 else "no" if high < 0 else "undecided"


def _estimate(mean: float, low: float, high: float, sign: str = "") -> str:
    """
    Example:
      >>> _estimate(0.1234567, 0.1, 0.2), _estimate(1234.5, 1200.0, 1300.0, "+"), _estimate(2.0, 2.0, 2.0)
      ('0.123 (0.1 to 0.2)', '+1234 (+1200 to +1300)', '2')
    """

    def text(x: float) -> str:
        return f"{x:{sign}.0f}" if abs(x) >= 100 else f"{x:{sign}.3g}"

    return text(mean) if low == high else f"{text(mean)} ({text(low)} to {text(high)})"
