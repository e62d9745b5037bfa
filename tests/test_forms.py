"""Every agent in every form that the table of names offers: environment, features, networks, pure exploration, target policy.

That a form can be built at all is known once its program is traced, which costs a hundredth of a compilation. What cannot be traced
(numbers that differ between lanes used as plain ones, types that change from step to step, shapes that do not fit) fails here.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import polars as pl
import pytest

import vbe
from vbe import environments
from vbe.agents import AGENTS
from vbe.options import numeric_fields
from vbe.training import loop, on_policy
from vbe.training.lanes import Loop
from vbe.training.records import METRICS
from vbe.training.spec import Program, make_spec, programs
from vbe.types import Transition

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module", autouse=True)
def compiled_in_a_hurry() -> Iterator[None]:
    """What runs for 25 steps need not run fast."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


SMALL: dict[str, Any] = {"hidden": (4, 3)}
VALUE_BASED = {"batch_size": 4, "buffer_size": 50}
ON_POLICY = {"rollout": 8, "minibatches": 2, "epochs": 2}
SIZES = {"ensemble_size": 3, "num_features": 5}

# Environment, its options, features, and whether networks are linear then.
WORLDS: dict[str, tuple[str, dict[str, Any], str, bool]] = {
    "DeepSea one-hot": ("DeepSea", {"size": 3}, "one-hot", True),
    "DeepSea raw": ("DeepSea", {"size": 3}, "raw", False),
    "RiverSwim raw": ("RiverSwim", {}, "raw", False),
    "PuddleWorld raw": ("PuddleWorld", {"time_limit": 9}, "raw", False),
    "SparseMountainCar raw": ("SparseMountainCar", {"time_limit": 9}, "raw", False),
    "PuddleWorld tiles": ("PuddleWorld", {"time_limit": 9}, "tiles", True),
}
TARGETING = [name for name, recipe in AGENTS.items() if "target_policy" in recipe.options.__dataclass_fields__]
EPISODE = {"episode_return", "episode_discounted_return", "episode_length"}
ALWAYS = {"accumulated_reward", "bonus_mean", "loss"}


def small(agent: str, **options: Any) -> dict[str, Any]:
    sizes = {name: size for name, size in SIZES.items() if name in AGENTS[agent].options.__dataclass_fields__}
    return {**SMALL, **(ON_POLICY if AGENTS[agent].on_policy else VALUE_BASED), **sizes, **options}


def make_program(agent: str, world: str, **options: Any) -> Program:
    name, arguments, features, _ = WORLDS[world]
    spec = make_spec(
        environment=name, environment_options=arguments, agent=agent, agent_options=small(agent, features=features, **options), seeds=2
    )
    (program,) = programs(spec)
    return program


def make_loop(program: Program, steps: int = 50) -> Loop:
    # Both lanes side by side, whatever suits a cache.
    return (on_policy if AGENTS[program.recipe].on_policy else loop).make_loop(program, steps, jax.devices()[:1], group_size=2)


def kinds(tree: Any) -> Any:
    """A tree's shapes and types. Weak types are left out: they may only ever become strong."""
    return jax.tree.map(lambda x: (x.shape, x.dtype), tree)


# Pure exploration has one policy only, so that it makes no difference what the target policy is called.
FORMS: list[tuple[str, dict[str, Any]]] = [
    *((agent, {"pure_exploration": pure}) for agent in AGENTS for pure in (False, True)),
    *((agent, {"target_policy": "optimistic"}) for agent in TARGETING),
]


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize(("agent", "options"), FORMS, ids=lambda x: x if isinstance(x, str) else "-".join(map(str, x.values())))
def test_every_form_can_be_traced(agent: str, options: dict[str, Any], world: str) -> None:
    # Every number differs between lanes as far as tracing can tell: they are all arrays.
    program = make_program(agent, world, **options)
    traced = make_loop(program)
    begun = jax.eval_shape(traced.init)
    ready, warm_up = jax.eval_shape(traced.warm_up, begun)
    after, chunk = jax.eval_shape(traced.chunk, ready, 0)
    # Chunks take over each other's states, and a checkpoint is read with the structure of `init`'s.
    assert kinds(begun) == kinds(ready) == kinds(after)
    assert traced.warm_up_steps == (0 if AGENTS[agent].on_policy else program.options.batch_size + 1)
    for (record,), steps in ((warm_up, traced.warm_up_steps), (chunk, traced.chunk_steps)):
        assert {x.shape for x in record} == {(1, 2, steps)}  # devices, lanes, steps
        assert record.terminated.dtype == record.truncated.dtype == bool
        assert record.reward.dtype == record.bonus.dtype == record.loss.dtype == jnp.float32


