"""What the paper proves, on problems small enough to be solved exactly or drawn often."""

import math
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy import stats

from vbe import bonuses, networks
from vbe.bonuses.vbe import State
from vbe.theory import optimistic_bonus_scale
from vbe.types import Bonus, Transition, UsageError

STATES, ACTIONS, MEMBERS = 7, 3, 4


class MDP(NamedTuple):
    """A random problem and a policy."""

    transition: np.ndarray  # (S, A, S)
    discount: np.ndarray  # (S, A, S): gamma, or 0 where the episode terminates
    policy: np.ndarray  # (S, A)

    def expect(self, values: np.ndarray) -> np.ndarray:
        """E[discount values(S', A') | s, a], (..., S, A) -> (..., S, A)."""
        return np.einsum("sat,sat,tb,...tb->...sa", self.transition, self.discount, self.policy, values)

    def solve(self, rewards: np.ndarray) -> np.ndarray:
        """The action values of expected rewards (S, A), by linear algebra."""
        step = np.einsum("sat,sat,tb->satb", self.transition, self.discount, self.policy).reshape(rewards.size, -1)
        return np.linalg.solve(np.eye(rewards.size) - step, rewards.ravel()).reshape(rewards.shape)


def make_mdp(seed: int, gamma: float, termination: float = 0.2, states: int = STATES, actions: int = ACTIONS) -> MDP:
    random = np.random.default_rng(seed)
    transition = random.dirichlet(np.ones(states), (states, actions))
    discount = np.where(random.random(transition.shape) < termination, 0, gamma)
    return MDP(transition, discount, random.dirichlet(np.ones(actions), states))


def tabular(seed: int, **options: Any) -> tuple[Bonus, State]:
    """VBE over a table: every function of state and action is one of its own."""
    network = networks.linear(gymnasium.spaces.MultiDiscrete([STATES]), ACTIONS, bias=False)
    bonus = bonuses.vbe(network, **{"optimizer": optax.sgd(0.1), "ensemble_size": MEMBERS, **options})
    return bonus, bonus.init(jax.random.key(seed), jnp.zeros(1, jnp.int32))


def table(params: Any) -> np.ndarray:
    """(members, S, A)."""
    return np.asarray(params[0].weights, np.float64)


@pytest.mark.parametrize(("gamma", "termination"), [(0.0, 0.2), (0.5, 0.2), (0.99, 0.2), (0.99, 0.0), (1.0, 0.2)])
def test_random_functions_are_the_values_of_the_rewards_made_of_them(gamma: float, termination: float) -> None:
    """Proposition 1."""
    mdp = make_mdp(0, gamma, termination)
    for target in table(tabular(0)[1].target):
        rewards = target - mdp.expect(target)
        np.testing.assert_allclose(mdp.solve(rewards), target, rtol=1e-9, atol=1e-9)
        # The discount in the rewards is the transition's own, which a termination takes away.
        if 0 < gamma < 1 and termination:
            careless = target - gamma * np.einsum("sat,tb,tb->sa", mdp.transition, mdp.policy, target)
            assert np.abs(mdp.solve(careless) - target).max() > 0.01


@pytest.mark.parametrize("gamma", [0.5, 0.9])
def test_temporal_differences_on_these_rewards_find_the_random_functions(gamma: float) -> None:
    """Proposition 1 in the library's own update. With every state and action in the batch, a step size of half of their number and
    a sync before each step, an update is one sweep of exact policy evaluation, whose error sinks by gamma in each step."""
    random = np.random.default_rng(0)
    pairs = STATES * ACTIONS
    observation, action = np.divmod(np.arange(pairs), ACTIONS)
    next_observation, next_action = random.integers(STATES, size=pairs), random.integers(ACTIONS, size=pairs)
    discount = np.where(random.random(pairs) < 0.2, 0, gamma)
    batch = Transition(
        observation=jnp.array(observation[:, None], jnp.int32),
        action=jnp.array(action, jnp.int32),
        reward=jnp.zeros(pairs),
        discount=jnp.array(discount, jnp.float32),
        next_observation=jnp.array(next_observation[:, None], jnp.int32),
    )
    bonus, state = tabular(0, optimizer=optax.sgd(pairs / 2), update_all=True)
    update = jax.jit(lambda state: bonus.update(bonus.sync(state), jax.random.key(0), batch, jnp.array(next_action, jnp.int32))[0])
    target, predicted = table(state.target), table(state.members.predictor)
    first = np.abs(predicted - target).max()
    for sweep in range(1, 120):
        state = update(state)
        if sweep <= 10:
            rewards = target[:, observation, action] - discount * target[:, next_observation, next_action]
            backup = rewards + discount * predicted[:, next_observation, next_action]
            predicted = backup.reshape(MEMBERS, STATES, ACTIONS)
            np.testing.assert_allclose(table(state.members.predictor), predicted, atol=1e-5)
        assert np.abs(table(state.members.predictor) - target).max() <= gamma**sweep * first + 1e-5
    everywhere = jnp.arange(STATES, dtype=jnp.int32)[:, None]
    assert float(bonus.values(state, everywhere).max()) < 1e-4


