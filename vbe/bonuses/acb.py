"""ACB: anti-concentrated confidence bonuses as a value bonus."""

import jax
import jax.numpy as jnp
import optax

from vbe.bonuses.intrinsic import RewardBonus, intrinsic
from vbe.equations import squared_error
from vbe.types import Array, Bonus, Key, Network, Params


def noise_fits(network: Network) -> RewardBonus:
    """Rewards how far the largest of several fits to pure noise strays from zero: max_i of the squared outputs.

    Every loss is against new N(0, 1) labels. The more often an observation is seen, the closer their mean, zero, is fitted there.
    """

    def init(key: Key, observation: Array) -> tuple[Params, tuple[()]]:
        return network.init(key, observation), ()

    def rewards(fits: Params, fixed: tuple[()], observations: Array) -> Array:
        del fixed
        return jnp.max(jnp.square(network.apply(fits, observations)), axis=-1)

    def loss(fits: Params, fixed: tuple[()], key: Key, observations: Array) -> Array:
        del fixed
        outputs = network.apply(fits, observations)
        return squared_error(outputs, jax.random.normal(key, outputs.shape))

    return RewardBonus(init, rewards, loss)


def acb(
    network: Network,
    feature_network: Network,
    optimizer: optax.GradientTransformation,
    *,
    discount: float | Array = 0.99,
) -> Bonus:
    """Anti-concentrated confidence bonuses: b = the action values of the reward bonus max_i g_i(s')^2.

    The k outputs of g are fitted, at every update, to fresh N(0, 1) labels on the observations that are seen, so that the reward
    bonus stays large where they were few. It comes after the fact: a pair of state and action that was never tried has whatever
    value it started with.

    Args:
      network: maps observations to one value per action.
      feature_network: maps observations to the k outputs that are fitted to noise.
      optimizer: any optax optimizer, for values and fits together.
      discount: gamma, may be a traced array. The values are non-episodic: a termination does not stop their bootstrapping.

    Returns:
      A `Bonus`.

    Example:
      >>> import gymnasium
      >>> from vbe import networks
      >>> space = gymnasium.spaces.Box(-1, 1, (2,))
      >>> bonus = acb(networks.mlp(space, num_outputs=3), networks.mlp(space, num_outputs=20), optax.adam(1e-3))
      >>> state = bonus.init(jax.random.key(0), jnp.zeros(2))
      >>> bonus.values(state, jnp.zeros(2)).shape
      (3,)
    """
    return intrinsic(network, noise_fits(feature_network), optimizer, discount=discount)
