import json

import numpy as np
import pytest

from vbe.training import checkpoint


def test_round_trip_is_exact(tmp_path):
    arrays = {"a": np.array([np.nan, -0.0, 1e-40], np.float32), "b/c": np.arange(6, dtype=np.uint32).reshape(2, 3), "d": np.array(True)}
    checkpoint.save(tmp_path, 3, arrays, {"time": 7})
    number, loaded = checkpoint.load_newest(tmp_path)
    assert number == 3
    assert loaded.facts == {"time": 7}
    for name, value in arrays.items():
        assert loaded.arrays[name].dtype == value.dtype
        assert loaded.arrays[name].tobytes() == value.tobytes()


def test_keeps_the_last_two(tmp_path):
    for number in range(1, 6):
        checkpoint.save(tmp_path, number, {"x": np.full(3, number)}, {})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["00000004.json", "00000004.npz", "00000005.json", "00000005.npz"]


@pytest.mark.parametrize("position", [0.1, 0.5, 0.9])
def test_a_flipped_bit_is_noticed_and_the_one_before_is_taken(tmp_path, position):
    checkpoint.save(tmp_path, 1, {"x": np.arange(100.0)}, {"time": 1})
    checkpoint.save(tmp_path, 2, {"x": np.arange(100.0) + 1}, {"time": 2})
    path = tmp_path / "00000002.npz"
    data = bytearray(path.read_bytes())
    data[int(len(data) * position)] ^= 1
    path.write_bytes(data)
    with pytest.warns(UserWarning, match="00000002 is damaged and passed over"):
        number, loaded = checkpoint.load_newest(tmp_path)
    assert number == 1
    np.testing.assert_array_equal(loaded.arrays["x"], np.arange(100.0))


def test_a_crash_before_the_manifest_leaves_the_one_before(tmp_path):
    checkpoint.save(tmp_path, 1, {"x": np.zeros(2)}, {})
    (tmp_path / "00000002.npz").write_bytes(b"half of")
    (tmp_path / ".00000002.json.tmp").write_bytes(b"{")
    number, _ = checkpoint.load_newest(tmp_path)
    assert number == 1


@pytest.mark.parametrize("text", ['{"time": 3}', "[]", "3", "{", '{"sha256": 3, "facts_sha256": 3, "facts": 3}'])
def test_a_manifest_that_is_none_is_passed_over(tmp_path, text):
    checkpoint.save(tmp_path, 1, {"x": np.zeros(2)}, {"time": 1})
    checkpoint.save(tmp_path, 2, {"x": np.zeros(2)}, {"time": 2})
    (tmp_path / "00000002.json").write_text(text)
    with pytest.warns(UserWarning, match="00000002 is damaged and passed over"):
        assert checkpoint.load_newest(tmp_path)[0] == 1


def test_changed_facts_are_noticed(tmp_path):
    checkpoint.save(tmp_path, 1, {"x": np.zeros(2)}, {"time": 1200, "parts": {"b": "1", "a": "2"}})
    assert checkpoint.load_newest(tmp_path)[1].facts == {"time": 1200, "parts": {"b": "1", "a": "2"}}
    path = tmp_path / "00000001.json"
    path.write_text(path.read_text().replace("1200", "1600"))
    with pytest.warns(UserWarning, match="its checksum does not match"):
        assert checkpoint.load_newest(tmp_path) is None


def test_what_fails_the_callers_check_is_passed_over(tmp_path):
    def early(facts):
        if facts["time"] > 1:
            raise ValueError("too late")

    checkpoint.save(tmp_path, 1, {"x": np.zeros(2)}, {"time": 1})
    checkpoint.save(tmp_path, 2, {"x": np.zeros(2)}, {"time": 2})
    with pytest.warns(UserWarning, match="00000002 is damaged and passed over: too late"):
        assert checkpoint.load_newest(tmp_path, early)[0] == 1


def test_nothing_is_pickled(tmp_path):
    with pytest.raises(ValueError, match="allow_pickle"):
        checkpoint.save(tmp_path, 1, {"x": np.array([object()])}, {})
    checkpoint.save(tmp_path, 1, {"x": np.zeros(1)}, {"parts": ["a"]})
    assert json.loads((tmp_path / "00000001.json").read_bytes())["facts"] == {"parts": ["a"]}


def test_no_checkpoint_is_none(tmp_path):
    assert checkpoint.load_newest(tmp_path / "nowhere") is None
