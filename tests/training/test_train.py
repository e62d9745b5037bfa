"""What `train` makes of damage, of other versions, of what is out of proportion, and of lanes that have all diverged."""

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import polars as pl
import polars.testing
import pytest

import vbe
from vbe.training import checkpoint, lanes, loop
from vbe.training import train as training
from vbe.training.spec import make_spec, programs

ARGUMENTS: dict[str, Any] = {
    "environment": "DeepSea",
    "environment_options": {"size": 5},
    "agent": "epsilon-greedy",
    "agent_options": {"batch_size": 8, "target_period": 4},
    "seeds": 2,
    "steps": 2_000,
    "progress": False,
}


@pytest.fixture(autouse=True)
def short_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "MOST_CHUNK_STEPS", 200)


@pytest.fixture(scope="module")
def undisturbed() -> pl.DataFrame:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lanes, "MOST_CHUNK_STEPS", 200)
        return vbe.train(**ARGUMENTS).table


def run_and_kill(out: Path, saves: int) -> None:
    """Trains, and stops dead when so many checkpoints have been saved."""
    save, count = checkpoint.save, 0

    def save_and_count(*what: Any) -> None:
        nonlocal count
        save(*what)
        count += 1
        if count == saves:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint, "save", save_and_count)
        with pytest.raises(KeyboardInterrupt):
            vbe.train(**ARGUMENTS, out=out, checkpoint_seconds=0)


def flip_a_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def finish_equal(out: Path, undisturbed: pl.DataFrame) -> None:
    pl.testing.assert_frame_equal(vbe.train(**ARGUMENTS, out=out).table, undisturbed, check_exact=True)


@pytest.mark.parametrize("damage", [flip_a_bit, Path.unlink], ids=["a flipped bit", "missing"])
@pytest.mark.parametrize(("part", "passed_over"), [("00000003", ["00000003"]), ("00000001", ["00000003", "00000002"])])
def test_a_damaged_part_takes_the_checkpoints_that_vouch_for_it_along(
    damage: Any, part: str, passed_over: list[str], tmp_path: Path, undisturbed: pl.DataFrame
) -> None:
    run_and_kill(tmp_path / "run", saves=3)
    damage(tmp_path / "run" / "parts" / f"{part}.parquet")
    with pytest.warns(UserWarning, match="is damaged and passed over") as warned:
        finish_equal(tmp_path / "run", undisturbed)
    assert [str(w.message).split(" is ")[0].rsplit("/", 1)[1] for w in warned] == passed_over


