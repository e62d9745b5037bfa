"""An agent without values: it goes where the bonus is largest."""

from typing import Any

import jax.numpy as jnp

from vbe.equations import greedy
from vbe.types import Agent, Array, Bonus, Key, Transition


def explorer(bonus: Bonus) -> Agent:
    """Pure exploration: behaviour and target policy are both greedy in the bonus, and rewards are ignored."""

    def act(state: Any, key: Key, observation: Array) -> tuple[Array, Array]:
        bonuses = bonus.values(state, observation)
        action = greedy(bonuses, key)
        return action, bonuses[action]

    def learn(state: Any, key: Key, batch: Transition) -> tuple[Any, Array]:
        next_action = jnp.argmax(bonus.values(state, batch.next_observation), axis=-1).astype(jnp.int32)
        return bonus.update(state, key, batch, next_action)

    return Agent(bonus.init, act, learn, bonus.sync, begin_episode=lambda state, key, ended: state)
