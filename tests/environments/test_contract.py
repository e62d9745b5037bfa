"""What all environments promise to whoever drives them, in each way of seeing them."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.spaces import Box, MultiDiscrete

from vbe.environments import ENVIRONMENTS, FEATURES, featurise, make, without_reward

LANES, STEPS = 4, 3000
# Options under which episodes are short enough for a few thousand steps to see many ends, of each kind that there is.
SHORT = {"DeepSea": {"size": 5}, "SparseMountainCar": {"goal": -0.39, "time_limit": 60}}
SEEN = [(name, features) for name in ENVIRONMENTS for features in FEATURES[name]]

everywhere = pytest.mark.parametrize(("name", "features"), SEEN)


def build(name, features):
    return featurise(make(name, **SHORT.get(name, {})), name, features)


def driver(environment):
    """Random actions: a function from a seed to (first observations, actions, steps)."""

    def body(state, key):
        action_key, step_key = jax.random.split(key)
        actions = jax.random.randint(action_key, (LANES,), 0, environment.action_space.n)
        state, step = jax.vmap(environment.step)(state, jax.random.split(step_key, LANES), actions)
        return state, (actions, step)

    @jax.jit
    def run(key):
        reset_key, key = jax.random.split(key)
        state, observation = jax.vmap(environment.reset)(jax.random.split(reset_key, LANES))
        return observation, *jax.lax.scan(body, state, jax.random.split(key, STEPS))[1]

    return lambda seed: jax.tree.map(np.asarray, run(jax.random.key(seed)))


@functools.cache
def compiled(name, features):
    return driver(build(name, features))


@pytest.fixture(scope="module")
def driven():
    """Drives each environment once, however many tests look at it."""
    return functools.cache(lambda name, features: compiled(name, features)(0))


@everywhere
def test_observations_lie_in_the_space(driven, name, features):
    space = build(name, features).observation_space
    assert isinstance(space, Box | MultiDiscrete)
    first, _, steps = driven(name, features)
    for observations in first, steps.observation, steps.final_observation:
        assert observations.shape[-len(space.shape) :] == space.shape
        assert observations.dtype == space.dtype
        if isinstance(space, MultiDiscrete):
            assert observations.min() >= 0
            assert (observations < space.nvec).all()
        else:
            assert (observations >= space.low).all()
            assert (observations <= space.high).all()


@everywhere
def test_no_transition_crosses_an_episodes_end(driven, name, features):
    _, _, steps = driven(name, features)
    ended = steps.terminated | steps.truncated
    assert not (steps.terminated & steps.truncated).any()
    # Where nothing ended, the observation to act on is the one that the action led to.
    np.testing.assert_array_equal(steps.observation[~ended], steps.final_observation[~ended])
    if name == "RiverSwim":
        assert not ended.any()
        return
    assert ended.sum() >= 10
    # Where something ended, it is another: a first observation, as only resets give them.
    starts = build(name, "raw" if features == "tiles" else features).reset
    keys = jax.random.split(jax.random.key(99), 2000)
    _, raw = driven(name, "raw" if features == "tiles" else features)[1:]
    possible = np.asarray(jax.jit(jax.vmap(starts))(keys)[1])
    begun = raw.observation[ended]
    assert (begun >= possible.min(0) - 1e-3).all()
    assert (begun <= possible.max(0) + 1e-3).all()
    finished = raw.final_observation[ended]
    assert not ((finished >= possible.min(0)) & (finished <= possible.max(0))).all(-1)[steps.terminated[ended]].any()


@everywhere
def test_both_kinds_of_end_happen_where_they_can(driven, name, features):
    _, _, steps = driven(name, features)
    assert steps.terminated.any() == (name != "RiverSwim")
    assert steps.truncated.any() == (name == "SparseMountainCar")


@everywhere
def test_keys_decide_everything(driven, name, features):
    first, actions, steps = driven(name, features)
    again = compiled(name, features)(0)
    jax.tree.map(np.testing.assert_array_equal, again, (first, actions, steps))
    # Lanes have keys of their own, and so have runs.
    other = compiled(name, features)(1)
    assert not np.array_equal(steps.observation[:, 0], steps.observation[:, 1])
    assert not np.array_equal(steps.observation, other[2].observation)


@everywhere
@pytest.mark.parametrize("x64", [False, True])
def test_a_step_keeps_every_shape_and_type(name, features, x64):
    environment = build(name, features)
    with jax.enable_x64(x64), jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion("raise"):
        key = jax.random.key(0)
        state, observation = jax.eval_shape(environment.reset, key)
        next_state, step = jax.eval_shape(environment.step, state, key, jax.ShapeDtypeStruct((), jnp.int32))

    def described(tree):
        return jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype, leaf.weak_type), tree)

    assert described(state) == described(next_state)
    assert described(observation) == described(step.observation) == described(step.final_observation)
    assert described((step.reward, step.terminated)) == (((), jnp.float32, False), ((), jnp.bool_, False))
    assert described(step.truncated) == ((), jnp.bool_, False)
    assert {leaf.dtype.name for leaf in jax.tree.leaves((state, observation))} <= {"float32", "int32", "bool"}


@everywhere
def test_features_change_what_is_seen_and_nothing_else(driven, name, features):
    _, actions, steps = driven(name, features)
    natural = driven(name, next(iter(FEATURES[name])))
    np.testing.assert_array_equal(actions, natural[1])
    np.testing.assert_array_equal(steps.reward, natural[2].reward)
    np.testing.assert_array_equal(steps.terminated, natural[2].terminated)


def test_rewards_can_be_taken_away(driven):
    _, _, steps = driven("DeepSea", "one-hot")
    _, _, bare = driver(without_reward(build("DeepSea", "one-hot")))(0)
    assert steps.reward.any()
    assert not bare.reward.any()
    jax.tree.map(np.testing.assert_array_equal, bare._replace(reward=steps.reward), steps)
