"""The environments as Gymnasium knows them: `gymnasium.make("vbe/DeepSea-v0")`.

For agents from elsewhere. Observations are arrays of floats that any network takes; where ours are indices of active
features, they are spelt out as vectors of zeros and (scaled) ones.
"""

import copy
import functools
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, SupportsFloat

import gymnasium
import jax
import numpy as np
from gymnasium.spaces import Box, MultiDiscrete

from vbe.environments import ENVIRONMENTS, make
from vbe.types import Array, Environment, State, Step, UsageError

# Pictures show the way that led here: no more of it than this, since a continuing environment never ends.
TRAIL = 1000


# Environments made alike share their compiled functions, as the copies in a vector environment do.
_make = functools.lru_cache(maxsize=64)(make)


@functools.lru_cache(maxsize=64)
def _seeded_reset(reset: Callable) -> Callable[[np.uint32], tuple[State, Array]]:
    return jax.jit(lambda seed: reset(jax.random.key(seed)))


@functools.lru_cache(maxsize=64)
def _seeded_step(step: Callable) -> Callable[[State, np.uint32, np.int32], tuple[State, Step]]:
    return jax.jit(lambda state, seed, action: step(state, jax.random.key(seed), action))


class GymnasiumEnvironment(gymnasium.Env[np.ndarray, np.integer]):
    """Any `Environment` as a `gymnasium.Env`.

    Args:
      environment: any environment whose observations are a `Box` or, for indices of active features, a `MultiDiscrete`.
      redraw: whether each `reset` draws anew all that is left to chance. If not, only the first does, and any with a
        seed: what they drew, like the meaning of Deepsea's actions, stays for a whole run.
      draw: makes a picture, (height, width, 3) uint8, of the observations since the last `reset`, present one last.
      render_mode: "rgb_array" to get pictures from `render`.

    Example:
      >>> from vbe.environments import make
      >>> from vbe.environments.gymnasium import GymnasiumEnvironment
      >>> environment = GymnasiumEnvironment(make("PuddleWorld", step_size=0.005))
      >>> observation, info = environment.reset(seed=0)
      >>> observation.shape
      (2,)
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 15}  # noqa: RUF012

    def __init__(
        self,
        environment: Environment,
        *,
        redraw: bool = True,
        draw: Callable[[Sequence[np.ndarray]], np.ndarray] | None = None,
        render_mode: str | None = None,
    ) -> None:
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise UsageError(f"render_mode={render_mode!r}: must be None or 'rgb_array'")
        if render_mode is not None and draw is None:
            raise UsageError(f"render_mode={render_mode!r}: needs a function to draw with, but draw=None")
        space = environment.observation_space
        if not isinstance(space, Box | MultiDiscrete):
            raise UsageError(f"observation_space={space!r}: must be a Box or a MultiDiscrete")
        # Users seed and sample spaces: no two environments may share them.
        self.observation_space = (
            copy.deepcopy(space) if isinstance(space, Box) else Box(0.0, 1.0, (int(space.nvec[0]),), np.float32)
        )
        self.action_space = copy.deepcopy(environment.action_space)
        self.render_mode = render_mode
        self._active = None if isinstance(space, Box) else len(space.nvec)
        self._reset, self._step = _seeded_reset(environment.reset), _seeded_step(environment.step)
        self._redraw, self._draw = redraw, draw
        self._run_seed: np.uint32 | None = None
        self._state: State = None  # None wherever a reset is due
        self._trail: deque[np.ndarray] = deque(maxlen=TRAIL)

    def _seed(self) -> np.uint32:
        return self.np_random.integers(2**32, dtype=np.uint32)

    def _observe(self, observation: Array) -> np.ndarray:
        values = np.array(observation)
        if self._active is not None:
            indices, values = values, np.zeros(self.observation_space.shape or (), np.float32)
            np.add.at(values, indices, 1.0 / self._active)
        if self.render_mode is not None:
            self._trail.append(values.copy())
        return values

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        if self._redraw or self._run_seed is None or seed is not None:
            self._run_seed = self._seed()
        self._state, observation = self._reset(self._run_seed)
        self._trail.clear()
        return self._observe(observation), {}

    def step(self, action: Any) -> tuple[np.ndarray, SupportsFloat, bool, bool, dict[str, Any]]:
        if self._state is None:
            raise gymnasium.error.ResetNeeded(
                "step() called before reset(): call reset() first and after each episode's end"
            )
        if not self.action_space.contains(action):
            raise UsageError(f"action={action!r}: must be in {self.action_space}")
        state, step = self._step(self._state, self._seed(), np.int32(action))
        terminated, truncated = bool(step.terminated), bool(step.truncated)
        # At an end our environment has begun the next episode already, which nobody here has asked for.
        self._state = None if terminated or truncated else state
        return self._observe(step.final_observation), float(step.reward), terminated, truncated, {}

    def render(self) -> np.ndarray | None:
        if self.render_mode is None or self._draw is None:
            gymnasium.logger.warn("render() has nothing to do: make the environment with render_mode='rgb_array'")
            return None
        if not self._trail:
            raise gymnasium.error.ResetNeeded("render() called before reset(): there is nothing to see yet")
        return self._draw(list(self._trail))


def make_gymnasium(name: str, render_mode: str | None = None, **options: Any) -> GymnasiumEnvironment:
    """Makes one of the library's environments for Gymnasium.

    Args:
      name: one of `ENVIRONMENTS`.
      render_mode: "rgb_array" or None.
      **options: the keyword arguments of the environment's factory.

    Returns:
      A `gymnasium.Env`. Deepsea shows a one-hot vector over the reachable cells.

    Raises:
      UsageError: as `vbe.environments.make` does.

    Example:
      >>> from vbe.environments.gymnasium import make_gymnasium
      >>> make_gymnasium("DeepSea", size=4).observation_space
      Box(0.0, 1.0, (10,), float32)
    """
    environment = _make(name, **options)
    draw = None
    if render_mode is not None:
        from vbe.environments.pictures import PICTURES  # only those who look at them need them

        draw = functools.partial(PICTURES[name], **options)
    return GymnasiumEnvironment(environment, redraw=name != "DeepSea", draw=draw, render_mode=render_mode)


def register() -> None:
    """Makes all environments known to Gymnasium, as `vbe/<name>-v0`. To do so again changes nothing.

    Example:
      >>> import gymnasium
      >>> from vbe.environments.gymnasium import register
      >>> register()
      >>> gymnasium.make("vbe/RiverSwim-v0").action_space
      Discrete(2)
    """
    for name in ENVIRONMENTS:
        if f"vbe/{name}-v0" not in gymnasium.registry:
            gymnasium.register(
                f"vbe/{name}-v0", entry_point="vbe.environments.gymnasium:make_gymnasium", kwargs={"name": name}
            )
