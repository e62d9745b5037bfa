"""The equations that methods share."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from vbe.equations import greedy, squared_error, take


@given(st.integers(1, 6), st.integers(1, 5), st.integers(0, 99))
def test_take_is_indexing(batch: int, num_actions: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    values = random.normal(size=(batch, num_actions)).astype(np.float32)
    action = random.integers(num_actions, size=batch).astype(np.int32)
    np.testing.assert_array_equal(take(jnp.array(values), jnp.array(action)), values[np.arange(batch), action])


def test_take_passes_gradients_to_what_was_taken_and_leaves_the_rest_alone() -> None:
    values = jnp.array([[1.0, jnp.inf, 2.0], [3.0, 4.0, jnp.nan]])
    action = jnp.array([2, 0])
    np.testing.assert_array_equal(take(values, action), [2.0, 3.0])
    gradient = jax.grad(lambda v: jnp.dot(take(v, action), jnp.array([5.0, 7.0])))(values)
    np.testing.assert_array_equal(gradient, [[0, 0, 5], [7, 0, 0]])


def test_squared_error_is_a_mean_and_moves_predictions_only() -> None:
    prediction, target = jnp.array([1.0, 2.0, 4.0, 0.0]), jnp.array([0.0, 2.0, 1.0, 2.0])
    assert float(squared_error(prediction, target)) == pytest.approx((1 + 0 + 9 + 4) / 4)
    by_prediction, by_target = jax.grad(squared_error, (0, 1))(prediction, target)
    np.testing.assert_allclose(by_prediction, [0.5, 0, 1.5, -1])
    np.testing.assert_array_equal(by_target, np.zeros(4))


@given(st.lists(st.sampled_from([-2.0, -1.0, 0.0, 3.5]), min_size=1, max_size=5), st.integers(0, 99))
def test_greedy_takes_a_maximum(values: list[float], seed: int) -> None:
    action = greedy(jnp.array(values, jnp.float32), jax.random.key(seed))
    assert action.dtype == jnp.int32 and action.shape == ()
    assert values[int(action)] == max(values)


@pytest.mark.parametrize("values", [[0.0, 0.0], [-7.0, 3.0, 3.0, -1.0, 3.0], [5.0] * 7, [-np.inf, -np.inf, -np.inf]])
def test_greedy_breaks_ties_uniformly(values: list[float]) -> None:
    keys = jax.random.split(jax.random.key(len(values)), 7000)
    actions = jax.jit(jax.vmap(lambda key: greedy(jnp.array(values, jnp.float32), key)))(keys)
    counts = np.bincount(np.asarray(actions), minlength=len(values))
    best = np.array(values) == max(values)
    assert counts[~best].sum() == 0
    assert stats.chisquare(counts[best]).pvalue > 1e-3
