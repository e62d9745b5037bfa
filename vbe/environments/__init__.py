"""The paper's classic control problems, as pure functions of one lane.

`ENVIRONMENTS` maps names to factories, `FEATURES` maps them to the ways in which each environment can be seen. An environment of
your own needs an entry in the first; without one in the second it is seen as it is.
"""

import inspect
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from gymnasium.spaces import Box  # the name `gymnasium` belongs to this room's module

from vbe.environments.deep_sea import deep_sea
from vbe.environments.features import TileCoder, collisions, tile_coder
from vbe.environments.mountain_car import sparse_mountain_car
from vbe.environments.puddle_world import puddle_world
from vbe.environments.river_swim import river_swim
from vbe.environments.wrappers import with_features, without_reward
from vbe.options import did_you_mean
from vbe.types import Environment, UsageError

__all__ = [
    "ENVIRONMENTS",
    "FEATURES",
    "TileCoder",
    "collisions",
    "deep_sea",
    "featurise",
    "make",
    "puddle_world",
    "river_swim",
    "sparse_mountain_car",
    "tile_coder",
    "with_features",
    "without_reward",
]

ENVIRONMENTS: dict[str, Callable[..., Environment]] = {
    "RiverSwim": river_swim,
    "PuddleWorld": puddle_world,
    "SparseMountainCar": sparse_mountain_car,
    "DeepSea": deep_sea,
}


def _as_it_is(environment: Environment) -> Environment:
    return environment


def _tiled(tiles: int, tilings: int, features: int) -> Callable[[Environment], Environment]:
    def see(environment: Environment) -> Environment:
        space = environment.observation_space
        assert isinstance(space, Box)
        coder = tile_coder(space.low.tolist(), space.high.tolist(), tiles, tilings, features)
        return with_features(environment, coder.apply, coder.space)

    return see


def _cell_coordinates(environment: Environment) -> Environment:
    rows, columns = np.tril_indices(int((2 * environment.num_states) ** 0.5))
    coordinates = (np.stack([rows, columns], axis=-1) / rows[-1]).astype(np.float32)
    space = Box(0.0, 1.0, (2,), np.float32)
    return with_features(environment, lambda index: jnp.asarray(coordinates)[index[0]], space)


# Each environment's natural features come first: they are what `featurise` takes for None.
FEATURES: dict[str, dict[str, Callable[[Environment], Environment]]] = {
    "RiverSwim": {"raw": _as_it_is, "tiles": _tiled(4, 32, 128)},
    "PuddleWorld": {"raw": _as_it_is, "tiles": _tiled(5, 5, 128)},
    "SparseMountainCar": {"raw": _as_it_is, "tiles": _tiled(4, 16, 512)},
    "DeepSea": {"one-hot": _as_it_is, "raw": _cell_coordinates},
}


def make(name: str, **options: Any) -> Environment:
    """Makes an environment by its name.

    Args:
      name: one of `ENVIRONMENTS`.
      **options: the keyword arguments of its factory, such as `size` of Deepsea.

    Returns:
      An `Environment`.

    Raises:
      UsageError: if there is no such environment or option, or the option's value is impossible.

    Example:
      >>> from vbe.environments import make
      >>> make("DeepSea", size=50).num_states
      1275
    """
    if name not in ENVIRONMENTS:
        raise UsageError(f"name={name!r}: no such environment{did_you_mean(name, ENVIRONMENTS)}")
    factory = ENVIRONMENTS[name]
    known = inspect.signature(factory).parameters
    for option, value in options.items():
        if option not in known:
            raise UsageError(f"{option}={value!r}: {name} has no such option{did_you_mean(option, known)}")
    return factory(**options)


def featurise(environment: Environment, name: str, features: str | None = None) -> Environment:
    """The same environment with its observations coded in one of the ways that the paper uses.

    Args:
      environment: what `make(name, ...)` gave.
      name: its name.
      features: "raw" (floats in [0, 1]), "one-hot" (the index of the cell) or "tiles" (the indices of the active tiles,
        with the paper's numbers of tiles and tilings); None for what is natural there: one-hot for Deepsea, raw for
        the others.

    Returns:
      An `Environment`. If its observations are indices, its observation space is a `MultiDiscrete`, otherwise a `Box`.

    Raises:
      UsageError: if the environment cannot be coded so.

    Example:
      >>> from vbe.environments import featurise, make
      >>> featurise(make("RiverSwim"), "RiverSwim", "tiles").observation_space.shape
      (32,)
    """
    if name not in ENVIRONMENTS:
        raise UsageError(f"name={name!r}: no such environment{did_you_mean(name, ENVIRONMENTS)}")
    ways = FEATURES.get(name, {"raw": _as_it_is})
    if features is None:
        features = next(iter(ways))
    if features not in ways:
        raise UsageError(f"features={features!r}: {name} has no such features{did_you_mean(features, ways)}")
    return ways[features](environment)
