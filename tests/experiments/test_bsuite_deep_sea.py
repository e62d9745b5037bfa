"""When Deepsea counts as solved, against the plainest way of saying it."""

import math

import numpy as np
import polars as pl

from vbe.experiments.bsuite_deep_sea import BAD_SHARE, bad_episodes, find_solutions, logged_episodes


def plainly_logged(most: int) -> list[int]:
    ratios = [1.0, 1.2, 1.4, 1.7, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0]
    return [e for e in range(1, most + 1) if any(math.isclose(e, 10 ** math.floor(math.log10(e)) * ratio) for ratio in ratios)]


def test_logged_episodes_lie_at_the_same_ratios_in_every_decade():
    assert logged_episodes(10_000) == plainly_logged(10_000)


def counted(bad: np.ndarray, size: int, seed: int) -> pl.DataFrame:
    episodes = np.array(logged_episodes(len(bad)))
    return pl.DataFrame({"size": size, "seed": seed, "episode": episodes, "value": np.cumsum(bad)[episodes - 1].astype(float)})


def test_solutions_are_the_first_logged_episodes_with_few_enough_bad_ones():
    rng = np.random.default_rng(0)
    runs = {(10 + 2 * (seed % 2), seed): np.arange(3_000) < rng.integers(50, 4_000) for seed in range(12)}
    solutions = find_solutions(pl.concat([counted(bad, *key) for key, bad in runs.items()]))
    for size, seed, solved, episode in solutions.select("size", "seed", "solved", "episode").rows():
        bad = runs[size, seed]
        good_enough = [e for e in logged_episodes(len(bad)) if bad[:e].sum() / e < BAD_SHARE]
        assert (solved, episode) == ((True, good_enough[0]) if good_enough else (False, 3_000))
    assert 0 < solutions["solved"].sum() < 12


def test_bad_episodes_are_counted_from_the_returns_of_real_runs(tmp_path):
    agent_options = {"batch_size": 8, "buffer_size": 500}
    arguments = {"environment": "DeepSea", "environment_options": {"size": 2}, "agent": "epsilon-greedy", "seeds": 2, "steps": 401}
    counts = bad_episodes({**arguments, "agent_options": agent_options}, tmp_path / "run")
    returns = pl.read_parquet(tmp_path / "run" / "results.parquet").filter(pl.col("metric").cast(pl.String) == "episode_return")
    for seed in range(2):
        good = np.isclose(returns.filter(pl.col("seed") == seed).sort("step")["value"].to_numpy(), 0.99)
        here = counts.filter(pl.col("seed") == seed)
        assert here["episode"].to_list() == logged_episodes(200)
        assert here["value"].to_list() == [float((~good[:episode]).sum()) for episode in here["episode"]]
        assert good.any() and not good.all()
