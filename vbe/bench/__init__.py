"""`vbe bench`: how fast this is, as ratios to what else a user would pick, measured in one run on one machine.

Contenders take turns, each in a process of its own, for several rounds: what slows the machine down for a while slows all of them.
A ratio is that of two medians over rounds; beside it stands the range of the ratios within each round.
"""

import dataclasses
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl
from rich.console import Console
from rich.table import Table

from vbe.analysis.report import markdown_table, refresh
from vbe.bench.own import needed_operations
from vbe.training.progress import duration
from vbe.types import UsageError

FOLDER = Path(__file__).parent
PEER_NAMES = {
    "torch-vbe": "VBE k = 20, a straightforward PyTorch loop",
    "sb3-dqn": "Stable-Baselines3 DQN",
    "sbx-dqn": "sbx DQN",
    "rejax-dqn": "rejax DQN, one seed",
    "rejax-dqn-32": "rejax DQN, 32 seeds vmapped",
    "bsuite-boot-dqn": "bsuite's BDQN in JAX, Deepsea 10",
    "torch-rnd-ppo": "RND-PPO, a straightforward PyTorch loop",
}
ALL_LANES = 32
BDQN, RND_PPO = f"BDQN k = 20, Deepsea 10, {ALL_LANES} lanes", f"RND-PPO, {ALL_LANES} lanes"


@dataclasses.dataclass(frozen=True)
class Contender:
    """What is measured: a command line of `vbe.bench.own`, or a peer."""

    name: str
    arguments: tuple[str, ...]
    peer: bool = False


def _training(
    name: str, agent: str, lanes: int, devices: int | None = None, environment: str = "SparseMountainCar", **options: Any
) -> Contender:
    arguments = ["training", "--environment", environment, "--agent", agent, "--options", json.dumps(options), "--lanes", str(lanes)]
    return Contender(name, (*arguments, *(["--devices", str(devices)] if devices else [])))


# Forward passes of a batch through a network that a step takes; a backward pass counts twice.
PASSES = {
    "Double DQN": 5,  # q at s, forwards and backwards, and at s'; its target at s'
    "VBE k = 20": 11,  # and f at s, forwards and backwards; f* at s and s', f's target at s'
    "VBE-SL k = 20": 9,  # and f at s, forwards and backwards; f* at s
    "RND": 15,  # and intrinsic values as q has, but for one at s'; the predictor at s, forwards and backwards, and s'; its target at both
    "ACB k = 20": 13,  # likewise; the fits at s, forwards and backwards, and at s'
    "DQN-P": 6,  # f at s, forwards and backwards; the prior at s and s'; the target at s'
    "BDQN k = 20": 120,  # twenty times as many
}


OWN = (
    Contender("matrix products", ("peak",)),
    _training("VBE k = 20, one lane", "vbe", 1, ensemble_size=20),
    _training(f"VBE k = 20, {ALL_LANES} lanes", "vbe", ALL_LANES, ensemble_size=20),
    _training(f"VBE k = 20, {ALL_LANES} lanes, one device", "vbe", ALL_LANES, 1, ensemble_size=20),
    _training(f"VBE k = 1, {ALL_LANES} lanes", "vbe", ALL_LANES, ensemble_size=1),
    _training("Double DQN, one lane", "epsilon-greedy", 1),
    _training(f"Double DQN, {ALL_LANES} lanes", "epsilon-greedy", ALL_LANES),
    _training("VBE k = 20, 8 lanes", "vbe", 8, ensemble_size=20),
    _training("VBE k = 20, 256 lanes", "vbe", 256, ensemble_size=20),
    _training(f"VBE-SL k = 20, {ALL_LANES} lanes", "vbe-sl", ALL_LANES, ensemble_size=20),
    _training(f"RND, {ALL_LANES} lanes", "rnd", ALL_LANES),
    _training(f"ACB k = 20, {ALL_LANES} lanes", "acb", ALL_LANES, ensemble_size=20),
    _training(f"DQN-P, {ALL_LANES} lanes", "dqn-p", ALL_LANES),
    _training(f"BDQN k = 20, {ALL_LANES} lanes", "bdqn", ALL_LANES, ensemble_size=20, buffer_size=10_000),
    _training(BDQN, "bdqn", ALL_LANES, environment="DeepSea", network="mlp", prior_scale=5, mask_probability=1, buffer_size=10_000),
    _training(RND_PPO, "rnd-ppo", ALL_LANES),
)
PEERS = tuple(Contender(text, (name,), peer=True) for name, text in PEER_NAMES.items())
COST_GOALS = {"seconds to the first chunk": 10, "peak memory": 1024}
ONE, ALL = "VBE k = 20, one lane", f"VBE k = 20, {ALL_LANES} lanes"

Speeds = Mapping[str, Sequence[float]]  # by contender: one per round


