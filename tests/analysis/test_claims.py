"""Claims and the numbers that they are judged by, against plain NumPy, and their way into a document."""

import numpy as np
import polars as pl
import pytest
import scipy.stats

from vbe.analysis.claims import NOT_RUN, Claim, above, claims_table, difference, final, improvement, is_best, overall, with_interval
from vbe.analysis.report import markdown_table, refresh
from vbe.analysis.statistics import difference_interval, outcomes, probability_of_improvement, without_diverged


def table(values: dict[tuple[str, int], list[float]], metric: str = "episode_return", steps: int = 100) -> pl.DataFrame:
    """A run for each (agent, seed), whose values lie at equal distances up to the last step."""
    rows = [
        (agent, "DeepSea", seed, round(steps * (i + 1) / len(run)), metric, value)
        for (agent, seed), run in values.items()
        for i, value in enumerate(run)
    ]
    return pl.DataFrame(rows, schema=["agent", "environment", "seed", "step", "metric", "value"], orient="row")


def test_difference_interval_is_what_resampling_both_sides_gives():
    rng = np.random.default_rng(0)
    ours, theirs = rng.normal(3, 2, 40), rng.gamma(2, size=25)
    found, low, high = difference_interval(ours, theirs)

    def statistic(x, y, axis):
        return x.mean(axis=axis) - y.mean(axis=axis)

    expected = scipy.stats.bootstrap((ours, theirs), statistic, method="percentile", n_resamples=5_000).confidence_interval
    assert found == ours.mean() - theirs.mean()
    np.testing.assert_allclose((low, high), expected, atol=0.08)


def test_probability_of_improvement_counts_every_pair():
    rng = np.random.default_rng(1)
    ours, theirs = rng.integers(0, 6, 13), rng.integers(0, 5, 9)
    pairs = [1.0 if x > y else 0.5 if x == y else 0.0 for x in ours for y in theirs]
    found, low, high = probability_of_improvement(ours, theirs)
    np.testing.assert_allclose(found, np.mean(pairs))
    np.testing.assert_allclose(found, scipy.stats.mannwhitneyu(ours, theirs).statistic / len(pairs))
    assert low < found < high


def test_probability_of_improvement_of_equals_is_a_half():
    values = np.random.default_rng(2).normal(size=30)
    found, low, high = probability_of_improvement(values, values)
    assert found == 0.5 and low < 0.5 < high


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [([3.0, 3.1, 3.2], [1.0, 1.1, 1.2], "yes"), ([1.0], [2.0], "no"), ([1.0, 5.0], [2.0, 4.0], "undecided"), ([], [1.0], NOT_RUN)],
)
def test_verdicts_follow_the_interval(ours, theirs, expected):
    assert above(np.array(ours), np.array(theirs)) == expected


def test_best_is_judged_against_the_best_of_the_others():
    values = {"vbe": np.array([3.0, 3.0]), "a": np.array([1.0, 1.0]), "b": np.array([2.0, 2.0])}
    claim = is_best("best", values)
    assert claim == Claim("best", "vbe - b, the best of the others: +1", "yes")
    assert is_best("best", values, agent="b").holds == "no"
    assert is_best("best", {**values, "c": np.zeros(0)}).holds == NOT_RUN


def test_outcomes_end_where_each_variant_ends():
    short = table({("a", 0): [1.0] * 9 + [5.0]}, steps=100).with_columns(size=pl.lit(10))
    long = table({("a", 0): [1.0] * 19 + [7.0]}, steps=1_000).with_columns(size=pl.lit(20))
    results = outcomes(pl.concat([short, long]))
    assert dict(zip(results["size"], results["value"], strict=True)) == {10: 5.0, 20: 4.0}


def test_final_and_overall_are_of_the_runs_asked_for():
    values = {("a", 1): [0.0] * 9 + [2.0], ("a", 0): [1.0] * 10, ("b", 0): [9.0] * 10}
    both = pl.concat([table(values), table(values, "unique_states")]).with_columns(size=pl.lit(5), k=pl.lit(None, pl.Int64))
    assert final(both, "episode_return", agent="a", size=5, k=None).tolist() == [1.0, 2.0]
    assert overall(both, "episode_return", agent="a", size=5).tolist() == [1.0, 0.2]
    for nothing in ({"agent": "c"}, {"size": 6}, {"k": 3}, {"unknown": 1}):
        assert len(final(both, "episode_return", **nothing)) == 0


def test_diverged_runs_are_left_out():
    lost = pl.concat([table({("a", seed): [1.0 + seed] * 4 for seed in range(3)}), table({("a", 1): [1.0]}, "diverged")])
    assert without_diverged(lost)["seed"].unique().sort().to_list() == [0, 2]
    assert final(lost, "episode_return", agent="a").tolist() == [1.0, 3.0]
    assert overall(lost, "episode_return", agent="a").tolist() == [1.0, 3.0]


def test_numbers_say_their_intervals():
    assert with_interval(np.full(5, 465.0)) == "465"
    assert with_interval(np.zeros(0)) == difference(np.zeros(0), np.ones(2)) == improvement(np.ones(2), np.zeros(0)) == NOT_RUN
    assert difference(np.array([1000.4, 1000.4]), np.array([2000.0])) == "-1000"
    assert improvement(np.ones(3), np.zeros(3)) == "1"
    mean, rest = with_interval(np.random.default_rng(0).normal(5, 1, 30)).split(" (")
    low, high = rest.removesuffix(")").split(" to ")
    assert float(low) < float(mean) < float(high)


def test_tables_become_markdown_between_their_markers():
    text = markdown_table(claims_table([Claim("VBE wins", "+1", "yes"), Claim("it rains", "", NOT_RUN)]))
    assert text.splitlines() == [
        "| claim    | measured | holds   |",
        "| -------- | -------- | ------- |",
        "| VBE wins | +1       | yes     |",
        "| it rains |          | not run |",
    ]
    document = "a\n<!-- results:x -->\nold\n<!-- end -->\nb\n<!-- results:y -->\n<!-- end -->\n"
    once = refresh(document, "x", text)
    assert once == document.replace("old", text)
    assert refresh(once, "x", text) == once
    assert refresh(once, "y", "new").count(text) == 1
    assert refresh(document, "z", text) == document