@pytest.mark.parametrize(("gamma", "termination"), [(0.5, 0.2), (0.99, 0.2), (0.99, 0.0)])
def test_the_bonus_is_the_discounted_error_that_follows_plus_the_bellman_error(gamma: float, termination: float) -> None:
    """Proposition 2."""
    mdp = make_mdp(1, gamma, termination)
    bonus, state = tabular(1, update_all=True)
    target, predicted = table(state.target), table(state.members.predictor)
    rewards = target - mdp.expect(target)
    bellman_errors = predicted - (rewards + mdp.expect(predicted))
    decomposed = np.abs(mdp.expect(predicted - target) + bellman_errors).max(0)
    everywhere = jnp.arange(STATES, dtype=jnp.int32)[:, None]
    np.testing.assert_allclose(bonus.values(state, everywhere), decomposed, rtol=1e-5, atol=1e-6)
    # Neither part would do alone.
    assert np.abs(np.abs(bellman_errors).max(0) - decomposed).max() > 0.01
    # Where predictors obey their Bellman equations, bonuses are all gone: nothing else is a fixed point.
    solved = np.stack([mdp.solve(r) for r in rewards]).astype(np.float32)
    members = state.members._replace(predictor=(state.members.predictor[0]._replace(weights=jnp.array(solved)),))
    settled = state._replace(members=members)
    assert float(bonus.values(settled, everywhere).max()) < 1e-5


def initial_failures(*, ensemble_size: int, num_features: int, max_value: float, scale: float, draws: int = 4000) -> int:
    """How often q + c b starts out at most at `max_value`, at random unit features, in the library's own linear networks."""
    normal = networks.Initializer(jax.random.normal, draws_biases=False)
    network = networks.linear(gymnasium.spaces.Box(-1, 1, (num_features,)), 1, bias=False, initializer=normal)
    bonus = bonuses.vbe(network, optax.sgd(0.1), ensemble_size=ensemble_size)

    def start(key: jax.Array) -> jax.Array:
        value_key, bonus_key, feature_key = jax.random.split(key, 3)
        features = jax.random.normal(feature_key, (num_features,))
        features /= jnp.linalg.norm(features)
        value = network.apply(network.init(value_key, features), features)
        return value + scale * bonus.values(bonus.init(bonus_key, features), features)

    starts = jax.jit(lambda keys: jax.lax.map(start, keys, batch_size=200))(jax.random.split(jax.random.key(0), draws))
    return int(np.sum(np.asarray(starts) <= max_value))


@pytest.mark.parametrize(
    ("ensemble_size", "num_features", "max_value", "failure_probability"),
    [(20, 50, 1.0, 0.1), (20, 4, 10.0, 0.1), (100, 10, 100.0, 0.02), (6, 30, 1.0, 0.3), (2, 10, 1.0, 0.9), (20, 10, 0.0, 0.1)],
)
def test_values_start_out_optimistic(ensemble_size: int, num_features: int, max_value: float, failure_probability: float) -> None:
    """Proposition 3, corrected: at the least c of the condition, failures are as rare as it says."""
    sizes: dict[str, Any] = {"ensemble_size": ensemble_size, "num_features": num_features, "max_value": max_value}
    scale = optimistic_bonus_scale(**sizes, failure_probability=failure_probability)
    failures = initial_failures(**sizes, scale=scale)
    assert stats.binomtest(failures, 4000, failure_probability, "greater").pvalue > 1e-3
    # It is a condition, not just any number: a tenth of it would not do.
    assert stats.binomtest(initial_failures(**sizes, scale=scale / 10), 4000, failure_probability, "greater").pvalue < 1e-6


def test_the_condition_as_printed_does_not_make_values_optimistic() -> None:
    sizes: dict[str, Any] = {"ensemble_size": 200, "num_features": 16, "max_value": 10.0}
    corrected = optimistic_bonus_scale(**sizes, failure_probability=0.1)
    term = math.log(200 / 2) - math.log(math.log(2 / 0.1))
    assert corrected == pytest.approx(math.sqrt(16 / math.pi) * (10 + 1.6448536 / 4) / math.sqrt(term))
    printed = corrected / math.sqrt(term)
    assert printed < 0.6 * corrected
    assert initial_failures(**sizes, scale=corrected) < 0.1 * 4000 < 0.5 * initial_failures(**sizes, scale=printed)


def test_no_bonus_is_needed_to_exceed_what_values_exceed_anyway() -> None:
    assert optimistic_bonus_scale(ensemble_size=20, num_features=4, max_value=-5.0, failure_probability=0.1) == 0.0


