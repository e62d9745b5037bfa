"""Tile coding: how many tiles are active, which ones places share, and how many have to share a feature."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.spaces import MultiDiscrete
from hypothesis import given, settings
from hypothesis import strategies as st

from vbe.environments import collisions, featurise, make, tile_coder
from vbe.types import UsageError

# name: (dimensions, tiles, tilings, features, tiles of all tilings)
PAPER = {
    "RiverSwim": (1, 4, 32, 128, 159),
    "PuddleWorld": (2, 5, 5, 128, 169),
    "SparseMountainCar": (2, 4, 16, 512, 391),
}
CODERS = {name: tile_coder([0] * d, [1] * d, tiles, tilings, n) for name, (d, tiles, tilings, n, _) in PAPER.items()}
APPLY = {name: jax.jit(coder.apply) for name, coder in CODERS.items()}
NUMBER = {name: jax.jit(coder.number) for name, coder in CODERS.items()}

paper = pytest.mark.parametrize("name", PAPER)
unit = st.floats(0, 1, width=32)


def grid(name):
    """A point in the middle of each of the smallest cells that the tilings can tell apart."""
    dimensions, tiles, tilings, _, _ = PAPER[name]
    axis = (np.arange(tiles * tilings) + 0.5) / (tiles * tilings)
    return jnp.array(list(itertools.product(axis, repeat=dimensions)), jnp.float32)


def reference(observation, tiles, tilings):
    """The tiles of tiles3 as (tiling, coordinates...): a displacement of 1, 3, 5, ... units for each tiling more."""
    active = []
    for tiling in range(tilings):
        coordinates = []
        for axis, value in enumerate(observation):
            units = min(math.floor(value * tiles * tilings), tiles * tilings - 1)
            coordinates.append((units + tiling * (2 * axis + 1)) // tilings)
        active.append((tiling, *coordinates))
    return active


@paper
@given(data=st.data())
def test_each_tiling_has_one_active_feature_of_its_own(name, data):
    dimensions, _, tilings, features, total = PAPER[name]
    observation = jnp.array(data.draw(st.lists(unit, min_size=dimensions, max_size=dimensions)), jnp.float32)
    active, numbers = APPLY[name](observation), NUMBER[name](observation)
    assert active.shape == (tilings,)
    assert active.dtype == jnp.int32
    assert active.min() >= 0
    assert active.max() < features
    assert len(set(active.tolist())) == tilings
    assert (np.diff(numbers) > 0).all()
    assert numbers.min() >= 0
    assert numbers.max() < total


@paper
def test_tiles_are_those_of_tiles3(name):
    _, tiles, tilings, _, total = PAPER[name]
    points = grid(name)[:: 1 if name != "SparseMountainCar" else 7]
    numbers = np.asarray(jax.vmap(CODERS[name].number)(points))
    names = {}
    for point, row in zip(np.asarray(points, np.float64), numbers, strict=True):
        for tile, number in zip(reference(point, tiles, tilings), row.tolist(), strict=True):
            assert names.setdefault(tile, number) == number
    assert len(set(names.values())) == len(names) <= total


@paper
@given(data=st.data())
def test_places_share_the_fewer_tiles_the_farther_apart(name, data):
    dimensions, tiles, tilings, _, _ = PAPER[name]
    points = st.lists(unit, min_size=dimensions, max_size=dimensions).map(lambda point: np.array(point, np.float32))
    here, there = data.draw(points), data.draw(points)
    way = here + np.linspace(0, 1, 9, dtype=np.float32)[:, None] * (there - here)
    tiles_on_way = np.asarray(jax.vmap(NUMBER[name])(jnp.asarray(way)))
    shared = (tiles_on_way == tiles_on_way[0]).sum(-1)
    assert shared[0] == tilings
    assert (np.diff(shared) <= 0).all()
    # Along one axis a tiling is lost with every 1 / tilings of a tile.
    beside = here.copy()
    beside[0] = there[0]
    moved = abs(
        math.floor(min(here[0], 1 - 1e-7) * tiles * tilings) - math.floor(min(there[0], 1 - 1e-7) * tiles * tilings)
    )
    common = int((NUMBER[name](jnp.asarray(here)) == NUMBER[name](jnp.asarray(beside))).sum())
    assert common == pytest.approx(max(0, tilings - moved), abs=1)


@paper
def test_collisions_at_the_papers_settings_are_as_few_as_can_be(name):
    _, _, _, features, total = PAPER[name]
    points, coder = grid(name), CODERS[name]
    numbers = np.unique(jax.vmap(coder.number)(points))
    np.testing.assert_array_equal(numbers, np.arange(total))
    assert collisions(coder, points) == max(0, total - features)
    assert np.bincount(numbers % features).max() <= math.ceil(total / features)
    # Tiles that share a feature are nowhere active at once.
    active = np.sort(jax.vmap(coder.apply)(points), -1)
    assert (np.diff(active, axis=-1) > 0).all()


@settings(max_examples=10)
@given(st.integers(1, 4), st.integers(1, 6), st.integers(1, 2), st.integers(1, 80), st.data())
def test_collisions_are_bounded_whatever_the_setting(tiles, tilings, dimensions, features, data):
    low = data.draw(st.lists(st.integers(-3, 3), min_size=dimensions, max_size=dimensions))
    coder = tile_coder(low, [bound + 2 for bound in low], tiles, tilings, features)
    axis = 2 * (np.arange(tiles * tilings) + 0.5) / (tiles * tilings)
    points = np.array(list(itertools.product(axis, repeat=dimensions)), np.float32) + np.array(low, np.float32)
    numbers = np.unique(np.asarray(jax.jit(jax.vmap(coder.number))(jnp.asarray(points))))
    expected = {tile for point in points for tile in reference((point - low) / 2, tiles, tilings)}
    np.testing.assert_array_equal(numbers, np.arange(len(expected)))
    assert collisions(coder, jnp.asarray(points)) == max(0, len(expected) - features)


def test_observations_outside_count_as_on_the_border():
    coder = tile_coder([-1.0, 0.0], [1.0, 2.0], tiles=3, tilings=4, features=100)
    np.testing.assert_array_equal(coder.apply(jnp.array([-7.0, 9.0])), coder.apply(jnp.array([-1.0, 2.0])))
    np.testing.assert_array_equal(coder.apply(jnp.array([1.0, 0.0])), coder.apply(jnp.array([0.999, 0.001])))


@pytest.mark.parametrize("name", ["RiverSwim", "PuddleWorld", "SparseMountainCar"])
def test_environments_are_tiled_as_in_the_paper(name):
    _, _, tilings, features, _ = PAPER[name]
    plain, tiled = make(name), featurise(make(name), name, "tiles")
    key = jax.random.key(0)
    np.testing.assert_array_equal(tiled.reset(key)[1], APPLY[name](plain.reset(key)[1]))
    assert isinstance(tiled.observation_space, MultiDiscrete)
    assert tiled.observation_space.nvec.tolist() == [features] * tilings
    assert tiled.observation_space == CODERS[name].space


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0, 0], [1], 4, 4, 64), r"low=\[0, 0\], high=\[1\]"),
        ((0.0, 0.0, 4, 4, 64), r"low=0\.0, high=0\.0"),
        ((0.0, 1.0, 0, 4, 64), r"tiles=0: must be a positive integer"),
        ((0.0, 1.0, 4, 2.5, 64), r"tilings=2\.5: must be a positive integer"),
        ((0.0, 1.0, 4, 4, -1), r"features=-1: must be a positive integer"),
        (([0] * 40, [1] * 40, 9, 4, 64), r"tiles=9, tilings=4: more tiles than int32 can number"),
    ],
)
def test_impossible_settings_are_refused(arguments, message):
    with pytest.raises(UsageError, match=message):
        tile_coder(*arguments)
