"""Lanes: what a run gives is a matter of its seed and numbers alone, not of what is computed beside it, or on which device."""

from collections.abc import Iterator
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from rich.console import Console

import vbe
from vbe.agents import AGENTS
from vbe.analysis import summarise
from vbe.analysis.report import print_summary
from vbe.environments import ENVIRONMENTS
from vbe.training import loop, on_policy
from vbe.training.lanes import Layout, Loop, choose_layout, gather, spread
from vbe.training.spec import Program, make_spec, programs

TINY: dict[str, Any] = {"hidden": (4,), "batch_size": 8, "buffer_size": 64}
VBE: dict[str, Any] = {**TINY, "ensemble_size": 3}
PPO: dict[str, Any] = {"hidden": (4,), "rollout": 8, "minibatches": 2, "epochs": 1}
KEYS = ["seed", "step", "metric"]


@pytest.fixture(scope="module", autouse=True)
def compiled_in_a_hurry() -> Iterator[None]:
    """What runs for a few steps need not run fast."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


# Layouts


@given(lanes=st.integers(1, 500), devices=st.integers(1, 64), best=st.integers(1, 20))
def test_groups_on_a_cpu_hold_all_lanes_with_little_padding(lanes: int, devices: int, best: int) -> None:
    layout = choose_layout(lanes, devices, "cpu", best)
    each = -(-lanes // layout.devices)  # what a device has to do at least
    assert 1 <= layout.devices <= devices and layout.devices <= lanes
    assert layout.padded >= lanes
    # Around the best size: smaller only where a device has fewer lanes.
    assert layout.size == each if each <= best else max(1, best // 2) <= layout.size <= best * 3 // 2
    # No other size that is allowed would pad less, and one lane per group and device is always left over by less than that.
    sizes = [each] if each <= best else range(max(1, best // 2), best * 3 // 2 + 1)
    assert layout.groups * layout.size == min(-(-each // size) * size for size in sizes)
    assert (layout.groups - 1) * layout.size < each


@given(lanes=st.integers(1, 500), devices=st.integers(1, 8))
def test_an_accelerator_has_one_group(lanes: int, devices: int) -> None:
    layout = choose_layout(lanes, devices, "gpu", 4)
    assert layout.groups == 1 and layout.padded - lanes < layout.devices <= devices


@given(lanes=st.integers(1, 100), devices=st.integers(1, 8), size=st.integers(1, 120), platform=st.sampled_from(["cpu", "gpu"]))
def test_a_size_that_is_asked_for_is_kept_unless_there_are_fewer_lanes(lanes: int, devices: int, size: int, platform: str) -> None:
    layout = choose_layout(lanes, devices, platform, 4, group_size=size)
    each = -(-lanes // layout.devices)
    assert layout.size == min(size, each)
    assert (layout.groups - 1) * layout.size < each <= layout.groups * layout.size


def bare_loop(layout: Layout, lanes: int) -> Any:
    """What `gather` and `spread` look at, with nothing to compile."""
    sharding = NamedSharding(Mesh(np.array(jax.devices()[: layout.devices]), ("lanes",)), PartitionSpec("lanes"))
    nothing: Any = None
    return Loop(layout, lanes, 0, 0, nothing, nothing, nothing, sharding)


@given(lanes=st.integers(1, 12), devices=st.integers(1, 2), size=st.none() | st.integers(1, 6))
def test_what_is_spread_over_devices_is_gathered_as_it_was(lanes: int, devices: int, size: int | None) -> None:
    layout = choose_layout(lanes, devices, "cpu", 4, group_size=size)
    bare = bare_loop(layout, lanes)
    numbers = np.arange(lanes * 3, dtype=np.float32).reshape(lanes, 3)
    there = spread(bare, {"numbers": numbers, "keys": np.arange(lanes, dtype=np.uint32)})
    assert len(there) == layout.groups
    for group in there:
        assert group["numbers"].shape == (layout.devices, layout.size, 3)
        assert {shard.data.shape for shard in group["numbers"].addressable_shards} == {(1, layout.size, 3)}
        assert len({shard.device for shard in group["numbers"].addressable_shards}) == layout.devices
    # The padding is copies of the last lane, so that no group is without work; none of it comes back.
    everything = np.concatenate([np.asarray(group["numbers"]).reshape(-1, 3) for group in there])
    assert len(everything) == layout.padded
    np.testing.assert_array_equal(everything[lanes:], np.broadcast_to(numbers[-1], (layout.padded - lanes, 3)))
    back = gather(bare, there)
    np.testing.assert_array_equal(back["numbers"], numbers)
    np.testing.assert_array_equal(back["keys"], np.arange(lanes))


# Runs side by side


def make_program(environment: str, agent: str, *, seeds: Any = 1, steps: int = 60, **options: Any) -> Program:
    own = PPO if AGENTS[agent].on_policy else VBE if "ensemble_size" in AGENTS[agent].options.__dataclass_fields__ else TINY
    size = {"size": 4} if environment == "DeepSea" else {}
    asked = {**own, **options}
    (program,) = programs(
        make_spec(environment=environment, environment_options=size, agent=agent, agent_options=asked, seeds=seeds, steps=steps)
    )
    return program


def make_loop(program: Program, steps: int = 60, devices: int = 1, group_size: int | None = None) -> Loop:
    module = on_policy if AGENTS[program.recipe].on_policy else loop
    return module.make_loop(program, steps, jax.devices()[:devices], group_size)


def run(loop: Loop, steps: int = 60) -> tuple[dict[str, np.ndarray], Any]:
    """The records of all lanes, (lanes, steps), and the states at the end."""
    lanes, record = loop.warm_up(loop.init())
    records = [gather(loop, record)]
    for time in range(loop.warm_up_steps, steps, loop.chunk_steps):
        lanes, record = loop.chunk(lanes, time)
        records.append(gather(loop, record))
    joined = {name: np.concatenate([getattr(r, name) for r in records], axis=1)[:, :steps] for name in records[0]._fields}
    return joined, gather(loop, lanes)


def assert_same_runs(ours: dict[str, np.ndarray], theirs: dict[str, np.ndarray]) -> None:
    np.testing.assert_allclose(ours["reward"].cumsum(axis=1), theirs["reward"].cumsum(axis=1), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(ours["terminated"], theirs["terminated"])
    for name in ("bonus", "loss"):
        np.testing.assert_allclose(ours[name], theirs[name], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(("environment", "agent"), [("RiverSwim", "vbe"), ("DeepSea", "rnd-ppo")])
def test_runs_do_not_depend_on_groups_or_devices(environment: str, agent: str) -> None:
    program = make_program(environment, agent, seeds=3, learning_rate=[1e-3, 1e-2])
    whole, _ = run(make_loop(program, group_size=6))
    assert len({tuple(row) for row in whole["reward"]}) >= 3 and len(np.unique(whole["loss"][:, -1])) == 6
    # In groups, padded, on two devices. One by one, which is another program without an axis of lanes, is the next test.
    loop = make_loop(program, devices=2, group_size=2)
    assert loop.layout == Layout(2, 2, 2)
    assert_same_runs(run(loop)[0], whole)


def rows(table: pl.DataFrame, **lane: Any) -> pl.DataFrame:
    kept = table.filter(*(pl.col(name) == value for name, value in lane.items()))
    return kept.select(*KEYS, "value").with_columns(pl.col("metric").cast(str)).sort(KEYS)


def assert_same_rows(ours: pl.DataFrame, theirs: pl.DataFrame) -> None:
    assert len(ours) > 10
    assert ours.select(KEYS).equals(theirs.select(KEYS))
    np.testing.assert_allclose(ours["value"], theirs["value"], rtol=1e-3, atol=1e-5)


def train(seeds: Any, agent_options: dict[str, Any], environment: str = "RiverSwim", agent: str = "vbe", steps: int = 60) -> pl.DataFrame:
    arguments: dict[str, Any] = {"environment": environment, "agent": agent, "steps": steps, "log_every": 5, "devices": 1}
    return vbe.train(**arguments, seeds=seeds, agent_options=agent_options).table


def test_a_lane_of_a_sweep_is_the_run_by_itself_and_seeds_may_come_in_any_order() -> None:
    sweep = train(2, {**VBE, "learning_rate": [1e-3, 1e-2]})
    alone = train([1], {**VBE, "learning_rate": 1e-2})
    assert_same_rows(rows(sweep, seed=1, learning_rate=1e-2), rows(alone))
    assert not np.allclose(rows(sweep, seed=1, learning_rate=1e-3)["value"], rows(alone)["value"], rtol=0.05)
    turned = train([1, 0], {**VBE, "learning_rate": [1e-2, 1e-3]})
    for seed in (0, 1):
        for rate in (1e-3, 1e-2):
            assert_same_rows(rows(turned, seed=seed, learning_rate=rate), rows(sweep, seed=seed, learning_rate=rate))


# Seeds


def noise() -> vbe.Environment:
    """What is seen and paid is noise, whatever one does: it tells the environment's key."""

    def step(state: jax.Array, key: jax.Array, action: jax.Array) -> tuple[jax.Array, vbe.Step]:
        drawn, never = jax.random.uniform(key), jnp.zeros((), bool)
        return drawn, vbe.Step(drawn[None], drawn, never, never, drawn[None])

    def reset(key: jax.Array) -> tuple[jax.Array, jax.Array]:
        drawn = jax.random.uniform(key)
        return drawn, drawn[None]

    return vbe.Environment(reset, step, gymnasium.spaces.Box(0, 1, (1,), np.float32), gymnasium.spaces.Discrete(2))


