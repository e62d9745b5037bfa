"""Double DQN that acts on its values plus a value bonus."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from vbe.equations import greedy, squared_error, take
from vbe.types import Agent, Array, Bonus, Key, Network, Params, Transition


class State(NamedTuple):
    online: Params
    target: Params  # a copy of online, as old as the last sync
    optimizer: optax.OptState
    bonus: Any


def double_dqn(
    network: Network,
    bonus: Bonus,
    optimizer: optax.GradientTransformation,
    *,
    bonus_scale: float | Array = 1.0,
    epsilon: float | Array = 0.0,
    optimistic_target: bool = False,
) -> Agent:
    """Double DQN whose behaviour is greedy in q + c b.

    Args:
      network: maps observations to one value per action.
      bonus: any `Bonus`; it learns from the same batches.
      optimizer: any optax optimizer, for the action values.
      bonus_scale: c. May be a traced array, and so may epsilon.
      epsilon: the probability of a uniformly random action.
      optimistic_target: let the target policy be greedy in q + c b too, not in q (on-policy, the paper's appendix).

    Returns:
      An `Agent`.
    """
    explores_at_random = not (isinstance(epsilon, (int, float)) and epsilon == 0)

    def init(key: Key, observation: Array) -> State:
        network_key, bonus_key = jax.random.split(key)
        params = network.init(network_key, observation)
        return State(params, params, optimizer.init(params), bonus.init(bonus_key, observation))

    def act(state: State, key: Key, observation: Array) -> tuple[Array, Array]:
        bonuses = bonus.values(state.bonus, observation)
        values = network.apply(state.online, observation) + bonus_scale * bonuses
        if explores_at_random:
            key, explore_key = jax.random.split(key)
            values = jnp.where(jax.random.uniform(explore_key) < epsilon, jnp.zeros_like(values), values)
        action = greedy(values, key)
        return action, bonuses[action]

    def learn(state: State, key: Key, batch: Transition) -> tuple[State, Array]:
        next_values = network.apply(state.online, batch.next_observation)
        if optimistic_target:
            next_values = next_values + bonus_scale * bonus.values(state.bonus, batch.next_observation)
        next_action = jnp.argmax(next_values, axis=1).astype(jnp.int32)
        next_value = take(network.apply(state.target, batch.next_observation), next_action)
        target = batch.reward + batch.discount * next_value

        def loss(params: Params) -> Array:
            return squared_error(take(network.apply(params, batch.observation), batch.action), target)

        value, gradient = jax.value_and_grad(loss)(state.online)
        updates, optimizer_state = optimizer.update(gradient, state.optimizer, state.online)
        bonus_state, _ = bonus.update(state.bonus, key, batch, next_action)
        return State(optax.apply_updates(state.online, updates), state.target, optimizer_state, bonus_state), value

    def sync(state: State) -> State:
        return state._replace(target=state.online, bonus=bonus.sync(state.bonus))

    return Agent(init, act, learn, sync, begin_episode=lambda state, key, ended: state)
