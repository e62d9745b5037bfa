"""Single equations that several methods share."""

import jax
import jax.numpy as jnp

from vbe.types import Array, Key


def take(values: Array, action: Array) -> Array:
    """(B, A) values, (B,) actions -> (B,). A sum over a mask, since gathers and their gradients are slow where A is small."""
    return jnp.sum(jnp.where(action[:, None] == jnp.arange(values.shape[1])[None], values, 0), axis=1)


def squared_error(prediction: Array, target: Array) -> Array:
    return jnp.mean(jnp.square(prediction - jax.lax.stop_gradient(target)))


def greedy(values: Array, key: Key) -> Array:
    """(A,) values -> the index of the largest, ties broken uniformly at random."""
    return jnp.argmax(jnp.where(values >= jnp.max(values), jax.random.uniform(key, values.shape), -1)).astype(jnp.int32)