def test_seeds_differ_in_all_that_is_drawn_and_agents_share_their_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ENVIRONMENTS, "Noise", noise)
    rewards = {}
    for agent in ("dqn-p", "rnd-ppo"):
        program = make_program("Noise", agent, seeds=[5, 6], steps=30)
        compiled = make_loop(program, 30)
        begun = gather(compiled, compiled.init())
        records, ended = run(compiled, 30)
        rewards[agent] = np.concatenate([begun.environment[:, None], records["reward"]], axis=1)
        # No two draws of a run are the same, and no two seeds' either, first observations included.
        assert len(np.unique(rewards[agent])) == rewards[agent].size
        weights = jax.tree.leaves(begun.agent.learned.policy if AGENTS[agent].on_policy else begun.agent.online)
        assert all((x[0] != x[1]).mean() > 0.9 for x in weights if np.ptp(x) > 0) and max(map(np.ptp, weights)) > 0
        if not AGENTS[agent].on_policy:
            actions = ended.replay.rows[:, :30, -3]
            assert (actions[0] != actions[1]).any() and set(np.unique(actions)) == {0, 1}
    np.testing.assert_array_equal(rewards["dqn-p"], rewards["rnd-ppo"])


def test_equal_seeds_give_every_agent_the_same_deep_sea_and_others_another() -> None:
    def beginning(environment: str, agent: str) -> Any:
        loop = make_loop(make_program(environment, agent, seeds=4, steps=1_000))
        return gather(loop, loop.init()).environment

    seas = [beginning("DeepSea", agent).right for agent in ("epsilon-greedy", "bdqn", "rnd-ppo")]
    assert all(np.array_equal(sea, seas[0]) for sea in seas) and len({tuple(right) for right in seas[0]}) == 4
    starts = [beginning("PuddleWorld", agent).position for agent in ("epsilon-greedy", "dqn-p")]
    assert np.array_equal(*starts) and len(np.unique(starts[0])) == 8


