"""What to run: a frozen description that can be saved, compared, and unrolled into compiled programs and their lanes."""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from vbe import environments
from vbe.agents import AGENTS
from vbe.agents.recipes import num_actions
from vbe.options import check_name, check_options, field_types, numeric_fields
from vbe.types import Environment, UsageError, as_python

MOST_SEEDS = 2**20  # each is a lane, with a buffer and records of its own


@dataclasses.dataclass(frozen=True)
class Spec:
    """One experiment: an environment, an agent, their options (a list is swept), seeds and steps."""

    environment: str
    agent: str
    environment_options: Mapping[str, Any]
    agent_options: Mapping[str, Any]
    seeds: tuple[int, ...]
    steps: int
    log_every: int

    def as_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True)
class Lane:
    seed: int
    numbers: dict[str, float]  # its numeric options
    varied: dict[str, Any]  # its values of the options that are swept


@dataclasses.dataclass(frozen=True)
class Program:
    """Lanes that differ in numbers only: one compilation serves them all."""

    environment: Environment
    recipe: str
    options: Any  # an instance of the recipe's options
    period: int  # steps between what is not due at every step: target copies, or updates on policy
    lanes: tuple[Lane, ...]


def make_spec(
    *,
    environment: str,
    agent: str,
    environment_options: Mapping[str, Any] | None = None,
    agent_options: Mapping[str, Any] | None = None,
    seeds: int | Sequence[int] | np.ndarray = 1,
    steps: int = 50_000,
    log_every: int | None = None,
) -> Spec:
    """Checks everything that can be known to be wrong before any work begins."""
    check_name("environment", environment, environments.ENVIRONMENTS)
    check_name("agent", agent, AGENTS)
    steps = _positive("steps", steps)
    spec = Spec(
        environment=environment,
        agent=agent,
        environment_options=_canonical("environment_options", environment_options),
        agent_options=_canonical("agent_options", agent_options, tuples=_tuple_fields(AGENTS[agent].options)),
        seeds=_check_seeds(seeds),
        steps=steps,
        log_every=_positive("log_every", max(1, steps // 100) if log_every is None else log_every),
    )
    programs(spec)
    return spec


def programs(spec: Spec) -> list[Program]:
    """Unrolls sweeps: one program per combination of what shapes arrays, one lane per seed and combination of numbers."""
    options = AGENTS[spec.agent].options
    numeric = numeric_fields(options)
    swept = [name for values in (spec.environment_options, spec.agent_options) for name in values if _is_sweep(values[name])]
    result = []
    for environment_options in _combinations(spec.environment_options):
        structural = {k: v for k, v in spec.agent_options.items() if k not in numeric}
        for shape in _combinations(structural):
            lanes = []
            for numbers in _combinations({k: v for k, v in spec.agent_options.items() if k in numeric}):
                checked = check_options(spec.agent, options, {**shape, **numbers})
                everything = {**environment_options, **checked}
                varied = {name: everything[name] for name in swept}
                filled = {name: getattr(options(**checked), name) for name in sorted(numeric)}
                lanes += [Lane(seed, filled, varied) for seed in spec.seeds]
            result.append(_program(spec, environment_options, options(**checked), tuple(lanes)))
    return result


def _program(spec: Spec, environment_options: dict[str, Any], options: Any, lanes: tuple[Lane, ...]) -> Program:
    environment = environments.make(spec.environment, **environment_options)
    environment = environments.featurise(environment, spec.environment, options.features)
    if options.pure_exploration:
        environment = environments.without_reward(environment)
    options.check()
    num_actions(environment)
    return Program(environment, spec.agent, options, AGENTS[spec.agent].period(options, spec.environment), lanes)


def _is_sweep(value: Any) -> bool:
    return isinstance(value, list)


def _combinations(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    choices = [v if _is_sweep(v) else [v] for v in values.values()]
    return [dict(zip(values, combination, strict=True)) for combination in itertools.product(*choices)]


def _tuple_fields(options: type) -> dict[str, Any]:
    return {f.name: f.default for f in dataclasses.fields(options) if tuple in field_types(options)[f.name]}


def _canonical(argument: str, options: Mapping[str, Any] | None, tuples: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Options as JSON can hold them; `tuples` are those that take a tuple, which a list of numbers is easily meant for."""
    if options is not None and not isinstance(options, Mapping):
        raise UsageError(f"{argument}={options!r}: must be a mapping from options to their values")
    options = {name: as_python(value) for name, value in (options or {}).items()}
    for name, value in options.items():
        if not isinstance(value, (list, tuple, str, bool, int, float, type(None))):
            raise UsageError(f"{argument}: {name}={value!r} must be a number, a string, a truth value, a tuple, or a list of these")
        if isinstance(value, list) and value and name in (tuples or {}) and not any(isinstance(v, tuple) for v in value):
            raise UsageError(f"{name}={value!r}: must be a tuple such as {(tuples or {})[name]}; a list is a sweep, of tuples")
        if isinstance(value, list) and (not value or any(value.count(v) > 1 for v in value)):
            raise UsageError(f"{name}={value!r}: a sweep needs at least one value, and each once")
    return options


def _check_seeds(seeds: int | Sequence[int] | np.ndarray) -> tuple[int, ...]:
    seeds = as_python(seeds)
    if isinstance(seeds, int) and not isinstance(seeds, bool):
        if seeds < 1:
            raise UsageError(f"seeds={seeds!r}: must be a count of at least 1, or a list of seeds")
        if seeds > MOST_SEEDS:
            raise UsageError(f"seeds={seeds!r}: must be a count of at most {MOST_SEEDS}, or a list of seeds")
        return tuple(range(seeds))
    if isinstance(seeds, str) or not isinstance(seeds, Sequence) or not seeds:
        raise UsageError(f"seeds={seeds!r}: must be a count of at least 1, or a list of seeds")
    if not all(isinstance(s, int) and not isinstance(s, bool) and 0 <= s < 2**31 for s in seeds):
        raise UsageError(f"seeds={seeds!r}: every seed must be an integer in [0, 2**31)")
    if len(set(seeds)) < len(seeds):
        raise UsageError(f"seeds={seeds!r}: each seed may be there once")
    return tuple(seeds)


def _positive(argument: str, value: Any) -> int:
    value = as_python(value)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise UsageError(f"{argument}={value!r}: must be an integer of at least 1")
    if value >= 2**31:
        raise UsageError(f"{argument}={value!r}: must be below 2**31")
    return value