@dataclasses.dataclass(frozen=True)
class Comparison:
    """A ratio of two contenders' speeds, and what it is meant to be at least (or at most)."""

    text: str
    fast: str
    slow: str
    goal: float
    at_most: bool = False
    factor: float = 1.0


COMPARISONS = (
    Comparison("one lane of VBE to VBE in PyTorch", ONE, PEER_NAMES["torch-vbe"], 15),
    Comparison("32 lanes of VBE, in all, to VBE in PyTorch", ALL, PEER_NAMES["torch-vbe"], 35),
    Comparison("one lane of VBE to Stable-Baselines3's DQN", ONE, PEER_NAMES["sb3-dqn"], 6),
    Comparison("one lane of VBE to sbx's DQN", ONE, PEER_NAMES["sbx-dqn"], 6),
    Comparison("one lane of VBE to rejax's DQN", ONE, PEER_NAMES["rejax-dqn"], 2),
    Comparison("32 lanes of VBE, in all, to rejax's DQN vmapped over 32 seeds", ALL, PEER_NAMES["rejax-dqn-32"], 4),
    Comparison("32 lanes of BDQN, in all, to bsuite's, 20 members both", BDQN, PEER_NAMES["bsuite-boot-dqn"], 10),
    Comparison("32 lanes of RND-PPO, in all, to RND-PPO in PyTorch", RND_PPO, PEER_NAMES["torch-rnd-ppo"], 10),
    Comparison("cost of a VBE step to a Double DQN step, one lane", "Double DQN, one lane", ONE, 1.9, at_most=True),
    Comparison("cost of a VBE step to a Double DQN step, 32 lanes", f"Double DQN, {ALL_LANES} lanes", ALL, 1.9, at_most=True),
    Comparison("cost of k = 20 to k = 1, 32 lanes", f"VBE k = 1, {ALL_LANES} lanes", ALL, 1.2, at_most=True),
    Comparison("all devices to one, 32 lanes", ALL, f"VBE k = 20, {ALL_LANES} lanes, one device", 1.8),
    Comparison("cost of a lane's step at 256 lanes to 8 lanes", "VBE k = 20, 8 lanes", "VBE k = 20, 256 lanes", 1.0, at_most=True),
    Comparison(
        "floating-point operations that VBE needs, 32 lanes, to the machine's own matrix products",
        ALL,
        "matrix products",
        0.35,
        factor=needed_operations(observation=2, hidden=(50, 50), actions=3, batch=128, ensemble_size=20),
    ),
)


def main(*, quick: bool = False, json_file: str | None = None, markdown_file: str | None = None, peers_python: str | None = None) -> None:
    """Measures, prints tables, and writes them where asked to."""
    if peers_python is not None and not Path(peers_python).exists():
        raise UsageError(f"--peers-python {peers_python!r}: there is no such file; must be the path of a Python that has the peers")
    console = Console()
    rounds, seconds = (1, 3.0) if quick else (3, 4.0)
    for file in filter(None, (json_file, markdown_file)):
        Path(file).parent.mkdir(parents=True, exist_ok=True)
    measurements: dict[str, Any] = {}
    for measurements in measure(rounds=rounds, seconds=seconds, peers_python=peers_python or sys.executable, say=console.print):
        if json_file:
            Path(json_file).write_text(json.dumps(measurements, indent=1))
    tables = {"ratios": compare, "work": tabulate_work, "speeds": tabulate_speeds, "costs": tabulate_costs}
    made = {name: make(measurements) for name, make in tables.items()}
    for name, table in made.items():
        _print(console, name, table)
    if markdown_file:
        write_markdown(Path(markdown_file), made)


def measure(*, rounds: int, seconds: float, peers_python: str, say: Callable[[str], None]) -> Iterator[dict[str, Any]]:
    """Runs every contender once per round.

    Yields:
      After each measurement, plain data for JSON: `speeds`, a list per contender; `missing`, why peers are left out; what starting costs.
    """
    speeds: dict[str, list[float]] = {contender.name: [] for contender in (*OWN, *PEERS)}
    missing: dict[str, str] = {}
    costs: dict[str, float] = {}
    total, done, started = rounds * len(speeds), 0, time.monotonic()
    with tempfile.TemporaryDirectory() as cache:
        for number in range(rounds):
            for contender in (*OWN, *PEERS):
                done += 1
                if contender.name in missing:
                    continue
                measured = _run(contender, seconds, peers_python, cache)
                if isinstance(measured, str):
                    missing[contender.name] = measured
                    say(f"{contender.name}: left out ({measured})")
                    continue
                speeds[contender.name].append(measured["steps_per_second"])
                if contender.name == ALL:
                    start = measured["first_chunk_seconds"] - measured["chunk_seconds"]
                    costs["seconds to the first chunk, nothing cached" if number == 0 else "seconds to the first chunk, cached"] = start
                    costs["peak memory of the process, MiB"] = measured["peak_memory_bytes"] / 2**20
                    costs["lanes side by side"] = measured["group_size"]
                left = (time.monotonic() - started) / done * (total - done)
                speed = f"{measured['steps_per_second']:,.0f} per second"
                say(f"round {number + 1} of {rounds}: {contender.name}: {speed} ({duration(left)} left)")
            known = {name: values for name, values in speeds.items() if values}
            yield {"speeds": known, "missing": missing, "costs": costs, "rounds": number + 1}


