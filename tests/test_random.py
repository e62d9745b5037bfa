"""The generator: the published function, and keys whose draws are as good, and as reproducible, as JAX's own."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from jax.extend.random import threefry_2x32
from numpy.typing import ArrayLike

from vbe import random

# Of Salmon et al.'s own test vectors (kat_vectors of Random123): rounds, key, counter, and what comes out.
PUBLISHED = [
    (13, (0, 0), (0, 0), (0x9D1C5EC6, 0x8BD50731)),
    (13, (0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0xFD36D048, 0x2D17272C)),
    (13, (0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xBA3E4725, 0xF27D669E)),
    (20, (0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
    (20, (0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
    (20, (0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
]


def words(*numbers: int) -> jax.Array:
    return jnp.array(numbers, jnp.uint32)


@pytest.mark.parametrize(("rounds", "key", "counter", "expected"), PUBLISHED)
def test_the_function_is_the_published_one(rounds: int, key: tuple[int, int], counter: tuple[int, int], expected: tuple[int, int]) -> None:
    x, y = random.threefry(words(*key), jnp.uint32(counter[0]), counter[1], rounds)
    assert (int(x), int(y)) == expected


@pytest.mark.parametrize("purpose", [random.BITS, random.SPLIT, random.FOLD, 2**32 - 1])
def test_with_20_rounds_it_is_jaxs_own(purpose: int) -> None:
    key, counts = words(0x12345678, 0x9ABCDEF0), jnp.asarray(np.random.default_rng(0).integers(0, 2**32, 1_000), jnp.uint32)
    x, y = random.threefry(key, counts, purpose, rounds=20)
    # JAX takes the first words of all counters and then the second words.
    theirs = threefry_2x32(key, jnp.concatenate([counts, jnp.full_like(counts, purpose)]))
    np.testing.assert_array_equal(jnp.concatenate([x, y]), theirs)


def test_13_rounds_are_used_no_fewer() -> None:
    key = random.key(7)
    x, _ = random.threefry(jax.random.key_data(key), jnp.arange(5, dtype=jnp.uint32), random.BITS, rounds=13)
    np.testing.assert_array_equal(jax.random.bits(key, (5,)), x)


def unique(keys: jax.Array) -> int:
    return len(np.unique(np.asarray(jax.random.key_data(keys)).reshape(-1, 2), axis=0))


def test_keys_that_are_split_or_folded_differ_from_each_other_and_from_all_before() -> None:
    seeds = jax.vmap(random.key)(jnp.arange(100, dtype=jnp.uint32))
    split = jax.vmap(lambda key: jax.random.split(key, 50))(seeds)
    folded = jax.vmap(lambda key: jax.vmap(lambda time: jax.random.fold_in(key, time))(jnp.arange(50)))(seeds)
    everything = jnp.concatenate([seeds, split.ravel(), folded.ravel()])
    assert unique(everything) == len(everything) == 100 * 101
    # Both words of a key are drawn: 64 bits, not 32 twice.
    first, second = np.asarray(jax.random.key_data(everything[100:])).T
    assert (first != second).all()
    assert sound(first / 2**32, "uniform") and sound(second / 2**32, "uniform")
    # What one key draws is no key that it leads to either: purposes have counters of their own.
    drawn = jax.random.bits(seeds[3], (200,))
    assert not np.isin(jax.random.key_data(jnp.concatenate([split[3], folded[3]])), drawn).any()


def test_the_first_of_many_keys_are_those_of_a_few_and_shapes_do_not_matter() -> None:
    key = random.key(1)
    many = jax.random.key_data(jax.random.split(key, 12))
    np.testing.assert_array_equal(many[:5], jax.random.key_data(jax.random.split(key, 5)))
    np.testing.assert_array_equal(many.reshape(3, 4, 2), jax.random.key_data(jax.random.split(key, (3, 4))))
    np.testing.assert_array_equal(jax.random.bits(key, (12,)).reshape(3, 4), jax.random.bits(key, (3, 4)))
    np.testing.assert_array_equal(jax.random.bits(key, (12,))[0], jax.random.bits(key))


def test_every_seed_counts_to_its_last_bit() -> None:
    seeds = [0, 1, 2, 2**16, 2**31 - 1, 2**31, 2**32 - 1]
    keys = jnp.stack([random.key(np.uint32(seed)) for seed in seeds])
    assert unique(keys) == len(seeds)
    assert len(np.unique(jax.vmap(jax.random.bits)(keys))) == len(seeds)


def draws(seeds: int, each: int, draw: Callable[[jax.Array, tuple[int]], jax.Array], first: int = 0) -> np.ndarray:
    keys = jax.vmap(random.key)(jnp.arange(first, first + seeds, dtype=jnp.uint32))
    return np.asarray(jax.vmap(lambda key: draw(key, (each,)))(keys), np.float64)


def sound(statistics: ArrayLike, distribution: str) -> bool:
    """A verdict that a good generator fails once in ten thousand times; the draws are the same in every run of this test."""
    return bool(scipy.stats.kstest(np.ravel(statistics), distribution).pvalue > 1e-4)


@pytest.mark.parametrize(("draw", "distribution"), [(jax.random.uniform, "uniform"), (jax.random.normal, "norm")])
def test_draws_have_the_distribution_that_they_should(draw: Callable[..., jax.Array], distribution: str) -> None:
    # Many from one key, and the first few of many keys, as a loop's steps draw them.
    assert sound(draws(1, 20_000, draw), distribution)
    few = draws(10_000, 2, draw)
    assert sound(few, distribution)
    # Neighbours are strangers: draws of a key, and draws of two seeds that follow each other.
    for one, other in ((few[:, 0], few[:, 1]), (few[:-1, 0], few[1:, 0])):
        assert abs(np.corrcoef(one, other)[0, 1]) < 4 / len(one) ** 0.5


def test_integers_coins_and_permutations_are_fair() -> None:
    key = random.key(3)
    integers = np.bincount(jax.random.randint(key, (20_000,), 0, 7), minlength=7)
    coins = np.bincount(jax.random.bernoulli(key, shape=(20_000,)).astype(np.int32), minlength=2)
    firsts = np.bincount(jax.vmap(lambda k: jax.random.permutation(k, 5)[0])(jax.random.split(key, 5_000)), minlength=5)
    for counts in (integers, coins, firsts):
        assert scipy.stats.chisquare(counts).pvalue > 1e-4


def test_half_of_the_bits_flip_with_any_bit_of_the_seed_or_the_time() -> None:
    """An avalanche: what differs in one bit leads to what has nothing in common."""

    def at(seed: jax.Array, time: jax.Array) -> jax.Array:
        return jax.random.key_data(jax.random.fold_in(random.key(seed), time))

    bits = jnp.uint32(1) << jnp.arange(32, dtype=jnp.uint32)
    base = np.asarray(at(jnp.uint32(5), jnp.uint32(9)))
    for moved in (jax.vmap(at, (0, None))(5 ^ bits, jnp.uint32(9)), jax.vmap(at, (None, 0))(jnp.uint32(5), 9 ^ bits)):
        flipped = np.unpackbits((np.asarray(moved) ^ base).view(np.uint8).reshape(32, 8), axis=1)
        assert flipped.sum(axis=1).min() > 32 - 4.5 * 4 and flipped.sum(axis=1).max() < 32 + 4.5 * 4
        assert abs(flipped.mean() - 0.5) < 4 * 0.5 / flipped.size**0.5


def test_lanes_and_compilation_give_the_same_bits() -> None:
    def draw(seed: jax.Array) -> tuple[jax.Array, ...]:
        split = jax.random.split(jax.random.fold_in(random.key(seed), 11), 3)
        return (
            jax.random.key_data(split),
            jax.random.bits(split[0], (3,)),
            jax.random.bits(split[1], (3,), "uint8"),
            jax.random.bits(split[2]),
        )

    seeds = jnp.arange(4, dtype=jnp.uint32)
    mapped, compiled = jax.vmap(draw)(seeds), jax.jit(jax.vmap(draw))(seeds)
    for i in range(4):
        alone = draw(seeds[i])
        for ways in zip(alone, jax.jit(draw)(seeds[i]), (x[i] for x in mapped), (x[i] for x in compiled), strict=True):
            assert all(np.array_equal(ways[0], way) for way in ways)


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32"])
def test_bits_of_every_width_are_all_used(dtype: str) -> None:
    drawn = np.asarray(jax.random.bits(random.key(0), (4_000,), dtype))
    assert drawn.dtype == dtype
    ones = np.unpackbits(drawn.view(np.uint8).reshape(4_000, -1), axis=1).mean(axis=0)
    assert ones.shape == (np.dtype(dtype).itemsize * 8,) and np.abs(ones - 0.5).max() < 4.5 * 0.5 / 4_000**0.5
