"""Every agent, through the compiled loop, on problems of one or two states that can each be got wrong in one way only.

An episode is one of the problems, drawn anew: one run and one compilation serve them all.
"""

import functools
from collections.abc import Iterator
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import vbe
from vbe import bonuses, networks
from vbe.agents import AGENTS
from vbe.agents.ppo import ppo
from vbe.agents.recipes import Distillation, NoiseFits, OnPolicy, Recipe, make_network
from vbe.bonuses.curiosity import Curiosity
from vbe.bonuses.intrinsic import Learned
from vbe.environments import ENVIRONMENTS
from vbe.training import loop, on_policy
from vbe.training.lanes import gather
from vbe.training.spec import make_spec, programs
from vbe.types import Array, Environment, Key, Step

DISCOUNT, SEEDS = 0.5, 2

ALONE, FIRST, SECOND, BAD, GOOD, CHOICE, ZERO, ONE, CUT, CUT_TO_LAST, LAST, NOWHERE = range(12)
STARTS = [ALONE, FIRST, BAD, GOOD, CHOICE, ZERO, ONE, CUT, CUT_TO_LAST, LAST]
PROBES: dict[str, dict[int, float]] = {
    "a reward is a value": {ALONE: 1.0},
    "a later reward is discounted": {FIRST: DISCOUNT, SECOND: 1.0},
    "values depend on the observation": {BAD: -1.0, GOOD: 1.0},
    "values depend on the action": {CHOICE: 1.0},
    "the best action depends on the observation": {ZERO: 1.0, ONE: 1.0},
    "a truncation is no end": {CUT: 1 / (1 - DISCOUNT)},
    "a truncation leads where it led": {CUT_TO_LAST: -DISCOUNT, LAST: -1.0},
}
BEST = {CHOICE: 1, ZERO: 0, ONE: 1}

OPTIONS: dict[str, Any] = {"hidden": (16,), "learning_rate": 0.01}
VALUE_BASED = {**OPTIONS, "discount": DISCOUNT, "batch_size": 32, "buffer_size": 3000}
ON_POLICY = {**OPTIONS, "bonus_scale": 0.1, "rollout": 64, "minibatches": 2}
SIZES = {"vbe": {"ensemble_size": 5}, "vbe-sl": {"ensemble_size": 5}, "bdqn": {"ensemble_size": 5}, "acb-ppo": {"ensemble_size": 8}}


def one_hot(index: Array, size: int) -> Array:
    return (jnp.arange(size) == index).astype(jnp.float32)


def problems() -> Environment:
    """All probes. Terminations claim to lead to an observation that nobody ever begins at, which is worth nothing in particular."""
    observe = functools.partial(one_hot, size=NOWHERE + 1)

    def reset(key: Key) -> tuple[Array, Array]:
        index = jnp.array(STARTS)[jax.random.randint(key, (), 0, len(STARTS))]
        return index, observe(index)

    def step(index: Array, key: Key, action: Array) -> tuple[Array, Step]:
        right = action == jnp.array([BEST.get(i, 0) for i in range(NOWHERE + 1)])[index]
        rewards = jnp.array([1.0 if i in (ALONE, SECOND, GOOD, CUT, *BEST) else 0.0 for i in range(NOWHERE + 1)])[index]
        wrong = ~right & (index >= CHOICE) & (index <= ONE)
        reward = jnp.where((index == BAD) | (index == LAST) | wrong, -1.0, rewards)
        truncated = (index == CUT) | (index == CUT_TO_LAST)
        terminated = ~truncated & (index != FIRST)
        beginning, _ = reset(key)
        after = jnp.where(index == FIRST, SECOND, beginning)
        led_to = jnp.select([index == FIRST, index == CUT, index == CUT_TO_LAST], [SECOND, CUT, LAST], NOWHERE)
        return after, Step(observe(after), reward, terminated, truncated, observe(led_to))

    return Environment(reset, step, gymnasium.spaces.Box(0, 1, (NOWHERE + 1,), np.float32), gymnasium.spaces.Discrete(2))


def relay() -> Environment:
    """Episodes of one step that begin in turns at observations 0 and 1, and claim to lead to 2."""
    observe = functools.partial(one_hot, size=3)

    def step(index: Array, key: Key, action: Array) -> tuple[Array, Step]:
        after = 1 - index
        return after, Step(observe(after), jnp.zeros(()), jnp.ones((), bool), jnp.zeros((), bool), observe(jnp.int32(2)))

    start = jnp.zeros((), jnp.int32)
    return Environment(
        lambda key: (start, observe(start)), step, gymnasium.spaces.Box(0, 1, (3,), np.float32), gymnasium.spaces.Discrete(2)
    )


def trained(environment: str, agent: str, options: dict[str, Any], steps: int) -> tuple[Any, Any, list[Any]]:
    """The environment, the agent's options, and what it is after so many steps, once per seed."""
    (program,) = programs(make_spec(environment=environment, agent=agent, agent_options=options, seeds=SEEDS, steps=steps))
    make_loop = on_policy.make_loop if AGENTS[agent].on_policy else loop.make_loop
    compiled = make_loop(program, steps, jax.devices()[:1])
    lanes, _ = compiled.warm_up(compiled.init())
    for time in range(compiled.warm_up_steps, steps, compiled.chunk_steps):
        lanes, _ = compiled.chunk(lanes, time)
    states = gather(compiled, tuple(group.agent for group in lanes))
    return program.environment, program.options, [jax.tree.map(lambda x: jnp.array(x[lane]), states) for lane in range(SEEDS)]


