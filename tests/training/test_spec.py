"""Specifications: what unrolls into which programs and lanes, and one line for everything that cannot be."""

import dataclasses
import json
import re
from typing import Any

import jax
import numpy as np
import pytest

from vbe.agents.recipes import AGENTS, Options
from vbe.options import option
from vbe.training.spec import Program, Spec, make_spec, programs
from vbe.types import UsageError


def spec(**changes: Any) -> Spec:
    return make_spec(**{"environment": "DeepSea", "agent": "vbe", **changes})


NAN = float("nan")
# What is asked for, the start of the line, and what it says besides.
BAD = [
    ({"environment": "Deepsea"}, "environment='Deepsea'", "did you mean 'DeepSea'?"),
    ({"environment": "MountainCar"}, "environment='MountainCar'", "did you mean 'SparseMountainCar'?"),
    ({"environment": 3}, "environment=3", "there is RiverSwim, PuddleWorld, SparseMountainCar, DeepSea"),
    ({"environment": None}, "environment=None", "no such environment"),
    ({"agent": "vb"}, "agent='vb'", "did you mean 'vbe'?"),
    ({"agent": "epsilon_greedy"}, "agent='epsilon_greedy'", "did you mean 'epsilon-greedy'?"),
    ({"agent_options": {"ensemblesize": 3}}, "ensemblesize=3", "did you mean 'ensemble_size'?"),
    ({"agent_options": {"epsilon": 0.1}}, "epsilon=0.1", "vbe has no such option"),
    ({"agent_options": {3: 0.1}}, "3=0.1", "vbe has no such option"),
    ({"agent_options": {"ensemble_size": 0}}, "ensemble_size=0", "at least 1"),
    ({"agent_options": {"ensemble_size": -1}}, "ensemble_size=-1", "at least 1"),
    ({"agent_options": {"ensemble_size": True}}, "ensemble_size=True", "int"),
    ({"agent_options": {"ensemble_size": [1, 0]}}, "ensemble_size=0", "at least 1"),
    ({"agent_options": {"bonus_scale": -1.0}}, "bonus_scale=-1.0", "at least 0"),
    ({"agent_options": {"bonus_scale": NAN}}, "bonus_scale=nan", "finite"),
    ({"agent_options": {"bonus_scale": [1.0, NAN]}}, "bonus_scale=nan", "finite"),
    ({"agent_options": {"bonus_scale": "large"}}, "bonus_scale='large'", "float"),
    ({"agent_options": {"bonus_scale": {"a": 1}}}, "agent_options: bonus_scale={'a': 1}", "a number"),
    ({"agent_options": {"bonus_scale": []}}, "bonus_scale=[]", "at least one"),
    ({"agent_options": {"bonus_scale": [1.0, 1.0]}}, "bonus_scale=[1.0, 1.0]", "each once"),
    ({"agent_options": {"bonus_scale": [1, 1.0]}}, "bonus_scale=[1, 1.0]", "each once"),
    ({"agent_options": {"bonus_scale": [[1.0]]}}, "bonus_scale=[1.0]", "float"),
    ({"agent_options": {"learning_rate": 0.0}}, "learning_rate=0.0", "above 0"),
    ({"agent_options": {"discount": 1.5}}, "discount=1.5", "at most 1"),
    ({"agent_options": {"hidden": (50, 0)}}, "hidden=(50, 0)", "at least 1"),
    ({"agent_options": {"hidden": (50, -3)}}, "hidden=(50, -3)", "at least 1"),
    ({"agent_options": {"hidden": [50, 50]}}, "hidden=[50, 50]", "must be a tuple such as (50, 50)"),
    ({"agent_options": {"hidden": [30, 20]}}, "hidden=[30, 20]", "must be a tuple such as (50, 50)"),
    ({"agent_options": {"hidden": np.array([30, 20])}}, "hidden=[30, 20]", "must be a tuple such as (50, 50)"),
    ({"agent_options": {"hidden": [(30,), 20]}}, "hidden=20", "must be a tuple such as (50, 50)"),
    ({"agent_options": {"hidden": []}}, "hidden=[]", "at least one"),
    ({"agent_options": {"hidden": 50}}, "hidden=50", "must be a tuple such as (50, 50)"),
    ({"agent_options": {"hidden": (50, 2**31)}}, "hidden=(50, 2147483648)", "below 2**31"),
    ({"agent_options": {"learning_rate": 10**400}}, "learning_rate=1000", "finite"),
    ({"agent_options": {"learning_rate": 1e39}}, "learning_rate=1e+39", "float32"),
    ({"agent_options": {"buffer_size": 2**31}}, "buffer_size=2147483648", "below 2**31"),
    ({"agent_options": {"target_period": 10**400}}, "target_period=1000", "below 2**31"),
    ({"agent_options": {"target_period": 1e20}}, "target_period=100000000000000000000", "below 2**31"),
    ({"agent_options": {"ensemble_size": -(10**400)}}, "ensemble_size=-1000", "at least 1"),
    ({"agent_options": {"batch_size": 0}}, "batch_size=0", "at least 1"),
    ({"agent_options": {"buffer_size": 0}}, "buffer_size=0", "at least 1"),
    ({"agent_options": {"target_period": 0}}, "target_period=0", "at least 1"),
    ({"agent_options": {"batch_size": 33, "buffer_size": 32}}, "batch_size=33", "at most buffer_size=32"),
    ({"agent_options": {"batch_size": [16, 33], "buffer_size": 32}}, "batch_size=33", "at most buffer_size=32"),
    ({"agent_options": {"target_policy": "random"}}, "target_policy='random'", "'greedy', 'optimistic'"),
    ({"agent_options": {"features": "pixels"}}, "features='pixels'", "'raw', 'one-hot', 'tiles'"),
    ({"agent_options": {"features": "tiles"}}, "features='tiles'", "one-hot"),
    ({"agent_options": {"network": "cnn"}}, "network='cnn'", "'mlp', 'linear'"),
    ({"agent_options": "ensemble_size=3"}, "agent_options='ensemble_size=3'", "mapping"),
    ({"environment_options": [3]}, "environment_options=[3]", "mapping"),
    ({"environment_options": {"size": 0}}, "size=0", "integer"),
    ({"environment_options": {"size": -5}}, "size=-5", "integer"),
    ({"environment_options": {"size": 2.5}}, "size=2.5", "integer"),
    ({"environment_options": {"size": NAN}}, "size=nan", "integer"),
    ({"environment_options": {"size": True}}, "size=True", "integer"),
    ({"environment_options": {"size": [5, 0]}}, "size=0", "integer"),
    ({"environment_options": {"size": []}}, "size=[]", "at least one"),
    ({"environment_options": {"size": 5793}}, "size=5793", "at most 5792"),
    ({"environment_options": {"size": 10**400}}, "size=1000", "at most 5792"),
    ({"environment_options": {"sise": 5}}, "sise=5", "did you mean 'size'?"),
    ({"environment": "RiverSwim", "environment_options": {"size": 5}}, "size=5", "RiverSwim has no such option"),
    ({"environment": "SparseMountainCar", "environment_options": {"time_limit": 0}}, "time_limit=0", "integer"),
    ({"environment": "SparseMountainCar", "environment_options": {"time_limit": 2**31}}, "time_limit=2147483648", "below 2**31"),
    ({"environment": "SparseMountainCar", "environment_options": {"time_limit": True}}, "time_limit=True", "integer"),
    ({"environment": "SparseMountainCar", "environment_options": {"goal": NAN}}, "goal=nan", "at most 0.6"),
    ({"environment": "PuddleWorld", "environment_options": {"step_size": -1.0}}, "step_size=-1.0", "above 0"),
    ({"environment": "PuddleWorld", "environment_options": {"step_size": True}}, "step_size=True", "number"),
    ({"seeds": 0}, "seeds=0", "at least 1"),
    ({"seeds": -2}, "seeds=-2", "at least 1"),
    ({"seeds": True}, "seeds=True", "count"),
    ({"seeds": 2.0}, "seeds=2.0", "count"),
    ({"seeds": "3"}, "seeds='3'", "count"),
    ({"seeds": None}, "seeds=None", "count"),
    ({"seeds": []}, "seeds=[]", "count"),
    ({"seeds": 10**12}, "seeds=1000000000000", "at most 1048576"),
    ({"seeds": np.arange(0)}, "seeds=[]", "count"),
    ({"seeds": np.array([0.0, 1.0])}, "seeds=[0.0, 1.0]", "integer"),
    ({"seeds": np.zeros((2, 2), int)}, "seeds=[[0, 0], [0, 0]]", "integer"),
    ({"seeds": np.bool_(True)}, "seeds=True", "count"),
    ({"seeds": range(0)}, "seeds=range(0, 0)", "count"),
    ({"seeds": [1, -1]}, "seeds=[1, -1]", "[0, 2**31)"),
    ({"seeds": [2**31]}, "seeds=[2147483648]", "[0, 2**31)"),
    ({"seeds": [1, 1.5]}, "seeds=[1, 1.5]", "integer"),
    ({"seeds": [True]}, "seeds=[True]", "integer"),
    ({"seeds": [3, 3]}, "seeds=[3, 3]", "once"),
    ({"steps": 0}, "steps=0", "at least 1"),
    ({"steps": -1}, "steps=-1", "at least 1"),
    ({"steps": 2**31}, "steps=2147483648", "below 2**31"),
    ({"steps": np.float64(10.0)}, "steps=10.0", "integer"),
    ({"steps": 10.5}, "steps=10.5", "integer"),
    ({"steps": NAN}, "steps=nan", "integer"),
    ({"steps": True}, "steps=True", "integer"),
    ({"steps": "many"}, "steps='many'", "integer"),
    ({"log_every": 0}, "log_every=0", "at least 1"),
    ({"log_every": 2**31}, "log_every=2147483648", "below 2**31"),
    ({"log_every": 2.0}, "log_every=2.0", "integer"),
]


