"""Definitions that can be run, figures and tables that can be made of whatever has been run, and a document that says what was found."""

import dataclasses
import importlib
import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib.image
import numpy as np
import polars as pl
import pytest

from vbe.analysis.claims import NOT_RUN
from vbe.experiments import NAMES
from vbe.experiments.bsuite_deep_sea import bad_episodes
from vbe.experiments.experiment import DOCUMENT, RESULTS, Experiment, Run, command_line, compact, load
from vbe.experiments.target_policy import watch_values
from vbe.training.spec import make_spec

ROOT = Path(__file__).parents[2]
EXPERIMENTS: dict[str, Experiment] = {name: importlib.import_module(f"vbe.experiments.{name}").EXPERIMENT for name in NAMES}
every_experiment = pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=EXPERIMENTS)
METRICS = ("accumulated_reward", "episode_return", "episode_discounted_return", "unique_states")
WATCHED = ("intrinsic_bias", "intrinsic_tried", "intrinsic_untried")


def made_up(run: Run, seeds: int = 3) -> pl.DataFrame:
    """Results such as a run might have, of a dozen steps."""
    swept = {name: value for name, value in run.arguments["agent_options"].items() if isinstance(value, list)}
    rng = np.random.default_rng(len(run.name))
    steps = np.linspace(0, run.arguments["steps"], 13)[1:].astype(int)
    lanes = itertools.product(itertools.product(*swept.values()), range(seeds))
    parts = [rows for varied, seed in lanes for rows in _lane(run, dict(zip(swept, varied, strict=True)), seed, steps, rng)]
    return pl.concat(parts, how="diagonal_relaxed")


def _lane(run: Run, varied: Mapping[str, Any], seed: int, steps: np.ndarray, rng: np.random.Generator) -> list[pl.DataFrame]:
    names = {key: run.arguments[key] for key in ("agent", "environment")} | {"run": run.name, "seed": seed} | run.columns | varied
    if run.measure is bad_episodes:
        episodes = steps // run.columns["size"]
        bad = np.minimum(episodes, 500.0 + 500 * seed)
        return [pl.DataFrame({"step": steps, "episode": episodes, "metric": "total_bad_episodes", "value": bad, **names})]
    metrics = WATCHED if run.measure is watch_values else METRICS
    return [pl.DataFrame({"step": steps, "metric": metric, "value": np.cumsum(rng.random(12)) / 12, **names}) for metric in metrics]


@every_experiment
def test_every_run_can_be_run(experiment):
    for run in experiment.runs:
        spec = make_spec(**run.arguments)
        assert spec.steps == run.arguments["steps"]
    names = [run.name for run in experiment.runs]
    assert len(set(names)) == len(names)


@every_experiment
def test_equal_arguments_are_not_run_twice(experiment):
    kinds = [(str(run.arguments), run.measure.__name__) for run in experiment.runs]
    assert len(set(kinds)) == len(kinds)


@every_experiment
def test_figures_and_tables_are_made_of_all_results(experiment, tmp_path):
    table = pl.concat([made_up(run) for run in experiment.runs], how="diagonal_relaxed").drop("run")
    for path in experiment.draw(table, tmp_path):
        assert matplotlib.image.imread(path)[..., :3].std() > 0.05, f"{path} is empty"
    for name, text in experiment.render(table).items():
        assert NOT_RUN not in text, name
        assert "nan" not in text, name


@every_experiment
def test_figures_and_tables_are_made_of_the_results_of_a_single_run(experiment, tmp_path):
    table = made_up(experiment.runs[0]).drop("run")
    experiment.draw(table, tmp_path)
    assert any(NOT_RUN in text for text in experiment.render(table).values())


@every_experiment
def test_the_document_has_a_place_for_every_table_and_figure(experiment):
    document = (ROOT / DOCUMENT).read_text()
    for name in experiment.tables:
        assert document.count(f"<!-- results:{name} -->") == 1
    for name in experiment.figures:
        assert f"(images/{name})" in document


