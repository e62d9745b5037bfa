"""VBE: the errors of an ensemble of random action-value functions, learned by temporal differences."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from vbe import networks
from vbe.equations import squared_error, take
from vbe.types import Array, Bonus, Key, Network, Params, Transition


class State(NamedTuple):
    """Every leaf has a leading axis of k members."""

    target: Params  # the random action-value functions f*; frozen
    predictor: Params  # f, which learns them
    bootstrap: Params  # a copy of f, as old as the last sync
    optimizer: optax.OptState


def vbe(
    network: Network,
    optimizer: optax.GradientTransformation,
    *,
    ensemble_size: int = 20,
    update_all: bool = False,
    supervised: bool = False,
) -> Bonus:
    """Value Bonuses with Ensemble errors: b(s, a) = max_i |f_i(s, a) - f*_i(s, a)|.

    Predictor i learns by TD on the reward that its target implies, r_i = f*_i(s, a) - discount f*_i(s', a'), so that what it
    converges to is f*_i itself and the bonus shrinks to zero with experience, only as fast as values propagate.

    Args:
      network: maps observations to one value per action. Targets and predictors share this architecture, so that a predictor can
        represent its target exactly.
      optimizer: any optax optimizer. Each member has a state of its own, which advances only when that member is updated.
      ensemble_size: k, how many random action-value functions.
      update_all: update every member on each batch, instead of one that is drawn uniformly.
      supervised: regress f*_i(s, a) directly instead (VBE-SL, the paper's ablation).

    Returns:
      A `Bonus`. Give `update` a batch and the target policy's actions at its next observations, and call `sync` as often as the
      agent copies its own target network.

    Example:
      >>> import gymnasium
      >>> space = gymnasium.spaces.Box(-1, 1, (2,))
      >>> bonus = vbe(networks.mlp(space, num_outputs=3), optax.adam(1e-3), ensemble_size=2)
      >>> state = bonus.init(jax.random.key(0), jnp.zeros(2))
      >>> bonus.values(state, jnp.zeros(2)).shape
      (3,)
    """
    members = networks.ensemble(network, ensemble_size)

    def init(key: Key, observation: Array) -> State:
        target_key, predictor_key = jax.random.split(key)
        predictor = members.init(predictor_key, observation)
        return State(members.init(target_key, observation), predictor, predictor, jax.vmap(optimizer.init)(predictor))

    def values(state: State, observation: Array) -> Array:
        errors = members.apply(state.predictor, observation) - members.apply(state.target, observation)
        return jnp.max(jnp.abs(errors), axis=0)

    def update_member(member: State, batch: Transition, next_action: Array) -> tuple[Params, optax.OptState, Array]:
        target = take(network.apply(member.target, batch.observation), batch.action)
        if not supervised:
            next_target = take(network.apply(member.target, batch.next_observation), next_action)
            next_value = take(network.apply(member.bootstrap, batch.next_observation), next_action)
            reward = target - batch.discount * next_target
            target = reward + batch.discount * next_value

        def loss(predictor: Params) -> Array:
            return squared_error(take(network.apply(predictor, batch.observation), batch.action), target)

        value, gradient = jax.value_and_grad(loss)(member.predictor)
        updates, optimizer_state = optimizer.update(gradient, member.optimizer, member.predictor)
        return optax.apply_updates(member.predictor, updates), optimizer_state, value

    def update(state: State, key: Key, batch: Transition, next_action: Array) -> tuple[State, Array]:
        if update_all:
            predictor, optimizer_state, loss = jax.vmap(update_member, (0, None, None))(state, batch, next_action)
            return state._replace(predictor=predictor, optimizer=optimizer_state), loss.mean()
        i = (jax.random.bits(key) % ensemble_size).astype(jnp.int32)
        # The barriers keep the reads of a member before its writes: fused, XLA would copy the whole ensemble at every step.
        member = jax.lax.optimization_barrier(jax.tree.map(lambda x: x[i], state))
        *updated, loss = jax.lax.optimization_barrier(update_member(member, batch, next_action))
        written = jax.tree.map(lambda all, one: all.at[i].set(one), (state.predictor, state.optimizer), tuple(updated))
        return state._replace(predictor=written[0], optimizer=written[1]), loss

    def sync(state: State) -> State:
        return state._replace(bootstrap=state.predictor)

    return Bonus(init, values, update, sync)
