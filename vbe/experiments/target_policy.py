"""Why do ACB and RND solve Deepsea under an optimistic target policy, but not under a greedy one? (The paper's last appendix.)

It says: their intrinsic values are linear with a bias term, which all states share. With momentum and an optimistic target it keeps
rising, and lifts the values of what was never tried. So one thing at a time is left out, and the bias term is watched.
"""

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from vbe.analysis.claims import NOT_RUN, Claim, above, claims_table, difference, final, verdict, with_interval
from vbe.analysis.figures import Panel, Style, canvas, draw_panels
from vbe.experiments.experiment import Experiment, Run, command_line
from vbe.training.checkpoint import write_aside
from vbe.training.devices import devices
from vbe.training.lanes import gather
from vbe.training.loop import make_loop
from vbe.training.spec import Program, make_spec, programs

SIZES = (20, 30)
EPISODES = 10_000
SEEDS = 5
SOLVED = 0.9  # a run that has such a return, on average over its last tenth, has learned the way
AGENTS: dict[str, tuple[str, dict[str, int]]] = {
    "acb, k = 20": ("acb", {"ensemble_size": 20}),
    "rnd": ("rnd", {}),
    "vbe, k = 1": ("vbe", {"ensemble_size": 1}),
    "vbe, k = 20": ("vbe", {"ensemble_size": 20}),
}
TARGETS = ["greedy", "optimistic"]
MOMENTUM = 0.9  # Adam's first beta: how much of the past a step remembers
# What the intrinsic values are learned with: all of it, or one thing less.
INGREDIENTS: dict[str, dict[str, Any]] = {
    "": {"bias": True, "momentum": MOMENTUM},
    "no momentum": {"bias": True, "momentum": 0.0},
    "no bias term": {"bias": False, "momentum": MOMENTUM},
}
WATCHED_SIZE = 20
WATCHED_STEPS = 100_000
LOOK_EVERY = 1_000


def _run(name: str, label: str, size: int, options: dict[str, Any], columns: dict[str, Any]) -> Run:
    agent, fixed = AGENTS[label]
    return Run(
        name,
        {
            "environment": "DeepSea",
            "environment_options": {"size": size},
            "agent": agent,
            "agent_options": {**fixed, "target_policy": TARGETS, **options},
            "seeds": SEEDS,
            "steps": EPISODES * size,
        },
        {"size": size, "ensemble_size": fixed.get("ensemble_size"), **columns},
    )


def _compare(label: str, size: int) -> Run:
    """Both target policies, with everything."""
    return _run(f"{label.replace(', k = ', '-')}-{size}", label, size, {}, INGREDIENTS[""])


def _leave_out(label: str, size: int) -> list[Run]:
    """Both target policies, with everything and with one thing less."""
    name = f"{label.split(',')[0]}-{size}"
    return [
        _run(f"{name}-momentum", label, size, {"bias": True, "momentum": [MOMENTUM, 0.0]}, {"bias": True}),
        _run(f"{name}-no-bias", label, size, {"bias": False}, INGREDIENTS["no bias term"]),
    ]


def _watch(run: Run) -> Run:
    return Run(f"watch-{run.name}", {**run.arguments, "steps": WATCHED_STEPS}, run.columns, measure=watch_values)


def watch_values(arguments: Mapping[str, Any], folder: Path) -> pl.DataFrame:
    """Trains, and looks at the intrinsic values every now and then: a results table of metrics that `train` does not know."""
    finished = folder / "values.parquet"
    if not finished.exists():
        spec = make_spec(**arguments)
        folder.mkdir(parents=True, exist_ok=True)
        rows = [row for program in programs(spec) for row in _watch_program(program, spec.steps)]
        table = pl.DataFrame(rows).with_columns(agent=pl.lit(spec.agent), environment=pl.lit(spec.environment))
        buffer = io.BytesIO()
        table.write_parquet(buffer)
        write_aside(finished, buffer.getvalue())
    return pl.read_parquet(finished)


def _watch_program(program: Program, steps: int) -> list[dict[str, Any]]:
    loop = make_loop(program, LOOK_EVERY, devices())  # a loop for so few steps has chunks as short
    lanes, _ = loop.warm_up(loop.init())
    tried = np.zeros((len(program.lanes), program.environment.num_states, 2), bool)
    rows = []
    now = loop.warm_up_steps
    while now < steps:
        lanes, _ = loop.chunk(lanes, now)
        now += loop.chunk_steps
        (layer,), replay = gather(loop, tuple((group.agent.bonus.learned.values, group.replay.rows) for group in lanes))
        _mark_tried(tried, replay[:, : min(now, replay.shape[1])])
        for i, lane in enumerate(program.lanes):
            bias = np.zeros(2) if layer.bias is None else layer.bias[i]
            for metric, value in describe(layer.weights[i] + bias, bias, tried[i]).items():
                rows.append({"seed": lane.seed, "step": now, "metric": metric, "value": value, **lane.varied})
    return rows


