"""Lanes: how the runs of one program are spread over devices, told apart, and advanced together. Every loop is made of this.

A loop says what a group of lanes does; here is what puts lanes into groups, groups onto devices, and all of it into one program.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from vbe import random
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
    """How lanes are spread: `devices` x `groups` one after another x `size` side by side, padded with copies of the last lane."""

    devices: int
    groups: int
    size: int

    @property
    def padded(self) -> int:
        return self.devices * self.groups * self.size


class Loop(NamedTuple):
    """The compiled functions of a program. States have leaves (devices * groups, size, ...)."""

    layout: Layout
    warm_up_steps: int
    chunk_steps: int
    init: Callable[[], Any]  # () -> lanes
    warm_up: Callable[[Any], tuple[Any, Record]]  # lanes -> lanes, records (lanes, warm_up_steps)
    chunk: Callable[[Any, int], tuple[Any, Record]]  # (lanes, time) -> lanes, records (lanes, chunk_steps)
    sharding: NamedSharding


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
    lanes_axis, everywhere = PartitionSpec("lanes"), PartitionSpec()
    sharding = NamedSharding(mesh, lanes_axis)
    inputs = _make_inputs(program, layout, sharding)

    def spread(function: Callable[..., Any], num_outputs: int) -> Callable[..., Any]:
        """Runs `function(group of lanes, their inputs, *clock)` on every group of every device."""

        def on_device(inputs: Inputs, lanes: Any, *clock: Array) -> Any:
            if layout.groups == 1:
                return _restore(on_group(_only((lanes, inputs)), *clock))
            return jax.lax.map(lambda group: on_group(group, *clock), (lanes, inputs))

        def on_group(group: Any, *clock: Array) -> Any:
            # A lane on its own has no axis at all: with one of length 1, XLA copies states around in the loop.
            return _restore(function(*_only(group), *clock)) if layout.size == 1 else function(*group, *clock)

        def everything(lanes: Any, *clock: Array) -> Any:
            specs = (lanes_axis, lanes_axis, *(everywhere for _ in clock))
            out_specs = lanes_axis if num_outputs == 1 else (lanes_axis,) * num_outputs
            return jax.shard_map(on_device, mesh=mesh, in_specs=specs, out_specs=out_specs, check_vma=False)(inputs, lanes, *clock)

        return everything

    def init_group(lanes: None, inputs: Inputs) -> Any:
        return over_lanes(init_lane, layout.size)(inputs)

    warm_up = jax.jit(spread(warm_up_group, 2), donate_argnums=0)
    chunk = jax.jit(spread(chunk_group, 2), donate_argnums=0)
    return Loop(
        layout=layout,
        warm_up_steps=warm_up_steps,
        chunk_steps=chunk_steps,
        init=lambda: jax.jit(spread(init_group, 1))(None),
        warm_up=warm_up,
        chunk=lambda lanes, time: chunk(lanes, jnp.int32(time)),
        sharding=sharding,
    )


def _make_inputs(program: Program, layout: Layout, sharding: NamedSharding) -> Inputs:
    lanes = [*program.lanes, *[program.lanes[-1]] * (layout.padded - len(program.lanes))]
    shape = (layout.devices * layout.groups, layout.size)
    keys = jax.vmap(random.key)(jnp.array([lane.seed for lane in lanes], jnp.uint32)).reshape(shape)
    names = lanes[0].numbers
    numbers = {name: jnp.array([lane.numbers[name] for lane in lanes], jnp.float32).reshape(shape) for name in names}
    return jax.device_put(Inputs(keys, numbers), sharding)


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
