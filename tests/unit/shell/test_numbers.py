"""Every number of a command has bounds; a text for it is a number within them or a usage error."""

from __future__ import annotations

import math

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from docs.extension.commands import leaves
from shell.demo.__main__ import demo
from shell.parameters import LONG_MAX, SECONDS_MAX

NUMBERS = [
    (path, parameter)
    for path, command in {**leaves(), "demo": demo}.items()
    for parameter in command.params
    if isinstance(parameter.type, click.types.IntParamType | click.types.FloatParamType)
]
EXTREMES = [
    "nan",
    "-nan",
    "inf",
    "-inf",
    "1e400",
    "-1e400",
    "9" * 5_000,
    str(2**63),
    str(-(2**63) - 1),
    "1e308",
    "٣",
    "",
]


def test_there_are_numbers() -> None:
    assert {"shell scan", "shell replication wait", "wal show", "init"} <= {path for path, _ in NUMBERS}


@pytest.mark.parametrize(("path", "parameter"), NUMBERS, ids=lambda value: getattr(value, "name", value))
def test_every_number_has_both_bounds(path: str, parameter: click.Parameter) -> None:
    kind = parameter.type
    assert isinstance(kind, click.IntRange | click.FloatRange), f"{path}: use a type of shell.parameters"
    assert kind.min is not None
    assert kind.max is not None
    assert -LONG_MAX - 1 <= kind.min < kind.max <= LONG_MAX
    assert not kind.clamp


@given(
    st.sampled_from(NUMBERS),
    st.one_of(
        st.sampled_from(EXTREMES),
        st.integers(-(2**70), 2**70).map(str),
        st.floats().map(repr),
        st.text(max_size=20),
    ),
)
def test_a_number_is_within_its_bounds_or_is_refused(found: tuple[str, click.Parameter], typed: str) -> None:
    _, parameter = found
    kind = parameter.type
    assert isinstance(kind, click.IntRange | click.FloatRange)
    try:
        value = parameter.type_cast_value(click.Context(click.Command("c")), typed)
    except click.UsageError:
        return
    assert math.isfinite(value)
    assert kind.min is not None
    assert kind.max is not None
    assert kind.min <= value <= kind.max <= max(LONG_MAX, SECONDS_MAX)
