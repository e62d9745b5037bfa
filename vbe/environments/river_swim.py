"""River Swim: a small reward downstream within easy reach, a large one upstream against the current."""

from typing import NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

from vbe.types import Array, Environment, Key, Step

STROKE = 0.1
JITTER = 0.01


class RiverSwimState(NamedTuple):
    position: Array  # () float32 in [0, 1]; 1 is upstream


def dynamics(position: Array, action: Array, current: Array, jitter: Array) -> tuple[Array, Array]:
    """Where a stroke leads: the deterministic heart of River Swim.

    Args:
      position: () float32, where the fish is.
      action: () int32, 0 to swim down, 1 to swim up.
      current: () float32, uniform on (0, 1]: which way the water takes the fish.
      jitter: () float32, normal with standard deviation 0.01: added to the displacement, in the action's direction.

    Returns:
      The new position and the reward, () float32 each.
    """
    up = action == 1
    first, last = position <= 0.1, position > 0.9
    chance_down = jnp.where(first, 0.0, jnp.where(up, jnp.where(last, 0.7, 0.1), 1.0))
    chance_up = jnp.where(up & ~last, 0.3, 0.0)
    # This way round a chance of 0 means never and 1 always, though in float32 a uniform number may be just 1.
    drift = (current < chance_up).astype(jnp.float32) - (current > 1.0 - chance_down).astype(jnp.float32)
    position = jnp.clip(position + STROKE * drift + jnp.where(up, jitter, -jitter), 0.0, 1.0)
    reward = jnp.where(position > 0.9, 1.0, jnp.where(position <= 0.1, 0.005, 0.0))
    return position, reward.astype(jnp.float32)


def river_swim() -> Environment:
    """Makes River Swim: continuing, two actions, one number to see.

    The observation is 1 - position. The flip keeps a network that starts out preferring large inputs from preferring
    the right action by luck.

    Returns:
      An `Environment` with observations of shape (1,), float32.

    Example:
      >>> import jax
      >>> from vbe.environments import make
      >>> environment = make("RiverSwim")
      >>> state, observation = environment.reset(jax.random.key(0))
      >>> state, step = environment.step(state, jax.random.key(1), jax.numpy.int32(0))
      >>> round(float(step.reward), 3)
      0.005
    """

    def observe(state: RiverSwimState) -> Array:
        return 1.0 - state.position[None]

    def reset(key: Key) -> tuple[RiverSwimState, Array]:
        state = RiverSwimState(jax.random.uniform(key, dtype=jnp.float32, maxval=0.1))
        return state, observe(state)

    def step(state: RiverSwimState, key: Key, action: Array) -> tuple[RiverSwimState, Step]:
        # One call of the generator instead of a split and two calls: it is half of this environment's cost.
        noise = jax.random.normal(key, (2,), jnp.float32)
        position, reward = dynamics(state.position, action, jax.scipy.special.ndtr(noise[0]), JITTER * noise[1])
        state = RiverSwimState(position)
        observation, never = observe(state), jnp.zeros((), bool)
        return state, Step(observation, reward, never, never, observation)

    return Environment(
        reset=reset,
        step=step,
        observation_space=gymnasium.spaces.Box(0.0, 1.0, (1,), np.float32),
        action_space=gymnasium.spaces.Discrete(2),
    )
