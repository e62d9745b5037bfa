"""RND and ACB as value bonuses against a plain statement of their updates, and what these may and may not look at."""

from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import optax
import plain
import pytest
from scipy import stats

from vbe import bonuses, networks
from vbe.bonuses.intrinsic import Learned, State
from vbe.types import Array, Bonus, Network, Transition

ACTIONS, FEATURES, OUTPUTS, BATCH, RATE, DISCOUNT = 4, 6, 3, 5, 0.05, 0.8
METHODS = {"rnd": bonuses.rnd, "acb": bonuses.acb}
SPACES = {
    "mlp": gymnasium.spaces.Box(-1, 1, (FEATURES,)),
    "linear": gymnasium.spaces.MultiDiscrete([FEATURES] * 2),
}

methods = pytest.mark.parametrize("method", METHODS)
kinds = pytest.mark.parametrize("kind", SPACES)


def make_network(kind: str, outputs: int) -> Network:
    return networks.mlp(SPACES[kind], outputs, (7, 5)) if kind == "mlp" else networks.linear(SPACES[kind], outputs, bias=False)


def make(method: str, kind: str = "mlp", optimizer: Any = None, discount: Any = DISCOUNT) -> tuple[Bonus, State]:
    optimizer = optimizer or optax.adam(RATE)
    bonus = METHODS[method](make_network(kind, ACTIONS), make_network(kind, OUTPUTS), optimizer, discount=discount)
    return bonus._replace(update=jax.jit(bonus.update)), bonus.init(jax.random.key(0), observations(kind, 0)[0])


def observations(kind: str, seed: int) -> Array:
    key = jax.random.key(1000 + seed)
    return jax.random.randint(key, (BATCH, 2), 0, FEATURES) if kind == "linear" else jax.random.normal(key, (BATCH, FEATURES))


def make_batch(kind: str = "mlp", seed: int = 0) -> tuple[Transition, Array]:
    """Fixed numbers, with a termination and a next action that is nobody's maximum in particular."""
    random = np.random.default_rng(seed)
    batch = Transition(
        observation=observations(kind, 2 * seed),
        action=jnp.array(random.integers(ACTIONS, size=BATCH), jnp.int32),
        reward=jnp.array(random.normal(size=BATCH), jnp.float32),
        discount=jnp.array([0.9, 0.0, 0.7, 0.9, 0.99], jnp.float32),
        next_observation=observations(kind, 2 * seed + 1),
    )
    return batch, jnp.array(random.integers(ACTIONS, size=BATCH), jnp.int32)


def vectors(kind: str, observation: Array) -> np.ndarray:
    return plain.dense(np.asarray(observation), FEATURES) if kind == "linear" else np.asarray(observation)


def same(one: Any, other: Any) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True))


def distance(one: Any, other: Any) -> float:
    leaves = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return float(np.sqrt(sum(np.sum(np.square(np.float64(a) - np.float64(b))) for a, b in leaves)))


def labels(key: Array, batch: int = BATCH, outputs: int = OUTPUTS) -> np.ndarray:
    """The noise that ACB fits, (batch, outputs), read off one step of gradient descent on a table with a row per observation."""
    rows = jnp.arange(batch, dtype=jnp.int32)[:, None]
    space = gymnasium.spaces.MultiDiscrete([batch])
    table = networks.linear(space, outputs, bias=False)
    bonus = bonuses.acb(networks.linear(space, ACTIONS), table, optax.sgd(1.0), discount=DISCOUNT)
    before = bonus.init(jax.random.key(0), rows[0])
    zeros = jnp.zeros(batch)
    actions = jnp.zeros(batch, jnp.int32)
    after, _ = jax.jit(bonus.update)(before, key, Transition(rows, actions, zeros, zeros, rows), actions)
    (old,), (new,) = plain.layers(before.learned.novelty, indexed=True), plain.layers(after.learned.novelty, indexed=True)
    return old[0] + (new[0] - old[0]) * batch * outputs / 2


