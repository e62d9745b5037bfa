"""What the benchmark makes of measurements, and one real measurement of each kind; how fast things are is no test's business."""

import itertools
import json
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

import vbe
from vbe import bench
from vbe.bench.own import needed_operations


def measurements(**speeds: list[float]) -> dict:
    return {"speeds": speeds, "missing": {}, "costs": {}, "rounds": 3}


@pytest.fixture
def one_comparison(monkeypatch):
    def choose(**options):
        monkeypatch.setattr(bench, "COMPARISONS", (bench.Comparison("ours to theirs", "ours", "theirs", 2, **options),))

    return choose


def test_a_ratio_is_that_of_medians_with_the_range_within_rounds(one_comparison):
    one_comparison()
    (row,) = bench.compare(measurements(ours=[10, 40, 30], theirs=[10, 10, 20])).rows()
    assert row == ("ours to theirs", "3", "1 to 4", "at least 2", "yes")


def test_a_cost_is_met_from_below(one_comparison):
    one_comparison(at_most=True)
    assert bench.compare(measurements(ours=[3.0], theirs=[1.0]))["met"].to_list() == ["no"]
    assert bench.compare(measurements(ours=[2.0], theirs=[1.0]))["met"].to_list() == ["yes"]


def test_what_was_not_measured_is_said_and_nothing_else_is_claimed(one_comparison):
    one_comparison()
    (row,) = bench.compare(measurements(ours=[1.0])).rows()
    assert row[1:] == ("not measured", "", "at least 2", "")


def test_every_comparison_is_of_contenders_that_there_are():
    names = {contender.name for contender in (*bench.OWN, *bench.PEERS)}
    assert {name for comparison in bench.COMPARISONS for name in (comparison.fast, comparison.slow)} <= names


def test_needed_operations_are_those_of_the_matrix_products_one_by_one():
    sizes, batch, members, total = (2, 50, 50, 3), 128, 20, 0
    for inputs, outputs in itertools.pairwise(sizes):
        product = 2 * inputs * outputs
        for _ in ("q(s)", "f(s)", "f*(s)", "q(s')", "q target(s')", "f target(s')", "f*(s')"):
            total += batch * product
        for _ in ("q", "f"):
            total += batch * product  # gradient of the weights
            total += batch * product if inputs != sizes[0] else 0  # gradient of the layer's inputs
        total += product * (1 + 2 * members)  # acting
    assert needed_operations(observation=2, hidden=(50, 50), actions=3, batch=batch, ensemble_size=members) == total


def test_tables_go_between_a_documents_markers(tmp_path):
    path, table = tmp_path / "performance.md", {"ratios": pl.DataFrame({"a": ["1"]})}
    bench.write_markdown(path, table)
    path.write_text("before\n" + path.read_text() + "after\n")
    bench.write_markdown(path, {"ratios": pl.DataFrame({"a": ["2"]})})
    assert path.read_text() == "before\n<!-- results:bench-ratios -->\n| a |\n| - |\n| 2 |\n<!-- end -->\nafter\n"


def test_our_own_training_can_be_measured(tmp_path):
    options = json.dumps({"ensemble_size": 2, "batch_size": 4, "buffer_size": 100})
    contender = bench.Contender("ours", ("training", "--options", options, "--lanes", "2"))
    measured = bench._run(contender, 0.0, sys.executable, str(tmp_path))
    assert isinstance(measured, dict)
    assert measured["steps_per_second"] > 0 and measured["first_chunk_seconds"] > measured["chunk_seconds"] > 0
    assert measured["peak_memory_bytes"] > 10 * 2**20


def test_a_peer_that_is_not_installed_is_left_out(monkeypatch):
    (peer, *_) = bench.PEERS  # the others need more than NumPy
    without = [sys.executable, "-S"]  # a Python that sees no installed packages
    run = subprocess.run
    monkeypatch.setattr(subprocess, "run", lambda command, **options: run([*without, *command[1:]], **options))
    assert bench._run(peer, 0.1, sys.executable, "") == "ModuleNotFoundError: No module named 'numpy'"


def test_a_python_that_is_not_there_is_said_in_one_line():
    with pytest.raises(vbe.UsageError, match=r"^--peers-python 'nowhere': there is no such file"):
        bench.main(peers_python="nowhere")


def test_peers_need_nothing_of_ours():
    source = (Path(bench.__file__).parent / "peers.py").read_text()
    assert "import vbe" not in source and "from vbe" not in source


def test_costs_stand_beside_work():
    speeds = {"Double DQN, 32 lanes": [100.0], "VBE k = 20, 32 lanes": [50.0]}
    assert bench.tabulate_work({"speeds": speeds}).rows() == [
        ("Double DQN", "5", "1", "1", "1.00"),
        ("VBE k = 20", "11", "2.2", "2", "0.91"),
    ]
    names = {contender.name for contender in bench.OWN}
    assert all(f"{name}, {bench.ALL_LANES} lanes" in names for name in bench.PASSES)


def test_costs_have_verdicts():
    table = bench.tabulate_costs({"costs": {"seconds to the first chunk, cached": 3.0, "peak memory of the process, MiB": 2048.0}})
    assert table["met"].to_list() == ["yes", "no"]
