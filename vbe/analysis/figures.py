"""Pictures of results tables."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from vbe.analysis.statistics import HEADLINES, bootstrap_interval, curves, variants

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")  # told apart by the colour-blind too
LABELS = {
    "accumulated_reward": "accumulated reward",
    "episode_return": "return of an episode",
    "episode_discounted_return": "discounted return of an episode",
    "episode_length": "length of an episode",
    "unique_states": "states visited",
    "bonus_mean": "mean bonus of the actions taken",
    "loss": "loss",
}


def draw_curves(
    table: pl.DataFrame,
    path: str | Path,
    metrics: Sequence[str] | None = None,
    *,
    title: str | None = None,
    references: dict[str, tuple[float, str]] | None = None,
) -> Path:
    """Draws learning curves, one panel per environment and metric: the mean over runs, in a band of its 95% bootstrap interval.

    Args:
      table: a results table, of one or of several agents.
      path: where the picture goes; its ending tells the format.
      metrics: which; default: those that the paper reports for the environment.
      title: above everything.
      references: a dotted line, (value, label), for some of the metrics.

    Returns:
      The path.
    """
    import matplotlib

    matplotlib.use("Agg", force=False)
    import matplotlib.pyplot as plt

    panels = [
        (environment, metric)
        for environment in table["environment"].unique(maintain_order=True)
        for metric in (metrics or HEADLINES.get(environment, ("episode_return",)))
        if not table.filter((pl.col("environment") == environment) & (pl.col("metric").cast(pl.String) == metric)).is_empty()
    ]
    figure, axes = plt.subplots(1, max(1, len(panels)), figsize=(5.2 * max(1, len(panels)), 4), squeeze=False, layout="constrained")
    names = _names(table)
    for ax, (environment, metric) in zip(axes[0], panels, strict=False):
        here = table.filter(pl.col("environment") == environment)
        reference = (references or {}).get(metric)
        if reference is not None:
            ax.axhline(reference[0], color="0.4", linestyle=":", linewidth=1.2)
            right_end = {"xycoords": ("axes fraction", "data"), "ha": "right", "va": "bottom"}
            ax.annotate(reference[1], (1, reference[0]), **right_end, color="0.3", fontsize=9)
        _draw_panel(ax, curves(here, metric), names)
        ax.set(title=environment, xlabel="environment steps", ylabel=LABELS.get(metric, metric))
        ax.xaxis.set_major_formatter(matplotlib.ticker.EngFormatter(sep=""))
        ax.spines[["top", "right"]].set_visible(False)
        ax.margins(x=0)
    handles, labels = axes[0][0].get_legend_handles_labels()
    if handles:
        figure.legend(handles, labels, loc="outside lower center", ncols=2 * len(panels), frameon=False)
    if title:
        figure.suptitle(title)
    path = Path(path)
    figure.savefig(path, dpi=150)
    plt.close(figure)
    return path


def _names(table: pl.DataFrame) -> dict[tuple[Any, ...], tuple[str, str]]:
    """A label and a colour for each variant, the same in every panel."""
    keys = [name for name in variants(table) if name != "environment"]
    unique = table.select(keys).unique(maintain_order=True).rows()
    differing = [i for i, name in enumerate(keys) if table[name].n_unique() > 1] or [0]

    def label(key: tuple[Any, ...]) -> str:
        known = [i for i in differing if key[i] is not None]
        return ", ".join(str(key[i]) if keys[i] == "agent" else f"{keys[i]} {key[i]}" for i in known)

    return {key: (label(key), COLOURS[i % len(COLOURS)]) for i, key in enumerate(unique)}


def _draw_panel(ax: Any, lines: pl.DataFrame, names: dict[tuple[Any, ...], tuple[str, str]]) -> None:
    keys = [name for name in lines.columns if name not in ("environment", "seed", "step", "value")]
    for key, group in lines.group_by(keys, maintain_order=True):
        label, colour = names[key]
        steps = group["step"].unique().sort().to_numpy()
        values = group.sort("seed", "step")["value"].to_numpy().reshape(-1, len(steps)).astype(np.float64)
        known = ~np.isnan(values).any(axis=0)  # a curve begins where every run has a value
        if not known.any():
            continue
        steps, values = steps[known], values[:, known]
        ax.plot(steps, values.mean(axis=0), color=colour, label=f"{label} ({len(values)} runs)", linewidth=1.8)
        if len(values) > 1:
            low, high = bootstrap_interval(values)
            ax.fill_between(steps, low, high, color=colour, alpha=0.2, linewidth=0)
