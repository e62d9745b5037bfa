"""River Swim against a table of its chances and a plain statement of its rewards."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from scipy import stats

from vbe.environments import river_swim
from vbe.environments.river_swim import RiverSwimState, dynamics

# (bin, action) -> {displacement in the river: its probability}
CHANCES = {
    ("first", 0): {0.0: 1.0},
    ("middle", 0): {-0.1: 1.0},
    ("last", 0): {-0.1: 1.0},
    ("first", 1): {0.0: 0.7, 0.1: 0.3},
    ("middle", 1): {-0.1: 0.1, 0.0: 0.6, 0.1: 0.3},
    ("last", 1): {-0.1: 0.7, 0.0: 0.3},
}
DRAWS = 100_000

jitted_dynamics = jax.jit(dynamics)
environment = river_swim()


@jax.jit
def many_steps(position, action):
    keys = jax.random.split(jax.random.key(7), DRAWS)
    return jax.vmap(environment.step, (None, 0, None))(RiverSwimState(position), keys, action)


def bin_of(position):
    return "first" if position <= 0.1 else "last" if position > 0.9 else "middle"


def reference(position, action, current, jitter):
    # The lowest numbers swim up, the next ones stay, the highest drift down.
    displacements = sorted(CHANCES[bin_of(position), action].items(), reverse=True)
    below = np.cumsum([chance for _, chance in displacements])
    moved = position + displacements[np.sum(current >= below)][0] + (jitter if action == 1 else -jitter)
    moved = min(max(moved, 0.0), 1.0)
    return moved, 1.0 if moved > 0.9 else 0.005 if moved <= 0.1 else 0.0


def away_from(value, *borders):
    assume(all(abs(value - border) > 1e-5 for border in borders))


@given(
    st.floats(0, 1, width=32),
    st.integers(0, 1),
    st.floats(2.0**-25, 1, width=32, exclude_max=True),
    st.floats(-0.0625, 0.0625, width=32),
)
@example(0.0, 1, 0.25, 0.0)
@example(0.5, 0, 0.5, 0.0078125)
@example(0.5, 1, 0.95, 0.0078125)
@example(0.875, 1, 0.25, 0.0)
@example(1.0, 1, 0.5, 0.0)
@example(1.0, 1, 0.75, 0.03125)
def test_steps_follow_the_table(position, action, current, jitter):
    expected, reward = reference(position, action, current, jitter)
    away_from(position, 0.1, 0.9)
    away_from(expected, 0.1, 0.9)
    away_from(current, 0.1, 0.7, 0.3)
    ours = jitted_dynamics(jnp.float32(position), jnp.int32(action), jnp.float32(current), jnp.float32(jitter))
    np.testing.assert_allclose(ours, (expected, reward), atol=1e-6)


@pytest.mark.parametrize("current", [2.0**-25, 1.0])
def test_what_has_no_chance_never_happens_even_at_the_ends_of_the_unit_interval(current):
    for position in 0.05, 0.5, 0.95:
        for action in 0, 1:
            moved, _ = jitted_dynamics(jnp.float32(position), jnp.int32(action), jnp.float32(current), jnp.float32(0))
            moves = [position + displacement for displacement in CHANCES[bin_of(position), action]]
            assert min(abs(float(moved) - move) for move in moves) < 1e-6


@pytest.mark.parametrize("action", [0, 1])
@pytest.mark.parametrize("position", [0.0625, 0.5, 0.9375])
def test_noise_has_the_chances_and_the_spread_of_the_table(position, action):
    state, _ = many_steps(jnp.float32(position), jnp.int32(action))
    moved = np.asarray(state.position, np.float64) - position
    chances = CHANCES[bin_of(position), action]
    nearest = np.round(moved, 1) + 0.0
    seen = {move: float(np.mean(np.isclose(nearest, move))) for move in chances}
    assert sum(seen.values()) == pytest.approx(1, abs=1e-12)
    assert seen == pytest.approx(chances, abs=4 * 0.5 / DRAWS**0.5)
    jitter = moved - nearest
    assert abs(jitter.mean()) < 4 * 0.01 / DRAWS**0.5
    assert jitter.std() == pytest.approx(0.01, rel=0.01)
    # Where nothing is clipped, all of the distribution is compared.
    if nearest.max() + position < 0.95 and nearest.min() + position > 0.05:
        assert stats.kstest(jitter, "norm", (0, 0.01)).pvalue > 0.001
    # Which way the water takes the fish says nothing about how far.
    if len(chances) > 1:
        assert abs(np.corrcoef(nearest, jitter)[0, 1]) < 4 / DRAWS**0.5


def test_starts_are_uniform_downstream():
    state, observation = jax.jit(jax.vmap(environment.reset))(jax.random.split(jax.random.key(3), DRAWS))
    assert stats.kstest(np.asarray(state.position, np.float64), "uniform", (0, 0.1)).pvalue > 0.001
    np.testing.assert_array_equal(observation, 1 - np.asarray(state.position)[:, None])


def test_is_seen_upside_down_and_never_ends():
    state, step = many_steps(jnp.float32(0.5), jnp.int32(1))
    assert step.observation.shape == (DRAWS, 1)
    np.testing.assert_array_equal(step.observation[:, 0], 1 - np.asarray(state.position))
    np.testing.assert_array_equal(step.observation, step.final_observation)
    assert not step.terminated.any()
    assert not step.truncated.any()