def _mark_tried(tried: np.ndarray, replay: np.ndarray) -> None:
    """Marks the pairs of state and action, (lanes, states, actions), that are in the replays, (lanes, stored, columns)."""
    lane = np.broadcast_to(np.arange(len(replay))[:, None], replay.shape[:2])
    tried[lane, replay[..., 0].astype(int), replay[..., -3].astype(int)] = True


def describe(values: np.ndarray, bias: np.ndarray, tried: np.ndarray) -> dict[str, float]:
    """What the values (states, actions) say of pairs that were tried, and of those never tried as long as there are any.

    Example:
      >>> describe(np.array([[1.0, 2.0], [3.0, 5.0]]), np.ones(2), np.array([[True, True], [False, False]]))
      {'intrinsic_bias': 1.0, 'intrinsic_tried': 2.0, 'intrinsic_untried': 4.0}
    """
    numbers = {"intrinsic_bias": float(bias.mean()), "intrinsic_tried": float(values[tried].max())}
    return numbers if tried.all() else {**numbers, "intrinsic_untried": float(values[~tried].mean())}


def _where(label: str, target: str, ingredients: str, size: int) -> dict[str, Any]:
    """The columns that tell this setting's runs."""
    agent, fixed = AGENTS[label]
    return {
        "agent": agent,
        "ensemble_size": fixed.get("ensemble_size"),
        "target_policy": target,
        "size": size,
        **INGREDIENTS[ingredients],
    }


def _solved(table: pl.DataFrame, *setting: Any) -> np.ndarray:
    return final(table, "episode_return", **_where(*setting)) > SOLVED


def tabulate_solved(table: pl.DataFrame) -> pl.DataFrame:
    """How many runs solve it, and the states they see."""

    def cell(label: str, target: str, ingredients: str, size: int) -> str:
        solved = _solved(table, label, target, ingredients, size)
        states = final(table, "unique_states", **_where(label, target, ingredients, size))
        return f"{solved.sum()} of {len(solved)}; {with_interval(states)}" if len(solved) else ""

    rows = [
        [str(size), label, ingredients or "everything", *(cell(label, target, ingredients, size) for target in TARGETS)]
        for size in SIZES
        for label in AGENTS
        for ingredients in INGREDIENTS
    ]
    columns = ["size", "agent", "learns with", *(f"{target}: solved; states seen" for target in TARGETS)]
    return pl.DataFrame([row for row in rows if row[3] or row[4]], schema=columns, orient="row")


def check_claims(table: pl.DataFrame) -> pl.DataFrame:
    claims = []
    for label in ("acb, k = 20", "rnd"):
        for size in SIZES:
            claims.append(_mostly(f"{label} solves size {size} under the optimistic target", True, table, label, "optimistic", "", size))
            claims.append(_mostly(f"{label} fails at size {size} under the greedy target", False, table, label, "greedy", "", size))
        for less in ("no momentum", "no bias term"):
            text = f"{label} fails at size {WATCHED_SIZE} under the optimistic target with {less}"
            claims.append(_mostly(text, False, table, label, "optimistic", less, WATCHED_SIZE))
    for label in ("vbe, k = 1", "vbe, k = 20"):
        claims += [_prefers_greedy(table, label, size) for size in SIZES]
    return claims_table([*claims, *_check_bias(table)])


def _mostly(text: str, solves: bool, table: pl.DataFrame, *setting: Any) -> Claim:
    solved = _solved(table, *setting)
    measured = f"{solved.sum()} of {len(solved)} runs solve it" if len(solved) else ""
    return Claim(text, measured, verdict(bool((solved.mean() > 0.5) == solves)) if len(solved) else NOT_RUN)


def _prefers_greedy(table: pl.DataFrame, label: str, size: int) -> Claim:
    greedy, optimistic = (_solved(table, label, target, "", size) for target in TARGETS)
    text = f"{label} solves size {size} in more runs under the greedy target"
    if not (len(greedy) and len(optimistic)):
        return Claim(text, "", NOT_RUN)
    measured = f"{greedy.sum()} of {len(greedy)}, optimistic {optimistic.sum()} of {len(optimistic)}"
    return Claim(text, measured, above(greedy.astype(float), optimistic.astype(float)))


