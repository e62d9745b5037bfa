"""The environments as Gymnasium's users meet them."""

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from vbe.environments import ENVIRONMENTS, featurise, make
from vbe.environments.gymnasium import GymnasiumEnvironment, make_gymnasium, register
from vbe.types import UsageError

register()

everywhere = pytest.mark.parametrize("name", ENVIRONMENTS)


def play(environment, seed, steps=30):
    """Observations, rewards and ends of a seeded run with fixed actions, over several episodes."""
    actions = np.random.default_rng(0)
    record = [environment.reset(seed=seed)[0]]
    for _ in range(steps):
        observation, reward, terminated, truncated, _ = environment.step(actions.integers(environment.action_space.n))
        record += [observation, [reward, terminated, truncated]]
        if terminated or truncated:
            record.append(environment.reset()[0])
    return np.concatenate(record)


def dive(environment):
    """The rewards of a Deepsea episode in which every action is 1: they tell what 1 means, cell by cell."""
    rewards, ended = [], False
    while not ended:
        _, reward, ended, _, _ = environment.step(1)
        rewards.append(reward)
    return rewards


@everywhere
def test_the_checker_has_nothing_to_say(name):
    check_env(gymnasium.make(f"vbe/{name}-v0", render_mode="rgb_array").unwrapped)


def test_registering_twice_changes_nothing():
    before = dict(gymnasium.registry)
    register()
    assert gymnasium.registry == before
    assert {f"vbe/{name}-v0" for name in ENVIRONMENTS} <= set(before)


@everywhere
def test_seeds_decide_everything(name):
    environment = gymnasium.make(f"vbe/{name}-v0")
    first = play(environment, seed=1)
    np.testing.assert_array_equal(first, play(environment, seed=1))
    np.testing.assert_array_equal(first, play(gymnasium.make(f"vbe/{name}-v0"), seed=1))
    assert not np.array_equal(first, play(environment, seed=2))


def test_every_step_has_noise_of_its_own():
    environment = make_gymnasium("PuddleWorld")
    path = [environment.reset(seed=0)[0]] + [environment.step(2)[0] for _ in range(4)]
    moves = np.diff([position[0] for position in path])
    assert len(np.unique(moves.round(5))) == 4


def test_resets_without_a_seed_give_new_starts():
    for name in "RiverSwim", "PuddleWorld", "SparseMountainCar":
        environment = make_gymnasium(name)
        starts = [environment.reset(seed=0)[0], environment.reset()[0], environment.reset()[0]]
        assert len(np.unique(starts, axis=0)) == 3


def test_deepsea_keeps_the_meaning_of_its_actions_until_it_is_seeded_anew():
    environment = make_gymnasium("DeepSea", size=12)
    meanings = []
    for seed in 0, 1, 2:
        environment.reset(seed=seed)
        first = dive(environment)
        environment.reset()
        environment.step(0)
        environment.reset()
        assert dive(environment) == first
        meanings.append(first)
    assert meanings[0] != meanings[1] or meanings[0] != meanings[2]


def test_an_end_shows_where_the_action_led_and_asks_for_a_reset():
    environment = make_gymnasium("SparseMountainCar", goal=-0.39)
    environment.reset(seed=0)
    terminated, step = False, None
    while not terminated:
        step = environment.step(2)
        terminated = step[2]
    assert step is not None
    observation, reward, _, truncated, _ = step
    assert observation[0] > (1.2 - 0.39) / 1.8
    assert reward == 1.0
    assert truncated is False
    with pytest.raises(gymnasium.error.ResetNeeded):
        environment.step(2)
    observation, _ = environment.reset()
    assert observation[0] <= (1.2 - 0.4) / 1.8
    environment.step(2)


def test_a_time_limit_truncates():
    environment = make_gymnasium("SparseMountainCar", time_limit=3)
    environment.reset(seed=0)
    ends = [environment.step(1)[2:4] for _ in range(3)]
    assert ends == [(False, False), (False, False), (False, True)]


