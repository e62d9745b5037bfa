"""The on-policy loop: lanes act for a rollout, learn from it, and forget it."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from vbe.agents.ppo import Rollout
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

GROUP = 16  # lanes: a rollout is many small operations, which many lanes share


class LaneState(NamedTuple):
    environment: Any
    observation: Array
    agent: Any
    visited: Array  # (num_states,) bool


def make_loop(program: Program, steps: int, devices: list[jax.Device], group_size: int | None = None) -> Loop:
    """Builds the functions that run a program; nothing is compiled until they are called. It has no warm-up."""
    layout = choose_layout(len(program.lanes), len(devices), devices[0].platform, GROUP, group_size)
    length = program.period
    rollouts = periods_per_chunk(layout, length, steps)

    def warm_up_group(lanes: Any, inputs: Inputs) -> Any:
        nothing = jnp.zeros((*jnp.shape(inputs.key), 0))
        return lanes, Record(nothing, nothing.astype(bool), nothing.astype(bool), nothing, nothing, nothing.astype(jnp.int32))

    def chunk_group(lanes: Any, inputs: Inputs, time: Array) -> Any:
        keys = step_keys(inputs, time + jnp.arange(rollouts * length), layout.size)
        keys = keys.reshape(rollouts, length, *keys.shape[1:])
        advance = over_lanes(partial(_advance, program), layout.size, in_axes=(0, 0, 1), out_axes=(0, 1))
        lanes, records = jax.lax.scan(lambda lanes, keys: advance(lanes, inputs, keys), lanes, keys)
        return lanes, time_last(jax.tree.map(lambda x: x.reshape(rollouts * length, *x.shape[2:]), records))

    return assemble(
        program,
        devices,
        layout,
        init_lane=partial(_init_lane, program),
        warm_up_group=warm_up_group,
        warm_up_steps=0,
        chunk_group=chunk_group,
        chunk_steps=rollouts * length,
    )


def _init_lane(program: Program, inputs: Inputs) -> LaneState:
    environment_key, agent_key = init_keys(inputs)
    environment_state, observation = program.environment.reset(environment_key)
    return LaneState(
        environment=environment_state,
        observation=observation,
        agent=make_agent(program, inputs).init(agent_key, observation),
        visited=jnp.zeros(program.environment.num_states, bool),
    )


def _advance(program: Program, lane: LaneState, inputs: Inputs, keys: Array) -> tuple[LaneState, Record]:
    """One rollout of one lane, and what is learned from it."""
    environment, agent = program.environment, make_agent(program, inputs)
    discount = inputs.numbers["reward_discount"]

    def step(carry: tuple[Any, Array, Array], keys: Array) -> Any:
        environment_state, observation, visited = carry
        _, _, act_key, step_key, _ = (keys[i] for i in range(5))
        visited = visit(environment, environment_state, visited)
        action = agent.act(lane.agent, act_key, observation)
        environment_state, step = environment.step(environment_state, step_key, action)
        transition = make_transition(observation, action, step, discount)
        return (environment_state, step.observation, visited), (transition, step.terminated, step.truncated, visited.sum())

    carry = (lane.environment, lane.observation, lane.visited)
    (environment_state, observation, visited), (transitions, terminated, truncated, unique) = jax.lax.scan(step, carry, keys)
    agent_state, bonuses, loss = agent.learn(lane.agent, keys[-1, 1], Rollout(transitions, truncated))
    record = Record(transitions.reward, terminated, truncated, bonuses, jnp.full_like(bonuses, loss), unique)
    return LaneState(environment_state, observation, agent_state, visited), record
