"""Double DQN with a value bonus against a plain statement of one step, its behaviour, and the explorer's."""

import itertools
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import optax
import plain
import pytest
from scipy import stats

from vbe import bonuses, networks
from vbe.agents import double_dqn, explorer
from vbe.agents.double_dqn import State
from vbe.bonuses.vbe import settled
from vbe.types import Array, Bonus, Key, Network, Transition

ACTIONS, FEATURES, BATCH, RATE, SCALE = 4, 6, 5, 0.05, 3.0
SPACE = gymnasium.spaces.Box(-1, 1, (FEATURES,))
NETWORK = networks.mlp(SPACE, ACTIONS, (7, 5))


class Seen(NamedTuple):
    """What a bonus that only watches was last given."""

    weights: Array
    key: Array
    batch: Transition
    next_action: Array
    syncs: Array


def watching_bonus() -> Bonus:
    """Values that are a fixed linear function of the observation; `update` keeps what it is given."""

    def init(key: Key, observation: Array) -> Seen:
        zero = jnp.zeros((), jnp.int32)
        return Seen(jax.random.normal(key, (FEATURES, ACTIONS)), jax.random.key_data(key), make_batch(0), jnp.zeros(BATCH, jnp.int32), zero)

    def update(state: Seen, key: Key, batch: Transition, next_action: Array) -> tuple[Seen, Array]:
        return state._replace(key=jax.random.key_data(key), batch=batch, next_action=next_action), jnp.float32(123.0)

    return Bonus(init, lambda state, x: jnp.abs(x @ state.weights), update, lambda state: state._replace(syncs=state.syncs + 1))


def constant_bonus(values: Any) -> Bonus:
    """The same values at every observation."""
    return bonuses.none(ACTIONS)._replace(values=lambda state, x: jnp.broadcast_to(jnp.float32(values), (*x.shape[:-1], ACTIONS)))


def constant_network(values: Any) -> Network:
    return Network(lambda key, x: jnp.float32(values), lambda params, x: jnp.broadcast_to(params, (*x.shape[:-1], ACTIONS)))


def make_batch(seed: int) -> Transition:
    random = np.random.default_rng(seed)
    return Transition(
        observation=jnp.array(random.normal(size=(BATCH, FEATURES)), jnp.float32),
        action=jnp.array(random.integers(ACTIONS, size=BATCH), jnp.int32),
        reward=jnp.array(random.normal(size=BATCH), jnp.float32),
        discount=jnp.array([0.9, 0.0, 0.7, 0.9, 0.99], jnp.float32),
        next_observation=jnp.array(random.normal(size=(BATCH, FEATURES)), jnp.float32),
    )


def learned(optimistic_target: bool, steps: int = 12) -> tuple[list[State], list[float]]:
    """The states that the agent goes through, with a sync before every fourth step."""
    agent = double_dqn(NETWORK, watching_bonus(), optax.adam(RATE), bonus_scale=SCALE, optimistic_target=optimistic_target)
    learn, states, losses = jax.jit(agent.learn), [agent.init(jax.random.key(0), jnp.zeros(FEATURES))], []
    for time in range(steps):
        state = agent.sync(states[-1]) if time % 4 == 3 else states[-1]
        state, loss = learn(state, jax.random.key(time), make_batch(time))
        states.append(state)
        losses.append(float(loss))
    return states, losses


@pytest.mark.parametrize("optimistic_target", [False, True])
def test_updates_are_those_of_double_dqn(optimistic_target: bool) -> None:
    states, losses = learned(optimistic_target)
    online = target = plain.layers(states[0].online)
    adam = plain.Adam(online, RATE)
    weights = np.asarray(states[0].bonus.weights, np.float64)
    differed = {"target network": 0, "bonus": 0}
    for time, loss in enumerate(losses):
        if time % 4 == 3:
            target = online
        batch = jax.tree.map(np.asarray, make_batch(time))
        online_then, target_then = plain.values(online, batch.next_observation), plain.values(target, batch.next_observation)
        bonus_then = np.abs(batch.next_observation.astype(np.float64) @ weights)
        next_actions, goals = [], []
        for n in range(BATCH):
            preference = online_then[n] + SCALE * bonus_then[n] if optimistic_target else online_then[n]
            next_actions.append(int(np.argmax(preference)))
            goals.append(batch.reward[n] + batch.discount[n] * target_then[n, next_actions[n]])
            differed["target network"] += int(np.argmax(target_then[n]) != np.argmax(online_then[n]))
            differed["bonus"] += int(np.argmax(online_then[n] + SCALE * bonus_then[n]) != np.argmax(online_then[n]))
        expected, gradient = plain.loss_and_gradient(online, batch.observation, batch.action, np.array(goals))
        online = adam.step(online, gradient)
        assert loss == pytest.approx(expected, rel=1e-4)
        seen = states[time + 1].bonus
        np.testing.assert_array_equal(seen.next_action, next_actions)
        jax.tree.map(np.testing.assert_array_equal, seen.batch, batch)
        plain.assert_same(online, states[time + 1].online)
        plain.assert_same(target, states[time + 1].target)
    plain.assert_same_moments(adam, states[-1].optimizer)
    # Otherwise a wrong maximum would have passed unseen.
    assert min(differed.values()) > 0


