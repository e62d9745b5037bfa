"""PPO with two value heads against a plain statement of what it learns from rollouts."""

from functools import partial
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import optax
import plain
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import vbe
from vbe import networks
from vbe.agents import AGENTS
from vbe.agents.ppo import OnPolicyAgent, Rollout, State, accumulate, advantages, clipped, ppo, scale_bonuses
from vbe.bonuses.curiosity import Curiosity, no_moments
from vbe.types import Array, Transition

ACTIONS, FEATURES, LENGTH, RATE = 3, 6, 16, 0.01
BONUS_SCALE, REWARD_SCALE, BONUS_DISCOUNT, TRACE, CLIP, ENTROPY_SCALE = 0.7, 2.0, 0.8, 0.9, 0.1, 0.05
SPACE = gymnasium.spaces.Box(-1, 1, (FEATURES,))
NOVELTY = np.array([1.0, 0.0, 2.0, 0.5, 0.0, 0.3])


def watching_curiosity() -> Curiosity:
    """Rewards that are a fixed function of the observation; the state is all that it was given."""
    weights = jnp.array(NOVELTY, jnp.float32)

    def rewards(state: Any, policy: Any, observations: Array) -> tuple[Any, Array]:
        return {**state, "policy": policy}, jnp.abs(observations @ weights)

    def fit(state: Any, key: Array, observations: Array) -> tuple[Any, Array]:
        return {**state, "seen": observations, "fits": state["fits"] + 1}, jnp.zeros(())

    def init(key: Array, observation: Array, policy: Any) -> Any:
        return {"policy": policy, "seen": jnp.zeros((1, FEATURES)), "fits": jnp.zeros((), jnp.int32)}

    return Curiosity(init, rewards, fit)


