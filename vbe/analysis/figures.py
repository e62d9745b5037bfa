"""Pictures of results tables."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from vbe.analysis.statistics import bootstrap_interval, curves, headlines, outcomes, variants, without_diverged

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")  # told apart by the colour-blind too
LINES = ("-", "--", ":", "-.")
LABELS = {
    "accumulated_reward": "accumulated reward",
    "episode_return": "return of an episode",
    "episode_discounted_return": "discounted return of an episode",
    "episode_length": "length of an episode",
    "unique_states": "states visited",
    "bonus_mean": "mean bonus of the actions taken",
    "loss": "loss",
    "intrinsic_bias": "intrinsic value",
    "intrinsic_tried": "intrinsic value",
    "intrinsic_untried": "intrinsic value",
}
WIDTH, HEIGHT = 5.2, 4.0  # of a panel, in inches
WIDTH_ALONE = 7.0


class Style(NamedTuple):
    """How a variant is drawn: a colour, and a line that tells it from others of that colour."""

    colour: str
    line: str = "-"

    @property
    def hatch(self) -> str | None:
        """What a dashed line is to a curve, this is to a bar."""
        return "////" if self.line == "--" else None


# An agent looks the same in every figure. Those on PPO have the colours of their value-based kin, and dashes.
AGENT_STYLES = {
    "vbe": Style("#0072B2"),
    "vbe-sl": Style("#56B4E9"),
    "bdqn": Style("#D55E00"),
    "dqn-p": Style("#E69F00"),
    "rnd": Style("#009E73"),
    "acb": Style("#CC79A7"),
    "rnd-ppo": Style("#009E73", "--"),
    "acb-ppo": Style("#CC79A7", "--"),
    "epsilon-greedy": Style("#555555", ":"),
}


class Panel(NamedTuple):
    """What one panel of curves shows.

    Attributes:
      title: above it.
      table: the results, of one environment.
      metric: of their metrics, the one to draw.
      reference: a dotted line's height and label.
    """

    title: str
    table: pl.DataFrame
    metric: str
    reference: tuple[float, str] | None = None


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
      table: a results table, of one or of several agents. Diverged runs are left out.
      path: where the picture goes; its ending tells the format.
      metrics: which; default: those that the paper reports for the environment.
      title: above everything.
      references: a dotted line, (value, label), for some of the metrics.

    Returns:
      The path.
    """
    panels = []
    for environment in table["environment"].unique(maintain_order=True):
        here = table.filter(pl.col("environment") == environment)
        known = here["metric"].cast(pl.String).unique()
        for metric in metrics or headlines(environment):
            if metric in known:
                panels.append(Panel(environment, here, metric, (references or {}).get(metric)))
    return draw_panels(panels, path, title=title)


def draw_panels(
    panels: Sequence[Panel], path: str | Path, *, title: str | None = None, styles: Mapping[str, Style] = AGENT_STYLES
) -> Path:
    """Draws panels of learning curves side by side, under one legend.

    Args:
      panels: which; a variant looks the same in all of them.
      path: where the picture goes; its ending tells the format.
      title: above everything.
      styles: how agents are drawn where they are all that differs; others are given the next free style.

    Returns:
      The path.
    """
    names = _names(panels, styles)
    with canvas(path, max(1, len(panels)), width=WIDTH if len(panels) > 1 else WIDTH_ALONE) as (figure, axes):
        drawn: dict[str, tuple[Any, set[int]]] = {}  # label -> a handle for the legend, and how many runs it stood for
        for ax, panel in zip(axes, panels, strict=False):
            _draw_panel(ax, panel, names, drawn)
        if drawn:
            _add_legend(figure, drawn, ncols=max(3, 2 * len(panels)))
        if title:
            figure.suptitle(title)
    return Path(path)


@contextmanager
def canvas(path: str | Path, columns: int = 1, rows: int = 1, width: float = WIDTH, height: float = HEIGHT) -> Iterator[tuple[Any, Any]]:
    """An empty figure and its (rows * columns,) axes, saved at the end."""
    import matplotlib

    matplotlib.use("Agg", force=False)
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(rows, columns, figsize=(width * columns, height * rows), squeeze=False, layout="constrained")
    for ax in axes.flat:
        ax.spines[["top", "right"]].set_visible(False)
    try:
        yield figure, axes.flat
        figure.savefig(path, dpi=150)
    finally:
        plt.close(figure)


