"""The vocabulary that the whole library speaks: plain tuples of arrays, and tuples of pure functions.

Functions are written for *one* lane (a lane is one run: a seed and its numeric hyperparameters); whoever drives several adds the
axis with `jax.vmap`. Shapes below: A actions, B transitions in a batch, `...` an observation's own shape.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium
import jax
import numpy as np

Array = jax.Array
Key = jax.Array  # a typed PRNG key
Params = Any  # a pytree of arrays
State = Any  # a pytree of arrays


class Transition(NamedTuple):
    """One step of experience, or a batch of them with one leading axis.

    `discount` is gamma, or 0 where the environment terminated. A truncation keeps gamma and the true last observation. Nothing
    else in the library knows "done".
    """

    observation: Array  # (...) float32, or int32 indices of active features
    action: Array  # () int32
    reward: Array  # () float32
    discount: Array  # () float32
    next_observation: Array  # (...) like observation
    time: Array | None = None  # () int32: the step at which a replay buffer stored it, its name among all of a run's


class Network(NamedTuple):
    """A pair of pure functions that take one observation, or a batch of them with one leading axis.

    A Flax module's `init` and `apply` are one. `vbe.networks.per_example` makes one of a function of a single observation.
    """

    init: Callable[[Key, Array], Params]  # (key, observation) -> params
    apply: Callable[[Params, Array], Array]  # (params, observation (...) | (B, ...)) -> (outputs,) | (B, outputs)


class Bonus(NamedTuple):
    """A value bonus as four pure functions: the whole contract of the paper's idea.

    It knows nothing of the agent that it serves: it gives one number per action, and learns from batches that the agent hands it
    together with the target policy's next actions.
    """

    init: Callable[[Key, Array], State]  # (key, observation) -> state
    values: Callable[[State, Array], Array]  # (state, observation (...) | (B, ...)) -> b(s, .) (A,) | (B, A)
    update: Callable[[State, Key, Transition, Array], tuple[State, Array]]  # (state, key, batch, next_action) -> state, loss
    sync: Callable[[State], State]  # copies target networks


class Agent(NamedTuple):
    """A learner as five pure functions."""

    init: Callable[[Key, Array], State]  # (key, observation) -> state
    act: Callable[[State, Key, Array], tuple[Array, Array]]  # (state, key, observation) -> action, its value bonus
    learn: Callable[[State, Key, Transition], tuple[State, Array]]  # (state, key, batch) -> state, loss
    sync: Callable[[State], State]  # copies target networks
    begin_episode: Callable[[State, Key, Array], State]  # (state, key, has an episode just ended?) -> state


class Step(NamedTuple):
    """What an environment answers to an action.

    `observation` is the one to act on next: after an episode's end, the first of the next episode (environments reset
    themselves). `final_observation` is where this action really led; the two differ only at an end.
    """

    observation: Array  # (...)
    reward: Array  # () float32
    terminated: Array  # () bool
    truncated: Array  # () bool
    final_observation: Array  # (...)


class Environment(NamedTuple):
    """A simulator as two pure functions, with the spaces that Gymnasium would give it.

    `visit(state)` numbers the state among `num_states`, for environments whose states can be counted (None elsewhere).
    """

    reset: Callable[[Key], tuple[State, Array]]  # (key) -> state, observation
    step: Callable[[State, Key, Array], tuple[State, Step]]  # (state, key, action) -> state, Step
    observation_space: gymnasium.Space
    action_space: gymnasium.Space
    visit: Callable[[State], Array] | None = None
    num_states: int = 0


class UsageError(ValueError):
    """Bad input, said in one line: the argument, its value, and what would be right."""


def as_python(value: Any) -> Any:
    """The same value with numpy's scalars and arrays made Python's, also inside of lists and tuples: what JSON can hold."""
    if isinstance(value, (list, tuple)):
        return (list if isinstance(value, list) else tuple)(as_python(v) for v in value)
    return value.tolist() if isinstance(value, (np.generic, np.ndarray)) else value
