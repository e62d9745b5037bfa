"""Options: which values they take, and what is said about the others."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from vbe.options import check_name, check_options, did_you_mean, field_types, numeric_fields, option
from vbe.types import UsageError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    rate: float = option(0.1, "a number", above=0)
    share: float = option(0.5, "a probability", at_least=0, at_most=1)
    size: int = option(3, "a count", at_least=1)
    period: int | None = option(None, "a count or the default", at_least=1)
    widths: tuple[int, ...] = option((5, 5), "counts", at_least=1)
    colour: str = option("red", "a name", choices=("red", "green"))
    shape: str | None = option(None, "a name or the default", choices=("round", "square"))
    loud: bool = option(False, "a truth value")
    quiet: bool | None = option(None, "a truth value or the default")


GOOD = [
    ("rate", 0.5, 0.5),
    ("rate", 2, 2.0),
    ("share", 0, 0.0),
    ("share", 1, 1.0),
    ("size", 1, 1),
    ("size", 4.0, 4),
    ("period", None, None),
    ("period", 7, 7),
    ("widths", (1, 2, 3), (1, 2, 3)),
    ("rate", np.float32(0.5), 0.5),
    ("rate", np.int64(2), 2.0),
    ("rate", 3.4e38, 3.4e38),
    ("size", np.int64(4), 4),
    ("size", 2**31 - 1, 2**31 - 1),
    ("widths", (np.int64(1), 2), (1, 2)),
    ("loud", np.bool_(True), True),
    ("widths", (), ()),
    ("colour", "green", "green"),
    ("shape", None, None),
    ("shape", "round", "round"),
    ("loud", True, True),
    ("quiet", None, None),
    ("quiet", False, False),
]

BAD = [
    ("rate", 0.0, "above 0"),
    ("rate", -1.0, "above 0"),
    ("rate", float("nan"), "finite"),
    ("rate", float("inf"), "finite"),
    ("rate", 10**400, "finite"),
    ("rate", 1e39, "float32"),
    ("rate", True, "float"),
    ("rate", "fast", "float"),
    ("rate", None, "float"),
    ("rate", (0.1,), "float"),
    ("share", -0.1, "at least 0"),
    ("share", 1.1, "at most 1"),
    ("size", 0, "at least 1"),
    ("size", -3, "at least 1"),
    ("size", 2**31, "below 2**31"),
    ("size", 10**400, "below 2**31"),
    ("size", 1.5, "int"),
    ("size", float("nan"), "int"),
    ("size", float("inf"), "int"),
    ("size", True, "int"),
    ("size", "3", "int"),
    ("size", None, "int"),
    ("period", 0, "at least 1"),
    ("period", False, "int or nothing"),
    ("widths", (5, 0), "at least 1"),
    ("widths", 5, "a tuple such as (5, 5)"),
    ("widths", (5, 2**31), "below 2**31"),
    ("widths", (5, 2.5), "tuple of int"),
    ("widths", (5, "5"), "int"),
    ("widths", (5, True), "int"),
    ("widths", (5, None), "int"),
    ("colour", "blue", "'red', 'green'"),
    ("colour", 1, "str"),
    ("shape", "flat", "'round', 'square'"),
    ("loud", 1, "bool"),
    ("loud", "yes", "bool"),
    ("quiet", 0, "bool or nothing"),
]


@pytest.mark.parametrize(("name", "value", "checked"), GOOD)
def test_what_fits_is_taken_with_its_exact_type(name: str, value: Any, checked: Any) -> None:
    (got,) = check_options("it", Options, {name: value}).values()
    assert got == checked and type(got) is type(checked)


@pytest.mark.parametrize(("name", "value", "right"), BAD)
def test_what_does_not_is_refused_in_one_line(name: str, value: Any, right: str) -> None:
    with pytest.raises(UsageError) as error:
        check_options("it", Options, {name: value})
    line = str(error.value)
    assert line.startswith(f"{name}={value!r}: must be ") and right in line and "\n" not in line


@pytest.mark.parametrize(("name", "nearest"), [("siez", "size"), ("Rate", "rate"), ("color", "colour"), ("xyz", None), (3, None)])
def test_an_unknown_option_is_named_with_its_nearest(name: Any, nearest: str | None) -> None:
    with pytest.raises(UsageError) as error:
        check_options("the owner", Options, {name: 1})
    line = str(error.value)
    assert line.startswith(f"{name}=1: the owner has no such option") and "\n" not in line
    assert ("did you mean" in line) == (nearest is not None)
    assert nearest is None or f"did you mean {nearest!r}?" in line
    assert all(f.name in line for f in dataclasses.fields(Options))


def test_an_unknown_name_is_told_its_nearest() -> None:
    assert check_name("agent", "vbe", ["vbe", "rnd"]) == "vbe"
    for name in "VBE", "vbee", "", 7, None, ["vbe"]:
        with pytest.raises(UsageError) as error:
            check_name("agent", name, ["vbe", "rnd"])
        line = str(error.value)
        assert line.startswith(f"agent={name!r}: no such agent") and line.endswith("; there is vbe, rnd") and "\n" not in line
        assert ("did you mean 'vbe'?" in line) == (name in ("VBE", "vbee", ["vbe"]))
    assert did_you_mean("anything", []) == "; there is none"


def test_lanes_may_differ_in_plain_floats_only() -> None:
    assert numeric_fields(Options) == {"rate", "share"}
    kinds = field_types(Options)
    assert kinds["period"] == (int, type(None)) and kinds["widths"] == (tuple,)


def test_nothing_is_checked_that_was_not_given() -> None:
    assert check_options("it", Options, {}) == {}
    assert dataclasses.fields(Options)[0].metadata["help"] == "a number"
