"""Bootstrapped DQN against a plain statement of one step, its coins, and who acts when."""

from functools import partial
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import optax
import plain
import pytest
from scipy import stats

import vbe
from vbe import networks
from vbe.agents import AGENTS, bootstrapped_dqn
from vbe.agents.bootstrapped_dqn import State, masks
from vbe.types import Agent, Array, Network, Transition

HEADS, ACTIONS, FEATURES, BATCH, RATE, SCALE = 3, 4, 6, 5, 0.05, 0.7
SPACES = {
    "mlp": gymnasium.spaces.Box(-1, 1, (FEATURES,)),
    "linear": gymnasium.spaces.MultiDiscrete([FEATURES] * 2),
}


def make_network(kind: str) -> Network:
    return networks.mlp(SPACES[kind], ACTIONS, (7, 5) if kind == "mlp" else (), initializer=networks.truncated_normal)


def make(kind: str = "mlp", **options: Any) -> tuple[Agent, State]:
    agent = bootstrapped_dqn(make_network(kind), optax.adam(RATE), **{"ensemble_size": HEADS, "prior_scale": SCALE, **options})
    return agent._replace(learn=jax.jit(agent.learn)), agent.init(jax.random.key(0), observations(kind, 0)[0])


def observations(kind: str, seed: int) -> Array:
    key = jax.random.key(1000 + seed)
    return jax.random.randint(key, (BATCH, 2), 0, FEATURES) if kind == "linear" else jax.random.normal(key, (BATCH, FEATURES))


def make_batch(kind: str = "mlp", seed: int = 0) -> Transition:
    random = np.random.default_rng(seed)
    return Transition(
        observation=observations(kind, 2 * seed),
        action=jnp.array(random.integers(ACTIONS, size=BATCH), jnp.int32),
        reward=jnp.array(random.normal(size=BATCH), jnp.float32),
        discount=jnp.array([0.9, 0.0, 0.7, 0.9, 0.99], jnp.float32),
        next_observation=observations(kind, 2 * seed + 1),
        time=jnp.array(random.integers(50_000, size=BATCH), jnp.int32),
    )


def layers(kind: str, stack: Any, i: int) -> plain.Layers:
    return plain.layers(plain.member(stack, i), indexed=kind == "linear")


def vectors(kind: str, observation: Array) -> np.ndarray:
    return plain.dense(np.asarray(observation), FEATURES) if kind == "linear" else np.asarray(observation)


def same(one: Any, other: Any) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True))


class PlainHead:
    """One head's f, its copy and its prior."""

    def __init__(self, kind: str, state: State, i: int):
        self.kind = kind
        self.prior, self.online = layers(kind, state.prior, i), layers(kind, state.online, i)
        self.target = self.online
        self.adam = plain.Adam(self.online, RATE)

    def update(self, batch: Transition, coins: np.ndarray, heads: int, differed: dict[str, int]) -> float:
        """Returns the head's part of the loss, a mean over all heads and the batch."""
        now, then = vectors(self.kind, batch.observation), vectors(self.kind, batch.next_observation)
        prior_now, prior_then = plain.values(self.prior, now), plain.values(self.prior, then)
        online_then, target_then = plain.values(self.online, then), plain.values(self.target, then)
        outputs, inputs = plain.forward(self.online, now)
        signal, loss = np.zeros_like(outputs), 0.0
        for n in range(BATCH):
            if not coins[n]:
                continue
            a = int(batch.action[n])
            next_values = target_then[n] + SCALE * prior_then[n]
            goal = float(batch.reward[n]) + float(batch.discount[n]) * max(next_values)
            error = outputs[n, a] + SCALE * prior_now[n, a] - goal
            loss += error**2 / (heads * BATCH)
            signal[n, a] = 2 * error / (heads * BATCH)
            differed["prior"] += np.argmax(next_values) != np.argmax(target_then[n])
            differed["target network"] += np.argmax(next_values) != np.argmax(online_then[n] + SCALE * prior_then[n])
        self.online = self.adam.step(self.online, plain.backward(self.online, inputs, signal))
        return loss


