"""The line about long work."""

from __future__ import annotations

import io

from shell.progress_line import CLEAR, REDRAW_MS, ProgressLine
from tests.support.jumping_clock import TestClock


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_what_is_left_the_rate_and_the_time_and_ends_clean() -> None:
    terminal, clock = Terminal(), TestClock()
    with ProgressLine("records", terminal, clock) as line:
        line.show(10_000)
        clock.jump(2_000)
        line.show(6_000)
        clock.jump(REDRAW_MS // 2)
        line.show(5_900)
    assert terminal.getvalue().split(CLEAR) == [
        "",
        "10,000 records left",
        "6,000 records left, 2,000 a second, about 3 s to go",
        "",
    ]


def test_the_rate_counts_from_where_the_work_grew() -> None:
    terminal, clock = Terminal(), TestClock()
    line = ProgressLine("records", terminal, clock)
    for left in (100, 1_000, 500):
        line.show(left)
        clock.jump(1_000)
    assert terminal.getvalue().split(CLEAR)[-1] == "500 records left, 500 a second, about 1 s to go"


def test_a_pipe_shows_nothing() -> None:
    pipe = io.StringIO()
    with ProgressLine("records", pipe, TestClock()) as line:
        line.show(1)
    assert pipe.getvalue() == ""
