"""The examples, in tiny: they run, and leave what they say."""

import runpy
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import vbe

EXAMPLES = Path(__file__).parents[1] / "examples"


def check_deepsea_coverage(out: Path) -> None:
    table = pl.read_csv(out / "coverage.csv")
    assert sorted(table["agent"]) == ["epsilon-greedy", "vbe", "vbe-sl"]
    assert (table["runs"] == 2).all() and table["mean"].is_between(1, 15).all()


# What makes each example small, the files that it says it wrote, and what should be in them.
TINY = {
    "deepsea_coverage.py": (
        ["--size", "5", "--episodes", "60", "--seeds", "2"],
        ["coverage.png", "coverage.csv"],
        check_deepsea_coverage,
    ),
}


def test_every_example_is_run() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(TINY)


@pytest.mark.parametrize("example", TINY)
def test_example(example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    arguments, files, check = TINY[example]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [example, *arguments, "--out", str(tmp_path / "out")])
    runpy.run_path(str(EXAMPLES / example), run_name="__main__")
    printed = capsys.readouterr().out.replace("\n", "")
    for file in files:
        assert (tmp_path / "out" / file).stat().st_size > 0
        assert str(tmp_path / "out" / file) in printed
    check(tmp_path / "out")


def test_ctrl_c_ends_an_example_with_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(**arguments: Any) -> None:
        raise vbe.Interrupted("stopped and saved; the same command continues from there")

    monkeypatch.setattr(vbe, "train", interrupted)
    monkeypatch.setattr(sys, "argv", ["deepsea_coverage.py", "--out", str(tmp_path)])
    with pytest.raises(SystemExit) as stop:
        runpy.run_path(str(EXAMPLES / "deepsea_coverage.py"), run_name="__main__")
    assert stop.value.code == 130
    assert capsys.readouterr().err.strip() == "stopped and saved; the same command continues from there"