def test_a_part_damaged_while_its_run_goes_on_is_one_line_and_the_next_one_heals_it(
    tmp_path: Path, undisturbed: pl.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, save = tmp_path / "run", checkpoint.save

    def save_and_spoil(folder: Path, number: int, *what: Any) -> None:
        save(folder, number, *what)
        if number == 3:
            flip_a_bit(out / "parts" / "00000003.parquet")

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save", save_and_spoil)
        with pytest.raises(vbe.UsageError, match=r"^out=.*checksum of parts/00000003\.parquet does not match; the same command goes on"):
            vbe.train(**ARGUMENTS, out=out, checkpoint_seconds=0)
    assert not (out / "results.parquet").exists()
    with pytest.warns(UserWarning, match="is damaged and passed over"):
        finish_equal(out, undisturbed)


def test_after_two_damaged_checkpoints_new_ones_are_kept(tmp_path: Path, undisturbed: pl.DataFrame) -> None:
    out = tmp_path / "run"
    run_and_kill(out, saves=3)
    flip_a_bit(out / "checkpoint" / "00000002.npz")
    flip_a_bit(out / "checkpoint" / "00000003.npz")
    with pytest.warns(UserWarning, match="is damaged and passed over"):
        run_and_kill(out, saves=2)
    assert sorted(path.stem for path in (out / "checkpoint").glob("*.json")) == ["00000004", "00000005"]
    finish_equal(out, undisturbed)  # from the last one: a warning would fail


def change_about(out: Path, **changes: Any) -> None:
    about = json.loads((out / "run.json").read_bytes())
    (out / "run.json").write_text(json.dumps({**about, **changes}))


@pytest.mark.parametrize("package", ["vbe", "jax", "jaxlib"])
def test_going_on_with_another_version_is_said(package: str, tmp_path: Path, undisturbed: pl.DataFrame) -> None:
    run_and_kill(tmp_path / "run", saves=1)
    versions = training.provenance(jax.devices())["versions"]
    change_about(tmp_path / "run", versions={**versions, package: "0.0.7"})
    with pytest.warns(UserWarning, match=rf"begun with {package} 0\.0\.7, goes on with {versions[package]}: results may differ"):
        finish_equal(tmp_path / "run", undisturbed)


def test_going_on_with_another_commit_is_said_but_not_with_another_plotting_library(tmp_path: Path, undisturbed: pl.DataFrame) -> None:
    run_and_kill(tmp_path / "run", saves=1)
    versions = training.provenance(jax.devices())["versions"]
    change_about(tmp_path / "run", commit="abc", versions={**versions, "polars": "0"})
    with pytest.warns(UserWarning, match=r"begun with commit abc, goes on with \w+: results may differ"):
        finish_equal(tmp_path / "run", undisturbed)


@pytest.mark.parametrize("change", ["shape", "type", "missing", "too many"])
def test_a_checkpoint_of_another_program_is_one_line(change: str, tmp_path: Path) -> None:
    run_and_kill(tmp_path / "run", saves=1)
    folder = tmp_path / "run" / "checkpoint"
    found = checkpoint.load_newest(folder)
    assert found is not None
    number, (arrays, facts) = found
    last = max(name for name in arrays if name.startswith("lanes/"))
    if change == "missing":
        del arrays[last]
    elif change == "too many":
        arrays["lanes/9999"] = np.zeros(2)
    else:
        arrays[last] = np.zeros((*arrays[last].shape, 2), arrays[last].dtype) if change == "shape" else arrays[last].astype(np.float64)
    checkpoint.save(folder, number, arrays, facts)
    with pytest.raises(vbe.UsageError, match=r"^out=.*its checkpoint does not fit .*lanes/\d+ is .*, should be .*choose another") as error:
        vbe.train(**ARGUMENTS, out=tmp_path / "run")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("text", ['{"spec": 3}', '{"spec": [1]}', "[]", "3", "{", ""])
def test_a_damaged_description_is_one_line(text: str, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(vbe.UsageError, match=r"^out=.*its run\.json cannot be read \(.*\); choose another folder$"):
        vbe.train(**ARGUMENTS, out=tmp_path)


@pytest.mark.parametrize("part", ["start", "end", "all"])
def test_damaged_results_are_one_line(part: str, tmp_path: Path) -> None:
    out = tmp_path / "run"
    small = {**ARGUMENTS, "steps": 100}
    vbe.train(**small, out=out)
    data = (out / "results.parquet").read_bytes()
    (out / "results.parquet").write_bytes({"start": data[100:], "end": data[:-20], "all": b""}[part])
    with pytest.raises(vbe.UsageError, match=r"^out=.*its results\.parquet cannot be read \(.*\); delete it to run again$") as error:
        vbe.train(**small, out=out)
    assert "\n" not in str(error.value)
    (out / "results.parquet").unlink()
    vbe.train(**small, out=out)


@pytest.mark.parametrize("out", [5, 2.0, b"run", ["run"], True])
def test_a_folder_that_is_no_path_is_one_line(out: Any) -> None:
    with pytest.raises(vbe.UsageError, match=r"^out=.*: must be a path"):
        vbe.train(**ARGUMENTS, out=out)


def test_numpys_numbers_are_numbers(tmp_path: Path) -> None:
    asked = {
        **ARGUMENTS,
        "environment_options": {"size": np.int64(5)},
        "agent_options": {"batch_size": np.int32(8), "target_period": np.uint8(4), "epsilon": np.float64(0.1)},
        "seeds": np.arange(2),
        "steps": np.int64(300),
        "log_every": np.int16(3),
        "devices": np.int64(1),
        "checkpoint_seconds": np.float32(60),
    }
    table = vbe.train(**asked, out=tmp_path / "run").table
    plain = {**ARGUMENTS, "agent_options": {**ARGUMENTS["agent_options"], "epsilon": 0.1}, "steps": 300, "log_every": 3, "devices": 1}
    pl.testing.assert_frame_equal(table, vbe.train(**plain).table, check_exact=True)


def test_a_period_longer_than_the_run_costs_no_steps_and_changes_no_bits() -> None:
    def chunk_steps(steps: int, period: int) -> int:
        options = {"batch_size": 8, "target_period": period}
        (program,) = programs(make_spec(environment="RiverSwim", agent="epsilon-greedy", agent_options=options, steps=steps))
        return loop.make_loop(program, steps, jax.devices()[:1]).chunk_steps

    assert chunk_steps(300, 1_000_000) == 300 - 9
    assert chunk_steps(9, 1_000_000) == 1
    assert chunk_steps(2_000, 64) == 3 * 64

    tables = []
    for period in 300, 2**31 - 1:
        options = {**ARGUMENTS["agent_options"], "target_period": period}
        tables.append(vbe.train(**{**ARGUMENTS, "agent_options": options, "steps": 300}).table)
    pl.testing.assert_frame_equal(*tables, check_exact=True)


@pytest.mark.parametrize("scales", [[1e38], [0.1, 1e38]])
def test_a_program_ends_when_all_its_lanes_have_diverged(scales: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    made, chunks = loop.make_loop, []

    def counted(*arguments: Any) -> Any:
        compiled = made(*arguments)
        return compiled._replace(chunk=lambda lanes, now: (chunks.append(now), compiled.chunk(lanes, now))[1])

    monkeypatch.setattr(loop, "make_loop", counted)
    options = {**ARGUMENTS["agent_options"], "learning_rate": scales}
    table = vbe.train(**{**ARGUMENTS, "agent_options": options, "environment": "RiverSwim", "environment_options": {}}).table
    diverged = table.filter(pl.col("metric").cast(str) == "diverged")
    assert set(diverged["learning_rate"]) == {1e38} and len(diverged) == 2
    assert len(chunks) == (1 if scales == [1e38] else 10)
    assert table["step"].max() == (diverged["step"].max() if scales == [1e38] else 2_000)
