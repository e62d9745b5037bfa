"""Networks as plain pytrees: linear functions and multilayer perceptrons over dense or indexed observations, and ensembles.

Activations are held as (features, B), so that the batch, not the odd width of a layer, fills a CPU's vector registers: weights are
stored (outputs, inputs) and multiplied from the left. A first layer over indices is a table instead, one row per feature.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

from vbe.types import Array, Key, Network, Params


class Initializer(NamedTuple):
    """How a network begins: numbers of unit scale, which are then divided by sqrt(fan_in) in each layer."""

    draw: Callable[[Key, tuple[int, ...]], Array]  # (key, shape) -> numbers
    draws_biases: bool  # or are they zero?


uniform = Initializer(lambda key, shape: jax.random.uniform(key, shape, minval=-1, maxval=1), draws_biases=True)
truncated_normal = Initializer(lambda key, shape: jax.random.truncated_normal(key, -2, 2, shape), draws_biases=False)


class Layer(NamedTuple):
    weights: Array  # (outputs, inputs); (inputs, outputs) where the inputs are indices
    bias: Array | None  # (outputs,)


def num_features(space: gymnasium.Space) -> int:
    """How many inputs a first layer needs: the length of a vector, or the number of features that indices choose from."""
    return int(space.nvec[0]) if isinstance(space, gymnasium.spaces.MultiDiscrete) else int(np.prod(space.shape or ()))


def mlp(
    space: gymnasium.Space,
    num_outputs: int,
    hidden: Sequence[int] = (50, 50),
    *,
    bias: bool = True,
    initializer: Initializer = uniform,
) -> Network:
    """A ReLU perceptron; with `hidden=()` a linear function.

    Args:
      space: the observation space. A `MultiDiscrete` space holds the indices of the active features, each worth 1 / their number:
        the first layer is then a gather.
      num_outputs: how many numbers come out.
      hidden: the widths of the hidden layers.
      bias: whether layers have a bias term.
      initializer: draws weights and biases.

    Example:
      >>> space = gymnasium.spaces.Box(-1, 1, (2,))
      >>> network = mlp(space, num_outputs=3)
      >>> params = network.init(jax.random.key(0), jnp.zeros(2))
      >>> network.apply(params, jnp.zeros(2)).shape, network.apply(params, jnp.zeros((128, 2))).shape
      ((3,), (128, 3))
    """
    sizes = (num_features(space), *hidden, num_outputs)
    sparse = isinstance(space, gymnasium.spaces.MultiDiscrete)

    def init(key: Key, observation: Array) -> Params:
        del observation
        # One draw for all layers: XLA's compile time grows with the number of draws.
        shapes = [(inputs + 1, outputs) for inputs, outputs in itertools.pairwise(sizes)]
        ends = np.cumsum([inputs * outputs for inputs, outputs in shapes])
        parts = jnp.split(initializer.draw(key, (int(ends[-1]),)), ends[:-1])
        layers: list[Layer] = []
        for (rows, outputs), part in zip(shapes, parts, strict=True):
            numbers = part.reshape(rows, outputs) * (rows - 1) ** -0.5
            biases = numbers[-1] if initializer.draws_biases else jnp.zeros(outputs)
            weights = numbers[:-1] if not layers and sparse else numbers[:-1].T
            layers.append(Layer(weights, biases if bias else None))
        return tuple(layers)

    def apply(params: Params, x: Array) -> Array:
        h = _gather(params[0], x) if jnp.issubdtype(x.dtype, jnp.integer) else _product(params[0], x.T)
        for layer in params[1:]:
            h = _product(layer, jax.nn.relu(h))
        return h.T

    return Network(init, apply)


def linear(space: gymnasium.Space, num_outputs: int, *, bias: bool = True, initializer: Initializer = uniform) -> Network:
    """A linear function of the features: over one-hot indices a table, over tiles tile coding."""
    return mlp(space, num_outputs, (), bias=bias, initializer=initializer)


def per_example(init: Callable[[Key, Array], Params], apply: Callable[[Params, Array], Array], ndim: int) -> Network:
    """Makes a `Network` of a function of a single observation with `ndim` axes."""
    return Network(init, lambda params, x: apply(params, x) if x.ndim == ndim else jax.vmap(apply, (None, 0))(params, x))


def ensemble(network: Network, size: int) -> Network:
    """`size` independent copies: parameters gain a leading axis, and so do outputs."""
    return Network(
        lambda key, observation: jax.vmap(network.init, (0, None))(jax.random.split(key, size), observation),
        jax.vmap(network.apply, (0, None)),
    )


def _gather(layer: Layer, x: Array) -> Array:
    """(active,) | (B, active) indices -> (outputs,) | (outputs, B)."""
    return _add_bias(layer, layer.weights[x].sum(-2).T / x.shape[-1])


def _product(layer: Layer, x: Array) -> Array:
    """(inputs,) | (inputs, B) -> (outputs,) | (outputs, B)."""
    return _add_bias(layer, layer.weights @ x)


def _add_bias(layer: Layer, y: Array) -> Array:
    return y if layer.bias is None else y + layer.bias.reshape(-1, *[1] * (y.ndim - 1))
