"""Who finds the treasure of Deepsea with a neural network? (The Deepsea panels of the paper's figures of the classic environments.)

The paper does not say which size its panels show: all five of its sizes run, 30 and 50 are drawn.
"""

from functools import partial
from pathlib import Path

import numpy as np
import polars as pl

from vbe.analysis.claims import Claim, claims_table, difference, final, improvement, is_best, overall, verdict, with_interval
from vbe.analysis.figures import Panel, draw_panels
from vbe.experiments.classic_control import AGAINST_PPO, VALUE_BASED, agent_options
from vbe.experiments.experiment import Experiment, Run, command_line

SIZES = (30, 35, 40, 45, 50)
DRAWN = (30, 50)
EPISODES = 10_000
SEEDS = 5
BEST_RETURN = 0.99
SOLVED = 0.9  # a run that has such a return, on average over its last tenth, has learned the way
# Ensemble size k and scale c, as the paper's tables have them; None where a method has no such thing.
SETTINGS: dict[str, tuple[int | None, float | None]] = {
    "vbe": (20, 1.0),
    "epsilon-greedy": (None, None),
    "dqn-p": (None, 10.0),
    "bdqn": (20, 10.0),
    "acb": (20, 1.0),
    "rnd": (None, 1.0),
    "rnd-ppo": (None, 1.0),
    "acb-ppo": (None, 10.0),
}
LINEAR = ("vbe", "epsilon-greedy", "rnd-ppo", "acb-ppo")  # these also with a table in the network's place


def _run(agent: str, size: int, network: str = "mlp") -> Run:
    return Run(
        f"{agent}-{size}" if network == "mlp" else f"{agent}-{size}-{network}",
        {
            "environment": "DeepSea",
            "environment_options": {"size": size},
            "agent": agent,
            # Deepsea's one-hot features would ask for a linear network; this figure is of neural ones.
            "agent_options": {"network": network, **agent_options(agent, *SETTINGS[agent])},
            "seeds": SEEDS,
            "steps": EPISODES * size,
        },
        {"size": size, "network": network},
    )


def draw(table: pl.DataFrame, path: Path, agents: tuple[str, ...]) -> None:
    here = table.filter(pl.col("agent").is_in(agents) & (pl.col("network") == "mlp")).drop("network")
    panels = [
        Panel(f"Deepsea {size} x {size}", here.filter(pl.col("size") == size).drop("size"), "episode_return", (BEST_RETURN, "best: 0.99"))
        for size in DRAWN
    ]
    draw_panels([panel for panel in panels if not panel.table.is_empty()], path)


def _returns(table: pl.DataFrame, agent: str, size: int, network: str = "mlp") -> np.ndarray:
    return final(table, "episode_return", agent=agent, size=size, network=network)


def _cell(returns: np.ndarray) -> str:
    return f"{with_interval(returns)}, {(returns > SOLVED).sum()} of {len(returns)}" if len(returns) else with_interval(returns)


def tabulate_returns(table: pl.DataFrame) -> pl.DataFrame:
    """The return at the end and how many runs learned the way, by agent and size."""
    rows = [[agent, *(_cell(_returns(table, agent, size)) for size in SIZES)] for agent in SETTINGS]
    return pl.DataFrame(rows, schema=["agent", *map(str, SIZES)], orient="row")


def tabulate_linear(table: pl.DataFrame) -> pl.DataFrame:
    """The same at the smallest size with linear values."""
    rows = [[agent, _cell(_returns(table, agent, SIZES[0], "linear"))] for agent in LINEAR]
    return pl.DataFrame(rows, schema=["agent", str(SIZES[0])], orient="row")


def tabulate_differences(table: pl.DataFrame) -> pl.DataFrame:
    """VBE against epsilon-greedy, at each size."""
    rows = []
    for size in SIZES:
        ours, theirs = (_returns(table, agent, size) for agent in ("vbe", "epsilon-greedy"))
        rows.append([str(size), with_interval(ours), with_interval(theirs), difference(ours, theirs), improvement(ours, theirs)])
    return pl.DataFrame(rows, schema=["size", "vbe", "epsilon-greedy", "difference", "probability of improvement"], orient="row")


def check_claims(table: pl.DataFrame) -> pl.DataFrame:
    claims = [_learns("VBE learns the way in every run, at every size", table, "vbe", at_least=1.0)]
    for agent in ("dqn-p", "acb", "rnd", "epsilon-greedy"):
        claims.append(_learns(f"{agent} fails in most runs, at every size", table, agent, at_most=0.5))
    for size in SIZES:
        averages = {agent: overall(table, "episode_return", agent=agent, size=size, network="mlp") for agent in SETTINGS}
        claims.append(is_best(f"VBE has the largest return on average over the run, at {size}", averages))
    return claims_table(claims)


def _learns(text: str, table: pl.DataFrame, agent: str, *, at_least: float = 0.0, at_most: float = 1.0) -> Claim:
    """Claims that the share of runs that learned the way lies within bounds, at every size."""
    returns = {size: _returns(table, agent, size) for size in SIZES}
    solved = {size: runs > SOLVED for size, runs in returns.items() if len(runs)}
    measured = ", ".join(f"{runs.sum()} of {len(runs)} at {size}" for size, runs in solved.items())
    holds = all(at_least <= runs.mean() <= at_most for runs in solved.values())
    return Claim(text, measured, verdict(holds if len(solved) == len(SIZES) else None))


EXPERIMENT = Experiment(
    "deep_sea",
    (*(_run(agent, size) for agent in SETTINGS for size in SIZES), *(_run(agent, SIZES[0], "linear") for agent in LINEAR)),
    figures={"deep_sea.png": partial(draw, agents=VALUE_BASED), "deep_sea-ppo.png": partial(draw, agents=AGAINST_PPO)},
    tables={
        "deep_sea-claims": check_claims,
        "deep_sea": tabulate_returns,
        "deep_sea-linear": tabulate_linear,
        "deep_sea-epsilon": tabulate_differences,
    },
)

if __name__ == "__main__":
    command_line(EXPERIMENT)
