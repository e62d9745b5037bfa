"""Deepsea: a dive through a grid in which only one sequence of actions, paid for at each step, finds the treasure."""

from numbers import Integral
from typing import NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

from vbe.types import Array, Environment, Key, Step, UsageError

MOVE_COST = 0.01
LARGEST_SIZE = 5792  # the largest whose cells number less than 2**24: a replay buffer's float32 holds integers up to that


class DeepSeaState(NamedTuple):
    row: Array  # () int32
    column: Array  # () int32
    right: Array  # (num_states,) bool: whether action 1 (or else 0) moves right in a cell; fixed for a whole run


def num_cells(size: int) -> int:
    """How many cells of a Deepsea of this size can be reached: those on and below the diagonal."""
    return size * (size + 1) // 2


def cell(row: Array, column: Array) -> Array:
    """The number of a reachable cell: row by row, from the left, as integers of the arguments' shape."""
    return row * (row + 1) // 2 + column


def dynamics(row: Array, column: Array, moves_right: Array, size: int) -> tuple[Array, Array, Array]:
    """Where a stroke leads: the deterministic heart of Deepsea.

    Args:
      row: () int32.
      column: () int32.
      moves_right: () bool, what the action means in this cell.
      size: rows, and columns, of the grid.

    Returns:
      The new row (`size` below the last row) and column, () int32 each, and the reward, () float32.
    """
    found = moves_right & (column == size - 1)
    reward = found.astype(jnp.float32) - MOVE_COST / size * moves_right.astype(jnp.float32)
    column = jnp.clip(column + jnp.where(moves_right, 1, -1), 0, size - 1)
    return row + 1, column, reward


def deep_sea(*, size: int = 10) -> Environment:
    """Makes Deepsea: episodes of `size` steps, two actions whose meaning is drawn per cell once for all of a run.

    The best return is 0.99, for moving right at every step; a uniformly random walk does so with probability
    2 ** -size.

    Args:
      size: rows, and columns, of the grid.

    Returns:
      An `Environment` whose observation is the number of the present cell among the size * (size + 1) / 2 reachable
      ones, of shape (1,), int32: the one active feature of a one-hot code. `visit` gives the same number.

    Raises:
      UsageError: if `size` is not an integer from 2 to 5792.

    Example:
      >>> import jax
      >>> from vbe.environments import make
      >>> environment = make("DeepSea", size=30)
      >>> environment.num_states
      465
      >>> state, observation = environment.reset(jax.random.key(0))
      >>> observation
      Array([0], dtype=int32)
    """
    if not isinstance(size, Integral) or size < 2:
        raise UsageError(f"size={size!r}: must be an integer of at least 2")
    if size > LARGEST_SIZE:
        raise UsageError(f"size={size!r}: must be at most {LARGEST_SIZE}")
    size = int(size)
    num_states = num_cells(size)

    def visit(state: DeepSeaState) -> Array:
        return cell(state.row, state.column)

    def reset(key: Key) -> tuple[DeepSeaState, Array]:
        top = jnp.zeros((), jnp.int32)
        state = DeepSeaState(top, top, jax.random.bernoulli(key, shape=(num_states,)))
        return state, visit(state)[None]

    def step(state: DeepSeaState, key: Key, action: Array) -> tuple[DeepSeaState, Step]:
        del key  # nothing is left to chance after the reset
        moves_right = (action == 1) == state.right[visit(state)]
        row, column, reward = dynamics(state.row, state.column, moves_right, size)
        terminated = row == size
        # There is no cell below the last row: the final observation stays in it. Any would do, its discount being 0.
        final = cell(jnp.minimum(row, size - 1), column)
        state = DeepSeaState(jnp.where(terminated, 0, row), jnp.where(terminated, 0, column), state.right)
        return state, Step(visit(state)[None], reward, terminated, jnp.zeros((), bool), final[None])

    return Environment(
        reset=reset,
        step=step,
        observation_space=gymnasium.spaces.MultiDiscrete([num_states], dtype=np.int32),
        action_space=gymnasium.spaces.Discrete(2),
        visit=visit,
        num_states=num_states,
    )