@pytest.mark.parametrize(("asked", "start", "besides"), BAD, ids=[start + str(i) for i, (_, start, _) in enumerate(BAD)])
def test_what_cannot_be_is_said_in_one_line(asked: dict[str, Any], start: str, besides: str) -> None:
    with pytest.raises(UsageError) as error:
        spec(**asked)
    line = str(error.value)
    assert line.startswith(start) and besides in line and "\n" not in line
    assert len(line) > len(start) + 10  # something follows that would be right


def lanes(program: Program) -> list[tuple[int, dict[str, Any]]]:
    return [(lane.seed, lane.varied) for lane in program.lanes]


def test_a_spec_without_sweeps_is_one_program_with_a_lane_per_seed() -> None:
    (program,) = programs(spec(seeds=3, agent_options={"bonus_scale": 3, "ensemble_size": 2}, environment_options={"size": 6}))
    assert lanes(program) == [(0, {}), (1, {}), (2, {})]
    assert (program.recipe, program.options.ensemble_size, program.options.bonus_scale) == ("vbe", 2, 3.0)
    assert program.environment.num_states == 21
    assert all(lane.numbers == {"bonus_scale": 3.0, "discount": 0.99, "learning_rate": 0.001, "momentum": 0.9} for lane in program.lanes)
    assert [lane.seed for lane in programs(spec(seeds=[7, 2**31 - 1]))[0].lanes] == [7, 2**31 - 1]


