"""VBE's bonus against a plain statement of Algorithm 1, and what an update may touch."""

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
from vbe.bonuses.vbe import State, settled
from vbe.types import Array, Bonus, Network, Transition

MEMBERS, ACTIONS, FEATURES, BATCH, RATE = 3, 4, 6, 5, 0.01
SPACES = {
    "mlp": gymnasium.spaces.Box(-1, 1, (FEATURES,)),
    "linear": gymnasium.spaces.MultiDiscrete([FEATURES] * 2),
}


def make_network(kind: str) -> Network:
    return networks.mlp(SPACES[kind], ACTIONS, (7, 5)) if kind == "mlp" else networks.linear(SPACES[kind], ACTIONS, bias=False)


def make(kind: str = "mlp", **options: Any) -> tuple[Bonus, State]:
    bonus = bonuses.vbe(make_network(kind), optax.adam(RATE), **{"ensemble_size": MEMBERS, **options})
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


def layers(kind: str, stack: Any, i: int) -> plain.Layers:
    return plain.layers(plain.member(stack, i), indexed=kind == "linear")


def vectors(kind: str, observation: Array) -> np.ndarray:
    return plain.dense(np.asarray(observation), FEATURES) if kind == "linear" else np.asarray(observation)


def changed(before: Any, after: Any) -> set[int]:
    """Which members differ in any bit of any leaf."""
    leaves = zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True)
    return {i for old, new in leaves for i in range(len(old)) if not np.array_equal(old[i], new[i])}


class PlainMember:
    """f*, f and the bootstrap network of one member, and its optimiser."""

    def __init__(self, kind: str, supervised: bool, state: State, i: int):
        self.kind, self.supervised = kind, supervised
        self.target = layers(kind, state.target, i)
        self.predictor = layers(kind, settled(state).predictor, i)
        self.bootstrap = self.predictor
        self.adam = plain.Adam(self.predictor, RATE)

    def update(self, batch: Transition, next_action: np.ndarray) -> float:
        now, then = vectors(self.kind, batch.observation), vectors(self.kind, batch.next_observation)
        target_now, target_then = plain.values(self.target, now), plain.values(self.target, then)
        bootstrap_then = plain.values(self.bootstrap, then)
        targets = []
        for n in range(BATCH):
            a, next_a, discount = int(batch.action[n]), int(next_action[n]), float(batch.discount[n])
            if self.supervised:
                targets.append(target_now[n, a])
            else:
                reward = target_now[n, a] - discount * target_then[n, next_a]
                targets.append(reward + discount * bootstrap_then[n, next_a])
        loss, gradient = plain.loss_and_gradient(self.predictor, now, np.asarray(batch.action), np.array(targets))
        self.predictor = self.adam.step(self.predictor, gradient)
        return loss


@pytest.mark.parametrize("kind", SPACES)
@pytest.mark.parametrize("supervised", [False, True])
@pytest.mark.parametrize("update_all", [False, True])
def test_updates_are_those_of_algorithm_1(kind: str, supervised: bool, update_all: bool) -> None:
    bonus, state = make(kind, supervised=supervised, update_all=update_all)
    members = [PlainMember(kind, supervised, state, i) for i in range(MEMBERS)]
    drawn = set()
    for time in range(12):
        if time % 4 == 3:
            state = bonus.sync(state)
            for member in members:
                member.bootstrap = member.predictor
        batch, next_action = make_batch(kind, time)
        before, (state, loss) = state, bonus.update(state, jax.random.key(time), batch, next_action)
        updated = changed(settled(before).predictor, settled(state).predictor)
        assert len(updated) == (MEMBERS if update_all else 1)
        drawn |= updated
        losses = [members[i].update(batch, next_action) for i in updated]
        assert float(loss) == pytest.approx(np.mean(losses), rel=1e-4)
    assert drawn == set(range(MEMBERS))
    for i, member in enumerate(members):
        learned, indexed = settled(state), kind == "linear"
        plain.assert_same(member.predictor, plain.member(learned.predictor, i), indexed=indexed)
        plain.assert_same(member.bootstrap, plain.member(state.bootstrap, i), indexed=indexed)
        plain.assert_same(member.target, plain.member(state.target, i), indexed=indexed)
        plain.assert_same_moments(member.adam, plain.member(learned.optimizer, i), indexed=indexed)


