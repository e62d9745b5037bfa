"""Finding environments by name, and what is said to those who misspell."""

import subprocess
import sys

import jax
import numpy as np
import pytest

from vbe.environments import ENVIRONMENTS, FEATURES, featurise, make
from vbe.environments.deep_sea import cell
from vbe.types import UsageError


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("DeepSee", {}, r"name='DeepSee': .* \(did you mean 'DeepSea'\?\); .*RiverSwim, .*DeepSea"),
        ("riverswim", {}, r"name='riverswim': .* \(did you mean 'RiverSwim'\?\)"),
        ("Taxi", {}, r"name='Taxi': no such environment; .*RiverSwim"),
        ("DeepSea", {"sise": 4}, r"sise=4: DeepSea .* \(did you mean 'size'\?\)"),
        ("RiverSwim", {"size": 4}, r"size=4: RiverSwim has no such option; there is none"),
        ("DeepSea", {"size": 1}, r"size=1: must be an integer of at least 2"),
        ("DeepSea", {"size": 5793}, r"size=5793: must be at most 5792"),
        ("DeepSea", {"size": 10**12}, r"size=1000000000000: must be at most 5792"),
        ("DeepSea", {"size": np.int32(100_000)}, r"size=.*100000.*: must be at most 5792"),
        ("DeepSea", {"size": 10.0}, r"size=10\.0: must be an integer"),
        ("SparseMountainCar", {"time_limit": 0}, r"time_limit=0: must be a positive integer"),
        ("SparseMountainCar", {"time_limit": "9"}, r"time_limit='9': must be a positive integer"),
        ("SparseMountainCar", {"time_limit": 2**31}, r"time_limit=2147483648: must be below 2\*\*31"),
        ("PuddleWorld", {"time_limit": 10**400}, r"time_limit=10+: must be below 2\*\*31"),
        ("SparseMountainCar", {"goal": -0.5}, r"goal=-0\.5: must be above -0\.4"),
        ("SparseMountainCar", {"goal": 0.7}, r"goal=0\.7: .* at most 0\.6"),
        ("PuddleWorld", {"step_size": 0}, r"step_size=0: must be a number above 0"),
        ("PuddleWorld", {"step_size": float("nan")}, r"step_size=nan: must be a number above 0"),
    ],
)
def test_errors_name_the_argument_its_value_and_what_would_do(name, options, message):
    with pytest.raises(UsageError, match=message) as error:
        make(name, **options)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "features", "message"),
    [
        ("SparseMountainCar", "one-hot", r"features='one-hot': SparseMountainCar .* there is raw, tiles"),
        ("DeepSea", "tiles", r"features='tiles': DeepSea .* there is one-hot, raw"),
        ("DeepSea", "onehot", r"\(did you mean 'one-hot'\?\)"),
        ("Deepsea", "raw", r"name='Deepsea': .* \(did you mean 'DeepSea'\?\)"),
    ],
)
def test_impossible_features_are_refused(name, features, message):
    with pytest.raises(UsageError, match=message) as error:
        featurise(make("DeepSea"), name, features)
    assert "\n" not in str(error.value)


def test_every_environment_has_a_natural_way_of_being_seen():
    assert list(FEATURES) == list(ENVIRONMENTS)
    for name in ENVIRONMENTS:
        environment = make(name)
        assert featurise(environment, name) is environment


@pytest.mark.parametrize("size", [2, 3, 30, 50])
def test_raw_deepsea_shows_row_and_column(size):
    environment = featurise(make("DeepSea", size=size), "DeepSea", "raw")
    state, observation = environment.reset(jax.random.key(size))
    np.testing.assert_array_equal(observation, [0, 0])
    bottom = state._replace(row=np.int32(size - 2), column=np.int32(size - 2))
    right = bottom.right[cell(bottom.row, bottom.column)].astype(np.int32)
    for action, column in (right, size - 1), (1 - right, max(size - 3, 0)):
        _, step = environment.step(bottom, jax.random.key(0), action)
        np.testing.assert_allclose(step.observation, [1, column / (size - 1)], rtol=1e-6)


def test_importing_the_environments_is_light():
    heavy = {"matplotlib", "PIL", "scipy.stats", "torch", "vbe.environments.pictures"}
    program = "import sys, vbe.environments; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert "vbe.environments" in loaded
    assert not heavy & set(loaded)


def test_the_gymnasium_adapter_does_not_hide_gymnasium_itself():
    import vbe.environments.gymnasium  # noqa: F401

    assert featurise(make("RiverSwim"), "RiverSwim", "tiles").observation_space.shape == (32,)


def test_the_largest_deepsea_has_cells_that_float32_can_number():
    assert make("DeepSea", size=5792).num_states < 2**24


@pytest.mark.parametrize(("name", "option"), [("DeepSea", "size"), ("SparseMountainCar", "time_limit"), ("PuddleWorld", "time_limit")])
def test_numpys_integers_are_integers(name, option):
    environment, plain = make(name, **{option: np.int64(7)}), make(name, **{option: 7})
    assert environment.observation_space == plain.observation_space
    state, _ = environment.reset(jax.random.key(0))
    _, step = environment.step(state, jax.random.key(1), np.int32(1))
    _, expected = plain.step(state, jax.random.key(1), np.int32(1))
    np.testing.assert_array_equal(step.reward, expected.reward)
