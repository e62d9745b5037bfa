"""The recorder against a slow statement of every metric, one step after another, however the steps are cut into chunks."""

import math
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vbe import environments
from vbe.training.records import METRICS, Record, Recorder
from vbe.training.spec import Lane, Program, Spec, make_spec, programs
from vbe.types import UsageError

DISCOUNTS = [0.5, 0.9, 1.0]
Rows = dict[tuple[int, int, str], float]  # (seed, step, metric) -> value


def make_program(lanes: int, *, counts_states: bool = True) -> Program:
    environment = environments.make("DeepSea", size=3) if counts_states else environments.make("RiverSwim")
    return Program(
        environment=environment,
        recipe="vbe",
        options=None,
        lanes=tuple(Lane(10 + i, {"discount": DISCOUNTS[i]}, {}) for i in range(lanes)),
        period=4,
    )


def make_test_spec(steps: int, log_every: int, lanes: int = 1) -> Spec:
    return Spec("DeepSea", "vbe", {}, {}, tuple(range(10, 10 + lanes)), steps, log_every)


def make_record(random: np.random.Generator, lanes: int, steps: int, warm_up: int, end: float) -> Record:
    """Rewards in quarters, so that sums are exact in any order; NaN where nothing was learned, as the loop leaves it."""
    shape = (lanes, steps)
    learning = np.arange(steps) >= warm_up
    ended = random.random(shape) < end
    terminated = ended & (random.random(shape) < 0.5)
    return Record(
        reward=(random.integers(-8, 8, shape) / 4).astype(np.float32),
        terminated=terminated,
        truncated=ended & ~terminated,
        bonus=np.where(learning, random.random(shape), np.nan).astype(np.float32),
        loss=np.where(learning, random.random(shape), np.nan).astype(np.float32),
        unique_states=np.cumsum(random.random(shape) < 0.3, axis=1),
    )


def plain_rows(spec: Spec, program: Program, record: Record, warm_up: int) -> Rows:
    rows: Rows = {}
    for lane, about in enumerate(program.lanes):
        accumulated = episode = discounted = 0.0
        length = 0
        bonuses: list[float] = []
        losses: list[float] = []
        for t in range(spec.steps):

            def write(metric: str, value: float, key: tuple[int, int] = (about.seed, t + 1)) -> None:
                assert (*key, metric) not in rows
                rows[(*key, metric)] = value

            reward, bonus, loss = (float(x[lane, t]) for x in (record.reward, record.bonus, record.loss))
            if t >= warm_up:
                if not (math.isfinite(bonus) and math.isfinite(loss)):
                    write("diverged", 1.0)
                    break
                bonuses.append(bonus)
                losses.append(loss)
            accumulated += reward
            episode += reward
            discounted += about.numbers["discount"] ** length * reward
            length += 1
            if record.terminated[lane, t] or record.truncated[lane, t]:
                write("episode_return", episode)
                write("episode_discounted_return", discounted)
                write("episode_length", length)
                episode = discounted = 0.0
                length = 0
            if (t + 1) % spec.log_every == 0 or t + 1 == spec.steps:
                write("accumulated_reward", accumulated)
                if program.environment.visit is not None:
                    write("unique_states", float(record.unique_states[lane, t]))
                if t >= warm_up:
                    write("bonus_mean", sum(bonuses) / len(bonuses))
                    write("loss", sum(losses) / len(losses))
                    bonuses, losses = [], []
    return rows


def recorded(spec: Spec, program: Program, record: Record, warm_up: int, cuts: list[int]) -> Rows:
    """What the recorder makes of chunks that end at `cuts`; each chunk is taken up by a recorder that knows only the arrays so far."""
    tables, arrays, start = [], None, 0
    for end in sorted({warm_up, *cuts, record.reward.shape[1]}):
        if start >= spec.steps or end == start:
            continue
        recorder = Recorder(spec, program)
        if arrays is not None:
            recorder.arrays = {name: x.copy() for name, x in arrays.items()}
        tables.append(recorder.add(start, Record(*(x[:, start:end] for x in record)), learning=start >= warm_up))
        arrays, start = recorder.arrays, end
    table = pl.concat(tables)
    assert table.columns == ["agent", "environment", "seed", "step", "metric", "value"]
    assert set(table["agent"]) <= {"vbe"} and set(table["environment"]) <= {"DeepSea"}
    rows = {(seed, step, metric): value for _, _, seed, step, metric, value in table.iter_rows()}
    assert len(rows) == len(table)
    return rows


def assert_same_rows(rows: Rows, expected: Rows) -> None:
    assert rows.keys() == expected.keys()
    for key, value in expected.items():
        assert rows[key] == pytest.approx(value, rel=1e-6, abs=1e-9), key


@settings(max_examples=150)
@given(
    seed=st.integers(0, 2**20),
    lanes=st.integers(1, 3),
    steps=st.integers(1, 40),
    overshoot=st.integers(0, 7),
    warm_up=st.integers(1, 12),
    log_every=st.integers(1, 15),
    end=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    cuts=st.lists(st.integers(1, 45), max_size=8),
    counts_states=st.booleans(),
    broken=st.one_of(st.none(), st.integers(0, 45)),
)
def test_chunks_make_the_rows_of_the_plain_statement(
    seed: int,
    lanes: int,
    steps: int,
    overshoot: int,
    warm_up: int,
    log_every: int,
    end: float,
    cuts: list[int],
    counts_states: bool,
    broken: int | None,
) -> None:
    warm_up = min(warm_up, steps)
    total = steps + overshoot if warm_up < steps else steps
    spec, program = make_test_spec(steps, log_every, lanes), make_program(lanes, counts_states=counts_states)
    record = make_record(np.random.default_rng(seed), lanes, total, warm_up, end)
    if broken is not None and warm_up <= broken < total:
        (record.loss if seed % 2 else record.bonus)[seed % lanes, broken:] = [np.nan, np.inf][seed % 3 == 0]
    expected = plain_rows(spec, program, record, warm_up)
    assert_same_rows(recorded(spec, program, record, warm_up, cuts), expected)
    assert_same_rows(recorded(spec, program, record, warm_up, []), expected)


