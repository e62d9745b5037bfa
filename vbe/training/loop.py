"""The compiled loop: lanes of one program advance in lockstep, many steps per call.

Three rules make it fast (docs/architecture.md has the measurements):
- The clock is the loops' structure. Warm-up, learning and target copies are separate stretches of code, never a `where` over state.
- Lanes run in groups that fit the cache, the groups of a device one after another, the devices side by side.
- A learning step starts with the update that the previous step's transition makes due: learn, act, step, store. This is the order
  act, step, store, sync, learn with the loop cut at another place, so that a period of `target_period` steps begins with its sync.
"""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from vbe import replay
from vbe.agents import AGENTS
from vbe.training.spec import Program
from vbe.types import Agent, Array, Key, Transition


class LaneState(NamedTuple):
    environment: Any
    observation: Array
    agent: Any
    replay: replay.Replay
    visited: Array  # (num_states,) bool


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


def choose_layout(num_lanes: int, num_devices: int, platform: str, sparse: bool, group_size: int | None = None) -> Layout:
    """Groups of about four lanes on a CPU, more where lanes are small (gathers from tables); one group on an accelerator."""
    devices = min(num_devices, num_lanes)
    per_device = -(-num_lanes // devices)
    if group_size is not None:
        return Layout(devices, -(-per_device // group_size), min(group_size, per_device))
    if platform != "cpu":
        return Layout(devices, 1, per_device)
    best = 16 if sparse else 4
    if per_device <= best:
        return Layout(devices, 1, per_device)
    sizes = range(max(1, best // 2), best * 3 // 2 + 1)
    size = min(sizes, key=lambda s: (-(-per_device // s) * s, abs(s - best)))
    return Layout(devices, -(-per_device // size), size)


class Loop(NamedTuple):
    """The compiled functions of a program. States have leaves (devices * groups, size, ...)."""

    layout: Layout
    warm_up_steps: int
    chunk_steps: int
    init: Callable[[], Any]  # () -> lanes
    warm_up: Callable[[Any], tuple[Any, Record]]  # lanes -> lanes, records (lanes, warm_up_steps)
    chunk: Callable[[Any, int], tuple[Any, Record]]  # (lanes, time) -> lanes, records (lanes, chunk_steps)
    sharding: NamedSharding


def make_loop(program: Program, steps: int, devices: list[jax.Device], group_size: int | None = None) -> Loop:
    """Builds the functions that run a program; nothing is compiled until they are called."""
    sparse = jnp.issubdtype(program.environment.observation_space.dtype, jnp.integer)
    layout = choose_layout(len(program.lanes), len(devices), devices[0].platform, bool(sparse), group_size)
    mesh = Mesh(np.array(devices[: layout.devices]), ("lanes",))
    lanes_axis, everywhere = PartitionSpec("lanes"), PartitionSpec()
    sharding = NamedSharding(mesh, lanes_axis)
    inputs = _make_inputs(program, layout, sharding)
    period = program.target_period
    warm_up_steps = min(program.options.batch_size + 1, steps)
    periods = _periods_per_chunk(layout, period, steps - warm_up_steps)

    def spread(function: Callable[..., Any], num_outputs: int) -> Callable[..., Any]:
        """Runs `function(group of lanes, their inputs, *clock)` on every group of every device."""

        def on_device(inputs: Inputs, lanes: Any, *clock: Array) -> Any:
            if layout.groups == 1:
                one = jax.tree.map(lambda x: x[0], (lanes, inputs))
                return jax.tree.map(lambda x: x[None], function(*one, *clock))
            return jax.lax.map(lambda group: function(*group, *clock), (lanes, inputs))

        def everything(lanes: Any, *clock: Array) -> Any:
            specs = (lanes_axis, lanes_axis, *(everywhere for _ in clock))
            out_specs = lanes_axis if num_outputs == 1 else (lanes_axis,) * num_outputs
            return jax.shard_map(on_device, mesh=mesh, in_specs=specs, out_specs=out_specs, check_vma=False)(inputs, lanes, *clock)

        return everything

    def init_group(lanes: None, inputs: Inputs) -> Any:
        return _over_lanes(partial(_init_lane, program), layout.size)(inputs)

    def warm_up_group(lanes: Any, inputs: Inputs) -> Any:
        times = jnp.arange(warm_up_steps)
        step = _over_lanes(partial(_step, program, learning=False), layout.size, clock=1)
        lanes, records = jax.lax.scan(
            lambda lanes, xs: step(lanes, inputs, xs[1], xs[0]), lanes, (times, _step_keys(inputs, times, layout.size))
        )
        return lanes, _time_last(records)

    def chunk_group(lanes: Any, inputs: Inputs, time: Array) -> Any:
        times = time + jnp.arange(periods * period)
        step = _over_lanes(partial(_step, program, learning=True), layout.size, clock=1)
        sync = _over_lanes(lambda lane, inputs: lane._replace(agent=_agent(program, inputs).sync(lane.agent)), layout.size)

        def one_period(lanes: Any, xs: Any) -> Any:
            return jax.lax.scan(lambda lanes, xs: step(lanes, inputs, xs[1], xs[0]), sync(lanes, inputs), xs)

        xs = (times, _step_keys(inputs, times, layout.size))
        xs = jax.tree.map(lambda x: x.reshape(periods, period, *x.shape[1:]), xs)
        lanes, records = jax.lax.scan(one_period, lanes, xs)
        return lanes, _time_last(jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), records))

    warm_up = jax.jit(spread(warm_up_group, 2), donate_argnums=0)
    chunk = jax.jit(spread(chunk_group, 2), donate_argnums=0)
    return Loop(
        layout=layout,
        warm_up_steps=warm_up_steps,
        chunk_steps=periods * period,
        init=lambda: jax.jit(spread(init_group, 1))(None),
        warm_up=warm_up,
        chunk=lambda lanes, time: chunk(lanes, jnp.int32(time)),
        sharding=sharding,
    )


def _make_inputs(program: Program, layout: Layout, sharding: NamedSharding) -> Inputs:
    lanes = [*program.lanes, *[program.lanes[-1]] * (layout.padded - len(program.lanes))]
    shape = (layout.devices * layout.groups, layout.size)
    keys = jax.vmap(jax.random.key)(np.array([lane.seed for lane in lanes], np.uint32)).reshape(shape)
    names = lanes[0].numbers
    numbers = {name: np.array([lane.numbers[name] for lane in lanes], np.float32).reshape(shape) for name in names}
    return jax.device_put(Inputs(keys, numbers), sharding)


def _periods_per_chunk(layout: Layout, period: int, steps: int) -> int:
    """Long enough to hide the Python loop, short enough to answer Ctrl-C and draw a progress bar."""
    chunk_steps = np.clip(20_000 // (layout.groups * layout.size), 200, 5_000)
    return int(max(1, min(round(chunk_steps / period), -(-steps // period))))


def _over_lanes(function: Callable[..., Any], size: int, clock: int = 0) -> Callable[..., Any]:
    """`vmap` over a group's lanes; its last `clock` arguments are the same for all. A group of one has no batch axis inside,
    which spares it XLA's batched gathers and scatters."""
    if size > 1:
        return lambda *args: jax.vmap(function, in_axes=(*[0] * (len(args) - clock), *[None] * clock))(*args)

    def one(*args: Any) -> Any:
        batched, shared = args[: len(args) - clock], args[len(args) - clock :]
        result = function(*jax.tree.map(lambda x: x[0], batched), *shared)
        return jax.tree.map(lambda x: x[None], result)

    return one


def _step_keys(inputs: Inputs, times: Array, size: int) -> Array:
    """Keys for every step, (steps, size, 5): drawn ahead in one go, and a function of seed and time alone."""

    def one_lane(key: Key) -> Array:
        return jax.vmap(lambda time: jax.random.split(jax.random.fold_in(key, time), 5))(times)

    return jax.vmap(one_lane, out_axes=1)(inputs.key)


def _time_last(records: Record) -> Record:
    return jax.tree.map(lambda x: jnp.moveaxis(x, 0, -1), records)


def _agent(program: Program, inputs: Inputs) -> Agent:
    options = dataclasses.replace(program.options, **inputs.numbers)
    return AGENTS[program.recipe].build(options, program.environment)


def _init_lane(program: Program, inputs: Inputs) -> LaneState:
    # Keys beyond the last step's: no step draws from them.
    environment_key, agent_key = jax.random.split(jax.random.fold_in(inputs.key, 2**31))
    environment_state, observation = program.environment.reset(environment_key)
    return LaneState(
        environment=environment_state,
        observation=observation,
        agent=_agent(program, inputs).init(agent_key, observation),
        replay=replay.init(program.options.buffer_size, observation),
        visited=jnp.zeros(program.environment.num_states, bool),
    )


def _step(program: Program, lane: LaneState, inputs: Inputs, keys: Array, time: Array, *, learning: bool) -> tuple[LaneState, Record]:
    """One step of one lane. `time` is how many transitions have been stored."""
    environment, agent = program.environment, _agent(program, inputs)
    sample_key, learn_key, act_key, step_key, episode_key = (keys[i] for i in range(5))
    agent_state = lane.agent
    if learning:
        batch = replay.sample(lane.replay, sample_key, time, program.options.batch_size, lane.observation)
        agent_state, loss = agent.learn(agent_state, learn_key, batch)
        action, bonus = agent.act(agent_state, act_key, lane.observation)
    else:
        loss = bonus = jnp.float32(jnp.nan)
        action = jax.random.randint(act_key, (), 0, environment.action_space.n, jnp.int32)

    visited = lane.visited
    if environment.visit is not None:
        visited = visited.at[environment.visit(lane.environment)].set(True)
    environment_state, step = environment.step(lane.environment, step_key, action)
    agent_state = agent.begin_episode(agent_state, episode_key, step.terminated | step.truncated)
    transition = Transition(
        observation=lane.observation,
        action=action,
        reward=step.reward,
        discount=jnp.where(step.terminated, 0, inputs.numbers["discount"]),
        # What a termination leads to has discount 0; who learns non-episodically goes on with the next episode.
        next_observation=jnp.where(step.terminated, step.observation, step.final_observation),
    )
    memory = replay.add(lane.replay, time, transition)
    record = Record(step.reward, step.terminated, step.truncated, bonus, loss, visited.sum())
    return LaneState(environment_state, step.observation, agent_state, memory, visited), record
