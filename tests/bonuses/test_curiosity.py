"""What RND and ACB see and learn with PPO: running moments, normalised observations, gradients of a policy, averages of fits."""

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

from vbe import networks
from vbe.bonuses.curiosity import add_samples, anti_concentrated, dense, distilled, no_moments, policy_gradients
from vbe.types import Array, Network, Params

ACTIONS, FEATURES, OUTPUTS, BATCH, RATE, FOLLOW = 3, 6, 4, 8, 0.01, 0.25
SPACES = {
    "dense": gymnasium.spaces.Box(-1, 1, (FEATURES,)),
    "indexed": gymnasium.spaces.MultiDiscrete([FEATURES] * 2, np.int32),
}
WRITTEN_OUT = gymnasium.spaces.Box(-np.inf, np.inf, (FEATURES,))

kinds = pytest.mark.parametrize("kind", SPACES)


def observations(kind: str, seed: int) -> Array:
    key = jax.random.key(1000 + seed)
    return jax.random.randint(key, (BATCH, 2), 0, FEATURES) if kind == "indexed" else 3 * jax.random.normal(key, (BATCH, FEATURES))


def vectors(kind: str, observation: Array) -> np.ndarray:
    return plain.dense(np.asarray(observation), FEATURES) if kind == "indexed" else np.float64(observation)


def make_policy(kind: str) -> Network:
    return networks.mlp(SPACES[kind], ACTIONS, (5,))


def same(one: Any, other: Any) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True))


add = jax.jit(add_samples)
rows = st.lists(st.lists(st.floats(-100, 100, width=32), min_size=2, max_size=2), min_size=3, max_size=3)