@pytest.mark.parametrize("kind", SPACES)
@pytest.mark.parametrize(("heads", "probability"), [(HEADS, 0.5), (HEADS, 1.0), (1, 1.0)])
def test_updates_are_those_of_bootstrapped_dqn(kind: str, heads: int, probability: float) -> None:
    agent, state = make(kind, ensemble_size=heads, mask_probability=probability)
    plain_heads = [PlainHead(kind, state, i) for i in range(heads)]
    differed = {"prior": 0, "target network": 0}
    masked_out = 0
    for time in range(12):
        if time % 4 == 3:
            state = agent.sync(state)
            for head in plain_heads:
                head.target = head.online
        batch = make_batch(kind, time)
        coins = np.asarray(masks(state.salt, batch.time, probability))
        masked_out += np.sum(~coins)
        state, loss = agent.learn(state, jax.random.key(time), batch)
        losses = [head.update(batch, coins[i], heads, differed) for i, head in enumerate(plain_heads)]
        assert float(loss) == pytest.approx(sum(losses), rel=1e-4)
    adam = state.optimizer[0]
    for i, head in enumerate(plain_heads):
        indexed = kind == "linear"
        plain.assert_same(head.online, plain.member(state.online, i), indexed=indexed)
        plain.assert_same(head.target, plain.member(state.target, i), indexed=indexed)
        plain.assert_same(head.prior, plain.member(state.prior, i), indexed=indexed)
        plain.assert_same_moments(head.adam, [adam._replace(mu=plain.member(adam.mu, i), nu=plain.member(adam.nu, i))], indexed=indexed)
    # Otherwise a wrong maximum, or no masks, would have passed unseen.
    assert min(differed.values()) > 0
    assert (masked_out > 0) == (probability < 1)


def test_a_head_learns_only_from_what_it_may_see() -> None:
    agent, state = make()
    batch = make_batch(seed=3)
    coins = np.asarray(masks(state.salt, batch.time, 0.5))
    assert 0 < coins.sum() < coins.size
    expected, _ = agent.learn(state, jax.random.key(0), batch)
    for n in range(BATCH):
        other, _ = agent.learn(state, jax.random.key(0), batch._replace(reward=batch.reward.at[n].add(10.0)))
        for i in range(HEADS):
            assert same(plain.member(expected.online, i), plain.member(other.online, i)) == (not coins[i, n])


def test_nothing_is_learned_from_beyond_a_termination() -> None:
    agent, state = make(mask_probability=1.0)
    batch = make_batch()
    expected, _ = agent.learn(state, jax.random.key(0), batch)
    for n, matters in (1, False), (0, True):
        other = batch._replace(next_observation=batch.next_observation.at[n].add(1.0))
        assert (batch.discount[n] > 0) == matters
        assert same(expected, agent.learn(state, jax.random.key(0), other)[0]) != matters


def test_masks_are_the_same_whenever_asked() -> None:
    salt, times = jax.random.bits(jax.random.key(0), (20,)), jnp.arange(300)
    expected = np.asarray(masks(salt, times, 0.5))
    shuffled = np.random.default_rng(0).permutation(300)
    np.testing.assert_array_equal(masks(salt, jnp.array(shuffled), 0.5), expected[:, shuffled])
    np.testing.assert_array_equal(masks(salt[3:4], times[7:8], 0.5), expected[3:4, 7:8])
    np.testing.assert_array_equal(jax.jit(masks)(salt, times, jnp.float32(0.5)), expected)


