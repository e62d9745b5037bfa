"""A ring buffer of transitions, one packed float32 row each.

The clock `time` (how many transitions were stored before) is the caller's: it is the same for all lanes, so it must not be batched
with them. A loop that does both in every round, in either order, does so in place.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from vbe.types import Array, Key, Transition


class Replay(NamedTuple):
    rows: Array  # (capacity, 2 * observation size + 3) float32: observation, next observation, action, reward, discount


def init(capacity: int, observation: Array) -> Replay:
    return Replay(jnp.zeros((capacity, 2 * observation.size + 3), jnp.float32))


def add(replay: Replay, time: Array, transition: Transition) -> Replay:
    """Stores a transition, in place of the oldest if the buffer is full. Integers up to 2**24 survive the packing exactly."""
    t = transition
    parts = (t.observation, t.next_observation, t.action, t.reward, t.discount)
    row = jnp.concatenate([jnp.ravel(part).astype(jnp.float32) for part in parts])
    return Replay(jax.lax.dynamic_update_index_in_dim(replay.rows, row, time % len(replay.rows), 0))


def sample(replay: Replay, key: Key, time: Array, batch_size: int, observation: Array, *, newest: bool = True) -> Transition:
    """Draws a batch uniformly with replacement.

    Args:
      replay: the buffer, not empty.
      key: a PRNG key.
      time: how many transitions have been stored, () int32.
      batch_size: B.
      observation: any observation; tells the shape and type to unpack to.
      newest: let the batch's first transition be the newest.

    Returns:
      A `Transition` with a leading axis B.
    """
    capacity = len(replay.rows)
    stored = jnp.minimum(time, capacity).astype(jnp.uint32)
    age = (jax.random.bits(key, (batch_size,)) % stored).astype(jnp.int32)
    written = time - 1 - (age.at[0].set(0) if newest else age)
    rows = replay.rows[written % capacity]
    size = observation.size

    def unpack(columns: Array) -> Array:
        return columns.astype(observation.dtype).reshape(batch_size, *observation.shape)

    return Transition(
        observation=unpack(rows[:, :size]),
        next_observation=unpack(rows[:, size : 2 * size]),
        action=rows[:, -3].astype(jnp.int32),
        reward=rows[:, -2],
        discount=rows[:, -1],
        time=written,
    )