def steps_axis(ax: Any) -> None:
    """Labels the horizontal axis as steps: 50k, not 50000."""
    from matplotlib.ticker import EngFormatter

    ax.set_xlabel("environment steps")
    ax.xaxis.set_major_formatter(EngFormatter(sep=""))
    ax.margins(x=0)


def _names(panels: Sequence[Panel], styles: Mapping[str, Style]) -> dict[tuple[Any, ...], tuple[str, Style]]:
    """A label and a style for each variant, the same in every panel."""
    keys = [name for name in variants(panels[0].table) if name != "environment"] if panels else []
    unique = list(dict.fromkeys(row for panel in panels for row in panel.table.select(keys).unique(maintain_order=True).rows()))
    differing = [i for i in range(len(keys)) if len({row[i] for row in unique}) > 1] or [0]
    cycle = itertools.cycle(Style(colour, line) for line in LINES for colour in COLOURS)

    def label(key: tuple[Any, ...]) -> str:
        known = [i for i in differing if key[i] is not None]
        return ", ".join(str(key[i]) if keys[i] == "agent" else f"{keys[i]} {key[i]}" for i in known)

    def style(key: tuple[Any, ...]) -> Style:
        free = next(cycle)
        return styles.get(key[0], free) if differing == [0] else free

    return {key: (label(key), style(key)) for key in unique}


def _draw_panel(ax: Any, panel: Panel, names: Mapping[tuple[Any, ...], tuple[str, Style]], drawn: dict[str, tuple[Any, set[int]]]) -> None:
    if panel.reference is not None:
        height, text = panel.reference
        ax.axhline(height, color="0.4", linestyle=":", linewidth=1.2)
        ax.annotate(text, (1, height), xycoords=("axes fraction", "data"), ha="right", va="bottom", color="0.3", fontsize=9)
    sound = without_diverged(panel.table)
    keys = [name for name in variants(sound) if name != "environment"]
    groups = dict(iter(curves(sound, panel.metric).group_by(keys, maintain_order=True))) if len(sound) else {}
    for key, (label, style) in names.items():
        if key in groups:
            handle, runs = _draw_line(ax, groups[key], style, zorder=3 - len(drawn) / 100)  # the first lies on top
            drawn.setdefault(label, (handle, set()))[1].add(runs)
    ax.set(title=panel.title, ylabel=LABELS.get(panel.metric, panel.metric))
    steps_axis(ax)


def _draw_line(ax: Any, group: pl.DataFrame, style: Style, zorder: float) -> tuple[Any, int]:
    steps = group["step"].unique().sort().to_numpy()
    values = group.sort("seed", "step")["value"].to_numpy().reshape(-1, len(steps)).astype(np.float64)
    known = ~np.isnan(values).any(axis=0)  # a curve begins where every run has a value
    steps, values = steps[known], values[:, known]
    mean = values.mean(axis=0) if len(steps) else []
    (handle,) = ax.plot(steps, mean, color=style.colour, linestyle=style.line, linewidth=1.8, zorder=zorder)
    if len(values) > 1 and len(steps):
        low, high = bootstrap_interval(values)
        ax.fill_between(steps, low, high, color=style.colour, alpha=0.2, linewidth=0)
    return handle, len(values)


def _add_legend(figure: Any, drawn: Mapping[str, tuple[Any, set[int]]], ncols: int) -> None:
    """Says how many runs there are: once if that is the same for all, or else with each."""
    counts = set().union(*(runs for _, runs in drawn.values()))
    handles = [handle for handle, _ in drawn.values()]
    labels = list(drawn)
    heading = "means over the runs, in their 95% bootstrap intervals"
    if len(counts) == 1:
        runs = counts.pop()
        heading = f"means over {runs} runs, in their 95% bootstrap intervals" if runs > 1 else "one run each"
    else:
        labels = [f"{label} ({' or '.join(map(str, sorted(runs)))} runs)" for label, (_, runs) in drawn.items()]
    figure.legend(handles, labels, loc="outside lower center", ncols=ncols, frameon=False, title=heading, title_fontsize=9)


