"""Honest statistics over runs: every number comes with how many runs it rests on and a 95% bootstrap confidence interval."""

import numpy as np
import polars as pl

LONG_FORM = ("agent", "environment", "seed", "step", "metric", "value")
TOTALS = ("accumulated_reward", "unique_states", "diverged")  # what a run has at its end; the others are averaged over its last tenth
LAST_PART = 0.1
RESAMPLES = 2_000
_HEADLINES = {
    "RiverSwim": ("accumulated_reward",),
    "PuddleWorld": ("episode_return",),
    "SparseMountainCar": ("episode_discounted_return",),
    "DeepSea": ("unique_states", "episode_return"),
}


def headlines(environment: str) -> tuple[str, ...]:
    """The metrics that the paper reports for an environment; for one of a user's own, what fits episodic and continuing ones."""
    return _HEADLINES.get(environment, ("accumulated_reward", "episode_return"))


def variants(table: pl.DataFrame) -> list[str]:
    """The columns that tell runs apart, seeds aside: environment, agent, and what was swept."""
    return ["environment", "agent", *(name for name in table.columns if name not in LONG_FORM)]


def bootstrap_interval(values: np.ndarray, level: float = 0.95, statistic=np.mean, seed: int = 0) -> tuple[float, float]:
    """The percentile bootstrap's confidence interval of a statistic over runs.

    Args:
      values: (runs,) or (runs, ...); runs are resampled, whole.
      level: of confidence.
      statistic: takes an array and `axis`.
      seed: of the resampling, so that the same values give the same interval.

    Returns:
      The lower and upper bound; both are the statistic itself if there is one run only (nothing can be said then).

    Example:
      >>> low, high = bootstrap_interval(np.arange(30.0))
      >>> bool(low < 14.5 < high)
      True
    """
    values = np.asarray(values, np.float64)
    runs = len(values)
    picks = np.random.default_rng(seed).integers(0, runs, (RESAMPLES, runs))
    resampled = statistic(values[picks], axis=1)
    low, high = np.quantile(resampled, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return low, high


def difference_interval(ours: np.ndarray, theirs: np.ndarray, level: float = 0.95, seed: int = 0) -> tuple[float, float, float]:
    """How much larger our mean is than theirs, and its bootstrap interval: the runs of each side are resampled by themselves.

    Args:
      ours: (runs,).
      theirs: (other runs,).
      level: of confidence.
      seed: of the resampling.

    Returns:
      The difference of the means, its lower and its upper bound.

    Example:
      >>> difference_interval(np.array([3.0, 3.0]), np.array([1.0]))
      (2.0, 2.0, 2.0)
    """
    ours, theirs = np.asarray(ours, np.float64), np.asarray(theirs, np.float64)
    picks = _picks(len(ours), len(theirs), seed)
    resampled = ours[picks[0]].mean(axis=1) - theirs[picks[1]].mean(axis=1)
    low, high = np.quantile(resampled, [(1 - level) / 2, (1 + level) / 2])
    return float(ours.mean() - theirs.mean()), float(low), float(high)


def probability_of_improvement(ours: np.ndarray, theirs: np.ndarray, level: float = 0.95, seed: int = 0) -> tuple[float, float, float]:
    """How probable it is that one of our runs, drawn at random, beats one of theirs; a tie counts half.

    Args:
      ours: (runs,).
      theirs: (other runs,).
      level: of confidence.
      seed: of the resampling.

    Returns:
      The probability, and the lower and upper bound of its bootstrap interval.

    Example:
      >>> probability_of_improvement(np.array([1.0, 2.0]), np.array([1.0, 0.0]))[0]
      0.875
    """
    ours, theirs = np.asarray(ours, np.float64), np.asarray(theirs, np.float64)
    wins = (ours[:, None] > theirs) + 0.5 * (ours[:, None] == theirs)
    picks = _picks(len(ours), len(theirs), seed)
    resampled = np.array([wins[np.ix_(rows, columns)].mean() for rows, columns in zip(*picks, strict=True)])
    low, high = np.quantile(resampled, [(1 - level) / 2, (1 + level) / 2])
    return float(wins.mean()), float(low), float(high)


def _picks(ours: int, theirs: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.integers(0, ours, (RESAMPLES, ours)), rng.integers(0, theirs, (RESAMPLES, theirs))


def interquartile_mean(values: np.ndarray, axis: int = 0) -> np.ndarray:
    """The mean of the middle half: a quarter of the runs, whole or in part, is cut off at either end.

    Example:
      >>> float(interquartile_mean(np.array([-100.0, 1.0, 3.0, 100.0])))
      2.0
    """
    ordered = np.sort(np.moveaxis(np.asarray(values, np.float64), axis, 0), axis=0)
    n = len(ordered)
    edges = np.arange(n + 1) / n
    weights = np.clip(np.minimum(edges[1:], 0.75) - np.maximum(edges[:-1], 0.25), 0, None) * 2
    return np.tensordot(weights, ordered, axes=1)


def outcomes(table: pl.DataFrame) -> pl.DataFrame:
    """One number per run and metric: totals as they stood at the end, the others averaged over the last tenth of the steps.

    For a run that ended no episode in its last tenth, its last episode stands: to leave it out would favour whoever gets stuck.
    """
    keys = [*variants(table), "seed", "metric"]
    metric = pl.col("metric").cast(pl.String)
    table = table.with_columns(metric)
    late = pl.col("step") > pl.col("step").max().over(variants(table)) * (1 - LAST_PART)
    rows = table.with_columns(late=late & ~metric.is_in(TOTALS)).sort("step").group_by(keys, maintain_order=True)
    value = pl.when(pl.col("late").any()).then(pl.col("value").filter("late").mean()).otherwise(pl.col("value").last())
    return rows.agg(value=value).sort(keys)


def without_diverged(table: pl.DataFrame) -> pl.DataFrame:
    """All rows of the runs that did not diverge."""
    keys = [*variants(table), "seed"]
    lost = table.filter(pl.col("metric").cast(pl.String) == "diverged").select(keys).unique()
    return table.join(lost, on=keys, how="anti", nulls_equal=True, maintain_order="left")


def summarise(table: pl.DataFrame) -> pl.DataFrame:
    """Outcomes over seeds: a row per variant and metric with runs, mean, interquartile mean and the mean's 95% interval.

    Diverged runs are left out of every metric but `diverged`, whose row counts them.
    """
    results = outcomes(table)
    keys = variants(table)
    lost = results.filter(pl.col("metric") == "diverged").select(*keys, "seed")
    sound = results.join(lost, on=[*keys, "seed"], how="anti", nulls_equal=True)
    rows = []
    for key, group in sound.group_by([*keys, "metric"], maintain_order=True):
        values = group["value"].to_numpy()
        low, high = bootstrap_interval(values)
        iqm = float(interquartile_mean(values))
        rows.append([*key, len(values), float(values.mean()), float(low), float(high), iqm])
    for key, group in lost.group_by(keys, maintain_order=True):
        rows.append([*key, "diverged", len(group), float(len(group)), None, None, None])
    names = [*keys, "metric", "runs", "mean", "low", "high", "interquartile_mean"]
    return pl.DataFrame(rows, schema=names, orient="row", infer_schema_length=None).sort([*keys, "metric"])


def curves(table: pl.DataFrame, metric: str, points: int = 100) -> pl.DataFrame:
    """A learning curve per run on common steps: the mean of the metric's rows in each of `points` equal stretches of steps, the last
    known value where a stretch has none. It ends where its run does.

    Returns:
      The columns that tell runs apart, step (the end of each stretch) and value, null before a run's first row.
    """
    keys = [*variants(table), "seed"]
    rows = table.filter(pl.col("metric").cast(pl.String) == metric)
    steps = table["step"].to_numpy()
    edges = np.unique(np.linspace(0, steps.max(), points + 1).astype(np.int64)[1:])
    position = np.searchsorted(edges, rows["step"].to_numpy())
    value = pl.col("value").last() if metric in TOTALS else pl.col("value").mean()
    binned = rows.with_columns(step=pl.Series(edges[position], dtype=pl.Int64)).group_by([*keys, "step"]).agg(value)
    ends = table.select(*keys, end=pl.col("step").max().over(variants(table))).unique()
    grid = ends.join(pl.DataFrame({"step": edges}), how="cross").filter(pl.col("step").shift(1, fill_value=0).over(keys) < pl.col("end"))
    filled = grid.join(binned, on=[*keys, "step"], how="left", nulls_equal=True).sort([*keys, "step"])
    return filled.drop("end").with_columns(pl.col("value").forward_fill().over(keys))