@pytest.mark.parametrize("world", WORLDS)
def test_networks_are_linear_on_features_and_perceptrons_on_raw_observations(world: str) -> None:
    *_, linear = WORLDS[world]
    (state,) = jax.eval_shape(make_loop(make_program("epsilon-greedy", world)).init)
    # Without hidden layers there are weights and biases of one layer; (4, 3) hidden units make it three layers.
    assert len(jax.tree.leaves(state.agent.online)) == (2 if linear else 6)


def test_every_agent_has_its_form_here() -> None:
    assert set(TARGETING) == {"vbe", "vbe-sl", "rnd", "acb"}
    assert {name for name, *_ in WORLDS.values()} == set(environments.ENVIRONMENTS)
    seen = {(name, features) for name, _, features, _ in WORLDS.values()}
    offered = {(name, features) for name, ways in environments.FEATURES.items() for features in ways}
    # Tiles are the same code everywhere but for their numbers; below, agents run on all of them.
    assert {(name, features) for name, features in offered - seen} == {("RiverSwim", "tiles"), ("SparseMountainCar", "tiles")}


def run(agent: str, environment: str, environment_options: dict[str, Any], steps: int, **options: Any) -> pl.DataFrame:
    arguments: dict[str, Any] = {"environment": environment, "environment_options": environment_options, "agent": agent}
    return vbe.train(**arguments, agent_options=small(agent, **options), steps=steps, log_every=10, devices=1).table


def assert_sound(table: pl.DataFrame, agent: str, environment: str, steps: int, metrics: set[str]) -> None:
    """The metrics that the documentation promises, and no others; each at the steps that it promises."""
    assert set(table["metric"]) == metrics
    assert set(table["agent"]) == {agent} and set(table["environment"]) == {environment}
    assert table["value"].is_finite().all()
    every = [*range(10, steps, 10), steps]
    begins = 0 if AGENTS[agent].on_policy else VALUE_BASED["batch_size"] + 1
    for metric in metrics - EPISODE:
        learns = metric in ("bonus_mean", "loss")
        at = table.filter(pl.col("metric") == metric)["step"].to_list()
        assert at == [step for step in every if not learns or step > begins]
    ends = [table.filter(pl.col("metric") == metric)["step"].to_list() for metric in sorted(metrics & EPISODE)]
    assert all(at == ends[0] for at in ends)


# One real run of 25 steps per agent, each on some environment's tiles, and when its episodes end: River Swim's never do.
TILED: dict[str, tuple[str, dict[str, Any], list[int]]] = {
    "vbe": ("PuddleWorld", {"time_limit": 9}, [9, 18]),
    "vbe-sl": ("SparseMountainCar", {"time_limit": 9}, [9, 18]),
    "bdqn": ("RiverSwim", {}, []),
    "dqn-p": ("SparseMountainCar", {"time_limit": 25}, [25]),
    "rnd": ("SparseMountainCar", {"time_limit": 26}, []),
    "acb": ("RiverSwim", {}, []),
    "rnd-ppo": ("SparseMountainCar", {"time_limit": 9}, [9, 18]),
    "acb-ppo": ("RiverSwim", {}, []),
    "epsilon-greedy": ("PuddleWorld", {"time_limit": 9}, [9, 18]),
}


