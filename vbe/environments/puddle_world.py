"""Puddle World: walk with unsteady steps around two puddles that hurt, to the far corner of a square."""

from numbers import Real
from typing import NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

from vbe.environments.time_limit import check_time_limit
from vbe.types import Array, Environment, Key, Step, UsageError

JITTER = 0.1
RADIUS = 0.1
GOAL = 0.95
START_LOW, START_HIGH = np.array([[0.1, 0.45], [0.3, 0.65]], np.float32)
# Each puddle is the surroundings of a segment, from its first corner (x, y) to its second.
PUDDLES_LOW = np.array([[0.1, 0.75], [0.45, 0.4]], np.float32)
PUDDLES_HIGH = np.array([[0.45, 0.75], [0.45, 0.8]], np.float32)
DIRECTIONS = np.array([[0, 1], [0, -1], [1, 0], [-1, 0]], np.float32)


class PuddleWorldState(NamedTuple):
    position: Array  # (2,) float32 in [0, 1]: x, y
    time: Array  # () int32, steps taken in this episode


def dynamics(position: Array, action: Array, distance: Array) -> tuple[Array, Array, Array]:
    """Where a step leads: the deterministic heart of Puddle World.

    Args:
      position: (2,) float32, x and y.
      action: () int32: up, down, right, left.
      distance: () float32, how far this step goes; with a negative one the walker stumbles backwards.

    Returns:
      The new position, (2,) float32; the reward, () float32; whether the goal is reached, () bool.
    """
    position = jnp.clip(position + distance * jnp.asarray(DIRECTIONS)[action], 0.0, 1.0)
    offsets = position[None] - jnp.clip(position[None], PUDDLES_LOW, PUDDLES_HIGH)
    depths = jnp.maximum(RADIUS - jnp.sqrt(jnp.sum(offsets**2, axis=-1)), 0.0)
    reward = (-1.0 - 400.0 * jnp.sum(depths)) / 81.0
    return position, reward, jnp.all(position > GOAL)


def puddle_world(*, step_size: float = 0.05, time_limit: int = 10_000) -> Environment:
    """Makes Puddle World: episodic, four actions (up, down, right, left), x and y to see.

    Args:
      step_size: how far a step goes on average. The paper prints 0.005; its code and the classic problem use 0.05.
      time_limit: an episode of so many steps is truncated.

    Returns:
      An `Environment` with observations of shape (2,), float32.

    Raises:
      UsageError: if `step_size` is not in (0, 1], or `time_limit` is not a positive integer.

    Example:
      >>> from vbe.environments import make
      >>> make("PuddleWorld", step_size=0.005).action_space
      Discrete(4)
    """
    if not (isinstance(step_size, Real) and not isinstance(step_size, bool) and 0 < step_size <= 1):
        raise UsageError(f"step_size={step_size!r}: must be a number above 0 and at most 1, the square's side")
    time_limit = check_time_limit(time_limit)

    def reset(key: Key) -> tuple[PuddleWorldState, Array]:
        position = jax.random.uniform(key, (2,), jnp.float32, minval=START_LOW, maxval=START_HIGH)
        return PuddleWorldState(position, jnp.zeros((), jnp.int32)), position

    def step(state: PuddleWorldState, key: Key, action: Array) -> tuple[PuddleWorldState, Step]:
        # One call of the generator serves the step and a start that may follow it.
        noise = jax.random.normal(key, (3,), jnp.float32)
        final, reward, terminated = dynamics(state.position, action, step_size + JITTER * noise[0])
        start = START_LOW + (START_HIGH - START_LOW) * jax.scipy.special.ndtr(noise[1:])
        time = state.time + 1
        truncated = ~terminated & (time >= time_limit)
        ended = terminated | truncated
        position = jnp.where(ended, start, final)
        return PuddleWorldState(position, jnp.where(ended, 0, time)), Step(position, reward, terminated, truncated, final)

    return Environment(
        reset=reset,
        step=step,
        observation_space=gymnasium.spaces.Box(0.0, 1.0, (2,), np.float32),
        action_space=gymnasium.spaces.Discrete(4),
    )