def _check_bias(table: pl.DataFrame) -> list[Claim]:
    ended = {target: final(table, "intrinsic_bias", **_where("acb, k = 20", target, "", WATCHED_SIZE)) for target in TARGETS}
    steady = {
        less: final(table, "intrinsic_bias", **_where("acb, k = 20", "optimistic", less, WATCHED_SIZE)) for less in ("", "no momentum")
    }
    return [
        Claim(
            "ACB's bias term ends higher under the optimistic target than under the greedy one",
            f"{with_interval(ended['optimistic'])}, greedy {with_interval(ended['greedy'])}, {_difference(ended)}",
            above(ended["optimistic"], ended["greedy"]),
        ),
        Claim(
            "Under the optimistic target, it ends higher with momentum than without",
            f"{with_interval(steady[''])}, without {with_interval(steady['no momentum'])}",
            above(steady[""], steady["no momentum"]),
        ),
    ]


def _difference(ended: dict[str, np.ndarray]) -> str:
    return f"difference {difference(ended['optimistic'], ended['greedy'])}"


def draw_solved(table: pl.DataFrame, path: Path) -> None:
    """A cell per agent and setting: its shade is the share of runs that solve Deepsea."""
    settings = [(target, less) for target in TARGETS for less in INGREDIENTS]
    places = [i + 0.2 * (i // len(INGREDIENTS)) for i in range(len(settings))]  # the two target policies stand apart
    sizes = [size for size in SIZES if size in table["size"]]
    with canvas(path, rows=len(sizes), width=8.6, height=2.9) as (figure, axes):
        for ax, size in zip(axes, sizes, strict=True):
            for y, label in enumerate(AGENTS):
                for x, setting in zip(places, settings, strict=True):
                    _draw_cell(ax, x, y, table, (label, *setting, size))
            ax.set(xlim=(-0.5, places[-1] + 0.5), ylim=(len(AGENTS) - 0.5, -0.5), title=f"Deepsea {size} x {size}")
            ax.set_xticks(places, [f"{target}\n{less}" for target, less in settings])
            ax.set_yticks(range(len(AGENTS)), list(AGENTS))
            ax.tick_params(length=0)
            ax.spines[:].set_visible(False)
        figure.supxlabel("target policy, and what is left out", fontsize=10)


def _draw_cell(ax: Any, x: float, y: int, table: pl.DataFrame, setting: tuple[str, str, str, int]) -> None:
    import matplotlib

    solved = _solved(table, *setting)
    share = solved.mean() if len(solved) else 0.0
    colour = matplotlib.colormaps["Blues"](0.08 + 0.8 * share) if len(solved) else "white"
    ax.add_patch(matplotlib.patches.Rectangle((x - 0.48, y - 0.46), 0.96, 0.92, color=colour, linewidth=0))
    states = final(table, "unique_states", **_where(*setting))
    text = f"{solved.sum()} of {len(solved)}\n{states.mean():.0f} states" if len(solved) else "-"
    ax.text(x, y, text, ha="center", va="center", fontsize=8.5, color="white" if share > 0.6 else "black" if len(solved) else "0.6")


STYLES = {
    ", ".join(filter(None, (target, less))): Style(colour, line)
    for target, colour in zip(TARGETS, ("#0072B2", "#D55E00"), strict=True)
    for less, line in zip(INGREDIENTS, ("-", "--", ":"), strict=True)
}


def draw_values(table: pl.DataFrame, path: Path) -> None:
    """ACB's intrinsic values as they are learned."""
    watched = table.filter(pl.col("metric").str.starts_with("intrinsic_"))
    less = pl.when(~pl.col("bias")).then(pl.lit(", no bias term")).when(pl.col("momentum") == 0).then(pl.lit(", no momentum"))
    named = watched.with_columns(agent=pl.col("target_policy") + less.otherwise(pl.lit("")))
    lines = named.select("agent", "environment", "seed", "step", "metric", "value")
    lines = pl.concat([lines.filter(pl.col("agent") == name) for name in STYLES])
    panels = [
        Panel("the bias term", lines.filter(~pl.col("agent").str.contains("no bias")), "intrinsic_bias"),
        Panel("never tried: mean", lines, "intrinsic_untried"),
        Panel("tried: largest", lines, "intrinsic_tried"),
    ]
    draw_panels(panels, path, styles=STYLES, title=f"Intrinsic values of ACB in Deepsea {WATCHED_SIZE} x {WATCHED_SIZE}")


_LEFT_OUT = [run for label in ("acb, k = 20", "rnd") for run in _leave_out(label, 20)]
EXPERIMENT = Experiment(
    "target_policy",
    (
        *_LEFT_OUT,
        *(_compare(label, 20) for label in ("vbe, k = 1", "vbe, k = 20")),
        *(_compare(label, 30) for label in AGENTS),
        *(_watch(run) for run in _leave_out("acb, k = 20", WATCHED_SIZE)),
    ),
    figures={"target_policy.png": draw_solved, "target_policy-values.png": draw_values},
    tables={"target_policy-claims": check_claims, "target_policy": tabulate_solved},
)

if __name__ == "__main__":
    command_line(EXPERIMENT)
