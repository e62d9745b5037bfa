"""Runs that are killed, interrupted, damaged or repeated end with the results of a run that was left alone, to the bit."""

import os
import random
import signal
import subprocess
import sys
import time

import polars as pl
import polars.testing
import pytest

import vbe
from vbe.training import checkpoint, lanes

ARGUMENTS = {
    "environment": "DeepSea",
    "environment_options": {"size": 8},
    "agent": "vbe",
    "agent_options": {"ensemble_size": [1, 2], "bonus_scale": [1.0, 3.0], "batch_size": 16},
    "seeds": 2,
    "steps": 6_000,
}
PROGRAM = f"""
import vbe
from vbe.training import checkpoint, lanes
lanes.MOST_CHUNK_STEPS = 200
vbe.train(**{ARGUMENTS!r}, out=OUT, checkpoint_seconds=0.0, devices=2, progress=False)
"""


@pytest.fixture(scope="module")
def undisturbed() -> pl.DataFrame:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lanes, "MOST_CHUNK_STEPS", 200)
        return vbe.train(**ARGUMENTS, devices=2).table


def start(out) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, "-c", PROGRAM.replace("OUT", repr(str(out)))], stderr=subprocess.PIPE, text=True)


def finish(out) -> None:
    process = start(out)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors


def wait_for_checkpoint(out, process, after=0) -> None:
    deadline = time.monotonic() + 120
    while not any(int(p.stem) > after for p in (out / "checkpoint").glob("[0-9]*.json")) and process.poll() is None:
        assert time.monotonic() < deadline, "no checkpoint came"
        time.sleep(0.01)


def newest(out) -> int:
    return max((int(p.stem) for p in (out / "checkpoint").glob("[0-9]*.json")), default=0)


def test_killed_at_random_moments_and_continued(tmp_path, undisturbed):
    out = tmp_path / "run"
    moments = random.Random(time.time_ns())
    kills = 0
    for _ in range(4):
        process = start(out)
        wait_for_checkpoint(out, process, after=newest(out))
        time.sleep(moments.uniform(0, 0.4))
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            kills += 1
        process.communicate()
    assert kills >= 2
    finish(out)
    pl.testing.assert_frame_equal(pl.read_parquet(out / "results.parquet"), undisturbed, check_exact=True)


def test_ctrl_c_saves_says_how_to_go_on_and_continues(tmp_path, undisturbed):
    out = tmp_path / "run"
    process = start(out)
    wait_for_checkpoint(out, process)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode != 0
    assert "the same command continues" in errors
    assert not (out / "results.parquet").exists()
    finish(out)
    pl.testing.assert_frame_equal(pl.read_parquet(out / "results.parquet"), undisturbed, check_exact=True)


def test_a_finished_run_is_read_not_run_again(tmp_path):
    small = {**ARGUMENTS, "steps": 200, "agent_options": {"batch_size": 16}}
    first = vbe.train(**small, out=tmp_path / "run")
    before = (tmp_path / "run" / "results.parquet").stat().st_mtime_ns
    second = vbe.train(**small, out=tmp_path / "run")
    assert (tmp_path / "run" / "results.parquet").stat().st_mtime_ns == before
    pl.testing.assert_frame_equal(first.table, second.table)


def test_another_specification_is_refused_and_nothing_is_touched(tmp_path):
    small = {**ARGUMENTS, "steps": 200, "agent_options": {"batch_size": 16}}
    vbe.train(**small, out=tmp_path / "run")
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    with pytest.raises(vbe.UsageError, match=r"out=.*holds results of another run \(steps 200 there, 300 here"):
        vbe.train(**{**small, "steps": 300}, out=tmp_path / "run")
    assert before == {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}


def test_a_folder_of_something_else_is_refused(tmp_path):
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(vbe.UsageError, match="holds something else than a run's results"):
        vbe.train(**ARGUMENTS, out=tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(vbe.UsageError, match="is a file; must be a folder"):
        vbe.train(**ARGUMENTS, out=tmp_path / "file")
    assert sorted(os.listdir(tmp_path)) == ["file", "thesis.tex"]


def test_two_processes_cannot_share_a_folder(tmp_path):
    process = start(tmp_path / "run")
    wait_for_checkpoint(tmp_path / "run", process)
    with pytest.raises(vbe.UsageError, match="another process is running it now"):
        vbe.train(**ARGUMENTS, out=tmp_path / "run")
    process.kill()
    process.communicate()


def test_results_say_what_they_depend_on(tmp_path):
    import json

    vbe.train(environment="RiverSwim", agent="epsilon-greedy", steps=20, out=tmp_path / "run")
    about = json.loads((tmp_path / "run" / "run.json").read_bytes())
    assert about["spec"]["environment"] == "RiverSwim"
    assert {"vbe", "jax", "jaxlib", "optax", "numpy"} <= set(about["versions"])
    assert about["devices"]
    assert "commit" in about


def test_going_on_with_another_number_of_devices_is_said(tmp_path):
    out = tmp_path / "run"
    process = start(out)
    wait_for_checkpoint(out, process)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not (out / "results.parquet").exists()
    with pytest.warns(UserWarning, match="begun on 2 devices, goes on with 1: .* may differ in their last bits"):
        vbe.train(**ARGUMENTS, out=out, devices=1)


@pytest.mark.parametrize(
    ("asked", "line"),
    [
        ({"devices": 0}, "devices=0: must be an integer from 1 to 2"),
        ({"devices": 3}, "devices=3: must be an integer from 1 to 2"),
        ({"devices": 1.0}, r"devices=1\.0: must be an integer from 1 to 2"),
        ({"devices": True}, "devices=True: must be an integer from 1 to 2"),
        ({"checkpoint_seconds": -1}, "checkpoint_seconds=-1: must be a number of seconds, at least 0"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(asked, line):
    with pytest.raises(vbe.UsageError, match=f"^{line}"):
        vbe.train(**ARGUMENTS, **asked)


@pytest.mark.parametrize(
    ("environment", "agent"), [("RiverSwim", "vbe"), ("PuddleWorld", "epsilon-greedy"), ("SparseMountainCar", "rnd-ppo")]
)
def test_states_with_nothing_to_count_are_saved_and_continued_too(environment, agent, tmp_path, monkeypatch):
    monkeypatch.setattr(lanes, "MOST_CHUNK_STEPS", 200)
    arguments = {"environment": environment, "agent": agent, "seeds": 3, "steps": 1_000}
    out = tmp_path / "run"
    save, saves = checkpoint.save, []

    def save_twice(*what):
        saves.append(what)
        save(*what)
        if len(saves) == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save", save_twice)
        with pytest.raises(KeyboardInterrupt):
            vbe.train(**arguments, out=out, checkpoint_seconds=0)
    continued = vbe.train(**arguments, out=out)
    pl.testing.assert_frame_equal(continued.table, vbe.train(**arguments).table, check_exact=True)