class Plain:
    """A method's networks and its optimiser. Adam treats each parameter by itself, so that one for all of them is one for each."""

    def __init__(self, method: str, kind: str, state: State):
        self.method, self.kind, indexed = method, kind, kind == "linear"
        self.values = plain.layers(state.learned.values, indexed=indexed)
        self.novelty = plain.layers(state.learned.novelty, indexed=indexed)
        self.fixed = plain.layers(state.fixed, indexed=indexed)
        self.bootstrap = self.values
        self.values_adam, self.novelty_adam = plain.Adam(self.values, RATE), plain.Adam(self.novelty, RATE)

    def rewards(self, observation: np.ndarray) -> np.ndarray:
        outputs, rewards = plain.values(self.novelty, observation), []
        for n in range(BATCH):
            if self.method == "rnd":
                target = plain.values(self.fixed, observation[n : n + 1])[0]
                rewards.append(sum((outputs[n, i] - target[i]) ** 2 for i in range(OUTPUTS)) / 2)
            else:
                rewards.append(max(outputs[n, i] ** 2 for i in range(OUTPUTS)))
        return np.array(rewards)

    def update(self, key: Array, batch: Transition, next_action: np.ndarray) -> float:
        now, then = vectors(self.kind, batch.observation), vectors(self.kind, batch.next_observation)
        rewards, next_values = self.rewards(then), plain.values(self.bootstrap, then)
        goals = np.array([rewards[n] + DISCOUNT * next_values[n, int(next_action[n])] for n in range(BATCH)])
        loss, gradient = plain.loss_and_gradient(self.values, now, np.asarray(batch.action), goals)
        self.values = self.values_adam.step(self.values, gradient)

        outputs, inputs = plain.forward(self.novelty, now)
        errors = outputs - (plain.values(self.fixed, now) if self.method == "rnd" else labels(key))
        gradient = plain.backward(self.novelty, inputs, 2 * errors / (BATCH * OUTPUTS))
        self.novelty = self.novelty_adam.step(self.novelty, gradient)
        return loss + float(np.mean(errors**2))


@kinds
@methods
@pytest.mark.parametrize("wrap", [float, jnp.float32])
def test_updates_are_those_of_the_method(method: str, kind: str, wrap: Any) -> None:
    bonus, state = make(method, kind, discount=wrap(DISCOUNT))
    expected = Plain(method, kind, state)
    for time in range(12):
        if time % 4 == 3:
            state = bonus.sync(state)
            expected.bootstrap = expected.values
        batch, next_action = make_batch(kind, time)
        state, loss = bonus.update(state, jax.random.key(time), batch, next_action)
        assert float(loss) == pytest.approx(expected.update(jax.random.key(time), batch, np.asarray(next_action)), rel=1e-4)
    indexed, adam = kind == "linear", state.optimizer[0]
    plain.assert_same(expected.values, state.learned.values, indexed=indexed)
    plain.assert_same(expected.novelty, state.learned.novelty, indexed=indexed)
    plain.assert_same(expected.bootstrap, state.bootstrap, indexed=indexed)
    plain.assert_same(expected.fixed, state.fixed, indexed=indexed)
    # Between different old networks nothing of this would be told apart.
    assert not same(state.bootstrap, state.learned.values)
    plain.assert_same_moments(expected.values_adam, [adam._replace(mu=adam.mu.values, nu=adam.nu.values)], indexed=indexed)
    plain.assert_same_moments(expected.novelty_adam, [adam._replace(mu=adam.mu.novelty, nu=adam.nu.novelty)], indexed=indexed)