def test_target_networks_and_bonuses_are_synced_together_and_only_then() -> None:
    states, _ = learned(optimistic_target=False, steps=8)
    for time, (before, after) in enumerate(itertools.pairwise(states)):
        synced = time % 4 == 3
        expected = before.online if synced else before.target
        jax.tree.map(np.testing.assert_array_equal, after.target, expected)
        assert int(after.bonus.syncs) - int(before.bonus.syncs) == synced
    assert not np.array_equal(states[3].target[0].weights, states[3].online[0].weights)


def test_one_key_makes_the_same_agent_and_another_makes_another() -> None:
    agent = double_dqn(NETWORK, bonuses.vbe(NETWORK, optax.adam(RATE), ensemble_size=2), optax.adam(RATE))
    states = [agent.init(jax.random.key(seed), jnp.zeros(FEATURES)) for seed in (0, 0, 1)]
    jax.tree.map(np.testing.assert_array_equal, states[0], states[1])
    for one, other in zip(jax.tree.leaves(states[0].online), jax.tree.leaves(states[2].online), strict=True):
        assert not np.array_equal(one, other)
    # The bonus's networks are drawn apart from the agent's own.
    own, members = states[0].online[0].weights, states[0].bonus
    assert not any(np.array_equal(own, w) for tree in (members.target, settled(members).predictor) for w in tree[0].weights)


def test_behaviour_is_greedy_in_values_plus_scaled_bonus() -> None:
    observation = jnp.zeros(FEATURES)
    values, bonus = [1.0, 0.5, 0.0, -1.0], [0.0, 1.0, 1.4, 0.1]
    for scale, best in (0.0, 0), (0.9, 1), (3.0, 2):
        for wrap in float, jnp.float32:
            agent = double_dqn(constant_network(values), constant_bonus(bonus), optax.sgd(0.1), bonus_scale=wrap(scale))
            action, its_bonus = jax.jit(agent.act)(agent.init(jax.random.key(0), observation), jax.random.key(1), observation)
            assert action.dtype == jnp.int32 and int(action) == best
            assert float(its_bonus) == pytest.approx(bonus[best])


def frequencies(agent: Any, draws: int = 6000) -> np.ndarray:
    """How often each action is taken at one observation."""
    observation = jnp.zeros(FEATURES)
    state = agent.init(jax.random.key(0), observation)
    keys = jax.random.split(jax.random.key(1), draws)
    actions = jax.jit(jax.vmap(lambda key: agent.act(state, key, observation)[0]))(keys)
    return np.bincount(np.asarray(actions), minlength=ACTIONS)


def test_ties_are_broken_uniformly() -> None:
    tied = [1.0, 2.0, 2.0, 2.0]
    counts = {
        "double_dqn": frequencies(double_dqn(constant_network(tied), bonuses.none(ACTIONS), optax.sgd(0.1))),
        "explorer": frequencies(explorer(constant_bonus(tied))),
    }
    for taken in counts.values():
        assert taken[0] == 0 and stats.chisquare(taken[1:]).pvalue > 1e-3
    assert stats.chisquare(frequencies(explorer(bonuses.none(ACTIONS)))).pvalue > 1e-3


@pytest.mark.parametrize("wrap", [float, jnp.float32])
@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0])
def test_epsilon_is_the_probability_of_a_uniform_action(wrap: Any, epsilon: float) -> None:
    agent = double_dqn(constant_network([0.0, 0.0, 1.0, 0.5]), bonuses.none(ACTIONS), optax.sgd(0.1), epsilon=wrap(epsilon))
    taken = frequencies(agent)
    expected = taken.sum() * (epsilon / ACTIONS + np.array([0, 0, 1 - epsilon, 0]))
    if epsilon == 0:
        np.testing.assert_array_equal(taken, expected)
    else:
        assert stats.chisquare(taken, expected).pvalue > 1e-3


def test_the_explorer_follows_the_bonus_alone() -> None:
    agent = explorer(watching_bonus())
    state = agent.init(jax.random.key(0), jnp.zeros(FEATURES))
    batch, learn = make_batch(0), jax.jit(agent.learn)
    bonus_now = np.abs(np.asarray(batch.observation) @ np.asarray(state.weights))
    for n, observation in enumerate(batch.observation):
        action, its_bonus = agent.act(state, jax.random.key(n), observation)
        assert int(action) == np.argmax(bonus_now[n])
        assert float(its_bonus) == pytest.approx(bonus_now[n].max(), rel=1e-5)
    after, loss = learn(state, jax.random.key(9), batch)
    bonus_then = np.abs(np.asarray(batch.next_observation) @ np.asarray(state.weights))
    np.testing.assert_array_equal(after.next_action, bonus_then.argmax(1))
    assert float(loss) == 123.0 and int(agent.sync(after).syncs) == 1


def test_without_a_bonus_nothing_is_added() -> None:
    bonus = bonuses.none(ACTIONS)
    state = bonus.init(jax.random.key(0), jnp.zeros(FEATURES))
    np.testing.assert_array_equal(bonus.values(state, jnp.zeros(FEATURES)), np.zeros(ACTIONS))
    after, loss = bonus.update(state, jax.random.key(0), make_batch(0), jnp.zeros(BATCH, jnp.int32))
    assert (after, bonus.sync(state), float(loss)) == (state, state, 0.0)
