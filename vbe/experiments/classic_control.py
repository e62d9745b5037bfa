"""Who learns fastest where exploration matters? (The paper's figures of the classic environments, with its best settings.)

Its fourth environment, Deepsea, is an experiment of its own: `deep_sea`.
"""

from functools import partial
from pathlib import Path

import numpy as np
import polars as pl

from vbe.analysis.claims import (
    NOT_RUN,
    Claim,
    above,
    claims_table,
    difference,
    final,
    improvement,
    is_best,
    overall,
    verdict,
    with_interval,
)
from vbe.analysis.figures import Panel, draw_panels
from vbe.analysis.statistics import headlines
from vbe.experiments.experiment import Experiment, Run, command_line

STEPS = 50_000
SEEDS = 30
ENVIRONMENTS = {"RiverSwim": "River Swim", "PuddleWorld": "Puddle World", "SparseMountainCar": "Sparse Mountain Car"}
# Ensemble size k and scale c, as the paper's tables have them; None where a method has no such thing.
SETTINGS: dict[str, dict[str, tuple[int | None, float | None]]] = {
    "vbe": {"RiverSwim": (20, 1.0), "PuddleWorld": (1, 10.0), "SparseMountainCar": (2, 1.0)},
    "epsilon-greedy": {"RiverSwim": (None, None), "PuddleWorld": (None, None), "SparseMountainCar": (None, None)},
    "dqn-p": {"RiverSwim": (None, 10.0), "PuddleWorld": (None, 3.0), "SparseMountainCar": (None, 1.0)},
    "bdqn": {"RiverSwim": (8, 10.0), "PuddleWorld": (2, 1.0), "SparseMountainCar": (20, 1.0)},
    "acb": {"RiverSwim": (20, 10.0), "PuddleWorld": (1, 1.0), "SparseMountainCar": (8, 1.0)},
    "rnd": {"RiverSwim": (None, 10.0), "PuddleWorld": (None, 1.0), "SparseMountainCar": (None, 1.0)},
    "rnd-ppo": {"RiverSwim": (None, 1.0), "PuddleWorld": (None, 10.0), "SparseMountainCar": (None, 10.0)},
    "acb-ppo": {"RiverSwim": (None, 1.0), "PuddleWorld": (None, 3.0), "SparseMountainCar": (None, 1.0)},
}
ON_POLICY = ("rnd-ppo", "acb-ppo")
# The paper's main figure, and its appendix's.
VALUE_BASED = tuple(agent for agent in SETTINGS if agent not in ON_POLICY)
AGAINST_PPO = ("vbe", "epsilon-greedy", *ON_POLICY)


def agent_options(agent: str, size: int | None, scale: float | None) -> dict[str, float]:
    """An ensemble's size and a scale, by the names that the agent's options have."""
    options: dict[str, float] = {}
    if size is not None:
        options["ensemble_size"] = size
    if scale is not None:
        options["prior_scale" if agent in ("bdqn", "dqn-p") else "bonus_scale"] = scale
    return options


def _run(agent: str, environment: str) -> Run:
    return Run(
        f"{agent}-{environment}",
        {
            "environment": environment,
            "agent": agent,
            "agent_options": agent_options(agent, *SETTINGS[agent][environment]),
            "seeds": SEEDS,
            "steps": STEPS,
        },
    )


def draw(table: pl.DataFrame, path: Path, agents: tuple[str, ...]) -> None:
    here = table.filter(pl.col("agent").is_in(agents))
    panels = [
        Panel(title, here.filter(pl.col("environment") == environment), headlines(environment)[0])
        for environment, title in ENVIRONMENTS.items()
    ]
    draw_panels([panel for panel in panels if not panel.table.is_empty()], path)


def _outcomes(table: pl.DataFrame, agent: str, environment: str) -> np.ndarray:
    return final(table, headlines(environment)[0], agent=agent, environment=environment)