def test_deepsea_is_seen_one_hot():
    environment = make_gymnasium("DeepSea", size=4)
    observation, _ = environment.reset(seed=0)
    np.testing.assert_array_equal(observation, np.eye(10, dtype=np.float32)[0])
    for row in 1, 2, 3, 3:
        observation, _, terminated, _, _ = environment.step(0)
        [cell] = np.flatnonzero(observation)
        assert observation[cell] == 1
        assert row * (row + 1) // 2 <= cell < (row + 1) * (row + 2) // 2
    assert terminated


def test_tiles_are_spelt_out_and_scaled():
    plain, tiled = make("RiverSwim"), featurise(make("RiverSwim"), "RiverSwim", "tiles")
    environment = GymnasiumEnvironment(tiled)
    observation, _ = environment.reset(seed=0)
    assert observation.shape == (128,)
    assert observation in environment.observation_space
    assert observation.sum() == pytest.approx(1)
    assert set(observation.tolist()) == {0.0, 1 / 32}
    assert GymnasiumEnvironment(plain).observation_space.shape == (1,)


@pytest.mark.parametrize("action", [-1, 4, 0.5, None])
def test_impossible_actions_are_refused(action):
    environment = make_gymnasium("PuddleWorld")
    environment.reset(seed=0)
    with pytest.raises(UsageError, match=r"action=.*: must be in Discrete\(4\)"):
        environment.step(action)


def test_options_are_those_of_the_factories():
    assert gymnasium.make("vbe/DeepSea-v0", size=5).observation_space.shape == (15,)
    with pytest.raises(UsageError, match="did you mean 'size'"):
        make_gymnasium("DeepSea", siz=5)
    with pytest.raises(UsageError, match="render_mode='human': must be None or 'rgb_array'"):
        GymnasiumEnvironment(make("DeepSea"), render_mode="human")
    with pytest.raises(UsageError, match="draw=None"):
        GymnasiumEnvironment(make("DeepSea"), render_mode="rgb_array")
    with pytest.raises(UsageError, match=r"observation_space=Discrete\(3\)"):
        GymnasiumEnvironment(make("DeepSea")._replace(observation_space=gymnasium.spaces.Discrete(3)))


def test_copies_run_side_by_side():
    vector = gymnasium.make_vec("vbe/PuddleWorld-v0", num_envs=3, vectorization_mode="sync")
    observations, _ = vector.reset(seed=0)
    assert len(np.unique(observations, axis=0)) == 3
    observations, rewards, *_ = vector.step(np.zeros(3, int))
    assert observations.shape == (3, 2)
    assert rewards.shape == (3,)
    vector.close()


@everywhere
def test_pictures_show_the_state(name):
    environment = make_gymnasium(name, render_mode="rgb_array")
    environment.reset(seed=0)
    first = environment.render()
    assert first is not None
    assert first.dtype == np.uint8
    assert first.shape[2] == 3
    assert min(first.shape[:2]) >= 300
    assert max(first.shape[:2]) <= 600
    np.testing.assert_array_equal(first, environment.render())
    environment.step(1)
    second = environment.render()
    changed = (first != second).any(-1).mean()
    assert 0 < changed < 0.2


def test_pictures_of_an_end_show_the_end():
    environment = make_gymnasium("DeepSea", render_mode="rgb_array", size=4)
    environment.reset(seed=0)
    start = environment.render()
    dive(environment)
    assert (environment.render() != start).any()  # type: ignore[union-attr]
    environment.reset()
    np.testing.assert_array_equal(environment.render(), start)


def test_the_flag_stands_at_the_goal():
    pictures = []
    for goal in 0.5, 0.6:
        environment = make_gymnasium("SparseMountainCar", render_mode="rgb_array", goal=goal)
        environment.reset(seed=0)
        pictures.append(environment.render())
    assert (pictures[0] != pictures[1]).any()


def test_rendering_needs_a_mode_and_a_reset():
    with pytest.warns(UserWarning, match="render_mode='rgb_array'"):
        assert make_gymnasium("RiverSwim").render() is None
    with pytest.raises(gymnasium.error.ResetNeeded):
        make_gymnasium("RiverSwim", render_mode="rgb_array").render()