def test_numbers_make_lanes_and_shapes_make_programs() -> None:
    swept = programs(
        spec(
            seeds=[4, 9],
            environment_options={"size": [3, 5]},
            agent_options={"bonus_scale": [1, 10.0], "ensemble_size": [1, 8], "learning_rate": [0.1, 0.2], "batch_size": 16},
        )
    )
    shapes = [(program.environment.num_states, program.options.ensemble_size) for program in swept]
    assert shapes == [(6, 1), (6, 8), (15, 1), (15, 8)]
    for program in swept:
        assert program.options.batch_size == 16
        numbers = [(lane.numbers["bonus_scale"], lane.numbers["learning_rate"], lane.seed) for lane in program.lanes]
        assert numbers == [(c, rate, seed) for c in (1.0, 10.0) for rate in (0.1, 0.2) for seed in (4, 9)]
        for lane in program.lanes:
            assert lane.numbers["discount"] == 0.99
            assert lane.varied == {
                "size": 3 if program.environment.num_states == 6 else 5,
                "bonus_scale": lane.numbers["bonus_scale"],
                "ensemble_size": program.options.ensemble_size,
                "learning_rate": lane.numbers["learning_rate"],
            }


def test_every_lane_of_a_sweep_is_there_once() -> None:
    swept = programs(spec(seeds=5, agent_options={"hidden": [(3,), (4, 4)], "discount": [0.5, 0.9, 1.0], "update_all": [True, False]}))
    everything = [(seed, *varied.values()) for program in swept for seed, varied in lanes(program)]
    assert len(swept) == 4 and len(set(everything)) == len(everything) == 5 * 2 * 3 * 2


def test_a_sweep_of_one_value_is_a_column_too() -> None:
    (program,) = programs(spec(agent_options={"bonus_scale": [2]}))
    assert lanes(program) == [(0, {"bonus_scale": 2.0})]


