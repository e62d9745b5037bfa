"""Which agents see all of a Deepsea that pays nothing? (The paper's figures of state coverage, and its table of best settings.)"""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from vbe.analysis.claims import NOT_RUN, Claim, above, claims_table, difference, final, verdict, with_interval
from vbe.analysis.figures import Panel, draw_bars, draw_panels
from vbe.experiments.experiment import Experiment, Run, command_line

SIZES = (30, 35, 40, 45, 50)
EPISODES = 10_000
SEEDS = 5
SETTINGS: dict[str, dict[str, Any]] = {
    "vbe": {"ensemble_size": 1},
    "vbe-sl": {"ensemble_size": 20},
    "bdqn": {"ensemble_size": 20},
    "rnd": {},
    "dqn-p": {},
    "acb": {"ensemble_size": 20},
    "rnd-ppo": {},
    "acb-ppo": {},
    "epsilon-greedy": {},
}
# States seen after 10,000 episodes, as the authors publish them, for the sizes above. VBE: all, 5 of 5 seeds.
PUBLISHED = {
    "vbe": (465, 630, 820, 1035, 1275),
    "vbe-sl": (386, 490, 615, 747, 884),
    "bdqn": (465, 630, 811, 930, 922),
    "rnd": (313, 360, 427, 494, 588),
    "dqn-p": (209, 228, 337, 368, 418),
    "acb": (161, 198, 242, 264, 313),
}
# Does the replay matter? These run again with another one: with room for all that happens, or without the newest in every batch.
USUAL, EVERYTHING, UNIFORM = "usual", "everything", "uniform"
OTHER_REPLAYS = (("rnd", 30, EVERYTHING), ("acb", 30, EVERYTHING), ("bdqn", 30, EVERYTHING), ("bdqn", 50, UNIFORM), ("dqn-p", 30, UNIFORM))


def num_states(size: int) -> int:
    return size * (size + 1) // 2


def _run(agent: str, size: int, replay: str = USUAL) -> Run:
    steps = EPISODES * size
    replays: dict[str, dict[str, Any]] = {USUAL: {}, EVERYTHING: {"buffer_size": steps}, UNIFORM: {"newest": False}}
    return Run(
        f"{agent}-{size}" if replay == USUAL else f"{agent}-{size}-{replay}",
        {
            "environment": "DeepSea",
            "environment_options": {"size": size},
            "agent": agent,
            "agent_options": {"pure_exploration": True, **SETTINGS[agent], **replays[replay]},
            "seeds": SEEDS,
            "steps": steps,
        },
        {"size": size, "replay": replay},
    )


def _main(table: pl.DataFrame) -> pl.DataFrame:
    return table.filter(pl.col("replay") == USUAL).drop("replay")


def _states(table: pl.DataFrame, agent: str, size: int) -> np.ndarray:
    return final(table, "unique_states", agent=agent, size=size, replay=USUAL)


def draw_coverage(table: pl.DataFrame, path: Path) -> None:
    draw_bars(
        _main(table),
        path,
        "unique_states",
        "size",
        title="States of Deepsea seen in 10,000 episodes without reward",
        most={size: num_states(size) for size in SIZES},
        published={(agent, size): seen for agent, row in PUBLISHED.items() for size, seen in zip(SIZES, row, strict=True)},
    )


def draw_progress(table: pl.DataFrame, path: Path, size: int = 50) -> None:
    here = _main(table).filter(pl.col("size") == size).drop("size")
    reference = (float(num_states(size)), f"all {num_states(size):,}")
    draw_panels([Panel(f"Deepsea {size} x {size}", here, "unique_states", reference)], path)


def tabulate_states(table: pl.DataFrame) -> pl.DataFrame:
    """States seen, by agent and size."""
    rows = [[agent, *(with_interval(_states(table, agent, size)) for size in SIZES)] for agent in SETTINGS]
    rows.append(["all there are", *(str(num_states(size)) for size in SIZES)])
    return pl.DataFrame(rows, schema=["agent", *map(str, SIZES)], orient="row")


