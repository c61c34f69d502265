"""Colours of states: on a terminal that has them, and nowhere else."""

from __future__ import annotations

import io
import re

import pytest

from bookkeeper.monitor.pages import PHASES
from bookkeeper.rpc.contract.messages import WaitCause
from shell import colours
from shell.output import Record, aligned
from shell.why_command import cause_lines, in_colours

ROWS: list[Record] = [
    {"host": "host1", "state": "alive", "problem": None},
    {"host": "away", "state": "away", "problem": "it is away"},
    {"host": "host3", "state": "needs help", "problem": "alive"},
]
COLUMNS = ("host", "state", "problem")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "environment", "wanted"),
    [
        (Terminal(), {"TERM": "xterm"}, True),
        (Terminal(), {"TERM": "xterm", "NO_COLOR": ""}, True),
        (Terminal(), {"TERM": "xterm", "NO_COLOR": "0"}, False),
        (Terminal(), {"TERM": "dumb"}, False),
        (Terminal(), {}, False),
        (io.StringIO(), {"TERM": "xterm"}, False),
    ],
)
def test_colours_are_for_terminals_that_have_them(
    stream: io.StringIO, environment: dict[str, str], wanted: bool
) -> None:
    assert colours.are_wanted(stream, environment) == wanted


def test_only_words_of_a_state_are_coloured_and_columns_stay_where_they_are() -> None:
    plain, coloured = aligned(ROWS, COLUMNS, False), aligned(ROWS, COLUMNS, True)
    assert [re.sub(r"\x1b\[\d+m", "", line) for line in coloured] == plain
    assert coloured[0] == plain[0]
    assert coloured[1].count("\x1b[32malive\x1b[0m") == 1
    assert coloured[2].startswith("away   \x1b[31maway\x1b[0m"), "a name is no state"
    assert coloured[3].endswith("\x1b[31mneeds help\x1b[0m  alive")


def test_every_phase_has_a_colour() -> None:
    assert colours.WORDS["phase"].keys() == set(PHASES)


def test_the_verdict_about_a_wait_is_coloured() -> None:
    cause = WaitCause("east", "shipping", ("t",), "it is shipped", (), False, None, 1, 1, 1, "f", None, 0)
    text = "\n".join(cause_lines(cause))
    assert in_colours(text) == text.replace("ends by itself", "\x1b[32mends by itself\x1b[0m")
    assert in_colours("nothing waits: east") == "nothing waits: east"