@pytest.mark.parametrize(
    ("environment", "agent", "options", "period"),
    [
        ("DeepSea", "vbe", {}, 64),
        ("DeepSea", "vbe-sl", {}, 64),
        ("DeepSea", "bdqn", {}, 4),
        ("DeepSea", "dqn-p", {}, 4),
        ("DeepSea", "rnd", {}, 64),
        ("DeepSea", "acb", {}, 64),
        ("RiverSwim", "vbe", {}, 4),
        ("RiverSwim", "vbe", {"target_period": 10}, 10),
        ("DeepSea", "vbe", {"target_period": 1}, 1),
    ],
)
def test_target_networks_are_copied_as_often_as_the_paper_says(environment: str, agent: str, options: dict[str, Any], period: int) -> None:
    (program,) = programs(spec(environment=environment, agent=agent, agent_options=options))
    assert program.period == period


def test_rewards_are_taken_away_for_pure_exploration() -> None:
    for pure, largest in (True, 0.0), (False, 0.01 / 3):
        (program,) = programs(spec(environment_options={"size": 3}, agent_options={"pure_exploration": pure}))
        environment = program.environment
        state, _ = environment.reset(jax.random.key(0))
        rewards = [abs(float(environment.step(state, jax.random.key(0), jax.numpy.int32(a))[1].reward)) for a in (0, 1)]
        assert max(rewards) == pytest.approx(largest)


def test_rows_are_a_hundredth_of_the_steps_apart_unless_asked_otherwise() -> None:
    assert [spec(steps=steps).log_every for steps in (1, 99, 1234)] == [1, 1, 12]
    assert spec(steps=1000, log_every=7).log_every == 7


def test_a_spec_can_be_saved_and_compared() -> None:
    asked = {"agent_options": {"bonus_scale": [1.0, 3.0], "hidden": (5,)}, "environment_options": {"size": 4}, "seeds": 2}
    saved = json.loads(json.dumps(spec(**asked).as_json()))
    assert saved["seeds"] == [0, 1] and saved["environment_options"] == {"size": 4}
    assert spec(**asked) == spec(**asked) != spec(**{**asked, "seeds": 3})
    with pytest.raises(dataclasses.FrozenInstanceError):
        spec(**asked).steps = 3  # type: ignore[misc]


def test_what_was_asked_for_is_not_changed() -> None:
    options = {"bonus_scale": [1, 3], "ensemble_size": 2.0}
    spec(agent_options=options)
    assert options == {"bonus_scale": [1, 3], "ensemble_size": 2.0}
    assert re.fullmatch(r"\[1, 3\]", repr(options["bonus_scale"]))


@pytest.mark.parametrize("seeds", [np.array([3, 5], np.uint8), [np.int64(3), 5], (3, np.int32(5)), range(3, 7, 2)])
def test_seeds_may_be_any_sequence_of_integers(seeds: Any) -> None:
    assert spec(seeds=seeds).seeds == (3, 5)
    json.dumps(spec(seeds=seeds).as_json())


def test_numpys_numbers_become_pythons() -> None:
    asked = spec(
        seeds=np.int64(2),
        steps=np.uint16(300),
        log_every=np.int8(7),
        environment_options={"size": [np.int64(4), 5]},
        agent_options={"bonus_scale": np.linspace(1, 3, 3), "hidden": (np.int64(5), 6), "update_all": np.bool_(True)},
    )
    plain = spec(
        seeds=2,
        steps=300,
        log_every=7,
        environment_options={"size": [4, 5]},
        agent_options={"bonus_scale": [1.0, 2.0, 3.0], "hidden": (5, 6), "update_all": True},
    )
    assert asked == plain and json.dumps(asked.as_json()) == json.dumps(plain.as_json())


@dataclasses.dataclass(frozen=True, kw_only=True)
class OwnOptions(Options):
    """All that the loop asks for, with nothing to check."""

    batch_size: int = option(8, "transitions in a batch", at_least=1)
    buffer_size: int = option(100, "transitions kept for replay", at_least=1)
    newest: bool = option(True, "every batch holds the newest transition")
    target_period: int = option(4, "steps between target copies", at_least=1)


def test_options_of_ones_own_need_no_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(AGENTS, "own", AGENTS["epsilon-greedy"]._replace(options=OwnOptions))
    (program,) = programs(spec(agent="own", agent_options={"batch_size": 16}))
    assert program.options == OwnOptions(batch_size=16)