def _averages(table: pl.DataFrame, agent: str, environment: str) -> np.ndarray:
    return overall(table, headlines(environment)[0], agent=agent, environment=environment)


def tabulate_outcomes(table: pl.DataFrame) -> pl.DataFrame:
    """Final performance, by agent and environment."""
    rows = [[agent, *(with_interval(_outcomes(table, agent, environment)) for environment in ENVIRONMENTS)] for agent in SETTINGS]
    return pl.DataFrame(rows, schema=["agent", *ENVIRONMENTS.values()], orient="row")


def tabulate_differences(table: pl.DataFrame) -> pl.DataFrame:
    """VBE against epsilon-greedy, in each environment."""
    rows = []
    for environment, title in ENVIRONMENTS.items():
        ours, theirs = (_outcomes(table, agent, environment) for agent in ("vbe", "epsilon-greedy"))
        rows.append([title, with_interval(ours), with_interval(theirs), difference(ours, theirs), improvement(ours, theirs)])
    return pl.DataFrame(rows, schema=["environment", "vbe", "epsilon-greedy", "difference", "probability of improvement"], orient="row")


def tabulate_improvements(table: pl.DataFrame) -> pl.DataFrame:
    """How probable it is that a run of VBE ends better than one of another agent."""
    rows = []
    for agent in SETTINGS:
        if agent != "vbe":
            pairs = ((_outcomes(table, "vbe", environment), _outcomes(table, agent, environment)) for environment in ENVIRONMENTS)
            rows.append([agent, *(improvement(ours, theirs) for ours, theirs in pairs)])
    return pl.DataFrame(rows, schema=["vbe against", *ENVIRONMENTS.values()], orient="row")


def check_claims(table: pl.DataFrame) -> pl.DataFrame:
    claims = []
    for environment, title in ENVIRONMENTS.items():
        ended = {agent: _outcomes(table, agent, environment) for agent in SETTINGS}
        claims.append(is_best(f"{title}: VBE ends best", ended))
        if environment != "RiverSwim":  # there, what is accumulated in the end tells already who learned sooner
            averages = {agent: _averages(table, agent, environment) for agent in SETTINGS}
            claims.append(is_best(f"{title}: VBE is best on average over the run", averages))
        claims.append(_is_above(f"{title}: VBE ends better than epsilon-greedy", ended["vbe"], ended["epsilon-greedy"]))
    for agent in ("acb", "rnd"):
        learned = {name: _outcomes(table, name, "SparseMountainCar") for name in ("vbe", agent)}
        claims.append(_fails(f"Sparse Mountain Car: {agent} fails to learn (a tenth of VBE's return at most)", agent, learned))
    return claims_table(claims)


def _is_above(text: str, ours: np.ndarray, theirs: np.ndarray) -> Claim:
    return Claim(text, difference(ours, theirs), above(ours, theirs))


def _fails(text: str, agent: str, learned: dict[str, np.ndarray]) -> Claim:
    if not all(len(values) for values in learned.values()):
        return Claim(text, "", NOT_RUN)
    measured = f"{with_interval(learned[agent])}, VBE {with_interval(learned['vbe'])}"
    return Claim(text, measured, verdict(bool(learned[agent].mean() <= 0.1 * learned["vbe"].mean())))


EXPERIMENT = Experiment(
    "classic_control",
    tuple(_run(agent, environment) for agent in SETTINGS for environment in ENVIRONMENTS),
    figures={
        "classic_control.png": partial(draw, agents=VALUE_BASED),
        "classic_control-ppo.png": partial(draw, agents=AGAINST_PPO),
    },
    tables={
        "classic_control-claims": check_claims,
        "classic_control": tabulate_outcomes,
        "classic_control-epsilon": tabulate_differences,
        "classic_control-improvement": tabulate_improvements,
    },
)

if __name__ == "__main__":
    command_line(EXPERIMENT)
