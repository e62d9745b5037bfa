"""Sparse Mountain Car against a plain statement of its physics, and against Gymnasium's."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.envs.classic_control.mountain_car import MountainCarEnv
from hypothesis import assume, example, given
from hypothesis import strategies as st
from scipy import stats

from vbe.environments import sparse_mountain_car
from vbe.environments.mountain_car import MountainCarState, dynamics

DRAWS = 100_000

jitted_dynamics = jax.jit(dynamics)
step_to = {goal: jax.jit(sparse_mountain_car(goal=goal, time_limit=100).step) for goal in (0.5, 0.6)}


def reference(position, velocity, action):
    velocity += 0.001 * (action - 1) - 0.0025 * math.cos(3 * position)
    velocity = min(max(velocity, -0.07), 0.07)
    position += velocity
    return (-1.2, 0.0) if position < -1.2 else (position, velocity)


positions, velocities = st.floats(-1.2, 0.6), st.floats(-0.07, 0.07)


@given(positions, velocities, st.integers(0, 2))
@example(-1.2, -0.07, 0)
@example(-1.19, -0.05, 0)
@example(0.0, 0.07, 2)
def test_pushes_follow_the_physics(position, velocity, action):
    expected = reference(position, velocity, action)
    assume(abs(expected[0] + 1.2) > 1e-5 or expected[1] == 0)
    ours = jitted_dynamics(jnp.float32(position), jnp.float32(velocity), jnp.int32(action))
    np.testing.assert_allclose(ours, expected, atol=1e-6)


@given(positions, velocities, st.integers(0, 2))
def test_pushes_agree_with_gymnasium(position, velocity, action):
    theirs = MountainCarEnv()
    theirs.state = (position, velocity)
    theirs.step(action)
    # Gymnasium stops cars at 0.6.
    assume(theirs.state[0] < 0.6 and (theirs.state[0] + 1.2 > 1e-5 or theirs.state[1] == 0))
    ours = jitted_dynamics(jnp.float32(position), jnp.float32(velocity), jnp.int32(action))
    np.testing.assert_allclose(ours, np.asarray(theirs.state, np.float64), atol=1e-6)


@pytest.mark.parametrize("goal", [0.5, 0.6])
@given(position=st.floats(0.4, 0.6), velocity=velocities, action=st.integers(0, 2), time=st.integers(0, 99))
@example(position=0.59, velocity=0.07, action=2, time=0)
@example(position=0.59, velocity=0.07, action=2, time=99)
@example(position=0.4, velocity=0.0, action=2, time=99)
def test_ends_and_rewards(goal, position, velocity, action, time):
    expected = reference(position, velocity, action)
    assume(abs(expected[0] - goal) > 1e-5)
    state = MountainCarState(jnp.float32(position), jnp.float32(velocity), jnp.int32(time))
    state, step = step_to[goal](state, jax.random.key(time), jnp.int32(action))
    arrived = expected[0] > goal
    late = time == 99 and not arrived
    assert (bool(step.terminated), bool(step.truncated), float(step.reward)) == (arrived, late, float(arrived))
    final = np.clip([(expected[0] + 1.2) / 1.8, (expected[1] + 0.07) / 0.14], 0, 1)
    np.testing.assert_allclose(step.final_observation, final, atol=1e-5)
    if arrived or late:
        assert -0.6 <= state.position <= -0.4
        assert state.velocity == 0
        assert state.time == 0
        np.testing.assert_allclose(step.observation, [(state.position + 1.2) / 1.8, 0.5], atol=1e-6)
    else:
        assert state.time == time + 1
        np.testing.assert_allclose(state[:2], expected, atol=1e-6)
        np.testing.assert_array_equal(step.observation, step.final_observation)


def test_starts_are_uniform_in_the_valley_at_rest():
    keys = jax.random.split(jax.random.key(2), DRAWS)
    late = MountainCarState(jnp.float32(0), jnp.float32(0), jnp.int32(99))
    first, _ = jax.jit(jax.vmap(sparse_mountain_car().reset))(keys)
    second, step = jax.jit(jax.vmap(step_to[0.6], (None, 0, None)))(late, keys, jnp.int32(0))
    assert step.truncated.all()
    for state in first, second:
        assert stats.kstest(np.asarray(state.position, np.float64), "uniform", (-0.6, 0.2)).pvalue > 0.001
        assert not state.velocity.any()
        assert not state.time.any()


def test_a_truncation_is_no_termination():
    environment = sparse_mountain_car(time_limit=7)
    state, _ = environment.reset(jax.random.key(0))
    keys = jax.random.split(jax.random.key(1), 21)
    _, steps = jax.lax.scan(lambda state, key: environment.step(state, key, jnp.int32(1)), state, keys)
    np.testing.assert_array_equal(np.flatnonzero(steps.truncated), [6, 13, 20])
    assert not steps.terminated.any()
    assert not steps.reward.any()


def test_the_default_limit_is_ten_thousand_steps():
    state = MountainCarState(jnp.float32(-0.5), jnp.float32(0), jnp.int32(9_998))
    step = jax.jit(sparse_mountain_car().step)
    state, first = step(state, jax.random.key(0), jnp.int32(1))
    state, second = step(state, jax.random.key(0), jnp.int32(1))
    assert (bool(first.truncated), bool(second.truncated)) == (False, True)
