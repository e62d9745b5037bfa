"""Lanes: how the runs of one program are spread over devices, told apart, and advanced together. Every loop is made of this.

A loop says what a group of lanes does; here is what puts lanes into groups, groups onto devices, and all of it into one program.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from vbe import random
from vbe.agents import AGENTS
from vbe.training.spec import Program
from vbe.types import Array, Environment, Key, State, Step, Transition

LANE_STEPS_PER_CHUNK = 20_000  # on each device
MOST_CHUNK_STEPS = 5_000


class Inputs(NamedTuple):
    """What tells lanes apart; constant through a run."""

    key: Key
    numbers: dict[str, Array]


class Record(NamedTuple):
    """What a step leaves for the results."""

    reward: Array
    terminated: Array
    truncated: Array
    bonus: Array
    loss: Array
    unique_states: Array


class Layout(NamedTuple):
    """How lanes are spread: groups one after another, each `devices` x `size` side by side, padded with copies of the last lane."""

    devices: int
    groups: int
    size: int

    @property
    def padded(self) -> int:
        return self.devices * self.groups * self.size


Groups = tuple[Any, ...]  # of anything that lanes have, group by group: pytrees with leaves (devices, size, ...)


class Loop(NamedTuple):
    """The functions of a program, compiled once for all groups. They take over (donate) the states that they are given."""

    layout: Layout
    num_lanes: int
    warm_up_steps: int
    chunk_steps: int
    init: Callable[[], Groups]  # () -> states
    warm_up: Callable[[Groups], tuple[Groups, Groups]]  # states -> states, records with leaves (devices, size, warm_up_steps)
    chunk: Callable[[Groups, int], tuple[Groups, Groups]]  # (states, time) -> states, records (devices, size, chunk_steps)
    sharding: NamedSharding


def gather(loop: Loop, groups: Groups) -> Any:
    """What lanes have, on the host: leaves (lanes, ...), without the padding."""

    def join(*parts: Array) -> np.ndarray:
        rows = [np.asarray(part).reshape(part.shape[0] * part.shape[1], *part.shape[2:]) for part in parts]
        return np.concatenate(rows)[: loop.num_lanes]

    return jax.tree.map(join, *groups)


def spread(loop: Loop, lanes: Any) -> Groups:
    """The inverse of `gather`: leaves (lanes, ...) -> groups, on the devices."""
    return _spread(lanes, loop.layout, loop.num_lanes, loop.sharding)


def _spread(lanes: Any, layout: Layout, num_lanes: int, sharding: NamedSharding) -> Groups:
    padded = np.minimum(np.arange(layout.padded), num_lanes - 1).reshape(layout.groups, layout.devices, layout.size)
    return tuple(jax.device_put(jax.tree.map(lambda x: x[group], lanes), sharding) for group in padded)


def choose_layout(num_lanes: int, num_devices: int, platform: str, best: int, group_size: int | None = None) -> Layout:
    """Groups of about `best` lanes on a CPU, as many as fit its cache; one group on an accelerator."""
    devices = min(num_devices, num_lanes)
    per_device = -(-num_lanes // devices)
    if group_size is not None:
        return Layout(devices, -(-per_device // group_size), min(group_size, per_device))
    if platform != "cpu":
        return Layout(devices, 1, per_device)
    if per_device <= best:
        return Layout(devices, 1, per_device)
    sizes = range(max(1, best // 2), best * 3 // 2 + 1)
    size = min(sizes, key=lambda s: (-(-per_device // s) * s, abs(s - best)))
    return Layout(devices, -(-per_device // size), size)


def assemble(
    program: Program,
    devices: list[jax.Device],
    layout: Layout,
    *,
    init_lane: Callable[[Inputs], Any],
    warm_up_group: Callable[[Any, Inputs], tuple[Any, Record]],
    warm_up_steps: int,
    chunk_group: Callable[[Any, Inputs, Array], tuple[Any, Record]],
    chunk_steps: int,
) -> Loop:
    """Makes a loop of what it does with a lane, or a group of lanes side by side; nothing is compiled until it is called.

    Args:
      program: its lanes and how they differ.
      devices: at least as many as the layout has.
      layout: see `choose_layout`.
      init_lane: the inputs of one lane -> its state.
      warm_up_group: (states, inputs) of a group, with a leading axis -> states, records (size, warm_up_steps).
      warm_up_steps: how many steps that is.
      chunk_group: (states, inputs) of a group and the time -> states, records (size, chunk_steps).
      chunk_steps: how many steps that is.

    Returns:
      A `Loop`, whose functions take over (donate) the states that they are given.
    """
    mesh = Mesh(np.array(devices[: layout.devices]), ("lanes",))
    sharding = NamedSharding(mesh, PartitionSpec("lanes"))
    num_lanes = len(program.lanes)
    inputs = _spread(_make_inputs(program), layout, num_lanes, sharding)

    def on_devices(function: Callable[..., Any], num_split: int) -> Callable[..., Any]:
        """Runs a function of a group on each device's part of it. The first `num_split` arguments have lanes, the others do not."""

        def on_device(*arguments: Any) -> Any:
            parts = _only(arguments[:num_split])
            # A lane on its own has no axis at all: with one of length 1, XLA copies states around in the loop.
            if layout.size == 1:
                return _restore(_restore(function(*_only(parts), *arguments[num_split:])))
            return _restore(function(*parts, *arguments[num_split:]))

        def everywhere(*arguments: Any) -> Any:
            specs = tuple(PartitionSpec("lanes") if i < num_split else PartitionSpec() for i in range(len(arguments)))
            return jax.shard_map(on_device, mesh=mesh, in_specs=specs, out_specs=PartitionSpec("lanes"), check_vma=False)(*arguments)

        return everywhere

    def advance(compiled: Callable[..., Any], states: Groups, *clock: Array) -> tuple[Groups, Groups]:
        # One group at a time: what is dispatched ahead runs at once, and the groups would fight for the cache.
        steps = [jax.block_until_ready(compiled(*group, *clock)) for group in zip(states, inputs, strict=True)]
        return tuple(states for states, _ in steps), tuple(record for _, record in steps)

    init = jax.jit(on_devices(over_lanes(init_lane, layout.size), 1))
    warm_up = jax.jit(on_devices(warm_up_group, 2), donate_argnums=0)
    chunk = jax.jit(on_devices(chunk_group, 2), donate_argnums=0)
    return Loop(
        layout=layout,
        num_lanes=num_lanes,
        warm_up_steps=warm_up_steps,
        chunk_steps=chunk_steps,
        init=lambda: tuple(init(group) for group in inputs),
        warm_up=lambda states: advance(warm_up, states),
        chunk=lambda states, time: advance(chunk, states, jnp.int32(time)),
        sharding=sharding,
    )


