"""Keys whose draws compile to straight-line code.

JAX's own generator, Threefry-2x32 with 20 rounds, becomes a loop of small kernels on a CPU: at a few draws per step, each of a few
numbers, that is as much work as a network's update. This is the same function with 13 rounds, the fewest that pass BigCrush
(Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011), written out, so that XLA fuses it with whatever uses the bits.
"""

import math

import jax
import jax.numpy as jnp
from jax.extend import random as extend

from vbe.types import Array, Key

ROUNDS = 13
ROTATIONS = (13, 15, 26, 6, 17, 29, 16, 24)
PARITY = 0x1BD11BDA
BITS, SPLIT, FOLD = range(3)  # the second word of a counter: draws for different purposes never meet


def threefry(key: Array, count: Array, purpose: int, rounds: int = ROUNDS) -> tuple[Array, Array]:
    """Threefry-2x32 of the counters (count, purpose): (2,) uint32, (...) uint32 -> two words, (...) uint32 each."""
    words = (key[0], key[1], key[0] ^ key[1] ^ jnp.uint32(PARITY))
    x, y = count + words[0], jnp.uint32(purpose) + words[1] + jnp.zeros_like(count)
    for i in range(rounds):
        turn = ROTATIONS[i % 8]
        x = x + y
        y = ((y << turn) | (y >> (32 - turn))) ^ x
        if i % 4 == 3:
            j = i // 4 + 1
            x, y = x + words[j % 3], y + words[(j + 1) % 3] + jnp.uint32(j)
    return x, y


def _count(shape: tuple[int, ...]) -> Array:
    return jnp.arange(math.prod(shape), dtype=jnp.uint32).reshape(shape)


def _seed(seed: Array) -> Array:
    return jnp.stack([jnp.zeros((), jnp.uint32), jnp.asarray(seed).astype(jnp.uint32)])


def _split(key: Array, shape: tuple[int, ...]) -> Array:
    x, y = threefry(key, _count(shape)[..., None], SPLIT)
    return jnp.where(jnp.arange(2) == 0, x, y)


def _fold_in(key: Array, data: Array | int) -> Array:
    return jnp.stack(threefry(key, jnp.asarray(data).astype(jnp.uint32), FOLD))


def _bits(key: Array, bit_width: int, shape: tuple[int, ...]) -> Array:
    x, y = threefry(key, _count(shape), BITS)
    if bit_width == 64:
        return x.astype(jnp.uint64) << 32 | y.astype(jnp.uint64)
    return x.astype(jnp.dtype(f"uint{bit_width}"))


_IMPLEMENTATION = extend.define_prng_impl(
    key_shape=(2,), seed=_seed, split=_split, random_bits=_bits, fold_in=_fold_in, name="vbe_threefry13", tag="vbe13"
)


def key(seed: int | Array) -> Key:
    """A typed key, for `jax.random`'s functions as any other.

    Args:
      seed: an integer in [0, 2**32).

    Example:
      >>> float(jax.random.uniform(key(0))) == float(jax.random.uniform(key(1)))
      False
    """
    return jax.random.key(seed, impl=_IMPLEMENTATION)
