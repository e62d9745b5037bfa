"""Deepsea against a plain statement of its rules, and action by action against bsuite's."""

import importlib
import importlib.util
import sys
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vbe.environments import deep_sea
from vbe.environments.deep_sea import dynamics

EPISODES = 40
jitted_dynamics = jax.jit(dynamics, static_argnums=3)


@pytest.fixture(scope="module", params=[2, 10])
def dives(request):
    """Random dives: (size, meaning of action 1 per cell (size, size), cells, visits, actions, steps)."""
    size = request.param
    environment = deep_sea(size=size)
    count = environment.visit
    assert count is not None

    def body(carry, key):
        state, observation = carry
        action = jax.random.randint(key, (), 0, 2)
        visit = count(state)
        state, step = environment.step(state, key, action)
        return (state, step.observation), (observation, visit, action, step)

    @jax.jit
    def run(key):
        first = environment.reset(key)
        last, records = jax.lax.scan(body, first, jax.random.split(key, EPISODES * size))
        return first[0].right, last[0].right, records

    right, still_right, (cells, visits, actions, steps) = run(jax.random.key(size))
    np.testing.assert_array_equal(right, still_right)
    meaning = np.zeros((size, size), int)
    meaning[np.tril_indices(size)] = right
    return size, meaning, np.asarray(cells), np.asarray(visits), np.asarray(actions), jax.tree.map(np.asarray, steps)


def number(row, column):
    """How many reachable cells come before this one, row by row."""
    return sum(range(1, row + 1)) + column


def test_dives_agree_with_bsuite(dives):
    found = importlib.util.find_spec("bsuite")
    if found is None or importlib.util.find_spec("dm_env") is None:
        pytest.skip("needs bsuite's DeepSea: pip install --no-deps bsuite dm_env")
    size, meaning, cells, _, actions, steps = dives
    with pytest.MonkeyPatch.context() as patch:
        # The package itself would import all of bsuite, which needs much more than this one file does.
        bsuite = types.ModuleType("bsuite")
        bsuite.__path__ = list(found.submodule_search_locations or [])
        patch.setitem(sys.modules, "bsuite", bsuite)
        theirs = importlib.import_module("bsuite.environments.deep_sea").DeepSea(size)
    theirs._action_mapping = meaning
    timestep = theirs.reset()
    for time, action in enumerate(actions):
        row, column = np.argwhere(timestep.observation)[0]
        assert cells[time] == [number(row, column)]
        timestep = theirs.step(int(action))
        assert steps.reward[time] == pytest.approx(timestep.reward, abs=1e-6)
        assert steps.terminated[time] == timestep.last()
        if timestep.last():
            timestep = theirs.reset()


def test_dives_follow_the_rules(dives):
    size, meaning, cells, visits, actions, steps = dives
    row = column = 0
    for time, action in enumerate(actions):
        assert cells[time] == [number(row, column)]
        assert visits[time] == number(row, column)
        reward = 0.0
        if action == meaning[row, column]:
            reward -= 0.01 / size
            if row == column == size - 1:
                reward += 1
            column = min(column + 1, size - 1)
        else:
            column = max(column - 1, 0)
        row += 1
        assert steps.reward[time] == pytest.approx(reward, abs=1e-6)
        assert steps.terminated[time] == (row == size)
        assert not steps.truncated[time]
        if row == size:
            assert number(size - 1, 0) <= steps.final_observation[time, 0] < number(size, 0)
            row = column = 0
        else:
            assert steps.final_observation[time] == [number(row, column)]
        assert steps.observation[time] == [number(row, column)]


@given(st.sampled_from([2, 3, 10, 50]), st.data())
def test_single_strokes(size, data):
    row = data.draw(st.integers(0, size - 1))
    column = data.draw(st.integers(0, row))
    right = data.draw(st.booleans())
    below, beside, reward = jitted_dynamics(jnp.int32(row), jnp.int32(column), jnp.bool_(right), size)
    assert (below, beside) == (row + 1, min(max(column + (1 if right else -1), 0), size - 1))
    assert float(reward) == pytest.approx((row == column == size - 1 and right) - 0.01 / size * right, abs=1e-6)


def test_always_right_is_the_best_and_pays_the_cost_at_each_step():
    environment = deep_sea(size=8)
    jitted_step = jax.jit(environment.step)
    state, _ = environment.reset(jax.random.key(0))
    rewards, ends = [], []
    for _ in range(8):
        action = state.right[number(state.row, state.column)].astype(jnp.int32)
        state, step = jitted_step(state, jax.random.key(0), action)
        rewards.append(float(step.reward))
        ends.append(bool(step.terminated))
    np.testing.assert_allclose(rewards, [-0.01 / 8] * 7 + [1 - 0.01 / 8], atol=1e-6)
    assert sum(rewards) == pytest.approx(0.99, abs=1e-6)
    assert ends == [False] * 7 + [True]


def test_meanings_of_actions_are_fair_coins_drawn_by_the_reset():
    state, _ = jax.jit(jax.vmap(deep_sea(size=10).reset))(jax.random.split(jax.random.key(0), 4000))
    right = np.asarray(state.right)
    assert right.mean() == pytest.approx(0.5, abs=4 * 0.5 / right.size**0.5)
    np.testing.assert_allclose(right.mean(0), 0.5, atol=5 * 0.5 / 4000**0.5)
    assert len(np.unique(right, axis=0)) == 4000


def test_every_cell_counts_when_it_is_acted_in(dives):
    size, _, _, visits, _, steps = dives
    environment = deep_sea(size=size)
    assert environment.num_states == size * (size + 1) // 2
    assert visits.min() == 0
    assert visits.max() < environment.num_states
    if size < 10:
        assert len(np.unique(visits)) == environment.num_states
    # An episode acts in one cell of each row: the last row takes at least `size` episodes.
    ends = np.flatnonzero(steps.terminated)
    np.testing.assert_array_equal(ends, np.arange(size - 1, EPISODES * size, size))
    assert (visits[ends] >= number(size - 1, 0)).all()