@pytest.mark.parametrize("kind", SPACES)
def test_the_bonus_is_the_largest_error_in_the_ensemble(kind: str) -> None:
    bonus, state = make(kind)
    x = observations(kind, 0)
    seen = vectors(kind, x)
    errors = [
        np.abs(plain.values(layers(kind, state.members.predictor, i), seen) - plain.values(layers(kind, state.target, i), seen))
        for i in range(MEMBERS)
    ]
    assert len({int(i) for i in np.argmax(errors, axis=0).ravel()}) > 1  # no member is the largest everywhere
    np.testing.assert_allclose(bonus.values(state, x), np.max(errors, axis=0), rtol=1e-5, atol=1e-6)
    one_by_one = [bonus.values(state, one) for one in x]
    np.testing.assert_allclose(one_by_one, bonus.values(state, x), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("supervised", [False, True])
def test_an_update_touches_one_member_and_its_optimiser(supervised: bool) -> None:
    bonus, state = make(supervised=supervised)
    batch, next_action = make_batch()
    after, _ = bonus.update(state, jax.random.key(5), batch, next_action)
    (drawn,) = changed(settled(state).predictor, settled(after).predictor)
    assert changed(settled(state).optimizer, settled(after).optimizer) == {drawn}
    np.testing.assert_array_equal(settled(after).optimizer[0].count, np.arange(MEMBERS) == drawn)
    assert not changed(state.target, after.target)
    assert not changed(state.bootstrap, after.bootstrap)


def test_members_are_drawn_uniformly() -> None:
    bonus, state = make("linear")
    batch, next_action = make_batch("linear")
    keys = jax.random.split(jax.random.key(0), 3000)
    counts = jax.jit(jax.vmap(lambda key: settled(bonus.update(state, key, batch, next_action)[0]).optimizer[0].count))(keys)
    np.testing.assert_array_equal(counts.sum(1), 1)
    assert stats.chisquare(counts.sum(0)).pvalue > 1e-3


def test_all_members_are_updated_when_asked() -> None:
    bonus, state = make(update_all=True)
    after, _ = bonus.update(state, jax.random.key(5), *make_batch())
    assert changed(settled(state).predictor, settled(after).predictor) == set(range(MEMBERS))
    np.testing.assert_array_equal(settled(after).optimizer[0].count, 1)


def test_syncing_copies_predictors_into_bootstrap_networks_and_nothing_else() -> None:
    bonus, state = make()
    state, _ = bonus.update(state, jax.random.key(5), *make_batch())
    assert changed(settled(state).predictor, state.bootstrap)
    synced = bonus.sync(state)
    assert not changed(settled(state).predictor, synced.bootstrap)
    assert not changed(settled(state), settled(synced))


def test_nothing_is_learned_from_beyond_a_termination() -> None:
    bonus, state = make(update_all=True)
    state, _ = bonus.update(state, jax.random.key(0), *make_batch())  # so that bootstrap networks are not predictors
    batch, next_action = make_batch(seed=1)
    for n, matters in (1, False), (0, True):
        other = batch._replace(next_observation=batch.next_observation.at[n].add(1.0))
        assert (batch.discount[n] > 0) == matters
        for beyond in (other, next_action), (batch, next_action.at[n].set((next_action[n] + 1) % ACTIONS)):
            expected, _ = bonus.update(state, jax.random.key(1), batch, next_action)
            seen, _ = bonus.update(state, jax.random.key(1), *beyond)
            assert bool(changed(expected, seen)) == matters


def test_supervised_predictors_do_not_look_ahead() -> None:
    bonus, state = make(update_all=True, supervised=True)
    batch, next_action = make_batch()
    expected, _ = bonus.update(state, jax.random.key(1), batch, next_action)
    other = batch._replace(next_observation=batch.next_observation + 1.0, discount=batch.discount * 0.5)
    seen, _ = bonus.update(state, jax.random.key(1), other, (next_action + 1) % ACTIONS)
    assert not changed(expected, seen)


def test_rewards_of_the_environment_play_no_part() -> None:
    bonus, state = make(update_all=True)
    batch, next_action = make_batch()
    expected, _ = bonus.update(state, jax.random.key(1), batch, next_action)
    seen, _ = bonus.update(state, jax.random.key(1), batch._replace(reward=batch.reward + 1.0), next_action)
    assert not changed(expected, seen)


def test_a_state_starts_with_a_bonus_everywhere_and_members_of_its_own() -> None:
    bonus, state = make()
    assert float(bonus.values(state, observations("mlp", 0)).min()) > 0.0
    assert not changed(settled(state).predictor, state.bootstrap)
    for tree in state.target, state.members.predictor:
        for leaf in jax.tree.leaves(tree):
            assert not any(np.array_equal(leaf[i], leaf[j]) for i in range(MEMBERS) for j in range(i))
    assert changed(state.target, state.members.predictor) == set(range(MEMBERS))
    assert changed(state.target, bonus.init(jax.random.key(1), observations("mlp", 0)[0]).target) == set(range(MEMBERS))


def test_a_predictor_that_equals_its_target_has_nothing_to_learn() -> None:
    bonus, state = make(update_all=True)
    state = bonus.sync(state._replace(members=state.members._replace(predictor=state.target)))
    after, loss = bonus.update(state, jax.random.key(0), *make_batch())
    assert float(loss) < 1e-12
    assert float(bonus.values(state, observations("mlp", 0)).max()) == 0.0
    for leaf in jax.tree.leaves(settled(after).optimizer[0].mu):
        assert float(jnp.abs(leaf).max()) < 1e-6