@pytest.mark.parametrize(
    ("changes", "start", "right"),
    [
        ({"ensemble_size": 7}, "ensemble_size=7", "above 7.38"),
        ({"ensemble_size": 0}, "ensemble_size=0", "at least 1"),
        ({"ensemble_size": 8.0}, "ensemble_size=8.0", "integer"),
        ({"num_features": -1}, "num_features=-1", "at least 1"),
        ({"num_features": True}, "num_features=True", "integer"),
        ({"max_value": math.nan}, "max_value=nan", "finite"),
        ({"max_value": math.inf}, "max_value=inf", "finite"),
        ({"failure_probability": 0.0}, "failure_probability=0.0", "above 0"),
        ({"failure_probability": 1}, "failure_probability=1", "below 1"),
        ({"failure_probability": math.nan}, "failure_probability=nan", "above 0"),
    ],
)
def test_where_there_is_no_such_scale_one_line_says_so(changes: dict[str, Any], start: str, right: str) -> None:
    asked = {"ensemble_size": 8, "num_features": 10, "max_value": 1.0, "failure_probability": 0.05}
    assert optimistic_bonus_scale(**asked) > 0
    with pytest.raises(UsageError) as error:
        optimistic_bonus_scale(**{**asked, **changes})
    line = str(error.value)
    assert line.startswith(start) and right in line and "\n" not in line


def lstd_errors(lengths: list[int], repeats: int, *, redraw: bool) -> np.ndarray:
    """Mean squared errors of LSTD to a random function of the library's, (lengths, repeats), one independent stream of experience
    each, of a behaviour other than the target policy.

    The reward is made of the target policy's next action. With `redraw`, LSTD bootstraps on another draw of it, so that rewards are
    noisy.
    """
    states, actions, features = 12, 2, 4
    mdp = make_mdp(3, 0.9, 0.1, states, actions)
    random = np.random.default_rng(4)
    observed = random.normal(size=(states, features))
    network = networks.linear(gymnasium.spaces.Box(-9, 9, (features,)), actions, bias=False)
    target = bonuses.vbe(network, optax.sgd(0.1), ensemble_size=1).init(jax.random.key(0), jnp.zeros(features)).target
    weights = np.asarray(target[0].weights[0], np.float64).ravel()  # action by action
    phi = np.einsum("sf,ab->sabf", observed, np.eye(actions)).reshape(states, actions, -1)
    values = np.asarray(networks.ensemble(network, 1).apply(target, jnp.array(observed, jnp.float32))[0])
    np.testing.assert_allclose(phi @ weights, values, rtol=1e-4, atol=1e-5)

    def draw(probabilities: np.ndarray) -> np.ndarray:
        return (random.random((len(probabilities), 1)) > np.cumsum(probabilities, axis=1)[:, :-1]).sum(1)

    errors = []
    for length in lengths:
        state = random.integers(states, size=repeats)
        matrix, vector = np.zeros((repeats, phi.shape[2], phi.shape[2])), np.zeros((repeats, phi.shape[2]))
        for _ in range(length):
            action = random.integers(actions, size=repeats)
            following = draw(mdp.transition[state, action])
            rewarded = draw(mdp.policy[following])
            bootstrapped = draw(mdp.policy[following]) if redraw else rewarded
            discount = mdp.discount[state, action, following][:, None]
            now = phi[state, action]
            reward = (now - discount * phi[following, rewarded]) @ weights
            matrix += now[:, :, None] * (now - discount * phi[following, bootstrapped])[:, None]
            vector += now * reward[:, None]
            state = following
        learned = np.linalg.solve(matrix, vector[..., None])[..., 0]
        errors.append(np.mean(np.square(phi @ (learned - weights).T), axis=(0, 1)))
    return np.array(errors)


def test_lstds_squared_error_falls_as_the_root_of_experience_or_faster() -> None:
    """The corollary on LSTD bounds the squared error by O(1 / sqrt(T)); in fact it falls as 1 / T, being the square of one that
    falls as 1 / sqrt(T)."""
    lengths, repeats = [200, 400, 800, 1600, 3200], 60
    errors = lstd_errors(lengths, repeats, redraw=True)
    times = np.repeat(np.log(lengths), repeats)
    fit = stats.linregress(times, np.log(errors).ravel())
    band = stats.t.ppf(0.999, times.size - 2) * fit.stderr
    assert fit.slope + band < -0.5
    assert abs(fit.slope + 1) < band + 0.1


def test_lstd_is_exact_as_soon_as_it_is_determined_if_it_looks_at_the_rewarded_action() -> None:
    """Rewards that are made of the same draw as the bootstrapping leave no noise to average out."""
    assert lstd_errors([100], 20, redraw=False).max() < 1e-20
