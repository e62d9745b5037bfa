"""Environments of a user's own, good and bad, through `train`."""

import gymnasium
import jax.numpy as jnp
import numpy as np
import pytest

import vbe
from vbe.environments import ENVIRONMENTS


def walk(*, length: int = 3, reward: float = 1.0, continuous: bool = False) -> vbe.Environment:
    """A corridor with a reward at its end."""

    def observe(position):
        return jnp.asarray(position, jnp.float32)[None] / length

    def step(position, key, action):
        position = position + jnp.where(action == 1, 1, -1)
        arrived = position >= length
        position = jnp.clip(position, 0, length)
        after = jnp.where(arrived, 0, position)
        return after, vbe.Step(observe(after), jnp.where(arrived, reward, 0.0), arrived, jnp.zeros((), bool), observe(position))

    actions = gymnasium.spaces.Box(-1, 1, (1,)) if continuous else gymnasium.spaces.Discrete(2)
    start = jnp.zeros((), jnp.int32)
    return vbe.Environment(lambda key: (start, observe(start)), step, gymnasium.spaces.Box(0, 1, (1,), np.float32), actions)


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    monkeypatch.setitem(ENVIRONMENTS, "Walk", walk)


ARGUMENTS = {"environment": "Walk", "agent": "vbe", "agent_options": {"batch_size": 8, "ensemble_size": 2, "hidden": (8,)}, "steps": 300}


def test_learns_in_it():
    table = vbe.train(**ARGUMENTS, environment_options={"length": [2, 3]}, seeds=2).table
    assert sorted(table["length"].unique()) == [2, 3]
    assert "episode_return" in table["metric"].cast(str).to_list()


def test_continuous_actions_are_refused_in_one_line(tmp_path):
    with pytest.raises(vbe.UsageError, match=r"^environment: its action space is Box.*need a Discrete one$"):
        vbe.train(**ARGUMENTS, environment_options={"continuous": True}, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("reward", [float("nan"), float("inf")])
def test_rewards_that_are_no_numbers_are_refused_in_one_line(reward):
    with pytest.raises(vbe.UsageError, match=r"^environment='Walk': gave reward (nan|inf) at step \d+ \(seed 0\); rewards must be finite"):
        vbe.train(**ARGUMENTS, environment_options={"reward": reward})


def test_a_bonus_for_continuous_actions_is_refused_without_an_environment_too():
    from vbe.agents.recipes import AGENTS

    with pytest.raises(vbe.UsageError, match="need a Discrete one"):
        AGENTS["vbe"].build(AGENTS["vbe"].options(), walk(continuous=True))
