"""Puddle World against a plain statement of its geometry."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from scipy import stats

from vbe.environments import puddle_world
from vbe.environments.puddle_world import PuddleWorldState, dynamics

DRAWS = 100_000
SEGMENTS = [((0.1, 0.75), (0.45, 0.75)), ((0.45, 0.4), (0.45, 0.8))]

jitted_dynamics = jax.jit(dynamics)


@jax.jit
def many_steps(position, action):
    keys = jax.random.split(jax.random.key(11), DRAWS)
    return jax.vmap(puddle_world().step, (None, 0, None))(PuddleWorldState(position, jnp.int32(0)), keys, action)


def distance_to_segment(point, start, end):
    point, start, end = (np.array(corner, np.float64) for corner in (point, start, end))
    along = np.dot(point - start, end - start) / np.dot(end - start, end - start)
    return np.linalg.norm(point - start - np.clip(along, 0, 1) * (end - start))


def reference(x, y, action, distance):
    if action == 0:
        y += distance
    elif action == 1:
        y -= distance
    elif action == 2:
        x += distance
    else:
        x -= distance
    x, y = min(max(x, 0.0), 1.0), min(max(y, 0.0), 1.0)
    reward = -1.0
    for segment in SEGMENTS:
        reward -= 400 * max(0.0, 0.1 - distance_to_segment((x, y), *segment))
    return (x, y), reward / 81, x > 0.95 and y > 0.95


coordinates = st.floats(0, 1, width=32)


@given(coordinates, coordinates, st.integers(0, 3), st.floats(-0.5, 0.5, width=32))
@example(0.25, 0.5, 0, 0.25)
@example(0.45, 0.25, 0, 0.25)
@example(0.5, 0.5, 3, 0.0625)
@example(0.975, 0.9375, 0, 0.03125)
@example(1.0, 0.875, 0, 0.5)
@example(0.0, 0.0, 1, 0.25)
def test_steps_follow_the_geometry(x, y, action, distance):
    position, reward, terminated = reference(x, y, action, distance)
    assume(all(abs(coordinate - 0.95) > 1e-5 for coordinate in position))
    ours = jitted_dynamics(jnp.array([x, y], jnp.float32), jnp.int32(action), jnp.float32(distance))
    np.testing.assert_allclose(ours[0], position, atol=1e-6)
    np.testing.assert_allclose(ours[1], reward, atol=1e-5)
    assert bool(ours[2]) == terminated


@pytest.mark.parametrize(("action", "axis", "sign"), [(0, 1, 1), (1, 1, -1), (2, 0, 1), (3, 0, -1)])
def test_steps_are_normally_distributed_along_the_action(action, axis, sign):
    _, step = many_steps(jnp.array([0.5, 0.5]), jnp.int32(action))
    moved = np.asarray(step.final_observation, np.float64) - 0.5
    assert not moved[:, 1 - axis].any()
    assert stats.kstest(sign * moved[:, axis], "norm", (0.05, 0.1)).pvalue > 0.001


def test_step_size_is_an_option():
    keys = jax.random.split(jax.random.key(0), DRAWS)
    state = PuddleWorldState(jnp.array([0.5, 0.5]), jnp.int32(0))
    _, step = jax.jit(jax.vmap(puddle_world(step_size=0.005).step, (None, 0, None)))(state, keys, jnp.int32(2))
    moved = np.asarray(step.final_observation, np.float64)[:, 0] - 0.5
    assert moved.mean() == pytest.approx(0.005, abs=4 * 0.1 / DRAWS**0.5)


def assert_starts(positions):
    for axis, low in enumerate((0.1, 0.45)):
        assert stats.kstest(positions[:, axis], "uniform", (low, 0.2)).pvalue > 0.001
    assert abs(np.corrcoef(positions.T)[0, 1]) < 4 / len(positions) ** 0.5


def test_starts_are_uniform_in_their_rectangle():
    state, observation = jax.jit(jax.vmap(puddle_world().reset))(jax.random.split(jax.random.key(5), DRAWS))
    assert_starts(np.asarray(observation, np.float64))
    np.testing.assert_array_equal(state.position, observation)


def test_the_goal_leads_to_a_new_start():
    state, step = many_steps(jnp.array([0.99, 0.99]), jnp.int32(0))
    ended = np.asarray(step.terminated)
    np.testing.assert_array_equal(ended, (np.asarray(step.final_observation) > 0.95).all(-1))
    assert 0.5 < ended.mean() < 1
    assert not step.truncated.any()
    np.testing.assert_allclose(step.reward[ended], -1 / 81, rtol=1e-6)
    assert_starts(np.asarray(step.observation, np.float64)[ended])
    np.testing.assert_array_equal(step.observation[~ended], step.final_observation[~ended])
    np.testing.assert_array_equal(state.position, step.observation)


def test_an_episode_that_reaches_its_time_limit_is_truncated_and_a_new_one_begins():
    environment = puddle_world(time_limit=3)
    state, _ = environment.reset(jax.random.key(0))
    for time in range(7):
        state, step = environment.step(state, jax.random.key(time), jnp.int32(3))
        assert not step.terminated
        assert bool(step.truncated) == (time % 3 == 2)
        assert np.array_equal(step.observation, step.final_observation) == (not step.truncated)
        assert int(state.time) == (time + 1) % 3
