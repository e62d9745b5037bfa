"""The compiled loop: lanes of one program advance in lockstep, many steps per call.

Three rules make it fast (docs/performance.md has the measurements):
- The clock is the loops' structure. Warm-up, learning and target copies are separate stretches of code, never a `where` over state.
- Lanes run in groups that fit the cache, the groups of a device one after another, the devices side by side.
- A learning step starts with the update that the previous step's transition makes due: learn, act, step, store. This is the order
  act, step, store, sync, learn with the loop cut at another place, so that a period of `target_period` steps begins with its sync.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from vbe import replay
from vbe.agents import AGENTS
from vbe.agents.recipes import num_actions
from vbe.training.lanes import (
    Inputs,
    Loop,
    Record,
    assemble,
    choose_layout,
    init_keys,
    make_agent,
    make_transition,
    over_lanes,
    periods_per_chunk,
    step_keys,
    time_last,
    visit,
)
from vbe.training.spec import Program
from vbe.types import Array


class LaneState(NamedTuple):
    environment: Any
    observation: Array
    agent: Any
    replay: replay.Replay
    visited: Array  # (num_states,) bool


def make_loop(program: Program, steps: int, devices: list[jax.Device], group_size: int | None = None) -> Loop:
    """Builds the functions that run a program; nothing is compiled until they are called."""
    best = AGENTS[program.recipe].lanes_in_cache(program.options, program.environment)
    layout = choose_layout(len(program.lanes), len(devices), devices[0].platform, best, group_size)
    warm_up_steps = min(program.options.batch_size + 1, steps)
    # A chunk is made of whole periods: one that is longer than the run would be computed to its end all the same.
    period = min(program.period, max(1, steps - warm_up_steps))
    periods = periods_per_chunk(layout, period, steps - warm_up_steps)

    def warm_up_group(lanes: Any, inputs: Inputs) -> Any:
        times = jnp.arange(warm_up_steps)
        step = over_lanes(partial(_step, program, learning=False), layout.size, (0, 0, 0, None))
        lanes, records = jax.lax.scan(
            lambda lanes, xs: step(lanes, inputs, xs[1], xs[0]), lanes, (times, step_keys(inputs, times, layout.size))
        )
        return lanes, time_last(records)

    def chunk_group(lanes: Any, inputs: Inputs, time: Array) -> Any:
        times = time + jnp.arange(periods * period)
        step = over_lanes(partial(_step, program, learning=True), layout.size, (0, 0, 0, None))
        sync = over_lanes(lambda lane, inputs: lane._replace(agent=make_agent(program, inputs).sync(lane.agent)), layout.size)

        def one_period(lanes: Any, xs: Any) -> Any:
            return jax.lax.scan(lambda lanes, xs: step(lanes, inputs, xs[1], xs[0]), sync(lanes, inputs), xs)

        xs = (times, step_keys(inputs, times, layout.size))
        xs = jax.tree.map(lambda x: x.reshape(periods, period, *x.shape[1:]), xs)
        lanes, records = jax.lax.scan(one_period, lanes, xs)
        return lanes, time_last(jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), records))

    return assemble(
        program,
        devices,
        layout,
        init_lane=partial(_init_lane, program),
        warm_up_group=warm_up_group,
        warm_up_steps=warm_up_steps,
        chunk_group=chunk_group,
        chunk_steps=periods * period,
    )


def _init_lane(program: Program, inputs: Inputs) -> LaneState:
    environment_key, agent_key = init_keys(inputs)
    environment_state, observation = program.environment.reset(environment_key)
    return LaneState(
        environment=environment_state,
        observation=observation,
        agent=make_agent(program, inputs).init(agent_key, observation),
        replay=replay.init(program.options.buffer_size, observation),
        visited=jnp.zeros(program.environment.num_states, bool),
    )


def _step(program: Program, lane: LaneState, inputs: Inputs, keys: Array, time: Array, *, learning: bool) -> tuple[LaneState, Record]:
    """One step of one lane. `time` is how many transitions have been stored."""
    environment, agent = program.environment, make_agent(program, inputs)
    sample_key, learn_key, act_key, step_key, episode_key = (keys[i] for i in range(5))
    agent_state = lane.agent
    if learning:
        options = program.options
        batch = replay.sample(lane.replay, sample_key, time, options.batch_size, lane.observation, newest=options.newest)
        agent_state, loss = agent.learn(agent_state, learn_key, batch)
        action, bonus = agent.act(agent_state, act_key, lane.observation)
    else:
        loss = bonus = jnp.float32(jnp.nan)
        action = jax.random.randint(act_key, (), 0, num_actions(environment), jnp.int32)

    visited = visit(environment, lane.environment, lane.visited)
    environment_state, step = environment.step(lane.environment, step_key, action)
    agent_state = agent.begin_episode(agent_state, episode_key, step.terminated | step.truncated)
    transition = make_transition(lane.observation, action, step, inputs.numbers["discount"])
    memory = replay.add(lane.replay, time, transition)
    record = Record(step.reward, step.terminated, step.truncated, bonus, loss, visited.sum())
    return LaneState(environment_state, step.observation, agent_state, memory, visited), record
