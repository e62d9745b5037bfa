import subprocess
import sys

import polars as pl
import pytest

from vbe.cli import main

TRAIN = ["train", "--environment", "DeepSea", "--agent", "vbe"]


def bad(capsys, *arguments: str) -> str:
    """Runs a command that must be refused; returns the one line that says why."""
    assert main([*TRAIN, *arguments]) == 2
    captured = capsys.readouterr()
    lines = captured.err.strip().splitlines()
    assert len(lines) == 1, captured.err
    return lines[0]


def test_train_ends_with_a_table_and_a_picture(tmp_path, capsys):
    out = tmp_path / "run"
    options = ["--environment-options", "size=5", "--agent-options", "batch_size=16", "bonus_scale=1,3", "pure_exploration=true"]
    assert main([*TRAIN, *options, "--seeds", "2", "--steps", "300", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "unique_states" in printed
    assert str(out / "curves.png") in printed.replace("\n", "")
    table = pl.read_parquet(out / "results.parquet")
    assert table.columns == ["agent", "environment", "seed", "step", "metric", "value", "bonus_scale"]
    assert sorted(table["bonus_scale"].unique()) == [1.0, 3.0]
    assert (out / "curves.png").stat().st_size > 10_000
    assert pl.read_csv(out / "summary.csv")["runs"].to_list()[0] == 2


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["--environment", "DeepSae"], ["environment='DeepSae'", "did you mean 'DeepSea'?"]),
        (["--agent", "vbe_sl"], ["agent='vbe_sl'", "did you mean 'vbe-sl'?"]),
        (["--agent-options", "bonus_scael=1"], ["bonus_scael=1", "did you mean 'bonus_scale'?"]),
        (["--environment-options", "size=0"], ["size=0", "at least 2"]),
        (["--environment-options", "size=-3"], ["size=-3", "at least 2"]),
        (["--environment-options", "goal=0.5"], ["goal=0.5", "no such option"]),
        (["--agent-options", "bonus_scale=-1"], ["bonus_scale=-1", "at least 0"]),
        (["--agent-options", "ensemble_size=0"], ["ensemble_size=0", "at least 1"]),
        (["--agent-options", "ensemble_size=1,0"], ["ensemble_size=0", "at least 1"]),
        (["--agent-options", "hidden=50,50"], ["hidden=[50, 50]", "must be a tuple such as (50, 50)"]),
        (["--agent-options", "hidden=50"], ["hidden=50", "must be a tuple such as (50, 50)"]),
        (["--agent-options", "bonus_scale={1}"], ["bonus_scale='{1}'", "must be float"]),
        (["--agent-options", "hidden=({1},)"], ["hidden=({1},)", "must be a tuple of int"]),
        (["--environment-options", "size=100000"], ["size=100000", "at most 5792"]),
        (["--agent-options", "buffer_size=2147483648"], ["buffer_size=2147483648", "below 2**31"]),
        (["--agent-options", "learning_rate=1" + 400 * "0"], ["learning_rate=10", "finite"]),
        (["--agent-options", "learning_rate=nan"], ["learning_rate='nan'", "must be float"]),
        (["--agent-options", "batch_size=64", "buffer_size=32"], ["batch_size=64", "buffer_size=32"]),
        (["--agent-options", "features=tiles"], ["features='tiles'", "DeepSea"]),
        (["--agent-options", "bonus_scale"], ["'bonus_scale'", "key=value"]),
        (["--agent-options", "bonus_scale=1", "bonus_scale=3"], ["given twice"]),
        (["--seeds", "0"], ["seeds=0"]),
        (["--seeds", "1,1"], ["seeds=[1, 1]"]),
        (["--steps", "0"], ["steps=0", "at least 1"]),
        (["--devices", "99"], ["devices=99"]),
        (["--steps", "many"], ["--steps", "'many'", "vbe train --help"]),
        (["--steps", "2147483648"], ["steps=2147483648", "below 2**31"]),
        (["--seeds"], ["--seeds", "expected one argument"]),
        (["--stops", "3"], ["--stops", "unrecognized"]),
    ],
)
def test_bad_input_is_one_line(arguments, parts, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    line = bad(capsys, *arguments)
    for part in parts:
        assert part in line
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["trian"], ["command='trian'", "did you mean 'train'?", "train, list, bench"]),
        (["xyz", "--help"], ["command='xyz'", "train, list, bench"]),
        (["train"], ["--environment, --agent", "required", "vbe train --help"]),
        (["--quick"], ["--quick", "unrecognized"]),
        (["bench", "--json"], ["--json", "expected one argument", "vbe bench --help"]),
        (["list", "vbe", "rnd"], ["rnd", "unrecognized"]),
    ],
)
def test_a_command_that_cannot_be_read_is_one_line_and_status_2(arguments, parts, capsys):
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.startswith("vbe: ") and captured.err.count("\n") == 1
    for part in parts:
        assert part in captured.err


def test_a_process_ends_with_the_status_too():
    result = subprocess.run([sys.executable, "-m", "vbe", "trian"], capture_output=True, text=True, check=False)
    assert result.returncode == 2 and result.stderr.count("\n") == 1


@pytest.mark.parametrize("command", [[], ["train"], ["list"], ["bench"]])
def test_help_is_there(command):
    result = subprocess.run([sys.executable, "-m", "vbe", *command, "--help"], capture_output=True, text=True, check=True)
    assert "usage: vbe" in result.stdout


def test_list_names_everything(capsys):
    from vbe import AGENTS
    from vbe.environments import ENVIRONMENTS

    assert main(["list"]) == 0
    printed = capsys.readouterr().out
    for name in (*AGENTS, *ENVIRONMENTS, "bonus_scale", "ensemble_size", "time_limit"):
        assert name in printed


def test_list_of_an_unknown_name(capsys):
    assert main(["list", "vbbe"]) == 2
    assert "did you mean 'vbe'?" in capsys.readouterr().err