# Divergence


def test_a_lane_that_diverges_is_said_to_and_takes_nobody_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    # Several chunks, so that the lane is met again after it was lost.
    monkeypatch.setattr("vbe.training.lanes.MOST_CHUNK_STEPS", 20)

    def sweep(*rates: float) -> pl.DataFrame:
        return train(2, {**TINY, "learning_rate": list(rates)}, environment="PuddleWorld", agent="epsilon-greedy", steps=80)

    table, sound = sweep(1e-3, 1e38), sweep(1e-3, 2e-3)
    kept = pl.col("learning_rate") == 1e-3
    assert table.filter(kept).equals(sound.filter(kept)) and len(sound.filter(kept)) > 50
    assert "diverged" not in set(sound["metric"])

    for seed in (0, 1):
        lost = table.filter(~kept, pl.col("seed") == seed)
        ((step, value),) = lost.filter(pl.col("metric") == "diverged").select("step", "value").rows()
        # Learning begins with the 10th step: the first update is sound, what it leaves is not.
        assert value == 1.0 and TINY["batch_size"] + 1 < step < 20
        assert lost["step"].max() == step and lost.filter(pl.col("step") == step).height == 1
        before = sound.filter(kept, pl.col("seed") == seed, pl.col("step") <= TINY["batch_size"] + 1)
        assert rows(lost.filter(pl.col("step") <= TINY["batch_size"] + 1)).equals(rows(before)) and len(before) == 1

    summary = summarise(table)
    assert summary.filter(pl.col("metric") == "diverged").select("learning_rate", "runs").rows() == [(1e38, 2)]
    assert set(summary.filter(pl.col("metric") != "diverged")["learning_rate"]) == {1e-3}
    assert summary.filter(kept).equals(summarise(sound).filter(kept))
    console = Console(record=True, width=120)
    with console.capture() as printed:
        print_summary(summary, console)
    assert "diverged" in printed.get() and "1e+38" in printed.get()
