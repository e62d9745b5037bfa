"""VBE: the errors of an ensemble of random action-value functions, learned by temporal differences."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from vbe import networks
from vbe.equations import squared_error, take
from vbe.types import Array, Bonus, Key, Network, Params, Transition, UsageError


class Member(NamedTuple):
    """What learning changes of one random action-value function's predictor."""

    predictor: Params  # f, which learns f*
    optimizer: optax.OptState


class State(NamedTuple):
    """Every leaf has a leading axis of k members, but for `latest`.

    The member that was updated last is kept apart, and takes its place among the others at the next update: a loop that writes
    before it reads changes the ensemble in place, one that reads before it writes copies all of it at every step.
    """

    target: Params  # the random action-value functions f*; frozen
    bootstrap: Params  # copies of the predictors, as old as the last sync
    members: Member
    latest: tuple[Array, Member] | None  # its number, () int32, and itself; None where all are updated at once


def settled(state: State) -> Member:
    """All members, the latest in its place."""
    return state.members if state.latest is None else _put(state.members, *state.latest)


# Member numbers are drawn within bounds. Said so, lanes side by side move whole rows; otherwise every element is checked.
def _put(stack: Params, i: Array, one: Params) -> Params:
    return jax.tree.map(lambda all, x: all.at[i].set(x, mode="promise_in_bounds", unique_indices=True), stack, one)


def _pick(stack: Params, i: Array) -> Params:
    return jax.tree.map(lambda all: all.at[i].get(mode="promise_in_bounds"), stack)


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

    Raises:
      UsageError: if the ensemble would be empty.

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
    if not isinstance(ensemble_size, int) or ensemble_size < 1:
        raise UsageError(f"ensemble_size={ensemble_size!r}: must be an integer of at least 1")
    ensemble = networks.ensemble(network, ensemble_size)
    update_all = update_all or ensemble_size == 1

    def init(key: Key, observation: Array) -> State:
        target_key, predictor_key = jax.random.split(key)
        predictor = ensemble.init(predictor_key, observation)
        members = Member(predictor, jax.vmap(optimizer.init)(predictor))
        latest = None if update_all else (jnp.int32(0), _pick(members, jnp.int32(0)))
        return State(ensemble.init(target_key, observation), predictor, members, latest)

    def values(state: State, observation: Array) -> Array:
        predictions = ensemble.apply(state.members.predictor, observation)
        if state.latest is not None:
            i, member = state.latest
            is_latest = (jnp.arange(ensemble_size) == i).reshape(-1, *[1] * (predictions.ndim - 1))
            predictions = jnp.where(is_latest, network.apply(member.predictor, observation), predictions)
        return jnp.max(jnp.abs(predictions - ensemble.apply(state.target, observation)), axis=0)

    def update_member(target: Params, bootstrap: Params, member: Member, batch: Transition, next_action: Array) -> tuple[Member, Array]:
        goal = take(network.apply(target, batch.observation), batch.action)
        if not supervised:
            next_target = take(network.apply(target, batch.next_observation), next_action)
            next_value = take(network.apply(bootstrap, batch.next_observation), next_action)
            reward = goal - batch.discount * next_target
            goal = reward + batch.discount * next_value

        def loss(predictor: Params) -> Array:
            return squared_error(take(network.apply(predictor, batch.observation), batch.action), goal)

        value, gradient = jax.value_and_grad(loss)(member.predictor)
        updates, optimizer_state = optimizer.update(gradient, member.optimizer, member.predictor)
        return Member(optax.apply_updates(member.predictor, updates), optimizer_state), value

    def update(state: State, key: Key, batch: Transition, next_action: Array) -> tuple[State, Array]:
        members = settled(state)
        if update_all:
            members, losses = jax.vmap(update_member, (0, 0, 0, None, None))(state.target, state.bootstrap, members, batch, next_action)
            return state._replace(members=members), losses.mean()
        i = (jax.random.bits(key) % ensemble_size).astype(jnp.int32)
        target, bootstrap, member = _pick((state.target, state.bootstrap, members), i)
        updated, loss = update_member(target, bootstrap, member, batch, next_action)
        return state._replace(members=members, latest=(i, updated)), loss

    def sync(state: State) -> State:
        return state._replace(bootstrap=settled(state).predictor)

    return Bonus(init, values, update, sync)