def test_a_table_in_numbers() -> None:
    """One lane by hand: gamma 0.5, two episodes and a beginning, rows every 2 steps and at the end, learning from step 3 on."""
    spec, program = make_test_spec(5, 2), make_program(1)
    record = Record(
        reward=np.float32([[1, 2, 4, 8, 16]]),
        terminated=np.array([[False, True, False, False, False]]),
        truncated=np.array([[False, False, False, True, False]]),
        bonus=np.float32([[np.nan, np.nan, 1, 3, 5]]),
        loss=np.float32([[np.nan, np.nan, 10, 20, 70]]),
        unique_states=np.array([[1, 2, 2, 3, 3]]),
    )
    expected = {
        "episode_return": {2: 3, 4: 12},
        "episode_discounted_return": {2: 2, 4: 8},
        "episode_length": {2: 2, 4: 2},
        "accumulated_reward": {2: 3, 4: 15, 5: 31},
        "unique_states": {2: 2, 4: 3, 5: 3},
        "bonus_mean": {4: 2, 5: 5},
        "loss": {4: 15, 5: 70},
    }
    by_hand = {(10, step, metric): float(value) for metric, values in expected.items() for step, value in values.items()}
    assert_same_rows(plain_rows(spec, program, record, 2), by_hand)
    assert_same_rows(recorded(spec, program, record, 2, [3]), by_hand)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("learning", [False, True])
def test_rewards_that_are_no_numbers_stop_the_run_in_one_line(value: float, learning: bool) -> None:
    spec, program = make_test_spec(20, 5, 2), make_program(2)
    record = make_record(np.random.default_rng(0), 2, 8, 0, 0.1)
    record.reward[1, 3] = value
    with pytest.raises(UsageError) as error:
        Recorder(spec, program).add(10, record, learning=learning)
    line = str(error.value)
    assert f"reward {value}" in line and "step 14" in line and "seed 11" in line and "finite" in line and "\n" not in line


def test_a_diverged_lane_falls_silent_and_the_others_go_on() -> None:
    spec, program = make_test_spec(40, 5, 3), make_program(3)
    record = make_record(np.random.default_rng(0), 3, 40, 0, 0.2)
    whole = recorded(spec, program, record, 0, [])
    record.loss[1, 17:] = np.nan
    rows = recorded(spec, program, record, 0, [20, 30])
    assert rows[(11, 18, "diverged")] == 1.0
    assert max(step for seed, step, _ in rows if seed == 11) == 18
    others = {key: value for key, value in whole.items() if key[0] != 11}
    assert_same_rows({key: value for key, value in rows.items() if key[0] != 11}, others)


def swept_table(steps: int = 4, **asked: Any) -> pl.DataFrame:
    """What a run of a sweep puts together: the tables of its programs."""
    spec = make_spec(agent="vbe", seeds=2, steps=steps, **asked)
    tables = []
    for program in programs(spec):
        record = make_record(np.random.default_rng(0), len(program.lanes), steps, 0, 0.5)
        tables.append(Recorder(spec, program).add(0, record, learning=True))
    return pl.concat(tables)


def test_options_that_vary_become_columns() -> None:
    asked: dict[str, Any] = {"hidden": [(3,), (4, 4)], "bonus_scale": [1, 3], "update_all": [True, False], "ensemble_size": [1, 2]}
    table = swept_table(environment="DeepSea", environment_options={"size": [3]}, agent_options=asked)
    assert table.columns == ["agent", "environment", "seed", "step", "metric", "value", "size", *asked]
    assert set(table["hidden"]) == {"(3,)", "(4, 4)"} and set(table["bonus_scale"]) == {1.0, 3.0}
    types = {"size": pl.Int64, "bonus_scale": pl.Float64, "update_all": pl.Boolean, "ensemble_size": pl.Int64, "hidden": pl.String}
    types |= {"seed": pl.Int64, "step": pl.Int64, "value": pl.Float64, "metric": pl.Enum(METRICS)}
    assert {name: table[name].dtype for name in types} == types
    assert table.group_by("seed", "size", *asked).len().height == 2 * 2**4


@pytest.mark.parametrize(
    ("environment", "asked", "column", "values"),
    [
        ("DeepSea", {"agent_options": {"bias": [None, True]}}, "bias", {"None", "True"}),
        ("DeepSea", {"agent_options": {"network": [None, "mlp"]}}, "network", {"None", "mlp"}),
        ("DeepSea", {"agent_options": {"target_period": [None, 8]}}, "target_period", {"None", "8"}),
        ("DeepSea", {"agent_options": {"ensemble_size": [1, 2.0]}}, "ensemble_size", {1, 2}),
        ("PuddleWorld", {"environment_options": {"step_size": [0.05, 1]}}, "step_size", {0.05, 1}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_programs_of_a_mixed_sweep_fit_together(environment: str, asked: dict[str, Any], column: str, values: set[Any]) -> None:
    assert set(swept_table(environment=environment, **asked)[column]) == values
