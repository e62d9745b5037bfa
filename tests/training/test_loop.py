"""What the loops do and when: agents that do nothing but take notes, in a world where each observation is the time."""

import dataclasses
from collections.abc import Iterator
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import vbe
from vbe.agents import AGENTS
from vbe.agents.ppo import OnPolicyAgent, Rollout
from vbe.agents.recipes import OnPolicy, Recipe, ValueBased
from vbe.environments import ENVIRONMENTS
from vbe.training import loop, on_policy
from vbe.training.lanes import Loop, gather
from vbe.training.spec import make_spec, programs
from vbe.types import Array, Environment, Key, Step, Transition

ACTIONS, EPISODE = 4, 5
LAST = ACTIONS - 1  # what a spy always does
BATCH, PERIOD, CAPACITY, DISCOUNT = 6, 3, 40, 0.5


def clock() -> Environment:
    """The n-th observation is [n, 0]. Episodes of 5 steps end in turns by a termination and a truncation, and lead to [n, 1] instead."""

    def step(time: Array, key: Key, action: Array) -> tuple[Array, Step]:
        after = time + 1
        end = after % EPISODE == 0
        terminated = end & (after // EPISODE % 2 == 1)
        final = jnp.stack([after, end.astype(jnp.int32)]).astype(jnp.float32)
        return after, Step(final.at[1].set(0.0), time.astype(jnp.float32), terminated, end & ~terminated, final)

    space = gymnasium.spaces.Box(0, 1e6, (2,), np.float32)
    return Environment(lambda key: (jnp.int32(0), jnp.zeros(2)), step, space, gymnasium.spaces.Discrete(ACTIONS))


class Notes(NamedTuple):
    learns: Array  # how often it has learned
    syncs: Array
    begins: Array  # how often it was asked to begin an episode, and how often one had ended
    ends: Array
    newest: Array  # the time of the newest transition that it learned from
    synced_at: Array  # how often it had learned at the last copy


def spy(options: Any, environment: Environment) -> vbe.Agent:
    def init(key: Key, observation: Array) -> Notes:
        return Notes(*[jnp.int32(0)] * 4, jnp.int32(-1), jnp.int32(-1))

    def act(notes: Notes, key: Key, observation: Array) -> tuple[Array, Array]:
        # The bonus tells what it knew when it acted: all notes as the digits of one number, each exact in float32.
        now = observation[0].astype(jnp.int32)
        learned_from_the_last = (notes.newest == now - 1).astype(jnp.int32)
        return jnp.int32(LAST), (10_000 * notes.learns + 10 * notes.syncs + learned_from_the_last).astype(jnp.float32)

    def learn(notes: Notes, key: Key, batch: Transition) -> tuple[Notes, Array]:
        # Rewards are times too: a batch whose parts did not belong together would show here.
        assert batch.time is not None
        time = batch.time.astype(jnp.float32)
        belongs = (batch.reward == time) & (batch.observation[:, 0] == time) & (batch.next_observation[:, 0] == time + 1)
        loss = jnp.where(belongs.all(), (notes.learns - notes.synced_at).astype(jnp.float32), -1.0)
        return notes._replace(learns=notes.learns + 1, newest=batch.time[0]), loss

    def sync(notes: Notes) -> Notes:
        return notes._replace(syncs=notes.syncs + 1, synced_at=notes.learns)

    def begin_episode(notes: Notes, key: Key, ended: Array) -> Notes:
        return notes._replace(begins=notes.begins + 1, ends=notes.ends + ended.astype(jnp.int32))

    return vbe.Agent(init, act, learn, sync, begin_episode)


class Diary(NamedTuple):
    learns: Array
    rollout: Rollout  # the last one


@dataclasses.dataclass(frozen=True, kw_only=True)
class Watching(OnPolicy):
    pass


def watcher(options: Any, environment: Environment) -> OnPolicyAgent:
    length = options.rollout

    def init(key: Key, observation: Array) -> Diary:
        one = Transition(observation, jnp.int32(0), jnp.zeros(()), jnp.zeros(()), observation)
        nothing = jax.tree.map(lambda x: jnp.zeros((length, *x.shape), x.dtype), one)
        return Diary(jnp.int32(0), Rollout(nothing, jnp.zeros(length, bool)))

    def act(diary: Diary, key: Key, observation: Array) -> Array:
        return diary.learns % ACTIONS  # tells which policy acted

    def learn(diary: Diary, key: Key, rollout: Rollout) -> tuple[Diary, Array, Array]:
        bonuses = rollout.transitions.reward * 2
        return Diary(diary.learns + 1, rollout), bonuses, diary.learns.astype(jnp.float32)

    return OnPolicyAgent(init, act, learn)


@pytest.fixture(scope="module", autouse=True)
def registered() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(ENVIRONMENTS, "Clock", clock)
        patch.setitem(AGENTS, "spy", Recipe(ValueBased, spy, ""))
        patch.setitem(AGENTS, "watcher", Recipe(Watching, watcher, "", on_policy=True))
        yield


class Run(NamedTuple):
    loop: Loop
    warm_up: Any  # records of the warm-up, (lanes, steps)
    chunks: Any  # and of everything after it
    early: Any  # the states after the warm-up
    late: Any  # and at the end
    steps: int  # taken in all: a last chunk is whole even if fewer steps were asked for


def run(agent: str, options: dict[str, Any], steps: int, seeds: int) -> Run:
    (program,) = programs(make_spec(environment="Clock", agent=agent, agent_options=options, seeds=seeds, steps=steps))
    compiled = (on_policy if AGENTS[agent].on_policy else loop).make_loop(program, steps, jax.devices()[:1])
    lanes, record = compiled.warm_up(compiled.init())
    early, warm_up, records = gather(compiled, lanes), gather(compiled, record), []
    time = compiled.warm_up_steps
    while time < steps:
        lanes, record = compiled.chunk(lanes, time)
        records.append(gather(compiled, record))
        time += compiled.chunk_steps
    chunks = jax.tree.map(lambda *parts: np.concatenate(parts, axis=1), *records)
    return Run(compiled, warm_up, chunks, early, gather(compiled, lanes), time)


@pytest.fixture(scope="module")
def spied() -> Run:
    # Two chunks: 200 steps is the shortest that there is of many lanes.
    options = {"batch_size": BATCH, "buffer_size": CAPACITY, "target_period": PERIOD, "discount": DISCOUNT}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vbe.training.lanes.LANE_STEPS_PER_CHUNK", 1)
        return run("spy", options, steps=300, seeds=64)


def test_the_warm_up_is_a_batch_and_one_more_of_uniformly_random_actions(spied: Run) -> None:
    steps = BATCH + 1
    assert spied.loop.warm_up_steps == steps == spied.warm_up.reward.shape[1]
    # Nothing is learned or copied meanwhile, and no bonus has a say.
    assert np.isnan(spied.warm_up.loss).all() and np.isnan(spied.warm_up.bonus).all()
    assert not spied.early.agent.learns.any() and not spied.early.agent.syncs.any()
    actions = spied.early.replay.rows[:, :steps, -3]
    assert not spied.early.replay.rows[:, steps:].any()
    assert actions.shape == (64, steps)
    # Every step of it alike, to the last; a spy would always do the same.
    for step in range(steps):
        assert scipy.stats.chisquare(np.bincount(actions[:, step].astype(int), minlength=ACTIONS)).pvalue > 1e-4
    assert scipy.stats.chisquare(np.bincount(actions.astype(int).ravel(), minlength=ACTIONS)).pvalue > 1e-4
    assert len({tuple(lane) for lane in actions}) > 60
    assert (spied.late.replay.rows[..., -3] == LAST).all()


def test_a_run_shorter_than_its_warm_up_is_nothing_else() -> None:
    (program,) = programs(make_spec(environment="Clock", agent="spy", agent_options={"batch_size": BATCH}, steps=3))
    assert loop.make_loop(program, 3, jax.devices()[:1]).warm_up_steps == 3


def test_a_step_learns_from_the_one_before_then_acts_then_stores(spied: Run) -> None:
    steps = np.arange(spied.chunks.bonus.shape[1])
    # Learned once more than there were steps before it; newest was the transition that led to the observation acted on.
    expected = 10_000 * (steps + 1) + 10 * (steps // PERIOD + 1) + 1
    np.testing.assert_array_equal(spied.chunks.bonus, np.broadcast_to(expected, spied.chunks.bonus.shape))
    np.testing.assert_array_equal(spied.chunks.reward[0], steps + BATCH + 1)
    assert (spied.late.agent.learns == len(steps)).all()
    # The last transition was stored and is not learned from yet.
    assert (spied.late.agent.newest == spied.steps - 2).all()


def test_targets_are_copied_before_the_first_update_of_every_period(spied: Run) -> None:
    # The loss counts the updates since the last copy; -1 would be a batch that does not belong together.
    since = np.arange(spied.chunks.loss.shape[1]) % PERIOD
    np.testing.assert_array_equal(spied.chunks.loss, np.broadcast_to(since, spied.chunks.loss.shape))
    assert spied.loop.chunk_steps % PERIOD == 0 and len(since) == 2 * spied.loop.chunk_steps


def test_agents_are_asked_to_begin_an_episode_at_every_step_and_told_whether_one_ended(spied: Run) -> None:
    assert (spied.early.agent.begins == BATCH + 1).all() and (spied.early.agent.ends == (BATCH + 1) // EPISODE).all()
    assert (spied.late.agent.begins == spied.steps).all()
    assert (spied.late.agent.ends == spied.steps // EPISODE).all()


def test_the_replay_holds_the_last_transitions_in_order(spied: Run) -> None:
    times = np.arange(spied.steps - CAPACITY, spied.steps)
    assert spied.steps > 2 * CAPACITY and spied.steps % CAPACITY  # it is full, and its oldest row is not its first
    rows = spied.late.replay.rows[:, times % CAPACITY]
    assert rows.shape[1] == CAPACITY == spied.late.replay.rows.shape[1]
    np.testing.assert_array_equal(rows[..., 0], np.broadcast_to(times, rows.shape[:2]))
    np.testing.assert_array_equal(rows[..., -2], rows[..., 0])


def assert_ends(time: np.ndarray, led_to: np.ndarray, discount: np.ndarray, discounts: float) -> None:
    """Truncations keep the true last observation and the discount; terminations have discount 0 and go on with the next episode."""
    after = time + 1
    end = after % EPISODE == 0
    terminated = end & (after // EPISODE % 2 == 1)
    assert (end & ~terminated).sum() >= 2 and terminated.sum() >= 2
    np.testing.assert_array_equal(led_to[..., 0], after)
    np.testing.assert_array_equal(led_to[..., 1], end & ~terminated)
    np.testing.assert_array_equal(discount, np.where(terminated, np.float32(0), np.float32(discounts)))


def test_the_true_last_observation_is_stored_at_truncations(spied: Run) -> None:
    for rows in spied.late.replay.rows[:3]:
        assert_ends(rows[:, 0], rows[:, 2:4], rows[:, -1], DISCOUNT)
        assert not rows[:, 1].any()  # nobody acts on a last observation
    np.testing.assert_array_equal(np.concatenate([spied.warm_up.truncated, spied.chunks.truncated], axis=1)[0].nonzero()[0] % 10, 9)
    np.testing.assert_array_equal(np.concatenate([spied.warm_up.terminated, spied.chunks.terminated], axis=1)[0].nonzero()[0] % 10, 4)


def test_a_rollout_is_what_one_policy_did_in_order_and_is_learned_from_at_once() -> None:
    length = 25
    watched = run("watcher", {"rollout": length, "minibatches": 1, "reward_discount": 0.25}, steps=100, seeds=2)
    assert watched.loop.warm_up_steps == 0 and watched.warm_up.reward.shape == (2, 0)
    assert watched.loop.chunk_steps % length == 0
    steps = np.arange(watched.steps)
    for lane in range(2):
        # Records are of the step that they belong to: bonuses one by one, the loss of the rollout at each of its steps.
        np.testing.assert_array_equal(watched.chunks.reward[lane], steps)
        np.testing.assert_array_equal(watched.chunks.bonus[lane], 2 * steps)
        np.testing.assert_array_equal(watched.chunks.loss[lane], steps // length)
        rollout = jax.tree.map(lambda x: x[lane], watched.late.agent.rollout)
        last = steps[-length:]
        np.testing.assert_array_equal(rollout.transitions.observation[:, 0], last)
        np.testing.assert_array_equal(rollout.transitions.action, np.full(length, (watched.late.agent.learns[lane] - 1) % ACTIONS))
        np.testing.assert_array_equal(rollout.truncated, (last + 1) % (2 * EPISODE) == 0)
        assert_ends(last, rollout.transitions.next_observation, rollout.transitions.discount, 0.25)
