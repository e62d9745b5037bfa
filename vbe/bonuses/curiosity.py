"""Reward bonuses as on-policy learners use them: what they see of observations, and how they are fitted, as RND and ACB do with PPO."""

from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import optax

from vbe import networks
from vbe.bonuses.acb import noise_fits
from vbe.bonuses.intrinsic import RewardBonus
from vbe.bonuses.rnd import distillation
from vbe.types import Array, Key, Network, Params


class Curiosity(NamedTuple):
    """How novel the observations of a rollout are, as three pure functions."""

    init: Callable[[Key, Array, Params], Any]  # (key, observation, the policy's parameters) -> state
    rewards: Callable[[Any, Params, Array], tuple[Any, Array]]  # (state, the policy's, observations (T, ...)) -> state, rewards (T,)
    fit: Callable[[Any, Key, Array], tuple[Any, Array]]  # (state, key, observations (B, ...)) -> state, loss


class Moments(NamedTuple):
    """Running mean and variance of arrays."""

    mean: Array
    variance: Array
    weight: Array  # () float32: of how many samples


def no_moments(shape: tuple[int, ...] = ()) -> Moments:
    """Mean 0 and variance 1, held with next to no weight."""
    return Moments(jnp.zeros(shape), jnp.ones(shape), jnp.float32(1e-4))


def add_samples(moments: Moments, samples: Array) -> Moments:
    """The moments of all samples so far and these, (n, ...)."""
    n = len(samples)
    total = moments.weight + n
    difference = samples.mean(axis=0) - moments.mean
    squares = moments.variance * moments.weight + samples.var(axis=0) * n + jnp.square(difference) * moments.weight * n / total
    return Moments(moments.mean + difference * n / total, squares / total, total)


class Fitted(NamedTuple):
    learned: Params
    fixed: Any
    optimizer: optax.OptState


def _init(bonus: RewardBonus, optimizer: optax.GradientTransformation, key: Key, inputs: Array) -> Fitted:
    learned, fixed = bonus.init(key, inputs)
    return Fitted(learned, fixed, optimizer.init(learned))


def _fit(bonus: RewardBonus, optimizer: optax.GradientTransformation, fitted: Fitted, key: Key, inputs: Array) -> tuple[Fitted, Array]:
    loss, gradient = jax.value_and_grad(bonus.loss)(fitted.learned, fitted.fixed, key, inputs)
    updates, optimizer_state = optimizer.update(gradient, fitted.optimizer, fitted.learned)
    return Fitted(optax.apply_updates(fitted.learned, updates), fitted.fixed, optimizer_state), loss


class DistilledState(NamedTuple):
    fitted: Fitted
    moments: Moments  # of observations


def distilled(
    feature_network: Network, optimizer: optax.GradientTransformation, space: gymnasium.Space, *, clip: float = 5.0
) -> Curiosity:
    """Random network distillation of normalised observations.

    Each feature of the observations is centred and divided by its standard deviation so far, and clipped. Indices of active
    features are written out for this, since an inactive feature is not zero any more.

    Args:
      feature_network: maps normalised observations, vectors of `networks.num_features(space)` floats, to random features.
      optimizer: any optax optimizer, for the predictor.
      space: the observation space.
      clip: where normalised observations are cut.

    Returns:
      A `Curiosity`.

    Example:
      >>> space = gymnasium.spaces.Box(-1, 1, (2,))
      >>> curiosity = distilled(networks.mlp(space, num_outputs=64), optax.adam(1e-4), space)
      >>> state = curiosity.init(jax.random.key(0), jnp.zeros(2), ())
      >>> state, rewards = curiosity.rewards(state, (), jnp.zeros((128, 2)))
      >>> rewards.shape
      (128,)
    """
    bonus = distillation(feature_network)
    num_features = networks.num_features(space)

    def normalise(moments: Moments, observations: Array) -> Array:
        centred = dense(observations, num_features) - moments.mean[None]
        return jnp.clip(centred * jax.lax.rsqrt(moments.variance[None] + 1e-12), -clip, clip)

    def init(key: Key, observation: Array, policy: Params) -> DistilledState:
        return DistilledState(_init(bonus, optimizer, key, jnp.zeros(num_features)), no_moments((num_features,)))

    def rewards(state: DistilledState, policy: Params, observations: Array) -> tuple[DistilledState, Array]:
        moments = add_samples(state.moments, dense(observations, num_features))
        seen = normalise(moments, observations)
        return state._replace(moments=moments), bonus.rewards(state.fitted.learned, state.fitted.fixed, seen)

    def fit(state: DistilledState, key: Key, observations: Array) -> tuple[DistilledState, Array]:
        fitted, loss = _fit(bonus, optimizer, state.fitted, key, normalise(state.moments, observations))
        return state._replace(fitted=fitted), loss

    return Curiosity(init, rewards, fit)