def _run(contender: Contender, seconds: float, peers_python: str, cache: str) -> dict[str, float] | str:
    """One measurement; for a peer that cannot be measured, the line that says why."""
    command = [peers_python, str(FOLDER / "peers.py")] if contender.peer else [sys.executable, str(FOLDER / "own.py")]
    environment = {**os.environ, "JAX_COMPILATION_CACHE_DIR": cache, "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    command += [*contender.arguments, "--seconds", str(seconds)]
    finished = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if finished.returncode:
        last = finished.stderr.strip().splitlines()[-1:] or ["it said nothing"]
        if contender.peer:
            return last[0]
        raise UsageError(f"bench: {contender.name} failed: {last[0]}")
    return json.loads(finished.stdout.strip().splitlines()[-1])


def compare(measurements: Mapping[str, Any]) -> pl.DataFrame:
    """The ratios, as medians over rounds with the range within rounds, beside what they are meant to be."""
    speeds: Speeds = measurements["speeds"]
    rows = []
    for comparison in COMPARISONS:
        goal = f"{'at most' if comparison.at_most else 'at least'} {comparison.goal:g}"
        if comparison.fast not in speeds or comparison.slow not in speeds:
            rows.append([comparison.text, "not measured", "", goal, ""])
            continue
        fast, slow = speeds[comparison.fast], speeds[comparison.slow]
        ratio = comparison.factor * statistics.median(fast) / statistics.median(slow)
        each = [comparison.factor * a / b for a, b in zip(fast, slow, strict=False)]
        met = ratio <= comparison.goal if comparison.at_most else ratio >= comparison.goal
        rows.append([comparison.text, f"{ratio:.3g}", f"{min(each):.3g} to {max(each):.3g}", goal, "yes" if met else "no"])
    return pl.DataFrame(rows, schema=["ratio of", "median", "range", "goal", "met"], orient="row")


def tabulate_work(measurements: Mapping[str, Any]) -> pl.DataFrame:
    """What a step of each method costs beside the passes through networks that it takes, both in units of Double DQN's."""
    speeds: Speeds = measurements["speeds"]
    steps = {name: statistics.median(speeds[f"{name}, {ALL_LANES} lanes"]) for name in PASSES if f"{name}, {ALL_LANES} lanes" in speeds}
    rows = []
    for name, speed in steps.items():
        work, cost = PASSES[name] / PASSES["Double DQN"], steps["Double DQN"] / speed
        rows.append([name, str(PASSES[name]), f"{work:.2g}", f"{cost:.3g}", f"{cost / work:.2f}"])
    columns = ["method, 32 lanes", "passes", "work", "cost of a step", "cost / work"]
    return pl.DataFrame(rows, schema=columns, orient="row")


def tabulate_speeds(measurements: Mapping[str, Any]) -> pl.DataFrame:
    """What the ratios are made of."""
    rows = []
    for name, values in measurements["speeds"].items():
        unit, scale = ("GFLOP/s", 1e9) if name == "matrix products" else ("steps/s", 1.0)
        middle, low, high = (f"{x / scale:,.0f}" for x in (statistics.median(values), min(values), max(values)))
        rows.append([name, f"{middle} {unit}", f"{low} to {high}"])
    return pl.DataFrame(rows, schema=["contender", "median", "range"], orient="row")


def tabulate_costs(measurements: Mapping[str, Any]) -> pl.DataFrame:
    """What it costs to begin, for the lanes that are all compiled together."""
    rows = []
    for what, value in measurements["costs"].items():
        goal = next((most for start, most in COST_GOALS.items() if what.startswith(start)), None)
        met = "" if goal is None else "yes" if value < goal else "no"
        rows.append([f"{ALL}: {what}", f"{value:,.1f}", "" if goal is None else f"below {goal:,}", met])
    return pl.DataFrame(rows, schema=["what", "measured", "goal", "met"], orient="row")


def write_markdown(path: Path, tables: Mapping[str, pl.DataFrame]) -> None:
    """Refreshes a document's tables between their markers; a file that is not there yet gets the tables alone."""
    places = [f"<!-- results:bench-{name} -->\n<!-- end -->" for name in tables]
    text = path.read_text() if path.exists() else "\n\n".join(places) + "\n"
    for name, table in tables.items():
        text = refresh(text, f"bench-{name}", markdown_table(table))
    path.write_text(text)


def _print(console: Console, title: str, frame: pl.DataFrame) -> None:
    table = Table(*frame.columns, title=title, title_justify="left")
    for row in frame.iter_rows():
        table.add_row(*row)
    console.print(table)