def tabulate_distances(table: pl.DataFrame) -> pl.DataFrame:
    """How many more states were seen here than published."""
    rows = []
    for agent, published in PUBLISHED.items():
        cells = zip(SIZES, published, strict=True)
        rows.append([agent, *(f"{difference(_states(table, agent, size), np.array([seen]))}; {seen} published" for size, seen in cells)])
    return pl.DataFrame(rows, schema=["agent", *map(str, SIZES)], orient="row")


def tabulate_replays(table: pl.DataFrame) -> pl.DataFrame:
    """States seen with another replay."""
    texts = {EVERYTHING: "keeps everything", UNIFORM: "draws uniformly"}
    rows = []
    for agent, size, replay in OTHER_REPLAYS:
        other, usual = final(table, "unique_states", agent=agent, size=size, replay=replay), _states(table, agent, size)
        published = str(PUBLISHED[agent][SIZES.index(size)])
        rows.append([agent, str(size), texts[replay], with_interval(other), with_interval(usual), difference(other, usual), published])
    columns = ["agent", "size", "replay that", "sees", "the usual replay", "difference", "published"]
    return pl.DataFrame(rows, schema=columns, orient="row")


def check_claims(table: pl.DataFrame) -> pl.DataFrame:
    seen = {agent: {size: _states(table, agent, size) for size in SIZES} for agent in SETTINGS}
    claims = [_covers("vbe", "VBE with a single RQF sees every state, in every run", seen, SIZES)]
    claims.append(_covers("bdqn", "BDQN sees every state of the two smallest grids", seen, SIZES[:2]))
    claims.append(_falls_short("BDQN does not see all of the larger ones", ("bdqn",), seen, SIZES[2:]))
    claims.append(_falls_short("No other agent sees all of any grid", tuple(a for a in SETTINGS if a not in ("vbe", "bdqn")), seen, SIZES))
    for better, worse in (("vbe-sl", "acb"), ("vbe-sl", "rnd"), ("vbe-sl", "dqn-p"), ("vbe", "vbe-sl"), ("dqn-p", "acb")):
        claims.append(_sees_more(better, worse, seen))
    claims += [_sees_more("rnd-ppo", "rnd", seen), _sees_more("acb-ppo", "acb", seen)]
    return claims_table(claims)


Seen = dict[str, dict[int, np.ndarray]]  # by agent and size: (runs,)


def _covers(agent: str, text: str, seen: Seen, sizes: tuple[int, ...]) -> Claim:
    runs = [len(seen[agent][size]) for size in sizes]
    covered = [int((seen[agent][size] == num_states(size)).sum()) for size in sizes]
    measured = ", ".join(f"{n} of {of} at {size}" for n, of, size in zip(covered, runs, sizes, strict=True) if of)
    return Claim(text, measured, verdict(covered == runs if all(runs) else None))


def _falls_short(text: str, agents: tuple[str, ...], seen: Seen, sizes: tuple[int, ...]) -> Claim:
    shares = {(agent, size): seen[agent][size].mean() / num_states(size) for agent in agents for size in sizes if len(seen[agent][size])}
    if len(shares) < len(agents) * len(sizes):
        return Claim(text, "", NOT_RUN)
    agent, size = max(shares, key=lambda key: shares[key])
    return Claim(text, f"at most {shares[agent, size]:.1%} on average ({agent} at {size})", verdict(bool(shares[agent, size] < 1)))


def _sees_more(better: str, worse: str, seen: Seen) -> Claim:
    sizes: dict[str, list[str]] = {NOT_RUN: [], "no": [], "undecided": [], "yes": []}
    for size in SIZES:
        sizes[above(seen[better][size], seen[worse][size])].append(str(size))
    found = {answer: f"{answer} at {', '.join(at)}" for answer, at in sizes.items() if at}
    return Claim(f"{better} sees more than {worse}, at every size", "; ".join(found.values()), next(iter(found)))


EXPERIMENT = Experiment(
    "coverage",
    (
        *(_run(agent, size) for agent in SETTINGS for size in SIZES),
        *(_run(*other) for other in OTHER_REPLAYS),
    ),
    figures={"coverage.png": draw_coverage, "coverage-50.png": draw_progress},
    tables={
        "coverage-claims": check_claims,
        "coverage": tabulate_states,
        "coverage-published": tabulate_distances,
        "coverage-replays": tabulate_replays,
    },
)

if __name__ == "__main__":
    command_line(EXPERIMENT)