class AntiConcentratedState(NamedTuple):
    fitted: Fitted
    average: Params  # of all iterates of what is fitted
    updates: Array  # () float32: how many iterates that were
    policy: Params  # follows the policy, at a distance
    mean: Array  # (features,): of the latest rollout's gradients
    scale: Array  # (features,): the inverse of their standard deviation


def anti_concentrated(
    policy: Network,
    optimizer: optax.GradientTransformation,
    space: gymnasium.Space,
    *,
    ensemble_size: int = 128,
    follow_rate: float | Array = 1e-6,
) -> Curiosity:
    """Anti-concentrated confidence bonuses, linear in the gradients of the policy.

    An observation's features are the gradient of the policy's loss on its own most probable action, with respect to every parameter,
    batch-normalised over the rollout. Rewards come from the average of all iterates of the linear fits to noise. The gradients are
    those of a slowly moving average of the policy, without which the features would change faster than anything can be fitted.

    Args:
      policy: maps observations to the logarithms of unnormalised probabilities.
      optimizer: any optax optimizer, for the fits.
      space: the observation space.
      ensemble_size: k, how many fits.
      follow_rate: how far the average of the policy moves towards it at each rollout.

    Returns:
      A `Curiosity`.

    Example:
      >>> space = gymnasium.spaces.Box(-1, 1, (2,))
      >>> policy = networks.mlp(space, num_outputs=3)
      >>> curiosity = anti_concentrated(policy, optax.rmsprop(1e-4), space)
      >>> params = policy.init(jax.random.key(0), jnp.zeros(2))
      >>> state = curiosity.init(jax.random.key(1), jnp.zeros(2), params)
      >>> state, rewards = curiosity.rewards(state, params, jnp.zeros((128, 2)))
      >>> rewards.shape
      (128,)
    """
    shapes = jax.eval_shape(policy.init, jax.random.key(0), jnp.zeros(space.shape or (), space.dtype))
    num_features = sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(shapes))
    bonus = noise_fits(networks.linear(gymnasium.spaces.Box(-np.inf, np.inf, (num_features,)), ensemble_size, bias=False))

    def see(state: AntiConcentratedState, observations: Array) -> Array:
        return (policy_gradients(policy, state.policy, observations) - state.mean[None]) * state.scale[None]

    def init(key: Key, observation: Array, policy: Params) -> AntiConcentratedState:
        zeros = jnp.zeros(num_features)
        fitted = _init(bonus, optimizer, key, zeros)
        return AntiConcentratedState(fitted, fitted.learned, jnp.zeros(()), policy, zeros, zeros)

    def rewards(state: AntiConcentratedState, policy_params: Params, observations: Array) -> tuple[AntiConcentratedState, Array]:
        follower = jax.tree.map(lambda slow, fast: slow + follow_rate * (fast - slow), state.policy, policy_params)
        gradients = policy_gradients(policy, follower, observations)
        mean, scale = gradients.mean(axis=0), jax.lax.rsqrt(gradients.var(axis=0) + 1e-5)
        state = state._replace(policy=follower, mean=mean, scale=scale)
        return state, bonus.rewards(state.average, state.fitted.fixed, (gradients - mean[None]) * scale[None])

    def fit(state: AntiConcentratedState, key: Key, observations: Array) -> tuple[AntiConcentratedState, Array]:
        fitted, loss = _fit(bonus, optimizer, state.fitted, key, see(state, observations))
        updates = state.updates + 1
        average = jax.tree.map(lambda mean, new: mean + (new - mean) / updates, state.average, fitted.learned)
        return state._replace(fitted=fitted, average=average, updates=updates), loss

    return Curiosity(init, rewards, fit)


def policy_gradients(policy: Network, params: Params, observations: Array) -> Array:
    """Per-sample gradients of a policy's loss: what its most probable action is worth learning about, for each parameter.

    Args:
      policy: maps an observation to the logarithms of unnormalised probabilities.
      params: its parameters, p in all.
      observations: (B, ...).

    Returns:
      (B, p): the gradients of -log pi(a|s) times sqrt(pi(a|s)), where a is the most probable action and the root is held constant.
    """

    def loss(params: Params, observation: Array) -> Array:
        logits = policy.apply(params, observation)
        log_prob = jax.nn.log_softmax(logits)[jnp.argmax(logits)]
        return -log_prob * jax.lax.stop_gradient(jnp.exp(log_prob / 2))

    gradients = jax.vmap(jax.grad(loss), (None, 0))(params, observations)
    return jnp.concatenate([leaf.reshape(len(observations), -1) for leaf in jax.tree.leaves(gradients)], axis=1)


def dense(observations: Array, num_features: int) -> Array:
    """(B, ...) floats, or indices of active features that are worth 1 / their number each -> (B, num_features)."""
    if not jnp.issubdtype(observations.dtype, jnp.integer):
        return observations.reshape(len(observations), -1)
    zeros = jnp.zeros(num_features)
    return jax.vmap(lambda active: zeros.at[active].add(1 / len(active)))(observations)
