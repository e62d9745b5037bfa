"""Bootstrapped DQN: an ensemble of Q-learners with random priors, one of which acts for a while (Thompson sampling)."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from vbe import networks
from vbe.equations import greedy, take
from vbe.types import Agent, Array, Key, Network, Params, Transition, UsageError


class State(NamedTuple):
    """Parameters have a leading axis of k heads."""

    prior: Params  # p, frozen
    online: Params  # f
    target: Params  # a copy of f, as old as the last sync
    optimizer: optax.OptState
    salt: Array  # (k,) uint32: tells heads, and runs, apart when masks are made
    head: Array  # () int32: who acts
    steps: Array  # () int32, counted modulo the steps between redraws


def bootstrapped_dqn(
    network: Network,
    optimizer: optax.GradientTransformation,
    *,
    ensemble_size: int = 20,
    prior_scale: float | Array = 1.0,
    mask_probability: float | Array = 0.5,
    redraw_period: int = 10_000,
) -> Agent:
    """Bootstrapped DQN with additive random priors: q_i = f_i + c p_i, and behaviour greedy in one q_i at a time.

    Each head has its own network, target network and fixed prior, learns by Q-learning on its own maximum, and sees each stored
    transition or never does, as a coin decides once. With one head and `mask_probability=1` it is DQN with an additive prior.

    Args:
      network: maps observations to one value per action; the architecture of every f_i and p_i.
      optimizer: any optax optimizer. One descends on the loss averaged over heads and batch.
      ensemble_size: k, how many heads.
      prior_scale: c. May be a traced array, and so may the mask's probability.
      mask_probability: how probable it is that a head learns from a transition.
      redraw_period: steps after which another head acts, even if no episode has ended.

    Returns:
      An `Agent`. Its batches need `time`, the name by which a transition's masks are known. It has no value bonus and reports 0.

    Example:
      >>> import gymnasium
      >>> space = gymnasium.spaces.Box(-1, 1, (2,))
      >>> agent = bootstrapped_dqn(networks.mlp(space, num_outputs=3), optax.adam(1e-3), ensemble_size=2)
      >>> state = agent.init(jax.random.key(0), jnp.zeros(2))
      >>> action, bonus = agent.act(state, jax.random.key(1), jnp.zeros(2))
      >>> action.shape, float(bonus)
      ((), 0.0)
    """
    members = networks.ensemble(network, ensemble_size)
    masked = not (isinstance(mask_probability, (int, float)) and mask_probability == 1)

    def init(key: Key, observation: Array) -> State:
        prior_key, online_key, salt_key, head_key = jax.random.split(key, 4)
        online = members.init(online_key, observation)
        return State(
            prior=members.init(prior_key, observation),
            online=online,
            target=online,
            optimizer=optimizer.init(online),
            salt=jax.random.bits(salt_key, (ensemble_size,)),
            head=draw_head(head_key),
            steps=jnp.zeros((), jnp.int32),
        )

    def draw_head(key: Key) -> Array:
        return (jax.random.bits(key) % ensemble_size).astype(jnp.int32)

    def act(state: State, key: Key, observation: Array) -> tuple[Array, Array]:
        learned, prior = jax.tree.map(lambda x: x[state.head], (state.online, state.prior))
        values = network.apply(learned, observation) + prior_scale * network.apply(prior, observation)
        return greedy(values, key), jnp.zeros(())

    def learn(state: State, key: Key, batch: Transition) -> tuple[State, Array]:
        del key
        next_values = members.apply(state.target, batch.next_observation)
        next_values += prior_scale * members.apply(state.prior, batch.next_observation)
        target = batch.reward[None] + batch.discount[None] * next_values.max(axis=-1)
        # The prior's part of the prediction does not learn: it can as well be part of the target.
        target -= prior_scale * jax.vmap(take, (0, None))(members.apply(state.prior, batch.observation), batch.action)
        weights: Array | float = 1.0
        if masked:
            if batch.time is None:
                raise UsageError("batch.time=None: must be the steps at which transitions were stored, by which their masks are known")
            weights = masks(state.salt, batch.time, mask_probability).astype(target.dtype)

        def loss(online: Params) -> Array:
            values = jax.vmap(take, (0, None))(members.apply(online, batch.observation), batch.action)
            return jnp.mean(weights * jnp.square(values - target))

        value, gradient = jax.value_and_grad(loss)(state.online)
        updates, optimizer_state = optimizer.update(gradient, state.optimizer, state.online)
        return state._replace(online=optax.apply_updates(state.online, updates), optimizer=optimizer_state), value

    def sync(state: State) -> State:
        return state._replace(target=state.online)

    def begin_episode(state: State, key: Key, ended: Array) -> State:
        steps = (state.steps + 1) % redraw_period
        head = jnp.where(ended | (steps == 0), draw_head(key), state.head)
        return state._replace(head=head, steps=steps)

    return Agent(init, act, learn, sync, begin_episode)


def masks(salt: Array, time: Array, probability: float | Array) -> Array:
    """Which heads learn from which transitions: a Bernoulli coin for each pair of them, that falls the same way whenever asked.

    Args:
      salt: (k,) uint32, random numbers that stand for the heads of a run.
      time: (B,) int32, the steps at which transitions were stored.
      probability: that of True.

    Returns:
      (k, B) bool, a pure function of its arguments: nothing needs to be stored along with a transition.

    Example:
      >>> salt = jax.random.bits(jax.random.key(0), (20,))
      >>> bool((masks(salt, jnp.arange(5), 0.5)[:, 3] == masks(salt, jnp.array([3]), 0.5)[:, 0]).all())
      True
    """
    # Mixed before and after the salt: without the first, heads whose salts differ in few bits would have related masks.
    bits = _mix(_mix(time.astype(jnp.uint32))[None] ^ salt[:, None])
    return (bits >> 8).astype(jnp.float32) * 2.0**-24 < probability


def _mix(x: Array) -> Array:
    """A bijection of uint32 in which every bit of the input flips every bit of the output half of the time (MurmurHash3's last step)."""
    x = (x ^ (x >> 16)) * jnp.uint32(0x85EBCA6B)
    x = (x ^ (x >> 13)) * jnp.uint32(0xC2B2AE35)
    return x ^ (x >> 16)