@pytest.fixture(scope="module", autouse=True)
def registered() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(ENVIRONMENTS, "Problems", problems)
        patch.setitem(ENVIRONMENTS, "Relay", relay)
        yield


@functools.cache
def answers(agent: str) -> tuple[np.ndarray, np.ndarray]:
    """How an agent values each observation, and how it acts there: (answerers, observations), (answerers, observations, actions).

    Those who answer are all seeds, and all heads where there are several.
    """
    steps = 5_120 if AGENTS[agent].on_policy else 3_000
    options = {**ON_POLICY, "reward_discount": DISCOUNT} if AGENTS[agent].on_policy else VALUE_BASED
    environment, options, states = trained("Problems", agent, {**options, **SIZES.get(agent, {})}, steps)
    network, everywhere = make_network(options, environment), jnp.eye(NOWHERE + 1)
    values, acts = [], []
    for state in states:
        if AGENTS[agent].on_policy:
            critic = make_network(options, environment, 2)
            values.append(critic.apply(state.learned.critic, everywhere)[:, 0])
            acts.append(jax.nn.softmax(network.apply(state.learned.policy, everywhere)))
            continue
        if agent in ("bdqn", "dqn-p"):
            heads = networks.ensemble(network, len(state.salt))
            all_heads = heads.apply(state.online, everywhere) + options.prior_scale * heads.apply(state.prior, everywhere)
        else:
            all_heads = network.apply(state.online, everywhere)[None]
        values += list(all_heads.max(axis=-1))
        acts += list(all_heads >= all_heads.max(axis=-1, keepdims=True))
    return np.array(values), np.array(acts, float)


@pytest.mark.parametrize("probe", PROBES)
@pytest.mark.parametrize("agent", AGENTS)
def test_what_there_is_to_learn_is_learned(agent: str, probe: str) -> None:
    values, acts = answers(agent)
    for observation, value in PROBES[probe].items():
        np.testing.assert_allclose(values[:, observation], value, atol=0.15)
        if observation in BEST:
            assert acts[:, observation, BEST[observation]].min() > 0.9


def relayed(first: float, second: float) -> np.ndarray:
    """The values of two observations that lead to each other, where arriving at them is worth this."""
    return np.array([second + DISCOUNT * first, first + DISCOUNT * second]) / (1 - DISCOUNT**2)


@pytest.mark.parametrize("method", ["rnd", "acb"])
def test_intrinsic_values_go_on_after_a_termination(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A novelty that does not wear off: only its action values learn."""

    def build(options: Any, environment: Environment) -> vbe.Agent:
        optimizer = optax.multi_transform({"learn": optax.adam(0.01), "keep": optax.set_to_zero()}, Learned("learn", "keep"))
        make_bonus = {"rnd": bonuses.rnd, "acb": bonuses.acb}[method]
        bonus = make_bonus(make_network(options, environment), make_network(options, environment, 5), optimizer, discount=options.discount)
        return vbe.agents.explorer(bonus)

    monkeypatch.setitem(AGENTS, "probe", Recipe({"rnd": Distillation, "acb": NoiseFits}[method], build, ""))
    environment, options, states = trained("Relay", "probe", {**VALUE_BASED, "target_period": 4, "pure_exploration": True}, 2_000)
    features, network, here = make_network(options, environment, 5), make_network(options, environment), jnp.eye(3)[:2]
    for state in states:
        outputs = np.asarray(features.apply(state.learned.novelty, here))
        if method == "rnd":
            rewards = np.sum((outputs - np.asarray(features.apply(state.fixed, here))) ** 2, axis=1) / 2
        else:
            rewards = np.max(outputs**2, axis=1)
        values = np.asarray(network.apply(state.learned.values, here)).max(axis=1)
        np.testing.assert_allclose(values, relayed(*rewards), rtol=0.05)


def test_intrinsic_values_go_on_after_a_termination_on_policy_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def build(options: Any, environment: Environment) -> Any:
        curiosity = Curiosity(
            init=lambda key, observation, policy: (),
            rewards=lambda state, policy, observations: (state, observations @ jnp.array([1.0, 3.0, 50.0])),
            fit=lambda state, key, observations: (state, jnp.zeros(())),
        )
        critic = make_network(options, environment, 2)
        return ppo(make_network(options, environment), critic, curiosity, optax.adam(0.01), bonus_discount=options.bonus_discount)

    monkeypatch.setitem(AGENTS, "probe", Recipe(OnPolicy, build, "", on_policy=True))
    environment, options, states = trained("Relay", "probe", {**ON_POLICY, "bonus_discount": DISCOUNT}, 5_120)
    # What bonuses are divided by: their discounted sums take these two values in turns.
    deviation = np.ptp(relayed(3.0, 1.0)) / 2
    for state in states:
        values = make_network(options, environment, 2).apply(state.learned.critic, jnp.eye(3)[:2])
        np.testing.assert_allclose(values[:, 1], relayed(1.0, 3.0) / deviation, rtol=0.05)
        np.testing.assert_allclose(values[:, 0], 0.0, atol=0.1)
