"""What is seen when one looks at intrinsic values while they are learned."""

import numpy as np
import polars as pl

from vbe.experiments.target_policy import _mark_tried, describe, watch_values


def test_pairs_that_replays_hold_are_marked_for_each_lane():
    replay = np.zeros((2, 3, 5), np.float32)  # lanes, stored; observation, next observation, action, reward, discount
    replay[..., 0] = [[0, 1, 2], [2, 2, 2]]
    replay[..., 2] = [[0, 1, 0], [1, 1, 1]]
    tried = np.zeros((2, 4, 2), bool)
    _mark_tried(tried, replay)
    assert np.argwhere(tried).tolist() == [[0, 0, 0], [0, 1, 1], [0, 2, 0], [1, 2, 1]]


def test_values_are_described_apart_for_what_was_tried():
    values = np.arange(6.0).reshape(3, 2)
    tried = np.array([[True, False], [True, True], [False, False]])
    described = describe(values, np.array([1.0, 3.0]), tried)
    assert described == {"intrinsic_bias": 2.0, "intrinsic_tried": 3.0, "intrinsic_untried": np.mean([1.0, 4.0, 5.0])}
    assert "intrinsic_untried" not in describe(values, np.zeros(2), np.ones((3, 2), bool))


def test_values_are_watched_in_every_lane_and_kept(tmp_path):
    arguments = {
        "environment": "DeepSea",
        "environment_options": {"size": 3},
        "agent": "acb",
        "agent_options": {"ensemble_size": 2, "target_policy": ["greedy", "optimistic"], "batch_size": 8, "buffer_size": 300},
        "seeds": 2,
        "steps": 3_000,
    }
    watched = watch_values(arguments, tmp_path)
    assert watched.equals(watch_values(arguments, tmp_path))
    bias = watched.filter(pl.col("metric") == "intrinsic_bias")
    assert set(bias.select("seed", "target_policy").unique().rows()) == {(s, t) for s in range(2) for t in ("greedy", "optimistic")}
    assert bias.group_by("seed", "target_policy").len()["len"].unique().to_list() == [3]
    ends = bias.filter(pl.col("step") == pl.col("step").max()).group_by("target_policy").agg(pl.col("value").mean())
    assert len(set(ends["value"])) == 2
