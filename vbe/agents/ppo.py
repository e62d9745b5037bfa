"""PPO with two value heads: one for rewards, which end with the episode, and one for the rewards of curiosity, which do not."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from vbe.bonuses.curiosity import Curiosity, Moments, add_samples, no_moments
from vbe.equations import squared_error, take
from vbe.types import Array, Key, Network, Params, Transition


class Rollout(NamedTuple):
    """T steps in a row, as one policy took them; leaves (T, ...)."""

    transitions: Transition
    truncated: Array  # (T,) bool: the next transition does not begin where this one led


class OnPolicyAgent(NamedTuple):
    """A learner from rollouts, as three pure functions."""

    init: Callable[[Key, Array], Any]  # (key, observation) -> state
    act: Callable[[Any, Key, Array], Array]  # (state, key, observation) -> action
    learn: Callable[[Any, Key, Rollout], tuple[Any, Array, Array]]  # (state, key, rollout) -> state, reward bonuses (T,), loss


class Learned(NamedTuple):
    policy: Params
    critic: Params


class State(NamedTuple):
    learned: Learned
    optimizer: optax.OptState
    curiosity: Any
    bonus_sum: Array  # () the discounted sum of reward bonuses up to now
    bonus_moments: Moments  # of that sum, through time


class Sample(NamedTuple):
    """What there is to learn from a transition."""

    observation: Array
    action: Array
    log_prob: Array  # under the policy that took it
    advantage: Array
    returns: Array  # (2,): extrinsic, intrinsic
    novel: Array  # the observation that curiosity learns


def ppo(
    policy: Network,
    critic: Network,
    curiosity: Curiosity,
    optimizer: optax.GradientTransformation,
    *,
    bonus_scale: float | Array = 1.0,
    reward_scale: float | Array = 2.0,
    bonus_discount: float | Array = 0.99,
    trace: float | Array = 0.95,
    clip: float | Array = 0.1,
    entropy_scale: float | Array = 0.001,
    epochs: int = 4,
    minibatches: int = 4,
    pure_exploration: bool = False,
) -> OnPolicyAgent:
    """Proximal policy optimisation on rewards and on the reward bonuses of curiosity, each with advantages of its own.

    Reward bonuses are divided by the running standard deviation of their discounted sum. Their values are non-episodic: at a
    termination they continue in the next episode. A truncation stops neither kind of value, and both bootstrap on the true last
    observation. A quarter of each minibatch trains curiosity.

    Args:
      policy: maps observations to the logarithms of unnormalised probabilities of actions.
      critic: maps observations to two values: extrinsic, intrinsic.
      curiosity: gives reward bonuses for next observations.
      optimizer: any optax optimizer, for policy and critic.
      bonus_scale: c, the weight of intrinsic advantages. May be traced, as may every number that is not an integer.
      reward_scale: the weight of extrinsic advantages.
      bonus_discount: of intrinsic values. That of extrinsic ones comes with the transitions.
      trace: lambda of generalised advantage estimation.
      clip: how far the ratio of new and old probabilities may differ from 1 to any advantage.
      entropy_scale: the weight of the policy's entropy.
      epochs: how many times a rollout is learned from.
      minibatches: into how many parts, at each time.
      pure_exploration: learn from reward bonuses alone.

    Returns:
      An `OnPolicyAgent`.

    Example:
      >>> import gymnasium
      >>> from vbe import networks
      >>> from vbe.bonuses.curiosity import distilled
      >>> space = gymnasium.spaces.Box(-1, 1, (2,))
      >>> curiosity = distilled(networks.mlp(space, num_outputs=64), optax.adam(1e-4), space)
      >>> agent = ppo(networks.mlp(space, num_outputs=3), networks.mlp(space, num_outputs=2), curiosity, optax.adam(1e-4))
      >>> state = agent.init(jax.random.key(0), jnp.zeros(2))
      >>> agent.act(state, jax.random.key(1), jnp.zeros(2)).shape
      ()
    """

    def init(key: Key, observation: Array) -> State:
        policy_key, critic_key, curiosity_key = jax.random.split(key, 3)
        learned = Learned(policy.init(policy_key, observation), critic.init(critic_key, observation))
        return State(
            learned=learned,
            optimizer=optimizer.init(learned),
            curiosity=curiosity.init(curiosity_key, observation, learned.policy),
            bonus_sum=jnp.zeros(()),
            bonus_moments=no_moments(),
        )

    def act(state: State, key: Key, observation: Array) -> Array:
        return jax.random.categorical(key, policy.apply(state.learned.policy, observation)).astype(jnp.int32)

    def learn(state: State, key: Key, rollout: Rollout) -> tuple[State, Array, Array]:
        order_key, fit_key = jax.random.split(key)
        curious, bonuses = curiosity.rewards(state.curiosity, state.learned.policy, rollout.transitions.next_observation)
        scaled, bonus_sum, bonus_moments = scale_bonuses(bonuses, state.bonus_sum, state.bonus_moments, bonus_discount)
        samples = prepare(state.learned, rollout, scaled)
        size = len(bonuses) // minibatches
        orders = jax.vmap(lambda key: jax.random.permutation(key, len(bonuses)))(jax.random.split(order_key, epochs))
        parts = orders[:, : minibatches * size].reshape(epochs * minibatches, size)

        def update(carry: Any, xs: Any) -> tuple[Any, Array]:
            learned, optimizer_state, curious = carry
            part, key = xs
            batch = jax.tree.map(lambda x: x[part], samples)
            curious, _ = curiosity.fit(curious, key, batch.novel[: max(1, size // 4)])
            value, gradient = jax.value_and_grad(loss)(learned, batch)
            updates, optimizer_state = optimizer.update(gradient, optimizer_state, learned)
            return (optax.apply_updates(learned, updates), optimizer_state, curious), value

        carry = (state.learned, state.optimizer, curious)
        (learned, optimizer_state, curious), losses = jax.lax.scan(update, carry, (parts, jax.random.split(fit_key, len(parts))))
        return State(learned, optimizer_state, curious, bonus_sum, bonus_moments), bonuses, losses.mean()

    def prepare(learned: Learned, rollout: Rollout, scaled: Array) -> Sample:
        t = rollout.transitions
        values = critic.apply(learned.critic, t.observation)
        next_values = critic.apply(learned.critic, t.next_observation)
        rewards = jnp.stack([t.reward, scaled], axis=1)
        discounts = jnp.stack([t.discount, jnp.full_like(t.discount, bonus_discount)], axis=1)
        traces = jnp.where(rollout.truncated[:, None], 0, trace * discounts)
        both = advantages(rewards, discounts, traces, values, next_values)
        weighted = bonus_scale * both[:, 1]
        return Sample(
            observation=t.observation,
            action=t.action,
            log_prob=take(jax.nn.log_softmax(policy.apply(learned.policy, t.observation)), t.action),
            advantage=weighted if pure_exploration else weighted + reward_scale * both[:, 0],
            returns=both + values,
            novel=t.next_observation,
        )

    def loss(learned: Learned, batch: Sample) -> Array:
        log_probs = jax.nn.log_softmax(policy.apply(learned.policy, batch.observation))
        values = critic.apply(learned.critic, batch.observation)
        ratio = jnp.exp(take(log_probs, batch.action) - batch.log_prob)
        policy_loss = -jnp.mean(clipped(ratio, batch.advantage, clip))
        entropy = -jnp.mean(jnp.sum(jnp.exp(log_probs) * log_probs, axis=1))
        value_loss = squared_error(values[:, 1], batch.returns[:, 1])
        if not pure_exploration:
            value_loss += squared_error(values[:, 0], batch.returns[:, 0])
        return policy_loss + value_loss / 2 - entropy_scale * entropy

    return OnPolicyAgent(init, act, learn)


def clipped(ratio: Array, advantage: Array, clip: float | Array) -> Array:
    """PPO's objective: what the new policy gains, with no credit for moving an action's probability beyond 1 +- clip of the old."""
    return jnp.minimum(ratio * advantage, jnp.clip(ratio, 1 - clip, 1 + clip) * advantage)


def advantages(rewards: Array, discounts: Array, traces: Array, values: Array, next_values: Array) -> Array:
    """Generalised advantage estimates, A_t = r_t + discount_t v(s'_t) - v(s_t) + trace_t A_{t+1}.

    Args:
      rewards: (T, ...).
      discounts: (T, ...), of the next values; 0 where the future is worth nothing.
      traces: (T, ...), lambda times the discount; 0 where the next transition is not the continuation of this one.
      values: (T, ...), of observations.
      next_values: (T, ...), of next observations.

    Returns:
      (T, ...).
    """
    return accumulate(rewards + discounts * next_values - values, traces, reverse=True)


def scale_bonuses(bonuses: Array, total: Array, moments: Moments, discount: float | Array) -> tuple[Array, Array, Moments]:
    """Divides reward bonuses by the running standard deviation of their discounted sum.

    Args:
      bonuses: (T,), the latest.
      total: (), the discounted sum of all those before.
      moments: of that sum, through time.
      discount: gamma.

    Returns:
      The scaled bonuses, and the new sum and moments.
    """
    sums = accumulate(bonuses.at[0].add(discount * total), jnp.full_like(bonuses, discount))
    moments = add_samples(moments, sums)
    return bonuses * jax.lax.rsqrt(moments.variance + 1e-12), sums[-1], moments


def accumulate(terms: Array, decays: Array, *, reverse: bool = False) -> Array:
    """y_t = x_t + d_t y_{t-1} along the first axis, or with `reverse` x_t + d_t y_{t+1}; in log T steps, not T."""

    def join(earlier: tuple[Array, Array], later: tuple[Array, Array]) -> tuple[Array, Array]:
        return earlier[0] * later[0], later[1] + later[0] * earlier[1]

    return jax.lax.associative_scan(join, (decays, terms), reverse=reverse)[1]