@every_experiment
def test_the_document_says_what_the_committed_results_say(experiment):
    results = ROOT / RESULTS / f"{experiment.name}.parquet"
    if not results.exists():
        pytest.skip("not run yet")
    assert results.stat().st_size < 1_000_000
    document = (ROOT / DOCUMENT).read_text()
    for name, text in experiment.render(load(results)).items():
        assert f"<!-- results:{name} -->\n{text}\n<!-- end -->" in document, f"python -m vbe.experiments.{experiment.name} --draw"


def tiny(*names: str) -> Experiment:
    """Two runs of a real agent, small enough to be run here."""
    arguments = {"environment": "DeepSea", "environment_options": {"size": 4}, "agent": "epsilon-greedy", "seeds": 2, "steps": 400}
    options = {"agent_options": {"pure_exploration": True, "batch_size": 8, "buffer_size": 64}}
    runs = tuple(Run(name, {**arguments, **options}, {"size": size}) for size, name in enumerate(names))
    return Experiment("tiny", runs, tables={"tiny": lambda table: table.select("size", "metric").unique().sort("size", "metric")})


def run_tiny(experiment: Experiment, folder: Path, *more: str) -> pl.DataFrame:
    paths = {"--runs": "runs", "--results": "results/tiny.parquet", "--images": "images", "--document": "document.md"}
    command_line(experiment, [*(str(part) for name, path in paths.items() for part in (name, folder / path)), *more])
    return pl.read_parquet(folder / "results/tiny.parquet")


def test_results_are_kept_when_others_are_added(tmp_path):
    document = tmp_path / "document.md"
    document.write_text("before\n<!-- results:tiny -->\n<!-- end -->\nafter\n")
    experiment = tiny("first", "second")
    one = run_tiny(experiment, tmp_path, "--only", "second")
    assert set(one["run"]) == {"second"}
    both = run_tiny(experiment, tmp_path, "--sizes", "0")
    assert both["run"].unique(maintain_order=True).to_list() == ["first", "second"]
    assert both.filter(pl.col("run") == "second").equals(one)
    assert set(both["metric"]) == {"unique_states", "episode_return"}
    assert "| size | metric         |\n| ---- | -------------- |\n| 0    | episode_return |" in document.read_text()
    assert document.read_text().startswith("before\n") and document.read_text().endswith("<!-- end -->\nafter\n")
    assert run_tiny(tiny("second"), tmp_path, "--draw").equals(both)  # nothing is run


def test_tables_say_which_runs_diverged():
    experiment = EXPERIMENTS["deep_sea"]
    table = made_up(experiment.runs[0])
    lost = table.filter(pl.col("seed") < 2).with_columns(metric=pl.lit("diverged"), value=pl.lit(1.0))
    assert "Diverged" not in "".join(experiment.render(table.drop("run")).values())
    for text in experiment.render(pl.concat([table, lost]).drop("run")).values():
        assert text.endswith("\n\nDiverged and left out: 2 of vbe.")


def test_what_is_asked_for_has_to_exist(tmp_path):
    with pytest.raises(SystemExit, match="run the experiment first"):
        run_tiny(tiny("first"), tmp_path, "--draw")


def test_compact_results_have_a_hundred_points():
    rows = [("vbe", "DeepSea", 0, step, metric, float(step)) for step in range(1, 5001) for metric in ("unique_states", "episode_return")]
    table = compact(pl.DataFrame(rows, schema=["agent", "environment", "seed", "step", "metric", "value"], orient="row"))
    assert len(table) == 200
    totals = table.filter(pl.col("metric") == "unique_states")
    assert totals["step"].to_list() == totals["value"].to_list() == list(range(50, 5001, 50))
    means = table.filter(pl.col("metric") == "episode_return")
    assert means["value"][0] == np.mean(range(1, 51))


def test_experiments_are_values():
    for experiment in EXPERIMENTS.values():
        assert dataclasses.replace(experiment) == experiment
