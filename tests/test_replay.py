"""The replay buffer against a deque of the last transitions."""

from collections import deque
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from vbe import replay
from vbe.types import Transition

BATCH = 8
# An observation of each shape and type that environments give.
OBSERVATIONS = {"vector": np.zeros(3, np.float32), "indices": np.zeros(2, np.int32), "image": np.zeros((2, 2), np.float32)}

add = jax.jit(replay.add, donate_argnums=0)
sample = jax.jit(replay.sample, static_argnames="batch_size")

floats = st.floats(width=32, allow_nan=False, allow_subnormal=False)
integers = st.integers(-(2**24), 2**24)


def make_transition(draw: Any, kind: str) -> Transition:
    like = OBSERVATIONS[kind]
    numbers = floats if like.dtype == np.float32 else integers

    def observe() -> np.ndarray:
        return np.array(draw(st.lists(numbers, min_size=like.size, max_size=like.size)), like.dtype).reshape(like.shape)

    action, reward, discount = draw(st.integers(0, 2**24)), draw(floats), draw(st.sampled_from([0.0, 0.9, 0.99, 1.0]))
    return Transition(observe(), np.int32(action), np.float32(reward), np.float32(discount), observe())


@given(st.data(), st.sampled_from(list(OBSERVATIONS)), st.sampled_from([1, 2, 5]))
def test_it_holds_the_last_transitions_exactly(data: Any, kind: str, capacity: int) -> None:
    like = jnp.array(OBSERVATIONS[kind])
    memory, kept = replay.init(capacity, like), deque(maxlen=capacity)
    for time in range(data.draw(st.integers(1, 3 * capacity), label="stored")):
        transition = make_transition(data.draw, kind)._replace(time=np.int32(time))
        memory = add(memory, jnp.int32(time), jax.tree.map(jnp.array, transition))
        kept.append(transition)
        batch = sample(memory, jax.random.key(time), jnp.int32(time + 1), BATCH, like)
        names = np.asarray(batch.time)
        assert names[0] == time  # the newest, always first
        assert set(names) <= {old.time for old in kept}
        for n, name in enumerate(names):
            original = kept[name - kept[0].time]
            for field, stored in zip(original, batch, strict=True):
                np.testing.assert_array_equal(np.asarray(stored)[n], field)
                assert np.asarray(stored).dtype == field.dtype


@pytest.mark.parametrize("stored", [1, 4, 7, 17])
def test_the_rest_of_a_batch_is_uniform(stored: int) -> None:
    """Before and after the buffer of 7 is full."""
    like = jnp.zeros((), jnp.int32)
    memory = replay.init(7, like)
    for time in range(stored):
        number = jnp.int32(time)
        memory = add(memory, number, Transition(number, number, jnp.float32(time), jnp.float32(0.9), number + 1))
    keys = jax.random.split(jax.random.key(0), 2000)
    batch = jax.jit(jax.vmap(lambda key: replay.sample(memory, key, jnp.int32(stored), 6, like)))(keys)
    np.testing.assert_array_equal(batch.time, batch.observation)
    np.testing.assert_array_equal(batch.next_observation, batch.observation + 1)
    np.testing.assert_array_equal(batch.time[:, 0], stored - 1)
    oldest = max(0, stored - 7)
    counts = np.bincount(np.asarray(batch.time[:, 1:] - oldest).ravel(), minlength=stored - oldest)
    assert len(counts) == min(stored, 7)
    assert len(counts) == 1 or stats.chisquare(counts).pvalue > 1e-3
    # With replacement: a member of the batch tells nothing about another.
    pairs = np.zeros((len(counts), len(counts)))
    np.add.at(pairs, (np.asarray(batch.time[:, 1] - oldest), np.asarray(batch.time[:, 2] - oldest)), 1)
    assert len(counts) == 1 or stats.chisquare(pairs.ravel()).pvalue > 1e-3


def test_different_keys_draw_different_batches() -> None:
    like = jnp.zeros(1)
    memory = replay.init(100, like)
    drawn = [np.asarray(sample(memory, jax.random.key(seed), jnp.int32(100), BATCH, like).time) for seed in (0, 0, 1)]
    np.testing.assert_array_equal(drawn[0], drawn[1])
    assert not np.array_equal(drawn[0], drawn[2])


def test_storing_writes_one_row_in_place() -> None:
    """An update that copied the buffer would make every step as slow as the buffer is large."""
    like = jnp.zeros(3)
    memory = replay.init(1000, like)
    address = memory.rows.unsafe_buffer_pointer()
    zero = jnp.int32(0)
    after = add(memory, jnp.int32(1234), Transition(like + 1.0, zero, jnp.float32(1), jnp.float32(1), like + 2.0))
    assert after.rows.unsafe_buffer_pointer() == address
    assert list(np.flatnonzero(np.asarray(after.rows).any(1))) == [234]


def test_the_newest_is_in_every_batch_unless_it_is_not_asked_for() -> None:
    like = jnp.zeros(1)
    memory = replay.init(50, like)
    for time in range(50):
        memory = replay.add(memory, jnp.int32(time), Transition(like, jnp.int32(0), jnp.float32(time), jnp.float32(0), like))
    keys = jax.random.split(jax.random.key(0), 200)
    drawn = {
        newest: jax.vmap(lambda key, newest=newest: replay.sample(memory, key, jnp.int32(50), 4, like, newest=newest))(keys).reward
        for newest in (True, False)
    }
    assert (drawn[True][:, 0] == 49).all()
    assert 0 < (drawn[False][:, 0] == 49).mean() < 0.1
    np.testing.assert_array_equal(drawn[True][:, 1:], drawn[False][:, 1:])
