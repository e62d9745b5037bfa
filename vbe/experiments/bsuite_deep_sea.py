"""How do the episodes that BDQN needs to solve Deepsea grow with its size? (bsuite's deep_sea, with its own BDQN and its own analysis.)

What differs from there: the grid's observation is one-hot over its N x N cells, ours over the N (N + 1) / 2 that can be reached, so
that a first layer's weights are larger by sqrt(2 N / (N + 1)) to begin with; and which action means "right" is drawn anew for each
seed, not once for all.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from vbe.analysis.claims import NOT_RUN, Claim, claims_table, verdict
from vbe.analysis.figures import COLOURS, WIDTH_ALONE, canvas
from vbe.experiments.experiment import Experiment, Run, command_line
from vbe.training.train import train

SIZES = (10, 12, 14, 16, 18, 20)
EPISODES = 2_500  # a quarter of bsuite's: to solve it in these is to solve it there
SEEDS = 5
# What bsuite's Bootstrapped DQN in JAX does unless it is told otherwise.
OPTIONS = {
    "ensemble_size": 20,
    "prior_scale": 5.0,
    "mask_probability": 1.0,
    "network": "mlp",
    "hidden": (50, 50),
    "learning_rate": 1e-3,
    "discount": 0.99,
    "batch_size": 128,
    "buffer_size": 10_000,
    "target_period": 4,
}
BAD_SHARE = 0.9  # solved is where fewer than this share of all episodes so far were bad
FORGIVENESS = 100  # episodes on top of the 2 ** N that a random walk needs on average


def bad_episodes(arguments: Mapping[str, Any], folder: Path) -> pl.DataFrame:
    """Trains, and counts the bad episodes so far, wherever bsuite would write down how many there were.

    An episode is bad if it leaves the one way to the treasure. Only a good one is paid: its return is 0.99, any other's at most 0.
    """
    returns = train(**arguments, out=folder, progress=True).table.filter(pl.col("metric").cast(pl.String) == "episode_return")
    counted = returns.sort("seed", "step").with_columns(
        episode=pl.int_range(1, pl.len() + 1).over("seed"),
        value=(pl.col("value") < 0.5).cum_sum().over("seed").cast(pl.Float64),
        metric=pl.lit("total_bad_episodes"),
    )
    most = counted["episode"].max()
    assert isinstance(most, int)
    return counted.filter(pl.col("episode").is_in(logged_episodes(most)))


def logged_episodes(most: int) -> list[int]:
    """The episodes at which bsuite writes down results: about a dozen for each power of ten.

    Example:
      >>> logged_episodes(30)
      [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 17, 20, 25, 30]
    """
    tenths = (10, 12, 14, 17, 20, 25, 30, 40, 50, 60, 70, 80, 90)
    everything = {tenth * 10**power // 10 for tenth in tenths for power in range(len(str(most))) if tenth * 10**power % 10 == 0}
    return sorted(episode for episode in everything if episode <= most)


def find_solutions(table: pl.DataFrame) -> pl.DataFrame:
    """When each run solved its Deepsea: the first logged episode at which fewer than 90% of all so far were bad.

    Returns:
      The columns size, seed, solved, and episode: the last one of all where a run did not solve it.
    """
    solved = pl.col("value") / pl.col("episode") < BAD_SHARE
    runs = table.sort("episode").group_by("size", "seed").agg(
        solved=solved.any(),
        episode=pl.when(solved.any()).then(pl.col("episode").filter(solved).min()).otherwise(pl.col("episode").max()),
    )
    return runs.sort("size", "seed")


def tabulate_solutions(table: pl.DataFrame) -> pl.DataFrame:
    """Episodes to the solution, by size."""
    solutions = find_solutions(table)
    rows = []
    for size in SIZES:
        here = solutions.filter(pl.col("size") == size).sort("episode")
        every = ", ".join(str(episode) if solved else f"> {episode}" for solved, episode in here.select("solved", "episode").rows())
        rows.append([str(size), _counted(here["solved"]), every, f"{2**size + FORGIVENESS:,}"])
    columns = ["size", "solved", "after how many episodes, each run", "faster than dithering: fewer than"]
    return pl.DataFrame(rows, schema=columns, orient="row")


def check_claims(table: pl.DataFrame) -> pl.DataFrame:
    solutions = find_solutions(table)
    complete = solutions["size"].n_unique() == len(SIZES)
    beats = solutions.select(pl.col("solved") & (pl.col("episode") < 2 ** pl.col("size") + FORGIVENESS)).to_series()
    medians = solutions.group_by("size").agg(pl.col("episode").median()).sort("size")["episode"].to_list()
    growth, dithering = medians[-1] / medians[0], 2 ** (max(SIZES) - min(SIZES))
    found = [
        ("Every run solves its Deepsea", _counted(solutions["solved"]), solutions["solved"].all()),
        ("Every run does so faster than dithering (bsuite's score is 1)", _counted(beats), beats.all()),
        (
            f"From {min(SIZES)} to {max(SIZES)}, episodes grow by less than dithering's factor of {dithering}",
            f"the median by a factor of {growth:.1f}" if complete else "",
            growth < dithering,
        ),
    ]
    return claims_table([Claim(text, measured, verdict(bool(holds) if complete else None)) for text, measured, holds in found])


def _counted(yes: pl.Series) -> str:
    return f"{yes.sum()} of {len(yes)} runs" if len(yes) else NOT_RUN


def draw(table: pl.DataFrame, path: Path) -> None:
    solutions = find_solutions(table)
    sizes = np.linspace(min(SIZES) - 0.7, max(SIZES) + 0.7, 100)
    with canvas(path, width=WIDTH_ALONE) as (figure, (ax,)):
        ax.plot(sizes, 2.0**sizes, color="0.3", linestyle="--", linewidth=1.4, label="$2^N$: dithering")
        ax.plot(sizes, sizes**2, color="0.3", linestyle=":", linewidth=1.4, label="$N^2$, for the eye")
        looks = ((True, "o", COLOURS[0], f"solved (one of {SEEDS} runs)"), (False, "x", COLOURS[1], "not solved until there"))
        for solved, marker, colour, label in looks:
            here = solutions.filter(pl.col("solved") == solved)
            if len(here):
                beside = (here["seed"].to_numpy() - (SEEDS - 1) / 2) * 0.14  # runs of one size lie side by side
                look = {"marker": marker, "color": colour, "alpha": 0.85, "zorder": 3}
                ax.scatter(here["size"].to_numpy() + beside, here["episode"], label=label, **look)
        ax.set(xlabel="size N", ylabel="episodes to the solution", xticks=SIZES, yscale="log", ylim=(40, 1.3 * EPISODES))
        ax.set_xlim(sizes[0], sizes[-1])
        figure.legend(loc="outside lower center", ncols=2, frameon=False)


def _run(size: int) -> Run:
    return Run(
        f"bdqn-{size}",
        {
            "environment": "DeepSea",
            "environment_options": {"size": size},
            "agent": "bdqn",
            "agent_options": OPTIONS,
            "seeds": SEEDS,
            "steps": EPISODES * size,
        },
        {"size": size},
        measure=bad_episodes,
    )


EXPERIMENT = Experiment(
    "bsuite_deep_sea",
    tuple(_run(size) for size in SIZES),
    figures={"bsuite_deep_sea.png": draw},
    tables={"bsuite_deep_sea-claims": check_claims, "bsuite_deep_sea": tabulate_solutions},
)

if __name__ == "__main__":
    command_line(EXPERIMENT)
