import numpy as np
import polars as pl
import pytest
import scipy.stats
from rich.console import Console

from vbe.analysis import bootstrap_interval, curves, draw_curves, interquartile_mean, outcomes, summarise
from vbe.analysis.report import print_summary


def table(rows: list[tuple], **extra) -> pl.DataFrame:
    names = ["agent", "environment", "seed", "step", "metric", "value"]
    return pl.DataFrame(rows, schema=names, orient="row").with_columns(**{k: pl.lit(v) for k, v in extra.items()})


def test_bootstrap_interval_agrees_with_scipy():
    values = np.random.default_rng(0).gamma(2, size=40)
    ours = bootstrap_interval(values)
    theirs = scipy.stats.bootstrap((values,), np.mean, method="percentile", n_resamples=5_000).confidence_interval
    np.testing.assert_allclose(ours, theirs, rtol=0.03)


def test_bootstrap_interval_covers_the_truth():
    draws = np.random.default_rng(1).exponential(size=(300, 30))
    covered = [low <= 1 <= high for low, high in map(bootstrap_interval, draws)]
    assert 0.87 < np.mean(covered) < 0.98


@pytest.mark.parametrize("n", [4, 5, 7, 30, 101])
def test_interquartile_mean_is_the_integral_over_the_middle_half(n):
    values = np.random.default_rng(n).normal(size=n)
    fine = np.sort(np.repeat(values, 400))
    quarter = len(fine) // 4
    np.testing.assert_allclose(interquartile_mean(values), fine[quarter:-quarter].mean(), rtol=1e-9)


def test_outcomes_take_totals_at_the_end_and_average_episodes_over_the_last_tenth():
    rows = [("a", "E", 0, step, "accumulated_reward", step * 2.0) for step in (50, 100)]
    rows += [("a", "E", 0, step, "episode_return", float(step)) for step in (10, 90, 92, 98)]
    results = outcomes(table(rows))
    assert dict(zip(results["metric"], results["value"], strict=True)) == {"accumulated_reward": 200.0, "episode_return": 95.0}


def test_summary_leaves_diverged_runs_out_and_says_so():
    rows = [("a", "E", seed, 100, "accumulated_reward", 1.0) for seed in range(4)]
    rows += [("a", "E", 4, 20, "accumulated_reward", 999.0), ("a", "E", 4, 30, "diverged", 1.0)]
    summary = summarise(table(rows))
    by_metric = {row["metric"]: row for row in summary.iter_rows(named=True)}
    assert by_metric["accumulated_reward"]["mean"] == 1.0
    assert by_metric["accumulated_reward"]["runs"] == 4
    assert by_metric["diverged"]["runs"] == 1


def test_curves_carry_the_last_value_on_and_begin_where_there_is_one():
    rows = [("a", "E", 0, 30, "episode_return", 1.0), ("a", "E", 0, 32, "episode_return", 3.0), ("a", "E", 0, 100, "loss", 0.0)]
    line = curves(table(rows), "episode_return", points=10).sort("step")
    assert line["step"].to_list() == list(range(10, 101, 10))
    assert line["value"].to_list() == [None, None, 1.0, *[3.0] * 7]


def test_variants_are_kept_apart():
    one = table([("a", "E", 0, 10, "loss", 1.0)], bonus_scale=1.0)
    two = table([("a", "E", 0, 10, "loss", 5.0)], bonus_scale=3.0)
    summary = summarise(pl.concat([one, two]))
    assert summary.select("bonus_scale", "mean").rows() == [(1.0, 1.0), (3.0, 5.0)]


def test_a_figure_is_drawn(tmp_path):
    import matplotlib.image

    rng = np.random.default_rng(0)
    steps = range(10, 101, 10)
    rows = [(a, "RiverSwim", s, t, "accumulated_reward", float(t * rng.random())) for a in "ab" for s in range(3) for t in steps]
    path = draw_curves(table(rows), tmp_path / "figure.png", references={"accumulated_reward": (90.0, "best")})
    pixels = matplotlib.image.imread(path)[..., :3]
    colours = {tuple(colour) for colour in (pixels.reshape(-1, 3) * 255).astype(int)}
    assert (0, 114, 178) in colours
    assert (213, 94, 0) in colours


def long_form(rows: list[tuple[str, int, int, str, float]]) -> pl.DataFrame:
    columns = ["environment", "seed", "step", "metric", "value"]
    return pl.DataFrame(rows, schema=columns, orient="row").with_columns(agent=pl.lit("vbe"), value=pl.col("value").cast(pl.Float64))


def test_a_run_that_gets_stuck_counts_with_its_last_episode():
    goes_on = [("E", 0, 500, "episode_return", 1.0), ("E", 0, 990, "episode_return", 3.0), ("E", 0, 995, "episode_return", 5.0)]
    is_stuck = [("E", 1, 400, "episode_return", -7.0), ("E", 1, 500, "episode_return", -9.0), ("E", 1, 1000, "accumulated_reward", 1.0)]
    table = long_form([*goes_on, *is_stuck])
    assert outcomes(table).filter(metric="episode_return")["value"].to_list() == [4.0, -9.0]


def test_a_curve_ends_where_its_run_does():
    short = [("Short", 0, step, "accumulated_reward", step) for step in (100, 200, 300)]
    table = long_form([*short, *(("Long", 0, step, "accumulated_reward", step) for step in (500, 1000))])
    lines = curves(table, "accumulated_reward", points=10)
    assert lines.filter(environment="Short")["step"].to_list() == [100, 200, 300]
    assert lines.filter(environment="Long")["step"].to_list() == list(range(100, 1001, 100))
    assert lines.columns == ["environment", "agent", "seed", "step", "value"]


def test_an_environment_of_ones_own_is_summarised_and_drawn(tmp_path, capsys):
    table = long_form([("Mine", seed, step, "episode_return", seed) for seed in (0, 1) for step in (50, 100)])
    print_summary(summarise(table), Console(width=200))
    assert "episode_return" in capsys.readouterr().out
    assert draw_curves(table, tmp_path / "mine.png").exists()