@kinds
@methods
def test_the_bonus_is_the_online_action_values(method: str, kind: str) -> None:
    bonus, state = make(method, kind)
    state, _ = bonus.update(state, jax.random.key(0), *make_batch(kind))
    x = observations(kind, 7)
    expected = plain.values(plain.layers(state.learned.values, indexed=kind == "linear"), vectors(kind, x))
    np.testing.assert_allclose(bonus.values(state, x), expected, rtol=1e-5, atol=1e-6)
    for one, row in zip(x, expected, strict=True):
        np.testing.assert_allclose(bonus.values(state, one), row, rtol=1e-5, atol=1e-6)


@methods
def test_one_optimiser_descends_on_both_losses(method: str) -> None:
    # A limit to the length of the whole gradient is what two optimisers could not share.
    bonus, state = make(method, optimizer=optax.chain(optax.clip_by_global_norm(1e-2), optax.sgd(1.0)))
    after, _ = bonus.update(state, jax.random.key(0), *make_batch())
    values, novelty = (distance(*pair) for pair in zip(state.learned, after.learned, strict=True))
    assert np.hypot(values, novelty) == pytest.approx(1e-2, rel=1e-3)
    assert min(values, novelty) > 1e-4


@methods
def test_terminations_stop_nothing(method: str) -> None:
    bonus, state = make(method)
    state, _ = bonus.update(state, jax.random.key(0), *make_batch())
    batch, next_action = make_batch(seed=1)
    expected, _ = bonus.update(state, jax.random.key(1), batch, next_action)
    without, _ = bonus.update(state, jax.random.key(1), batch._replace(discount=jnp.zeros(BATCH)), next_action)
    assert same(expected, without)
    assert batch.discount[1] == 0
    for beyond in (
        (batch._replace(next_observation=batch.next_observation.at[1].add(1.0)), next_action),
        (batch, next_action.at[1].set((next_action[1] + 1) % ACTIONS)),
    ):
        other, _ = bonus.update(state, jax.random.key(1), *beyond)
        assert not same(expected.learned.values, other.learned.values)


@methods
def test_values_settle_where_terminations_are_passed_through(method: str) -> None:
    """Two observations that lead to each other, every step a termination, and a novelty that does not wear off."""
    space = gymnasium.spaces.MultiDiscrete([2])
    freeze = Learned("learn", "keep")
    optimizer = optax.multi_transform({"learn": optax.sgd(0.5), "keep": optax.set_to_zero()}, freeze)
    bonus = METHODS[method](networks.linear(space, 1, bias=False), networks.linear(space, OUTPUTS), optimizer, discount=DISCOUNT)
    here, there = jnp.array([[0], [1]], jnp.int32), jnp.array([[1], [0]], jnp.int32)
    state = bonus.init(jax.random.key(0), here[0])
    action = jnp.zeros(2, jnp.int32)
    batch = Transition(here, action, jnp.zeros(2), jnp.zeros(2), there)

    def step(state: State, key: Array) -> tuple[State, Array]:
        return bonus.update(bonus.sync(state), key, batch, action)

    after, _ = jax.jit(lambda state: jax.lax.scan(step, state, jax.random.split(jax.random.key(0), 200)))(state)
    learned = plain.values(plain.layers(state.learned.novelty, indexed=True), np.eye(2))
    fixed = plain.values(plain.layers(state.fixed, indexed=True), np.eye(2)) if method == "rnd" else None
    first, second = ((learned - fixed) ** 2).sum(1) / 2 if method == "rnd" else (learned**2).max(1)
    expected = np.array([second + DISCOUNT * first, first + DISCOUNT * second]) / (1 - DISCOUNT**2)
    np.testing.assert_allclose(bonus.values(after, here)[:, 0], expected, rtol=1e-4)


@methods
def test_rewards_of_the_environment_play_no_part(method: str) -> None:
    bonus, state = make(method)
    batch, next_action = make_batch()
    expected, _ = bonus.update(state, jax.random.key(1), batch, next_action)
    assert same(expected, bonus.update(state, jax.random.key(1), batch._replace(reward=batch.reward + 1.0), next_action)[0])