def _make_inputs(program: Program) -> Inputs:
    keys = jax.vmap(random.key)(jnp.array([lane.seed for lane in program.lanes], jnp.uint32))
    names = program.lanes[0].numbers
    return Inputs(keys, {name: jnp.array([lane.numbers[name] for lane in program.lanes], jnp.float32) for name in names})


def make_agent(program: Program, inputs: Inputs) -> Any:
    """One lane's agent: an `Agent`, or an `OnPolicyAgent` where the recipe is on policy."""
    options = dataclasses.replace(program.options, **inputs.numbers)
    return AGENTS[program.recipe].build(options, program.environment)


def periods_per_chunk(layout: Layout, period: int, steps: int) -> int:
    """Long enough to hide the Python loop, short enough to answer Ctrl-C and draw a progress bar."""
    chunk_steps = np.clip(LANE_STEPS_PER_CHUNK // (layout.groups * layout.size), 200, MOST_CHUNK_STEPS)
    return int(max(1, min(round(chunk_steps / period), -(-steps // period))))


def _only(batch: Any) -> Any:
    return jax.tree.map(lambda x: x[0], batch)


def _restore(one: Any) -> Any:
    return jax.tree.map(lambda x: x[None], one)


def over_lanes(function: Callable[..., Any], size: int, in_axes: Any = 0, out_axes: Any = 0) -> Callable[..., Any]:
    """`vmap` over a group's lanes. A lane on its own has no axis to map over."""
    return function if size == 1 else jax.vmap(function, in_axes, out_axes)


def step_keys(inputs: Inputs, times: Array, size: int) -> Array:
    """Keys for every step, (steps, [size,] 5): drawn ahead in one go, and a function of seed and time alone.

    In every loop the environment draws from the fourth, so that equal seeds give all agents equal noise.
    """

    def one_lane(key: Key, times: Array) -> Array:
        return jax.vmap(lambda time: jax.random.split(jax.random.fold_in(key, time), 5))(times)

    return over_lanes(one_lane, size, (0, None), 1)(inputs.key, times)


def init_keys(inputs: Inputs) -> Array:
    """Keys for a lane's environment and agent to begin with, (2,). They lie beyond the last step's: no step draws from them."""
    return jax.random.split(jax.random.fold_in(inputs.key, 2**31))


def time_last(records: Record) -> Record:
    return jax.tree.map(lambda x: jnp.moveaxis(x, 0, -1), records)


def visit(environment: Environment, state: State, visited: Array) -> Array:
    """(num_states,) bool, with the present state marked if the environment can tell it."""
    return visited if environment.visit is None else visited.at[environment.visit(state)].set(True)


def make_transition(observation: Array, action: Array, step: Step, discount: Array) -> Transition:
    return Transition(
        observation=observation,
        action=action,
        reward=step.reward,
        discount=jnp.where(step.terminated, 0, discount),
        # What a termination leads to has discount 0; who learns non-episodically goes on with the next episode.
        next_observation=jnp.where(step.terminated, step.observation, step.final_observation),
    )
