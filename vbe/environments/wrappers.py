"""Environments made from environments."""

from collections.abc import Callable

import gymnasium
import jax.numpy as jnp

from vbe.types import Array, Environment, Key, State, Step


def with_features(environment: Environment, function: Callable[[Array], Array], space: gymnasium.Space) -> Environment:
    """The same environment, seen through a function of its observations.

    Args:
      environment: any environment.
      function: from an observation to what the agent shall see instead.
      space: the space of the function's values. For indices of active features this is
        `MultiDiscrete([num_features] * num_active)`.

    Returns:
      An `Environment` with the same states, rewards and ends.

    Example:
      >>> from vbe.environments import make, tile_coder, with_features
      >>> coder = tile_coder([0, 0], [1, 1], tiles=4, tilings=16, features=512)
      >>> tiled = with_features(make("SparseMountainCar"), coder.apply, coder.space)
      >>> tiled.observation_space.shape
      (16,)
    """

    def reset(key: Key) -> tuple[State, Array]:
        state, observation = environment.reset(key)
        return state, function(observation)

    def step(state: State, key: Key, action: Array) -> tuple[State, Step]:
        state, step = environment.step(state, key, action)
        return state, step._replace(
            observation=function(step.observation), final_observation=function(step.final_observation)
        )

    return environment._replace(reset=reset, step=step, observation_space=space)


def without_reward(environment: Environment) -> Environment:
    """The same environment with every reward 0: pure exploration.

    Args:
      environment: any environment.

    Returns:
      An `Environment` with the same states, observations and ends.

    Example:
      >>> from vbe.environments import make, without_reward
      >>> without_reward(make("DeepSea", size=30)).num_states
      465
    """

    def step(state: State, key: Key, action: Array) -> tuple[State, Step]:
        state, step = environment.step(state, key, action)
        return state, step._replace(reward=jnp.zeros_like(step.reward))

    return environment._replace(step=step)