def draw_bars(
    table: pl.DataFrame,
    path: str | Path,
    metric: str,
    by: str,
    *,
    title: str | None = None,
    most: Mapping[Any, float] | None = None,
    published: Mapping[tuple[str, Any], float] | None = None,
) -> Path:
    """Draws outcomes as groups of bars, an agent each: means over runs, with their 95% bootstrap intervals.

    Args:
      table: a results table with a column to group by. Diverged runs are left out.
      path: where the picture goes; its ending tells the format.
      metric: whose outcomes.
      by: the column whose values are the groups.
      title: above everything.
      most: by group, the most that can be reached: a star.
      published: by agent and group, what others found: a diamond.

    Returns:
      The path.
    """
    results = outcomes(without_diverged(table)).filter(pl.col("metric") == metric)
    agents = table["agent"].unique(maintain_order=True).to_list()
    groups = table[by].unique().sort().to_list()
    width = 0.86 / len(agents)
    with canvas(path, width=max(WIDTH, 0.24 * len(agents) * len(groups) + 1), height=4.6) as (figure, (ax,)):
        for i, agent in enumerate(agents):
            style = AGENT_STYLES.get(agent, Style(COLOURS[i % len(COLOURS)]))
            here = results.filter(pl.col("agent") == agent)
            at = {group: x + (i - (len(agents) - 1) / 2) * width for x, group in enumerate(groups)}
            _draw_agent_bars(ax, {at[group]: here.filter(pl.col(by) == group)["value"].to_numpy() for group in groups}, width, style, agent)
            marks = [(at[group], published[agent, group]) for group in groups if (agent, group) in (published or {})] if published else []
            diamonds = {"marker": "D", "s": 20, "facecolor": "white", "edgecolor": "black", "linewidth": 0.9, "zorder": 4}
            ax.scatter(*zip(*marks, strict=True), **diamonds) if marks else None
        for x, group in enumerate(groups):
            if most and group in most:
                ax.plot([x - 0.46, x + 0.46], [most[group]] * 2, color="0.4", linestyle=":", linewidth=1.2, zorder=1)
                ax.scatter([x + 0.46], [most[group]], marker="*", s=90, color="black", zorder=5)
        ax.set(xticks=range(len(groups)), xticklabels=groups, xlabel=by, ylabel=LABELS.get(metric, metric))
        ax.set_xlim(-0.55, len(groups) - 0.45)
        _add_bars_legend(figure, ax, bool(most), bool(published))
        if title:
            figure.suptitle(title)
    return Path(path)


def _draw_agent_bars(ax: Any, values: Mapping[float, np.ndarray], width: float, style: Style, label: str) -> None:
    known = {x: runs for x, runs in values.items() if len(runs)}
    means = np.array([runs.mean() for runs in known.values()])
    bounds = np.array([bootstrap_interval(runs) for runs in known.values()]).reshape(-1, 2).T
    look: dict[str, Any] = {"color": style.colour, "label": label}
    if style.hatch is not None:
        look = {"facecolor": "white", "edgecolor": style.colour, "hatch": style.hatch, "linewidth": 0.8, "label": label}
    ax.bar(list(known), means, 0.9 * width, zorder=2, **look)
    ax.errorbar(list(known), means, np.abs(bounds - means), fmt="none", ecolor="0.2", elinewidth=1.2, capsize=1.5, zorder=3)


def _add_bars_legend(figure: Any, ax: Any, stars: bool, diamonds: bool) -> None:
    from matplotlib.lines import Line2D

    handles, labels = ax.get_legend_handles_labels()
    if stars:
        handles.append(Line2D([], [], marker="*", markersize=10, color="black", linestyle=":"))
        labels.append("all there are")
    if diamonds:
        handles.append(Line2D([], [], marker="D", markersize=5, markerfacecolor="white", markeredgecolor="black", linestyle=""))
        labels.append("published")
    figure.legend(handles, labels, loc="outside lower center", ncols=6, frameon=False)
