"""RND: random network distillation as a value bonus."""

import jax
import jax.numpy as jnp
import optax

from vbe.bonuses.intrinsic import RewardBonus, intrinsic
from vbe.equations import squared_error
from vbe.types import Array, Bonus, Key, Network, Params


def distillation(network: Network) -> RewardBonus:
    """Rewards what a predictor has not yet learned of a fixed random network: half the summed squared error."""

    def init(key: Key, observation: Array) -> tuple[Params, Params]:
        predictor_key, target_key = jax.random.split(key)
        return network.init(predictor_key, observation), network.init(target_key, observation)

    def rewards(predictor: Params, target: Params, observations: Array) -> Array:
        return jnp.sum(jnp.square(network.apply(predictor, observations) - network.apply(target, observations)), axis=-1) / 2

    def loss(predictor: Params, target: Params, key: Key, observations: Array) -> Array:
        del key
        return squared_error(network.apply(predictor, observations), network.apply(target, observations))

    return RewardBonus(init, rewards, loss)


def rnd(
    network: Network,
    feature_network: Network,
    optimizer: optax.GradientTransformation,
    *,
    discount: float | Array = 0.99,
) -> Bonus:
    """Random network distillation: b = the action values of the reward bonus |g(s') - g*(s')|^2 / 2.

    The predictor g learns the fixed random network g* on the observations that are seen, so that the reward bonus stays large where
    they were few. It comes after the fact: a pair of state and action that was never tried has whatever value it started with.

    Args:
      network: maps observations to one value per action.
      feature_network: maps observations to features, 64 in the paper: the architecture of the predictor and of what it predicts.
      optimizer: any optax optimizer, for values and predictor together.
      discount: gamma, may be a traced array. The values are non-episodic: a termination does not stop their bootstrapping.

    Returns:
      A `Bonus`.

    Example:
      >>> import gymnasium
      >>> from vbe import networks
      >>> space = gymnasium.spaces.Box(-1, 1, (2,))
      >>> bonus = rnd(networks.mlp(space, num_outputs=3), networks.mlp(space, num_outputs=64), optax.adam(1e-3))
      >>> state = bonus.init(jax.random.key(0), jnp.zeros(2))
      >>> bonus.values(state, jnp.zeros(2)).shape
      (3,)
    """
    return intrinsic(network, distillation(feature_network), optimizer, discount=discount)