@pytest.mark.parametrize("agent", AGENTS)
def test_every_agent_runs_on_tiles_and_gives_the_metrics_that_the_docs_say(agent: str) -> None:
    environment, environment_options, ends = TILED[agent]
    table = run(agent, environment, environment_options, 25, features="tiles")
    assert_sound(table, agent, environment, 25, ALWAYS | EPISODE if ends else ALWAYS)
    lengths = table.filter(pl.col("metric") == "episode_length")
    assert lengths["step"].to_list() == ends and lengths["value"].to_list() == np.diff([0, *ends]).tolist()


@pytest.mark.parametrize("agent", ["epsilon-greedy", "rnd-ppo"])
def test_states_are_counted_where_they_can_be_and_only_there(agent: str) -> None:
    table = run(agent, "DeepSea", {"size": 4}, 25)
    assert_sound(table, agent, "DeepSea", 25, {*ALWAYS, *EPISODE, "unique_states"})
    assert table.filter(pl.col("metric") == "episode_length")["step"].to_list() == [4, 8, 12, 16, 20, 24]
    unique = table.filter(pl.col("metric") == "unique_states")["value"].to_list()
    assert sorted(unique) == unique and 4 <= unique[0] <= unique[-1] <= 10


def test_every_metric_is_in_the_documentation_of_the_results_table() -> None:
    lines = (ROOT / "docs" / "architecture.md").read_text().split("| metric | a row | value |")[1].split("\n\n")[0].splitlines()
    documented = {line.split("|")[1].strip(" `") for line in lines[2:]}
    assert documented == set(METRICS) == {*ALWAYS, *EPISODE, "unique_states", "diverged"}


@pytest.mark.parametrize("agent", TARGETING)
def test_the_optimistic_target_policy_changes_what_is_learned(agent: str) -> None:
    """Same state, same batch, both target policies: equal where the bonus weighs nothing, different where it decides.

    That it is the maximiser of q + c b is tested with the learner; here, that the name reaches it with each of its bonuses.
    """
    # Puddle World's four actions seen raw: with many actions and observations, q and q + c b hardly ever agree all over a batch.
    environment = environments.make("PuddleWorld")
    recipe = AGENTS[agent]
    random = np.random.default_rng(0)
    size = 32
    batch = Transition(
        observation=jnp.asarray(random.random((size, 2)), jnp.float32),
        action=jnp.asarray(random.integers(0, 4, size), jnp.int32),
        reward=jnp.asarray(random.normal(size=size), jnp.float32),
        discount=jnp.full(size, 0.9, jnp.float32),
        next_observation=jnp.asarray(random.random((size, 2)), jnp.float32),
        time=jnp.arange(size),
    )

    def learned(target: str) -> Callable[[jax.Array], Any]:
        def after_one_update(scale: jax.Array) -> Any:
            options = recipe.options(**small(agent, target_policy=target, bonus_scale=scale))
            built = recipe.build(options, environment)
            state, _ = built.learn(built.init(jax.random.key(0), batch.observation[0]), jax.random.key(1), batch)
            return state

        return after_one_update

    assert "bonus_scale" in numeric_fields(recipe.options)
    both = jax.jit(lambda scale: (learned("greedy")(scale), learned("optimistic")(scale)))
    greedy, optimistic = both(jnp.float32(0.0))
    np.testing.assert_array_equal(*(jax.flatten_util.ravel_pytree(state.online)[0] for state in (greedy, optimistic)))
    greedy, optimistic = both(jnp.float32(100.0))
    assert not np.array_equal(*(jax.flatten_util.ravel_pytree(state.online)[0] for state in (greedy, optimistic)))
    # Bonuses follow the target policy too, except for supervised predictors, which follow nothing.
    same = all(jnp.array_equal(x, y) for x, y in zip(*map(jax.tree.leaves, (greedy.bonus, optimistic.bonus)), strict=True))
    assert same == (agent == "vbe-sl")
