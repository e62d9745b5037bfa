"""Action values of reward bonuses: what RND and ACB share."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import optax

from vbe.equations import squared_error, take
from vbe.types import Array, Bonus, Key, Network, Params, Transition


class RewardBonus(NamedTuple):
    """How novel observations are, as three pure functions: what it has learned of them, and what stays fixed, is its state."""

    init: Callable[[Key, Array], tuple[Params, Any]]  # (key, observation) -> learned, fixed
    rewards: Callable[[Params, Any, Array], Array]  # (learned, fixed, observations (B, ...)) -> reward bonuses (B,)
    loss: Callable[[Params, Any, Key, Array], Array]  # (learned, fixed, key, observations (B, ...)) -> ()


class Learned(NamedTuple):
    values: Params  # the action values of reward bonuses
    novelty: Params  # what the reward bonus has learned


class State(NamedTuple):
    learned: Learned
    fixed: Any  # what the reward bonus keeps as it was drawn
    bootstrap: Params  # a copy of the values, as old as the last sync
    optimizer: optax.OptState


def intrinsic(
    network: Network,
    reward_bonus: RewardBonus,
    optimizer: optax.GradientTransformation,
    *,
    discount: float | Array = 0.99,
) -> Bonus:
    """The bonus that is an action-value function, learned by TD on reward bonuses alone.

    It follows the target policy's actions and is non-episodic: a termination does not stop its bootstrapping, so that the world
    beyond the episode's end, which is the next episode's beginning, counts as well.

    Args:
      network: maps observations to one value per action.
      reward_bonus: rewards next observations for their novelty, and learns the present ones.
      optimizer: any optax optimizer; one descends on both losses at once.
      discount: gamma. May be a traced array. The batch's own discounts, which are 0 at terminations, are not used.

    Returns:
      A `Bonus`.

    Example:
      >>> import gymnasium
      >>> import jax.numpy as jnp
      >>> from vbe import networks
      >>> space = gymnasium.spaces.Box(-1, 1, (2,))
      >>> far_from_zero = RewardBonus(
      ...     init=lambda key, observation: ((), ()),
      ...     rewards=lambda learned, fixed, observations: jnp.square(observations).sum(axis=1),
      ...     loss=lambda learned, fixed, key, observations: jnp.zeros(()),
      ... )
      >>> bonus = intrinsic(networks.mlp(space, num_outputs=3), far_from_zero, optax.adam(1e-3))
      >>> bonus.values(bonus.init(jax.random.key(0), jnp.zeros(2)), jnp.zeros(2)).shape
      (3,)
    """

    def init(key: Key, observation: Array) -> State:
        values_key, novelty_key = jax.random.split(key)
        novelty, fixed = reward_bonus.init(novelty_key, observation)
        learned = Learned(network.init(values_key, observation), novelty)
        return State(learned, fixed, learned.values, optimizer.init(learned))

    def values(state: State, observation: Array) -> Array:
        return network.apply(state.learned.values, observation)

    def update(state: State, key: Key, batch: Transition, next_action: Array) -> tuple[State, Array]:
        # Both losses descend at once, so the reward is for what was novel before this update.
        reward = reward_bonus.rewards(state.learned.novelty, state.fixed, batch.next_observation)
        next_value = take(network.apply(state.bootstrap, batch.next_observation), next_action)
        target = reward + discount * next_value

        def loss(learned: Learned) -> Array:
            error = squared_error(take(network.apply(learned.values, batch.observation), batch.action), target)
            return error + reward_bonus.loss(learned.novelty, state.fixed, key, batch.observation)

        value, gradient = jax.value_and_grad(loss)(state.learned)
        updates, optimizer_state = optimizer.update(gradient, state.optimizer, state.learned)
        return state._replace(learned=optax.apply_updates(state.learned, updates), optimizer=optimizer_state), value

    def sync(state: State) -> State:
        return state._replace(bootstrap=state.learned.values)

    return Bonus(init, values, update, sync)
