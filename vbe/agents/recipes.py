"""The table of agents: what each is called, which options it has, and how it is made of networks, bonuses and learners.

A `float` option may be a traced number, one per lane; every other option shapes the compiled program.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import optax

from vbe import bonuses, networks
from vbe.agents.bootstrapped_dqn import bootstrapped_dqn
from vbe.agents.double_dqn import double_dqn
from vbe.agents.explorer import explorer
from vbe.agents.ppo import OnPolicyAgent, ppo
from vbe.bonuses.curiosity import Curiosity, anti_concentrated, distilled
from vbe.options import option
from vbe.types import Agent, Bonus, Environment, Network, UsageError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """What all agents share."""

    features: str | None = option(None, "how observations are coded; default: the environment's own", choices=("raw", "one-hot", "tiles"))
    network: str | None = option(None, "default: mlp on raw observations, linear on features", choices=("mlp", "linear"))
    hidden: tuple[int, ...] = option((50, 50), "widths of an mlp's hidden layers", at_least=1)
    bias: bool | None = option(None, "bias terms; default: yes, except linear agents in pure exploration")
    learning_rate: float = option(1e-3, "Adam's step size", above=0)
    momentum: float = option(0.9, "Adam's decay rate of mean gradients", at_least=0, below=1)
    discount: float = option(0.99, "gamma", at_least=0, at_most=1)
    pure_exploration: bool = option(False, "take all rewards away; who has a value bonus acts on it alone")

    def check(self) -> None:
        """Raises a UsageError for options that are impossible together."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ValueBased(Options):
    """What all value-based agents share."""

    batch_size: int = option(128, "transitions in a batch", at_least=1)
    buffer_size: int = option(50_000, "transitions kept for replay", at_least=1)
    newest: bool = option(True, "every batch holds the newest transition; the others are drawn uniformly")
    target_period: int | None = option(None, "steps between target copies; default: 4, on DeepSea 64 except for bdqn, dqn-p", at_least=1)

    def check(self) -> None:
        if self.batch_size > self.buffer_size:
            raise UsageError(f"batch_size={self.batch_size}: must be at most buffer_size={self.buffer_size}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class WithBonus(ValueBased):
    bonus_scale: float = option(1.0, "c, the weight of the bonus in q + c b", at_least=0)
    target_policy: str = option("greedy", "what the target policy maximises: q, or q + c b", choices=("greedy", "optimistic"))


@dataclasses.dataclass(frozen=True, kw_only=True)
class EnsembleErrors(WithBonus):
    ensemble_size: int = option(20, "k, the number of random action-value functions", at_least=1)
    update_all: bool = option(False, "update all members at every step, not one of them")


@dataclasses.dataclass(frozen=True, kw_only=True)
class NoiseFits(WithBonus):
    ensemble_size: int = option(20, "k, the number of outputs that are fitted to noise", at_least=1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Distillation(WithBonus):
    num_features: int = option(64, "outputs of the random network that is predicted", at_least=1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdditivePrior(ValueBased):
    prior_scale: float = option(1.0, "c, the weight of the random prior in q = f + c p", at_least=0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class BootstrappedHeads(AdditivePrior):
    ensemble_size: int = option(20, "k, the number of heads", at_least=1)
    mask_probability: float = option(0.5, "how probable it is that a head learns from a transition", above=0, at_most=1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class EpsilonGreedy(ValueBased):
    epsilon: float = option(0.1, "the probability of a random action", at_least=0, at_most=1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class OnPolicy(Options):
    """What all agents on PPO share."""

    learning_rate: float = option(1e-4, "Adam's step size", above=0)
    discount: float = option(0.99, "gamma of discounted returns in results; what is learned has its own two", at_least=0, at_most=1)
    reward_discount: float = option(0.999, "gamma of extrinsic values, which end with the episode", at_least=0, at_most=1)
    bonus_discount: float = option(0.99, "gamma of intrinsic values, which do not", at_least=0, at_most=1)
    bonus_scale: float = option(1.0, "c, the weight of intrinsic advantages", at_least=0)
    reward_scale: float = option(2.0, "the weight of extrinsic advantages", at_least=0)
    trace: float = option(0.95, "lambda of generalised advantage estimation", at_least=0, at_most=1)
    clip: float = option(0.1, "how far an action's probability ratio may gain from 1", above=0)
    entropy_scale: float = option(0.001, "the weight of the policy's entropy", at_least=0)
    max_gradient_norm: float = option(0.5, "longer gradients are shortened to this", above=0)
    rollout: int = option(128, "steps between updates", at_least=1)
    epochs: int = option(4, "how many times a rollout is learned from", at_least=1)
    minibatches: int = option(4, "into how many parts at each time", at_least=1)

    def check(self) -> None:
        if self.rollout % self.minibatches:
            raise UsageError(f"minibatches={self.minibatches}: must divide rollout={self.rollout}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class OnPolicyDistillation(OnPolicy):
    num_features: int = option(64, "outputs of the random network that is predicted", at_least=1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class OnPolicyNoiseFits(OnPolicy):
    ensemble_size: int = option(128, "k, the number of outputs that are fitted to noise", at_least=1)
    fit_learning_rate: float = option(1e-4, "RMSprop's step size in these fits", above=0)
    follow_rate: float = option(1e-6, "how far the policy whose gradients are features moves to the present one", at_least=0, at_most=1)


class Recipe(NamedTuple):
    options: type[Options]
    build: Callable[[Any, Environment], Any]  # (options, environment) -> Agent, or OnPolicyAgent
    summary: str
    deep_sea_target_period: int = 64
    on_policy: bool = False
    all_learn: bool = False  # does a step update every member of the ensemble?

    def period(self, options: Any, environment: str) -> int:
        """How many steps the loop takes between what is not due at every step: target copies, or updates on policy."""
        if self.on_policy:
            return options.rollout
        return options.target_period or (self.deep_sea_target_period if environment == "DeepSea" else 4)

    def lanes_in_cache(self, options: Any, environment: Environment) -> int:
        """About how many lanes a CPU does best to advance side by side: many where networks are tables, one where all heads learn."""
        if is_linear(options, environment):
            return 16
        heads = getattr(options, "ensemble_size", 1) if self.all_learn or getattr(options, "update_all", False) else 1
        return max(1, 4 // heads)


def make_network(
    options: Options,
    environment: Environment,
    num_outputs: int | None = None,
    initializer: networks.Initializer = networks.uniform,
    space: gymnasium.Space | None = None,
) -> Network:
    """The architecture that an agent's options ask for; by default with one output per action, and the environment's observations."""
    linear = is_linear(options, environment)
    bias = options.bias if options.bias is not None else not (linear and options.pure_exploration)
    outputs = num_outputs or num_actions(environment)
    space = space or environment.observation_space
    return networks.mlp(space, outputs, () if linear else options.hidden, bias=bias, initializer=initializer)


def is_linear(options: Options, environment: Environment) -> bool:
    """Whether the networks are linear: by default they are on features, and perceptrons on raw observations."""
    if options.network is not None:
        return options.network == "linear"
    return isinstance(environment.observation_space, gymnasium.spaces.MultiDiscrete)


def num_actions(environment: Environment) -> int:
    space = environment.action_space
    if not isinstance(space, gymnasium.spaces.Discrete):
        raise UsageError(f"environment: its action space is {space}; value-based agents need a Discrete one")
    return int(space.n)


def _adam(options: Options, environment: Environment) -> optax.GradientTransformation:
    """Adam on all parameters as one vector: the same numbers from a few large kernels instead of many small ones.

    Not so where a first layer is a table: it is large by itself, and to put it into a vector would copy it.
    """
    adam = optax.adam(options.learning_rate, b1=options.momentum)
    return adam if isinstance(environment.observation_space, gymnasium.spaces.MultiDiscrete) else optax.flatten(adam)


def _explore(options: WithBonus, environment: Environment, bonus: Bonus) -> Agent:
    if options.pure_exploration:
        return explorer(bonus)
    return double_dqn(
        make_network(options, environment),
        bonus,
        _adam(options, environment),
        bonus_scale=options.bonus_scale,
        optimistic_target=options.target_policy == "optimistic",
    )


def _vbe(options: EnsembleErrors, environment: Environment, *, supervised: bool = False) -> Agent:
    bonus = bonuses.vbe(
        make_network(options, environment),
        _adam(options, environment),
        ensemble_size=options.ensemble_size,
        update_all=options.update_all,
        supervised=supervised,
    )
    return _explore(options, environment, bonus)


def _acb(options: NoiseFits, environment: Environment) -> Agent:
    unbiased = dataclasses.replace(options, bias=False) if is_linear(options, environment) else options
    bonus = bonuses.acb(
        make_network(options, environment),
        # As in the authors' code, linear fits have no bias term even where the values have one.
        make_network(unbiased, environment, options.ensemble_size),
        _adam(options, environment),
        discount=options.discount,
    )
    return _explore(options, environment, bonus)


def _rnd(options: Distillation, environment: Environment) -> Agent:
    bonus = bonuses.rnd(
        make_network(options, environment),
        make_network(options, environment, options.num_features),
        _adam(options, environment),
        discount=options.discount,
    )
    return _explore(options, environment, bonus)


def _bootstrapped(options: AdditivePrior, environment: Environment, *, ensemble_size: int, mask_probability: float) -> Agent:
    return bootstrapped_dqn(
        make_network(options, environment, initializer=networks.truncated_normal),
        _adam(options, environment),
        ensemble_size=ensemble_size,
        prior_scale=options.prior_scale,
        mask_probability=mask_probability,
    )


def _bdqn(options: BootstrappedHeads, environment: Environment) -> Agent:
    # A single head has nobody to differ from: it sees every transition.
    probability = options.mask_probability if options.ensemble_size > 1 else 1.0
    return _bootstrapped(options, environment, ensemble_size=options.ensemble_size, mask_probability=probability)


def _dqn_p(options: AdditivePrior, environment: Environment) -> Agent:
    return _bootstrapped(options, environment, ensemble_size=1, mask_probability=1.0)


def _epsilon_greedy(options: EpsilonGreedy, environment: Environment) -> Agent:
    bonus = bonuses.none(num_actions(environment))
    if options.pure_exploration:
        return explorer(bonus)
    return double_dqn(make_network(options, environment), bonus, _adam(options, environment), epsilon=options.epsilon)


def _ppo(options: OnPolicy, environment: Environment, curiosity: Curiosity) -> OnPolicyAgent:
    return ppo(
        make_network(options, environment),
        make_network(options, environment, 2),
        curiosity,
        _clipped_adam(options, environment),
        bonus_scale=options.bonus_scale,
        reward_scale=options.reward_scale,
        bonus_discount=options.bonus_discount,
        trace=options.trace,
        clip=options.clip,
        entropy_scale=options.entropy_scale,
        epochs=options.epochs,
        minibatches=options.minibatches,
        pure_exploration=options.pure_exploration,
    )


def _clipped_adam(options: OnPolicy, environment: Environment) -> optax.GradientTransformation:
    return optax.chain(optax.clip_by_global_norm(options.max_gradient_norm), _adam(options, environment))


def _rnd_ppo(options: OnPolicyDistillation, environment: Environment) -> OnPolicyAgent:
    space = environment.observation_space
    written_out = gymnasium.spaces.Box(-np.inf, np.inf, (networks.num_features(space),))
    network = make_network(options, environment, options.num_features, space=written_out)
    return _ppo(options, environment, distilled(network, _clipped_adam(options, environment), space))


def _acb_ppo(options: OnPolicyNoiseFits, environment: Environment) -> OnPolicyAgent:
    curiosity = anti_concentrated(
        make_network(options, environment),
        optax.rmsprop(options.fit_learning_rate, decay=0.99, eps_in_sqrt=False),
        environment.observation_space,
        ensemble_size=options.ensemble_size,
        follow_rate=options.follow_rate,
    )
    return _ppo(options, environment, curiosity)


AGENTS: dict[str, Recipe] = {
    "vbe": Recipe(EnsembleErrors, _vbe, "Double DQN, value bonuses from the errors of random action-value functions"),
    "vbe-sl": Recipe(
        EnsembleErrors,
        lambda options, environment: _vbe(options, environment, supervised=True),
        "VBE with its predictors fitted by supervised learning, the paper's ablation",
    ),
    "bdqn": Recipe(BootstrappedHeads, _bdqn, "Bootstrapped DQN: heads with random priors that take turns to act", 4, all_learn=True),
    "dqn-p": Recipe(AdditivePrior, _dqn_p, "DQN with an additive random prior: Bootstrapped DQN with a single head", 4),
    "rnd": Recipe(Distillation, _rnd, "Double DQN, value bonuses that are learned from the errors of random network distillation"),
    "acb": Recipe(NoiseFits, _acb, "Double DQN, value bonuses that are learned from anti-concentrated confidence bonuses"),
    "rnd-ppo": Recipe(OnPolicyDistillation, _rnd_ppo, "PPO, reward bonuses from random network distillation", on_policy=True),
    "acb-ppo": Recipe(OnPolicyNoiseFits, _acb_ppo, "PPO, anti-concentrated confidence bonuses of the policy's gradients", on_policy=True),
    "epsilon-greedy": Recipe(EpsilonGreedy, _epsilon_greedy, "Double DQN with undirected exploration; in pure exploration a random walk"),
}
