"""Sparse features: observations coded as the indices of the features that are active.

A linear layer on them is a gather of a few rows of weights instead of a matrix product. Where several features are
active, the network scales them by 1 / (their number), so that step sizes mean the same for any number of tilings.
"""

from collections.abc import Callable, Sequence
from numbers import Integral
from typing import NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

from vbe.types import Array, UsageError


class TileCoder(NamedTuple):
    """Tile coding as functions of one observation."""

    apply: Callable[[Array], Array]  # observation (dimensions,) -> active features (tilings,) int32
    number: Callable[[Array], Array]  # observation (dimensions,) -> the tiles that it lies in (tilings,) int32
    space: gymnasium.Space  # the MultiDiscrete of what `apply` gives


def tile_coder(
    low: float | Sequence[float], high: float | Sequence[float], tiles: int, tilings: int, features: int
) -> TileCoder:
    """Joint tile coding in the manner of Sutton's tiles3, as a pure function.

    As there, tiling t is displaced by t * (1, 3, 5, ...) / tilings of a tile along the dimensions. There, a tile is
    given an index when it is first met, for as long as there are any, and a hashed one from then on. A pure function
    remembers nothing: here all tiles of all tilings are numbered beforehand, tiling by tiling, and the index is this
    number modulo `features`. As there, tiles that fit do not collide. Of those that do not, as few as possible collide,
    whatever the order of visits, and no feature stands for more than ceil(all tiles / features) tiles. At the paper's
    settings two tiles that share a feature are never active at once. They could be, which loses some tilings, if
    `features` were close to a multiple of (tiles + 1) ** dimensions and too few for all tiles.

    Scaling the active features by 1 / tilings is left to the network.

    Args:
      low: the observations' lower bounds, one per dimension.
      high: the upper bounds. Observations outside count as on the border.
      tiles: tiles per dimension between the bounds.
      tilings: how many tilings, each with exactly one active tile.
      features: how many features there are. `collisions` counts how many tiles have to share.

    Returns:
      A `TileCoder`: `apply` from an observation to the (tilings,) active features, and the space of these.

    Raises:
      UsageError: if the bounds do not match or are not ordered, a number is not a positive integer, or there are more
        tiles than int32 can number.

    Example:
      >>> import jax.numpy as jnp
      >>> from vbe.environments import tile_coder
      >>> coder = tile_coder(0.0, 1.0, tiles=4, tilings=3, features=14)
      >>> coder.apply(jnp.float32([0.3]))
      Array([ 1,  5, 10], dtype=int32)
    """
    lows, highs = np.atleast_1d(np.array(low, np.float32)), np.atleast_1d(np.array(high, np.float32))
    if lows.shape != highs.shape or lows.ndim != 1 or not np.all(lows < highs):
        raise UsageError(f"low={low!r}, high={high!r}: must be as many lower bounds as larger upper bounds")
    for name, value in {"tiles": tiles, "tilings": tilings, "features": features}.items():
        if not isinstance(value, Integral) or value < 1:
            raise UsageError(f"{name}={value!r}: must be a positive integer")

    # In units of 1 / tilings of a tile; whole tiles of displacement would only rename the tiles.
    shifts = np.arange(tilings)[:, None] * (2 * np.arange(len(lows)) + 1) % tilings
    # Only displaced tilings stick out at the end and need a further tile there.
    sides = tiles + (shifts > 0)
    if np.prod(sides, axis=-1, dtype=float).sum() > np.iinfo(np.int32).max:
        raise UsageError(f"tiles={tiles!r}, tilings={tilings!r}: more tiles than int32 can number")
    sizes = np.prod(sides, axis=-1)
    places, firsts = np.cumprod(sides, axis=-1) // sides, np.cumsum(sizes) - sizes
    shifts, places, firsts = shifts.astype(np.int32), places.astype(np.int32), firsts.astype(np.int32)

    def number(observation: Array) -> Array:
        scaled = (observation - lows) / (highs - lows) * (tiles * tilings)
        # The upper bound itself belongs to the last tile rather than to a tile of its own.
        units = jnp.clip(scaled.astype(jnp.int32), 0, tiles * tilings - 1)
        return firsts + jnp.sum((units[None] + shifts) // tilings * places, axis=-1, dtype=jnp.int32)

    return TileCoder(
        apply=lambda observation: number(observation) % features,
        number=number,
        space=gymnasium.spaces.MultiDiscrete([features] * tilings, dtype=np.int32),
    )


def collisions(coder: TileCoder, observations: Array) -> int:
    """Counts the tiles that had to share a feature with another.

    Args:
      coder: what `tile_coder` gave.
      observations: (n, dimensions): where to look. A grid finer than the tiles finds all.

    Returns:
      How many different tiles the observations lie in, less how many different features these have.

    Example:
      >>> import jax.numpy as jnp
      >>> from vbe.environments import collisions, tile_coder
      >>> grid = jnp.linspace(0.0, 1.0, 100)[:, None]
      >>> collisions(tile_coder(0.0, 1.0, tiles=4, tilings=3, features=14), grid)
      0
      >>> collisions(tile_coder(0.0, 1.0, tiles=4, tilings=3, features=12), grid)
      2
    """
    tiles, features = jax.jit(jax.vmap(lambda seen: (coder.number(seen), coder.apply(seen))))(observations)
    return len(np.unique(tiles)) - len(np.unique(features))
