"""Sparse Mountain Car: swing an underpowered car up a hill, with no reward before the top."""

from numbers import Real
from typing import NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

from vbe.environments.time_limit import check_time_limit
from vbe.types import Array, Environment, Key, Step, UsageError

LEFT, RIGHT = -1.2, 0.6
MAX_SPEED = 0.07
START_LOW, START_HIGH = -0.6, -0.4


class MountainCarState(NamedTuple):
    position: Array  # () float32
    velocity: Array  # () float32
    time: Array  # () int32, steps taken in this episode


def dynamics(position: Array, velocity: Array, action: Array) -> tuple[Array, Array]:
    """Where a push leads: the deterministic heart of Mountain Car.

    Args:
      position: () float32.
      velocity: () float32.
      action: () int32: push left, coast, push right.

    Returns:
      The new position and velocity, () float32 each.
    """
    push = action.astype(jnp.float32) - 1.0
    velocity = jnp.clip(velocity + 0.001 * push - 0.0025 * jnp.cos(3.0 * position), -MAX_SPEED, MAX_SPEED)
    position = position + velocity
    crashed = position < LEFT
    return jnp.where(crashed, LEFT, position), jnp.where(crashed, 0.0, velocity)


def sparse_mountain_car(*, goal: float = 0.6, time_limit: int = 10_000) -> Environment:
    """Makes Mountain Car with a reward of 1 at the goal and 0 before: episodic, three actions (left, coast, right).

    Args:
      goal: the car has arrived once it is to the right of this position. The classic problem has 0.5.
      time_limit: an episode of so many steps is truncated.

    Returns:
      An `Environment` with observations of shape (2,), float32: position and velocity, each scaled to [0, 1].

    Raises:
      UsageError: if `goal` is not to the right of every start or is beyond the hill, or `time_limit` is not a positive
        integer.

    Example:
      >>> from vbe.environments import make
      >>> make("SparseMountainCar", goal=0.5).action_space
      Discrete(3)
    """
    if not (isinstance(goal, Real) and START_HIGH < goal <= RIGHT):
        raise UsageError(f"goal={goal!r}: must be above {START_HIGH}, where cars start, and at most {RIGHT}")
    time_limit = check_time_limit(time_limit)

    def start(uniform: Array) -> MountainCarState:
        position = START_LOW + (START_HIGH - START_LOW) * uniform
        return MountainCarState(position, jnp.zeros((), jnp.float32), jnp.zeros((), jnp.int32))

    def observe(state: MountainCarState) -> Array:
        position = (state.position - LEFT) / (RIGHT - LEFT)
        velocity = (state.velocity + MAX_SPEED) / (2 * MAX_SPEED)
        # Only a car past the goal, and rounding, can leave the unit square.
        return jnp.clip(jnp.stack([position, velocity]), 0.0, 1.0)

    def reset(key: Key) -> tuple[MountainCarState, Array]:
        state = start(jax.random.uniform(key, dtype=jnp.float32))
        return state, observe(state)

    def step(state: MountainCarState, key: Key, action: Array) -> tuple[MountainCarState, Step]:
        final = MountainCarState(*dynamics(state.position, state.velocity, action), state.time + 1)
        terminated = final.position > goal
        truncated = ~terminated & (final.time >= time_limit)
        first = start(jax.random.uniform(key, dtype=jnp.float32))
        state = jax.tree.map(lambda new, old: jnp.where(terminated | truncated, new, old), first, final)
        return state, Step(observe(state), terminated.astype(jnp.float32), terminated, truncated, observe(final))

    return Environment(
        reset=reset,
        step=step,
        observation_space=gymnasium.spaces.Box(0.0, 1.0, (2,), np.float32),
        action_space=gymnasium.spaces.Discrete(3),
    )