@pytest.mark.parametrize("probability", [0.1, 0.5, 0.9])
def test_masks_are_as_probable_as_they_should_be_for_each_head_and_time(probability: float) -> None:
    heads, times = 200, 5000
    coins = np.asarray(masks(jax.random.bits(jax.random.key(1), (heads,)), jnp.arange(times), probability))
    for axis in 0, 1:
        n = coins.shape[axis]
        scores = (coins.sum(axis) - n * probability) / np.sqrt(n * probability * (1 - probability))
        assert stats.chi2.sf(np.sum(scores**2), len(scores)) > 1e-3  # no head or time is favoured
        assert stats.chi2.cdf(np.sum(scores**2), len(scores)) > 1e-3  # and they vary as much as coins do
    assert np.asarray(masks(jnp.zeros(3, jnp.uint32), jnp.arange(100), 1.0)).all()


def correlations(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """How much fair coins along the last axis go together, in standard deviations."""
    return np.sum((one * 2.0 - 1) * (other * 2.0 - 1), axis=-1) / np.sqrt(one.shape[-1])


def assert_independent(scores: Any) -> None:
    scores = np.ravel(scores)
    assert 2 * stats.norm.sf(np.abs(scores).max()) * len(scores) > 1e-3
    assert stats.chi2.sf(np.sum(scores**2), len(scores)) > 1e-3


def test_masks_of_heads_and_runs_and_times_are_independent() -> None:
    times = np.arange(2**14)
    states = [make(ensemble_size=20)[0].init(jax.random.key(seed), jnp.zeros(FEATURES)) for seed in range(3)]
    coins = np.concatenate([masks(state.salt, jnp.array(times), 0.5) for state in states])
    assert_independent([correlations(coins[i], coins[j]) for i in range(len(coins)) for j in range(i)])
    assert_independent([correlations(coins[:, :-lag], coins[:, lag:]) for lag in (1, 2, 3, 4, 7, 64, 1000, 4096)])
    # Related salts: were the time not mixed on its own, such heads would see the same coins at times that differ in one bit.
    salts = jnp.uint32(1234567) ^ jnp.array([0, *(2**bit for bit in range(14))], jnp.uint32)
    related = np.asarray(masks(salts, jnp.array(times), 0.5))
    assert_independent([correlations(related[0], related[bit + 1][times ^ shift]) for bit in range(14) for shift in (0, 2**bit)])


def test_learning_with_masks_needs_to_know_which_transitions_they_are_for() -> None:
    agent, state = make()
    with pytest.raises(vbe.UsageError, match=r"^batch\.time=None: must be"):
        agent.learn(state, jax.random.key(0), make_batch()._replace(time=None))


@pytest.mark.parametrize("kind", SPACES)
@pytest.mark.parametrize("wrap", [float, jnp.float32])
def test_one_head_acts_greedily_in_its_own_values_with_their_prior(kind: str, wrap: Any) -> None:
    agent, state = make(kind, prior_scale=wrap(SCALE))
    for time in range(5):
        state, _ = agent.learn(state, jax.random.key(time), make_batch(kind, time))
    x = observations(kind, 5)
    act, seen = jax.jit(agent.act), vectors(kind, x)
    f = [plain.values(layers(kind, state.online, i), seen) for i in range(HEADS)]
    p = [plain.values(layers(kind, state.prior, i), seen) for i in range(HEADS)]
    best = np.array([np.argmax(f[i] + SCALE * p[i], axis=1) for i in range(HEADS)])
    for i in range(HEADS):
        for n in range(BATCH):
            action, bonus = act(state._replace(head=jnp.int32(i)), jax.random.key(n), x[n])
            assert action.dtype == jnp.int32 and int(action) == best[i, n]
            assert float(bonus) == 0.0
    # Otherwise another head's values, or those without the prior, would have passed unseen.
    assert all((best[i] != best[j]).any() for i in range(HEADS) for j in range(i))
    assert (best != np.argmax(f, axis=2)).any()


def heads_over_time(agent: Agent, state: State, ended: np.ndarray, key: Array) -> np.ndarray:
    """Who acts after each step."""

    def step(state: State, xs: tuple[Array, Array]) -> tuple[State, Array]:
        ended, time = xs
        state = agent.begin_episode(state, jax.random.fold_in(key, time), ended)
        return state, state.head

    _, heads = jax.lax.scan(step, state, (jnp.array(ended), jnp.arange(len(ended))))
    return heads


def test_another_head_acts_after_an_episode_or_ten_thousand_steps_and_at_no_other_time() -> None:
    agent, state = make("linear", ensemble_size=20)
    run = jax.jit(jax.vmap(partial(heads_over_time, agent, state, np.isin(np.arange(20_100), [50, 51, 700, 15_000]))))
    heads = np.asarray(run(jax.random.split(jax.random.key(0), 30)))
    moved = np.flatnonzero((np.diff(heads, axis=1, prepend=int(state.head)) != 0).any(axis=0))
    assert list(moved) == [50, 51, 700, 9_999, 15_000, 19_999]


@pytest.mark.parametrize("heads", [2, 3, 20])
def test_acting_heads_are_drawn_uniformly_and_anew(heads: int) -> None:
    agent, state = make("linear", ensemble_size=heads)
    drawn = np.asarray(heads_over_time(agent, state, np.ones(8000, bool), jax.random.key(3)))
    pairs = np.zeros((heads, heads))
    np.add.at(pairs, (drawn[:-1:2], drawn[1::2]), 1)
    assert stats.chisquare(pairs.ravel()).pvalue > 1e-3
    first = jax.vmap(lambda key: agent.init(key, observations("linear", 0)[0]).head)(jax.random.split(jax.random.key(0), 2000))
    assert stats.chisquare(np.bincount(np.asarray(first), minlength=heads)).pvalue > 1e-3


def test_syncing_copies_all_heads_and_nothing_else() -> None:
    agent, state = make()
    state, _ = agent.learn(state, jax.random.key(0), make_batch())
    assert not same(state.online, state.target)
    assert same(agent.sync(state), state._replace(target=state.online))


def test_priors_never_change() -> None:
    agent, before = make()
    state = before
    for time in range(5):
        state = agent.begin_episode(agent.sync(state), jax.random.key(time), jnp.bool(True))
        state, _ = agent.learn(state, jax.random.key(time), make_batch(seed=time))
    assert same(state.prior, before.prior) and same(state.salt, before.salt)
    assert not same(state.online, before.online)


def test_every_head_and_prior_and_run_begins_differently() -> None:
    agent, state = make()
    other = agent.init(jax.random.key(1), jnp.zeros(FEATURES))
    weights = [one.weights[i] for s in (state, other) for one in (s.online[0], s.prior[0]) for i in range(HEADS)]
    assert not any(np.array_equal(weights[i], weights[j]) for i in range(len(weights)) for j in range(i))
    assert len({int(salt) for s in (state, other) for salt in s.salt}) == 2 * HEADS
    assert same(state.online, state.target)


def test_a_single_head_is_dqn_with_a_prior_and_sees_everything() -> None:
    environment = vbe.environments.make("RiverSwim")
    sizes = {"hidden": (7,), "prior_scale": 3.0}
    single = AGENTS["bdqn"].build(AGENTS["bdqn"].options(ensemble_size=1, **sizes), environment)
    plainest = AGENTS["dqn-p"].build(AGENTS["dqn-p"].options(**sizes), environment)
    batch = Transition(jnp.ones((BATCH, 1)), *make_batch()[1:4], jnp.zeros((BATCH, 1)))._replace(action=jnp.zeros(BATCH, jnp.int32))
    states = [agent.init(jax.random.key(0), jnp.zeros(1)) for agent in (single, plainest)]
    # A transition without a name cannot have been masked.
    states = [agent.learn(state, jax.random.key(0), batch)[0] for agent, state in zip((single, plainest), states, strict=True)]
    assert same(*states)
    several = AGENTS["bdqn"].build(AGENTS["bdqn"].options(**sizes), environment)
    with pytest.raises(vbe.UsageError, match=r"^batch\.time=None"):
        several.learn(several.init(jax.random.key(0), jnp.zeros(1)), jax.random.key(0), batch)
