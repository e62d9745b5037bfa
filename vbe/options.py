"""Options as dataclass fields that carry their help and their bounds, and one-line errors for everything that is not one."""

import dataclasses
import difflib
import math
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from vbe.types import UsageError, as_python

LARGEST = float(np.finfo(np.float32).max)  # numbers end up in float32 and int32
FINITE = f"must be a finite number, a float32: at most {LARGEST:.1e}"


def option(
    default: Any,
    help: str,
    *,
    at_least: float | None = None,
    above: float | None = None,
    at_most: float | None = None,
    below: float | None = None,
    choices: tuple[Any, ...] | None = None,
) -> Any:
    """A dataclass field that knows what it means and which values it may have."""
    bounds = {"at_least": at_least, "above": above, "at_most": at_most, "below": below, "choices": choices}
    return dataclasses.field(default=default, metadata={"help": help, **bounds})


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of an error's line: the nearest of the names that there are, and all of them."""
    known = list(known)
    by_lower = {k.lower(): k for k in known}
    nearest = difflib.get_close_matches(str(name).lower(), by_lower, n=1)
    meant = f" (did you mean {by_lower[nearest[0]]!r}?)" if nearest else ""
    return f"{meant}; there is {', '.join(known) or 'none'}"


def check_name(argument: str, name: Any, known: Iterable[str]) -> str:
    if name not in (known := list(known)):
        raise UsageError(f"{argument}={name!r}: no such {argument}{did_you_mean(name, known)}")
    return name


def field_types(options: type) -> dict[str, tuple[type, ...]]:
    """The types that each field takes; several for a union."""
    hints = typing.get_type_hints(options)

    def alternatives(hint: Any) -> tuple[type, ...]:
        if typing.get_origin(hint) in (types.UnionType, typing.Union):
            return tuple(typing.get_origin(a) or a for a in typing.get_args(hint))
        return (typing.get_origin(hint) or hint,)

    return {f.name: alternatives(hints[f.name]) for f in dataclasses.fields(options)}


def numeric_fields(options: type) -> set[str]:
    """The fields that are plain floats: they may differ between lanes of one compiled program."""
    return {name for name, kinds in field_types(options).items() if kinds == (float,)}


def check_options(owner: str, options: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """Checks single values (no sweeps) against the fields of `options`; returns them with their types made exact.

    Raises:
      UsageError: naming the option, its value, and what would be right.
    """
    fields = {f.name: f for f in dataclasses.fields(options)}
    kinds = field_types(options)
    checked = {}
    for name, value in values.items():
        if name not in fields:
            raise UsageError(f"{name}={value!r}: {owner} has no such option{did_you_mean(name, fields)}")
        checked[name] = _check_value(fields[name], as_python(value), kinds[name])
    return checked


def _check_value(field: dataclasses.Field, value: Any, kinds: tuple[type, ...]) -> Any:
    name, bounds = field.name, field.metadata
    if float in kinds and isinstance(value, int) and not isinstance(value, bool):
        value = _as_float(name, value)
    if int in kinds and isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        raise UsageError(f"{name}={value!r}: must be {' or '.join(_describe(kind, field.default) for kind in kinds)}")
    if isinstance(value, tuple) and not all(type(number) is int for number in value):
        raise UsageError(f"{name}={value!r}: must be a tuple of int")
    for number in value if isinstance(value, tuple) else (value,):
        if bounds["choices"] is not None and number is not None and number not in bounds["choices"]:
            raise UsageError(f"{name}={value!r}: must be one of {', '.join(map(repr, bounds['choices']))}")
        if isinstance(number, (int, float)) and not isinstance(number, bool):
            _check_number(name, value, number, bounds)
    return value


def _as_float(name: str, value: int) -> float:
    try:
        return float(value)
    except OverflowError:
        raise UsageError(f"{name}={value!r}: {FINITE}") from None


def _describe(kind: type, default: Any) -> str:
    if kind is tuple:
        return f"a tuple such as {default}"
    return "nothing" if kind is type(None) else kind.__name__


def _check_number(name: str, value: Any, number: float, bounds: Mapping[str, Any]) -> None:
    if isinstance(number, float) and not (math.isfinite(number) and abs(number) <= LARGEST):
        raise UsageError(f"{name}={value!r}: {FINITE}")
    if bounds["at_least"] is not None and number < bounds["at_least"]:
        raise UsageError(f"{name}={value!r}: must be at least {bounds['at_least']}")
    if bounds["above"] is not None and number <= bounds["above"]:
        raise UsageError(f"{name}={value!r}: must be above {bounds['above']}")
    if bounds["at_most"] is not None and number > bounds["at_most"]:
        raise UsageError(f"{name}={value!r}: must be at most {bounds['at_most']}")
    if bounds["below"] is not None and number >= bounds["below"]:
        raise UsageError(f"{name}={value!r}: must be below {bounds['below']}")
    if isinstance(number, int) and abs(number) >= 2**31:
        raise UsageError(f"{name}={value!r}: must be below 2**31")