@given(st.lists(rows, min_size=1, max_size=5))
def test_running_moments_are_those_of_all_samples_so_far(parts: list[Any]) -> None:
    moments, weight = no_moments((2,)), 1e-4
    for n, part in enumerate(parts, start=1):
        moments = add(moments, jnp.array(part, jnp.float32))
        samples = np.float32(parts[:n]).reshape(-1, 2).astype(np.float64)
        # The moments to begin with are a sample of next to no weight.
        total = len(samples) + weight
        mean = samples.sum(axis=0) / total
        variance = (np.square(samples - mean).sum(axis=0) + weight * (1 + mean**2)) / total
        np.testing.assert_allclose(moments.mean, mean, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(moments.variance, variance, rtol=1e-3, atol=1e-2)
        assert float(moments.weight) == pytest.approx(total)


def test_no_samples_have_mean_zero_and_variance_one() -> None:
    moments = no_moments((3,))
    np.testing.assert_array_equal(moments.mean, np.zeros(3))
    np.testing.assert_array_equal(moments.variance, np.ones(3))


def test_running_moments_are_those_of_numpy() -> None:
    samples = np.random.default_rng(0).normal(5, 3, (40, 4))
    moments = no_moments((4,))
    for part in np.split(samples, [1, 3, 20]):
        moments = add(moments, jnp.array(part, jnp.float32))
    np.testing.assert_allclose(moments.mean, samples.mean(axis=0), rtol=1e-4)
    np.testing.assert_allclose(moments.variance, samples.var(axis=0), rtol=1e-3)


@kinds
def test_indices_are_written_out(kind: str) -> None:
    x = observations(kind, 0)
    if kind == "indexed":
        x = jnp.concatenate([x, jnp.array([[2, 2]])])
    np.testing.assert_allclose(dense(x, FEATURES), vectors(kind, x), rtol=1e-6)


class PlainDistillation:
    def __init__(self, state: Any):
        self.predictor, self.target = plain.layers(state.fitted.learned), plain.layers(state.fitted.fixed)
        self.adam = plain.Adam(self.predictor, RATE)
        self.samples: list[np.ndarray] = []

    def normalise(self, observation: np.ndarray) -> np.ndarray:
        samples = np.array(self.samples)
        deviation = np.std(samples, axis=0)
        # A feature that never differed from its mean has nothing to be divided.
        shift = observation - np.mean(samples, axis=0)
        return np.clip(np.divide(shift, deviation, out=np.zeros_like(shift), where=deviation > 0), -5.0, 5.0)

    def rewards(self, observation: np.ndarray) -> np.ndarray:
        self.samples += list(observation)
        seen = self.normalise(observation)
        errors = plain.values(self.predictor, seen) - plain.values(self.target, seen)
        return np.array([sum(e**2 for e in error) / 2 for error in errors])

    def fit(self, observation: np.ndarray) -> float:
        outputs, inputs = plain.forward(self.predictor, self.normalise(observation))
        errors = outputs - plain.values(self.target, inputs[0])
        gradient = plain.backward(self.predictor, inputs, 2 * errors / errors.size)
        self.predictor = self.adam.step(self.predictor, gradient)
        return float(np.mean(errors**2))


@kinds
def test_distillation_is_of_observations_normalised_by_all_so_far(kind: str) -> None:
    network = networks.mlp(WRITTEN_OUT, OUTPUTS, (7,))
    curiosity = distilled(network, optax.adam(RATE), SPACES[kind])
    state = curiosity.init(jax.random.key(0), observations(kind, 0)[0], ())
    expected, clipped = PlainDistillation(state), 0
    rewards, fit = jax.jit(curiosity.rewards), jax.jit(curiosity.fit)
    for time in range(6):
        x = observations(kind, time)
        if kind == "dense":
            # Each feature of another size, in another place, and at last one that is far from all others.
            x = (x * jnp.arange(1.0, FEATURES + 1)[None] + 10.0).at[0, 0].add(1000.0 if time == 5 else 0.0)
        before, (state, given_rewards) = state, rewards(state, (), x)
        assert same(before.fitted, state.fitted)
        np.testing.assert_allclose(given_rewards, expected.rewards(vectors(kind, x)), rtol=1e-3)
        clipped += np.sum(np.abs(expected.normalise(vectors(kind, x))) >= 5.0)
        before, (state, loss) = state, fit(state, jax.random.key(time), x[: BATCH // 2])
        # What is normalised by does not change until the next rollout.
        assert same(before.moments, state.moments)
        assert float(loss) == pytest.approx(expected.fit(vectors(kind, x[: BATCH // 2])), rel=1e-3)
    plain.assert_same(expected.predictor, state.fitted.learned, rtol=1e-3, atol=1e-4)
    plain.assert_same(expected.target, state.fitted.fixed)
    assert (clipped > 0) == (kind == "dense")


def plain_gradients(policy: plain.Layers, observation: np.ndarray) -> list[list[np.ndarray]]:
    """For each observation, of -log pi(a|s) sqrt(pi(a|s)), the root held constant, at the most probable action."""
    gradients = []
    for n in range(len(observation)):
        logits, inputs = plain.forward(policy, observation[n : n + 1])
        powers = np.exp(logits[0] - logits.max())
        p = powers / powers.sum()
        a = int(np.argmax(p))
        signal = (p - np.eye(ACTIONS)[a]) * np.sqrt(p[a])
        gradients.append([part for layer in plain.backward(policy, inputs, signal[None]) for part in layer if part is not None])
    return gradients


def flat(parts: list[np.ndarray], *, indexed: bool) -> np.ndarray:
    """In the library's order, which stores weights the other way round but for a first layer over indices."""
    return np.concatenate([(part if indexed and not i else part.T).ravel() for i, part in enumerate(parts)])


def features(kind: str, policy: plain.Layers, observation: Array) -> np.ndarray:
    indexed = kind == "indexed"
    return np.array([flat(parts, indexed=indexed) for parts in plain_gradients(policy, vectors(kind, observation))])


@kinds
def test_features_are_gradients_of_the_policys_loss_on_its_own_choice(kind: str) -> None:
    policy, x = make_policy(kind), observations(kind, 0)
    params = policy.init(jax.random.key(0), x[0])
    seen = policy_gradients(policy, params, x)
    expected = features(kind, plain.layers(params, indexed=kind == "indexed"), x)
    np.testing.assert_allclose(seen, expected, rtol=1e-4, atol=1e-6)
    assert len({int(a) for a in np.argmax(policy.apply(params, x), axis=1)}) > 1


def test_features_are_finite_differences_too() -> None:
    policy, x = make_policy("dense"), observations("dense", 0)
    params = policy.init(jax.random.key(0), x[0])
    leaves, structure = jax.tree.flatten(jax.tree.map(np.float64, params))
    best = np.argmax(policy.apply(params, x), axis=1)

    def log_probs(leaves: list[np.ndarray]) -> np.ndarray:
        logits = plain.values(plain.layers(jax.tree.unflatten(structure, leaves)), np.asarray(x))
        return logits[range(BATCH), best] - np.log(np.exp(logits).sum(axis=1))

    seen, column = np.asarray(policy_gradients(policy, params, x)), 0
    for i, leaf in enumerate(leaves):
        for place in np.ndindex(leaf.shape):
            change = np.zeros(leaf.shape)
            change[place] = 1e-5
            up, down = (log_probs([*leaves[:i], leaf + sign * change, *leaves[i + 1 :]]) for sign in (1, -1))
            expected = -(up - down) / 2e-5 * np.exp(log_probs(leaves) / 2)
            np.testing.assert_allclose(seen[:, column], expected, rtol=1e-3, atol=1e-5)
            column += 1
    assert column == seen.shape[1]


class PlainFits:
    """Linear fits to noise by gradient descent, on features that move slowly after the policy."""

    def __init__(self, kind: str, state: Any):
        self.kind = kind
        ((self.weights, _),) = plain.layers(state.fitted.learned)
        self.iterates: list[np.ndarray] = []
        self.policy = plain.layers(state.policy, indexed=kind == "indexed")

    def see(self, observation: Array) -> np.ndarray:
        return (features(self.kind, self.policy, observation) - self.mean) / self.deviation

    def rewards(self, policy: Params, observation: Array) -> np.ndarray:
        goal = plain.layers(policy, indexed=self.kind == "indexed")
        self.policy = [
            (slow[0] + FOLLOW * (fast[0] - slow[0]), slow[1] + FOLLOW * (fast[1] - slow[1]))  # type: ignore[operator]
            for slow, fast in zip(self.policy, goal, strict=True)
        ]
        gradients = features(self.kind, self.policy, observation)
        self.mean, self.deviation = gradients.mean(axis=0), np.sqrt(gradients.var(axis=0) + 1e-5)
        average = np.mean(self.iterates, axis=0) if self.iterates else self.weights
        return np.max(np.square(self.see(observation) @ average), axis=1)

    def fit(self, key: Array, observation: Array) -> float:
        seen = self.see(observation)
        errors = seen @ self.weights - np.float64(jax.random.normal(key, (len(seen), OUTPUTS)))
        self.weights = self.weights - RATE * seen.T @ errors * 2 / errors.size
        self.iterates.append(self.weights)
        return float(np.mean(errors**2))


@kinds
def test_fits_are_to_noise_on_normalised_gradients_and_their_average_rewards(kind: str) -> None:
    policy = make_policy(kind)
    curiosity = anti_concentrated(policy, optax.sgd(RATE), SPACES[kind], ensemble_size=OUTPUTS, follow_rate=jnp.float32(FOLLOW))
    x = observations(kind, 0)
    state = curiosity.init(jax.random.key(0), x[0], policy.init(jax.random.key(1), x[0]))
    expected = PlainFits(kind, state)
    rewards, fit = jax.jit(curiosity.rewards), jax.jit(curiosity.fit)
    for time in range(4):
        x = observations(kind, time)
        params = policy.init(jax.random.key(time + 2), x[0])
        before, (state, given_rewards) = state, rewards(state, params, x)
        assert same(before.fitted, state.fitted)
        np.testing.assert_allclose(given_rewards, expected.rewards(params, x), rtol=2e-3, atol=1e-4)
        for n in range(3):
            key = jax.random.key(10 * time + n)
            state, loss = fit(state, key, x[n : n + 3])
            assert float(loss) == pytest.approx(expected.fit(key, x[n : n + 3]), rel=1e-3)
    plain.assert_same([(expected.weights, None)], state.fitted.learned, rtol=1e-3, atol=1e-4)
    plain.assert_same([(np.mean(expected.iterates, axis=0), None)], state.average, rtol=1e-3, atol=1e-4)
    plain.assert_same(expected.policy, state.policy, indexed=kind == "indexed")


def test_every_output_and_run_begins_differently() -> None:
    policy = make_policy("dense")
    fits = anti_concentrated(policy, optax.sgd(RATE), SPACES["dense"], ensemble_size=OUTPUTS)
    distillation = distilled(networks.mlp(WRITTEN_OUT, OUTPUTS, (7,)), optax.adam(RATE), SPACES["dense"])
    x = observations("dense", 0)[0]
    params = policy.init(jax.random.key(9), x)
    first, second = (fits.init(jax.random.key(seed), x, params).fitted.learned[0].weights for seed in (0, 1))
    assert len(np.unique(np.concatenate([first, second]), axis=0)) == 2 * OUTPUTS
    first, second = (distillation.init(jax.random.key(seed), x, params).fitted for seed in (0, 1))
    assert not same(first.learned[0], first.fixed[0])
    assert not same(first.fixed[0], second.fixed[0])
