"""The table of agents: what each is called, which options it has, and how it is made of networks, bonuses and learners.

A `float` option may be a traced number, one per lane; every other option shapes the compiled program.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium
import optax

from vbe import bonuses, networks
from vbe.agents.double_dqn import double_dqn
from vbe.agents.explorer import explorer
from vbe.options import option
from vbe.types import Agent, Bonus, Environment, Network, UsageError


@dataclasses.dataclass(frozen=True, kw_only=True)
class ValueBased:
    """What all value-based agents share."""

    features: str | None = option(None, "how observations are coded; default: the environment's own", choices=("raw", "one-hot", "tiles"))
    network: str | None = option(None, "default: mlp on raw observations, linear on features", choices=("mlp", "linear"))
    hidden: tuple[int, ...] = option((50, 50), "widths of an mlp's hidden layers", at_least=1)
    bias: bool | None = option(None, "bias terms; default: yes, except linear agents in pure exploration")
    learning_rate: float = option(1e-3, "Adam's step size", above=0)
    discount: float = option(0.99, "gamma", at_least=0, at_most=1)
    batch_size: int = option(128, "transitions in a batch", at_least=1)
    buffer_size: int = option(50_000, "transitions kept for replay", at_least=1)
    target_period: int | None = option(None, "steps between copies of target networks; default: 64 on DeepSea, 4 elsewhere", at_least=1)
    pure_exploration: bool = option(False, "no reward and no value function: act on the bonus alone")


@dataclasses.dataclass(frozen=True, kw_only=True)
class WithBonus(ValueBased):
    bonus_scale: float = option(1.0, "c, the weight of the bonus in q + c b", at_least=0)
    target_policy: str = option("greedy", "what the target policy maximises: q, or q + c b", choices=("greedy", "optimistic"))


@dataclasses.dataclass(frozen=True, kw_only=True)
class EnsembleErrors(WithBonus):
    ensemble_size: int = option(20, "k, the number of random action-value functions", at_least=1)
    update_all: bool = option(False, "update all members at every step, not one of them")


@dataclasses.dataclass(frozen=True, kw_only=True)
class EpsilonGreedy(ValueBased):
    epsilon: float = option(0.1, "the probability of a random action", at_least=0, at_most=1)


class Recipe(NamedTuple):
    options: type[ValueBased]
    build: Callable[[Any, Environment], Agent]  # (options, environment) -> Agent
    summary: str
    deep_sea_target_period: int = 64


def make_network(options: ValueBased, environment: Environment, num_outputs: int | None = None) -> Network:
    """The architecture that an agent's options ask for; by default with one output per action."""
    space = environment.observation_space
    sparse = isinstance(space, gymnasium.spaces.MultiDiscrete)
    kind = options.network or ("linear" if sparse else "mlp")
    bias = options.bias if options.bias is not None else not (kind == "linear" and options.pure_exploration)
    outputs = num_outputs or num_actions(environment)
    return networks.mlp(space, outputs, options.hidden if kind == "mlp" else (), bias=bias)


def num_actions(environment: Environment) -> int:
    space = environment.action_space
    if not isinstance(space, gymnasium.spaces.Discrete):
        raise UsageError(f"environment: its action space is {space}; value-based agents need a Discrete one")
    return int(space.n)


def _explore(options: WithBonus, environment: Environment, bonus: Bonus) -> Agent:
    if options.pure_exploration:
        return explorer(bonus)
    return double_dqn(
        make_network(options, environment),
        bonus,
        optax.adam(options.learning_rate),
        bonus_scale=options.bonus_scale,
        optimistic_target=options.target_policy == "optimistic",
    )


def _vbe(options: EnsembleErrors, environment: Environment, *, supervised: bool = False) -> Agent:
    bonus = bonuses.vbe(
        make_network(options, environment),
        optax.adam(options.learning_rate),
        ensemble_size=options.ensemble_size,
        update_all=options.update_all,
        supervised=supervised,
    )
    return _explore(options, environment, bonus)


def _epsilon_greedy(options: EpsilonGreedy, environment: Environment) -> Agent:
    bonus = bonuses.none(num_actions(environment))
    if options.pure_exploration:
        return explorer(bonus)
    return double_dqn(make_network(options, environment), bonus, optax.adam(options.learning_rate), epsilon=options.epsilon)


AGENTS: dict[str, Recipe] = {
    "vbe": Recipe(EnsembleErrors, _vbe, "Double DQN, value bonuses from the errors of random action-value functions"),
    "vbe-sl": Recipe(
        EnsembleErrors,
        lambda options, environment: _vbe(options, environment, supervised=True),
        "VBE with its predictors fitted by supervised learning, the paper's ablation",
    ),
    "epsilon-greedy": Recipe(EpsilonGreedy, _epsilon_greedy, "Double DQN with undirected exploration; in pure exploration a random walk"),
}