@methods
def test_novelty_is_learned_at_observations_and_rewarded_at_the_next(method: str) -> None:
    bonus, state = make(method)
    batch, next_action = make_batch()
    expected, _ = bonus.update(state, jax.random.key(1), batch, next_action)
    elsewhere, _ = bonus.update(state, jax.random.key(1), batch._replace(next_observation=batch.next_observation + 1.0), next_action)
    assert same(expected.learned.novelty, elsewhere.learned.novelty)
    assert not same(expected.learned.values, elsewhere.learned.values)
    otherwise, _ = bonus.update(state, jax.random.key(1), batch, (next_action + 1) % ACTIONS)
    assert same(expected.learned.novelty, otherwise.learned.novelty)


@methods
def test_syncing_copies_values_and_nothing_else(method: str) -> None:
    bonus, state = make(method)
    assert same(state.bootstrap, state.learned.values)
    state, _ = bonus.update(state, jax.random.key(0), *make_batch())
    assert not same(state.bootstrap, state.learned.values)
    assert same(bonus.sync(state), state._replace(bootstrap=state.learned.values))


@methods
def test_one_key_makes_the_same_networks_and_another_makes_others(method: str) -> None:
    bonus, state = make(method)
    again, other = (bonus.init(jax.random.key(seed), observations("mlp", 0)[0]) for seed in (0, 1))
    assert same(state, again)
    for one, another in zip(state.learned, other.learned, strict=True):
        assert not same(one[0], another[0])
    if method == "rnd":
        assert not same(state.fixed[0], state.learned.novelty[0])  # nothing would be novel
        assert not same(state.fixed[0], other.fixed[0])


def test_random_features_never_change() -> None:
    bonus, state = make("rnd")
    after, _ = bonus.update(bonus.sync(state), jax.random.key(0), *make_batch())
    assert same(state.fixed, after.fixed)
    assert not same(state.learned.novelty, after.learned.novelty)


def test_what_is_fitted_to_is_new_standard_normal_noise_at_every_update() -> None:
    drawn = np.stack([labels(key, 100, 20) for key in jax.random.split(jax.random.key(0), 5)])
    assert stats.kstest(drawn.ravel(), "norm").pvalue > 1e-3
    assert 1e-3 < stats.chi2.sf(np.sum(drawn**2), drawn.size) < 1 - 1e-3
    # Each observation and each output has noise of its own.
    by_output, by_observation = drawn.reshape(-1, 20), drawn.transpose(0, 2, 1).reshape(-1, 100)
    for columns in by_output, by_observation:
        scores = np.corrcoef(columns.T)[np.tril_indices(columns.shape[1], -1)] * np.sqrt(len(columns))
        assert 2 * stats.norm.sf(np.abs(scores).max()) * len(scores) > 1e-3
    assert stats.kstest(drawn[0] - drawn[1], stats.norm(scale=2**0.5).cdf, axis=None).pvalue > 1e-3


def test_fitting_noise_forgets_the_more_often_an_observation_is_seen() -> None:
    space = gymnasium.spaces.MultiDiscrete([3])
    bonus = bonuses.acb(networks.linear(space, 1, bias=False), networks.linear(space, 50, bias=False), optax.sgd(1.0), discount=0.0)
    state = bonus.init(jax.random.key(0), jnp.zeros(1, jnp.int32))
    seen = jnp.array([0] * 90 + [1] * 10, jnp.int32)[:, None]
    action = jnp.zeros(100, jnp.int32)
    batch = Transition(seen, action, jnp.zeros(100), jnp.zeros(100), seen)
    step = jax.jit(bonus.update)
    spread = np.zeros(3)
    for time in range(300):
        state, _ = step(state, jax.random.key(time), batch, action)
        if time >= 200:
            spread += np.mean(np.square(state.learned.novelty[0].weights), axis=1) / 100
    assert spread[0] < spread[1] < spread[2]