def make(curiosity: Curiosity | None = None, optimizer: Any = None, **options: Any) -> tuple[OnPolicyAgent, State]:
    agent = ppo(
        networks.mlp(SPACE, ACTIONS, (7,)),
        networks.mlp(SPACE, 2, (5,)),
        curiosity or watching_curiosity(),
        optimizer or optax.adam(RATE),
        **{
            "bonus_scale": BONUS_SCALE,
            "reward_scale": REWARD_SCALE,
            "bonus_discount": BONUS_DISCOUNT,
            "trace": TRACE,
            "clip": CLIP,
            "entropy_scale": ENTROPY_SCALE,
            **options,
        },
    )
    state = agent.init(jax.random.key(0), jnp.zeros(FEATURES))
    if curiosity is None:
        state.curiosity["seen"] = jnp.zeros((max(1, LENGTH // options.get("minibatches", 4) // 4), FEATURES))
    return agent._replace(learn=jax.jit(agent.learn)), state


def make_rollout(seed: int) -> Rollout:
    """Fixed numbers, with terminations and truncations, one of these the last."""
    random = np.random.default_rng(seed)
    discount = np.full(LENGTH, 0.9)
    discount[[3, 9]] = 0.0
    transitions = Transition(
        observation=jnp.array(random.normal(size=(LENGTH, FEATURES)), jnp.float32),
        action=jnp.array(random.integers(ACTIONS, size=LENGTH), jnp.int32),
        reward=jnp.array(random.normal(size=LENGTH), jnp.float32),
        discount=jnp.array(discount, jnp.float32),
        next_observation=jnp.array(random.normal(size=(LENGTH, FEATURES)), jnp.float32),
    )
    return Rollout(transitions, jnp.isin(jnp.arange(LENGTH), jnp.array([6, 12, LENGTH - 1])))


def same(one: Any, other: Any) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True))


def softmax(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


class Plain:
    """Both networks, their optimiser, and every discounted sum of bonuses that there was."""

    def __init__(self, state: State, epochs: int, pure_exploration: bool):
        self.policy, self.critic = plain.layers(state.learned.policy), plain.layers(state.learned.critic)
        self.policy_adam, self.critic_adam = plain.Adam(self.policy, RATE), plain.Adam(self.critic, RATE)
        self.sums: list[float] = []
        self.epochs, self.pure_exploration = epochs, pure_exploration
        self.clipped = 0

    def learn(self, rollout: Rollout) -> tuple[np.ndarray, float]:
        """Every epoch is one update on the whole rollout."""
        t, truncated = jax.tree.map(lambda x: np.float64(x), rollout)
        actions = t.action.astype(int)
        bonuses = np.abs(t.next_observation @ NOVELTY)
        for bonus in bonuses:
            self.sums.append(bonus + BONUS_DISCOUNT * (self.sums[-1] if self.sums else 0.0))
        scaled = bonuses / np.std(self.sums)

        values, next_values = plain.values(self.critic, t.observation), plain.values(self.critic, t.next_observation)
        estimates = np.zeros((LENGTH, 2))
        for head, (rewards, discounts) in enumerate([(t.reward, t.discount), (scaled, np.full(LENGTH, BONUS_DISCOUNT))]):
            later = 0.0
            for n in reversed(range(LENGTH)):
                surprise = rewards[n] + discounts[n] * next_values[n, head] - values[n, head]
                later = surprise if truncated[n] else surprise + TRACE * discounts[n] * later
                estimates[n, head] = later
        returns = estimates + values
        advantage = BONUS_SCALE * estimates[:, 1] + (0.0 if self.pure_exploration else REWARD_SCALE) * estimates[:, 0]
        heads = [1] if self.pure_exploration else [0, 1]
        old = softmax(plain.values(self.policy, t.observation))

        losses = []
        for _ in range(self.epochs):
            logits, policy_inputs = plain.forward(self.policy, t.observation)
            values, critic_inputs = plain.forward(self.critic, t.observation)
            probabilities = softmax(logits)
            policy_signal, critic_signal, loss = np.zeros_like(logits), np.zeros_like(values), 0.0
            for n in range(LENGTH):
                p, a = probabilities[n], actions[n]
                ratio = p[a] / old[n, a]
                gain, held = ratio * advantage[n], min(max(ratio, 1 - CLIP), 1 + CLIP) * advantage[n]
                entropy = -np.sum(p * np.log(p))
                loss += (-min(gain, held) - ENTROPY_SCALE * entropy) / LENGTH
                if gain <= held:
                    policy_signal[n] -= gain * ((np.arange(ACTIONS) == a) - p) / LENGTH
                else:
                    self.clipped += 1
                policy_signal[n] += ENTROPY_SCALE * p * (np.log(p) + entropy) / LENGTH
                for head in heads:
                    loss += (values[n, head] - returns[n, head]) ** 2 / 2 / LENGTH
                    critic_signal[n, head] = (values[n, head] - returns[n, head]) / LENGTH
            losses.append(loss)
            self.policy = self.policy_adam.step(self.policy, plain.backward(self.policy, policy_inputs, policy_signal))
            self.critic = self.critic_adam.step(self.critic, plain.backward(self.critic, critic_inputs, critic_signal))
        return bonuses, float(np.mean(losses))


@pytest.mark.parametrize("pure_exploration", [False, True])
@pytest.mark.parametrize("epochs", [1, 8])
def test_learning_from_rollouts_is_that_of_ppo(epochs: int, pure_exploration: bool) -> None:
    agent, state = make(epochs=epochs, minibatches=1, pure_exploration=pure_exploration)
    expected = Plain(state, epochs, pure_exploration)
    for time in range(3):
        rollout, before = make_rollout(time), state
        state, bonuses, loss = agent.learn(state, jax.random.key(time), rollout)
        expected_bonuses, expected_loss = expected.learn(rollout)
        np.testing.assert_allclose(bonuses, expected_bonuses, rtol=1e-5)
        assert float(loss) == pytest.approx(expected_loss, rel=1e-3)
        assert same(state.curiosity["policy"], before.learned.policy)
    plain.assert_same(expected.policy, state.learned.policy, rtol=1e-3, atol=1e-4)
    plain.assert_same(expected.critic, state.learned.critic, rtol=1e-3, atol=1e-4)
    # Otherwise the limit on probability ratios would not have been tried.
    assert (expected.clipped > 0) == (epochs > 1)


def loop(terms: np.ndarray, decays: np.ndarray) -> np.ndarray:
    sums = np.zeros_like(terms)
    for t in range(len(terms)):
        sums[t] = terms[t] + (decays[t] * sums[t - 1] if t else 0.0)
    return sums


numbers = st.floats(-10, 10, width=32)
decays = st.one_of(st.just(0.0), st.just(1.0), st.floats(0, 1, width=32))
sequences = st.sampled_from([1, 2, 5, 16]).flatmap(
    lambda n: st.tuples(*[st.lists(s, min_size=2 * n, max_size=2 * n) for s in (numbers, decays, decays, numbers, numbers)])
)

forwards, backwards = jax.jit(accumulate), jax.jit(partial(accumulate, reverse=True))
estimates, limited_gain = jax.jit(advantages), jax.jit(clipped)


@given(sequences)
def test_sums_and_advantages_are_those_of_a_plain_loop(columns: tuple[list[float], ...]) -> None:
    rewards, discounts, traces, values, next_values = (np.array(column).reshape(-1, 2) for column in columns)
    arrays = [jnp.array(x, jnp.float32) for x in (rewards, discounts, traces, values, next_values)]
    terms, decays = arrays[:2]
    np.testing.assert_allclose(forwards(terms, decays), loop(rewards, discounts), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(backwards(terms, decays), loop(rewards[::-1], discounts[::-1])[::-1], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(forwards(terms[:, 0], decays[:, 0]), loop(rewards, discounts)[:, 0], rtol=1e-4, atol=1e-4)
    surprises = rewards + discounts * next_values - values
    np.testing.assert_allclose(estimates(*arrays), loop(surprises[::-1], traces[::-1])[::-1], rtol=1e-4, atol=1e-3)


def test_a_truncation_stops_what_comes_later_and_a_termination_stops_rewards_alone() -> None:
    # Every observation has a row of its own in the critic, where one step of gradient descent shows what it was to be worth.
    space = gymnasium.spaces.Box(0, 1, (2 * LENGTH,))
    curiosity = watching_curiosity()._replace(
        init=lambda key, observation, policy: (),
        rewards=lambda state, policy, observations: (state, jnp.arange(1.0, LENGTH + 1)),
        fit=lambda state, key, observations: (state, jnp.zeros(())),
    )
    critic = networks.linear(space, 2, bias=False)
    agent = ppo(networks.linear(space, ACTIONS), critic, curiosity, optax.sgd(1.0), epochs=1, minibatches=1)
    learn, state = jax.jit(agent.learn), agent.init(jax.random.key(0), jnp.zeros(2 * LENGTH))
    rows, rollout = jnp.eye(2 * LENGTH), make_rollout(0)
    named = rollout._replace(transitions=rollout.transitions._replace(observation=rows[:LENGTH], next_observation=rows[LENGTH:]))

    def returns(values: Array) -> np.ndarray:
        """(LENGTH, 2), given the values (2, 2 * LENGTH) to begin with."""
        (layer,) = state.learned.critic
        began = state._replace(learned=state.learned._replace(critic=(layer._replace(weights=values),)))
        after, *_ = learn(began, jax.random.key(0), named)
        return np.asarray(values + LENGTH * (after.learned.critic[0].weights - values)).T[:LENGTH]

    zeros = jnp.zeros((2, 2 * LENGTH))
    before = returns(zeros)
    reached = {}
    for end, name in (3, "termination"), (6, "truncation"), (4, "neither"):
        for when, where in ("at once", end), ("later", end + 1):
            change = returns(zeros.at[:, LENGTH + where].set(1.0))[end] - before[end]
            reached[name, when] = [bool(x) for x in np.abs(change) > 1e-2]
    assert reached == {
        ("neither", "at once"): [True, True],
        ("neither", "later"): [True, True],
        ("truncation", "at once"): [True, True],
        ("truncation", "later"): [False, False],
        ("termination", "at once"): [False, True],
        ("termination", "later"): [False, True],
    }


@given(st.floats(0, 3, width=32), numbers, st.floats(0, 1, width=32))
def test_probabilities_gain_nothing_beyond_the_limit(ratio: float, advantage: float, clip: float) -> None:
    limited = min(max(ratio, 1 - clip), 1 + clip)
    expected = min(ratio * advantage, limited * advantage)
    assert float(limited_gain(jnp.float32(ratio), jnp.float32(advantage), jnp.float32(clip))) == pytest.approx(expected, rel=1e-5, abs=1e-5)


def test_bonuses_are_divided_by_the_deviation_of_their_discounted_sum_so_far() -> None:
    random, total, moments, sums = np.random.default_rng(0), jnp.zeros(()), no_moments(), [0.0]
    for scale in 1.0, 30.0, 0.1, 2.0:
        bonuses = random.random(9) * scale
        for bonus in bonuses:
            sums.append(bonus + BONUS_DISCOUNT * sums[-1])
        scaled, total, moments = scale_bonuses(jnp.array(bonuses, jnp.float32), total, moments, BONUS_DISCOUNT)
        np.testing.assert_allclose(scaled, bonuses / np.std(sums[1:]), rtol=1e-3)
        assert float(total) == pytest.approx(sums[-1], rel=1e-5)
    scaled, *_ = scale_bonuses(jnp.array(bonuses, jnp.float32), total, moments, jnp.float32(BONUS_DISCOUNT))
    assert np.isfinite(scaled).all()


def test_pure_exploration_ignores_rewards() -> None:
    rollout = make_rollout(0)
    other = rollout._replace(transitions=rollout.transitions._replace(reward=rollout.transitions.reward + 5.0))
    for pure in True, False:
        agent, state = make(pure_exploration=pure)
        first, second = (agent.learn(state, jax.random.key(0), seen)[0].learned for seen in (rollout, other))
        assert same(first, second) == pure
        # The extrinsic head, which nobody would ask, does not learn then.
        assert np.array_equal(first.critic[-1].bias[0], state.learned.critic[-1].bias[0]) == pure


def counting_optimizer() -> optax.GradientTransformation:
    """Changes nothing; its state is, for each update, which of the critic's inputs there were."""

    def update(gradient: Any, state: Any, params: Any = None) -> Any:
        count, seen = state
        rows = (gradient.critic[0].weights != 0).any(axis=0)
        return jax.tree.map(jnp.zeros_like, gradient), (count + 1, seen.at[count].set(rows))

    return optax.GradientTransformation(lambda params: (jnp.int32(0), jnp.zeros((12, LENGTH), bool)), update)


def test_every_epoch_learns_from_every_sample_once_in_a_new_order() -> None:
    space = gymnasium.spaces.Box(0, 1, (LENGTH,))
    curiosity = watching_curiosity()._replace(
        init=lambda key, observation, policy: (),
        rewards=lambda state, policy, observations: (state, jnp.arange(1.0, LENGTH + 1)),
        fit=lambda state, key, observations: (state, jnp.zeros(())),
    )
    tables = networks.linear(space, ACTIONS), networks.linear(space, 2, bias=False)
    agent = ppo(*tables, curiosity, counting_optimizer(), epochs=3, minibatches=4)
    rollout = make_rollout(0)
    named = rollout._replace(transitions=rollout.transitions._replace(observation=jnp.eye(LENGTH), next_observation=jnp.eye(LENGTH)))
    state, *_ = jax.jit(agent.learn)(agent.init(jax.random.key(0), jnp.zeros(LENGTH)), jax.random.key(1), named)
    count, seen = state.optimizer
    assert int(count) == 12
    np.testing.assert_array_equal(np.asarray(seen).sum(axis=1), LENGTH // 4)
    epochs = np.asarray(seen).reshape(3, 4, LENGTH)
    np.testing.assert_array_equal(epochs.sum(axis=1), 1)
    assert len({tuple(np.argmax(epoch, axis=0)) for epoch in epochs}) == 3


def test_a_quarter_of_each_minibatch_trains_curiosity_on_what_was_reached() -> None:
    rollout = make_rollout(0)
    reached = {tuple(row) for row in np.asarray(rollout.transitions.next_observation)}
    for minibatches, quarter in (1, 4), (2, 2), (4, 1), (8, 1):
        agent, state = make(minibatches=minibatches, epochs=3)
        orders = set()
        for seed in range(6):
            state, *_ = agent.learn(state, jax.random.key(seed), rollout)
            seen = {tuple(row) for row in np.asarray(state.curiosity["seen"])}
            assert len(seen) == quarter and seen <= reached
            orders.add(tuple(sorted(seen)))
        assert int(state.curiosity["fits"]) == 6 * 3 * minibatches
        assert len(orders) > 1


def test_actions_are_drawn_with_the_policys_probabilities() -> None:
    agent, state = make()
    observation = jax.random.normal(jax.random.key(5), (FEATURES,))
    logits = plain.values(plain.layers(state.learned.policy), np.asarray(observation)[None])
    draws = jax.jit(jax.vmap(lambda key: agent.act(state, key, observation)))(jax.random.split(jax.random.key(1), 6000))
    assert draws.dtype == jnp.int32
    counts = np.bincount(np.asarray(draws), minlength=ACTIONS)
    assert stats.chisquare(counts, 6000 * softmax(logits)[0]).pvalue > 1e-3


@pytest.mark.parametrize("name", ["rnd-ppo", "acb-ppo"])
def test_long_gradients_are_shortened(name: str) -> None:
    environment = vbe.environments.make("RiverSwim")
    options = AGENTS[name].options(hidden=(4,), max_gradient_norm=1e-3, epochs=1, minibatches=1)
    agent = AGENTS[name].build(options, environment)
    t = make_rollout(0).transitions
    first = t._replace(observation=t.observation[:, :1], next_observation=t.next_observation[:, :1], action=t.action % 2)
    state, *_ = agent.learn(agent.init(jax.random.key(0), jnp.zeros(1)), jax.random.key(0), Rollout(first, jnp.zeros(LENGTH, bool)))
    (adam,) = (s for s in jax.tree.leaves(state.optimizer, is_leaf=lambda s: hasattr(s, "mu")) if hasattr(s, "mu"))
    # After one update, Adam's mean is a tenth of the gradient that it was given.
    assert float(jnp.linalg.norm(adam.mu)) == pytest.approx(1e-4, rel=1e-3)
