"""The line about long work."""

from __future__ import annotations

import io

from shell.progress_line import CLEAR, REDRAW_MS, ProgressLine, amount, duration
from tests.support.jumping_clock import StandingClock


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_what_is_left_the_rate_and_the_time_and_ends_clean() -> None:
    terminal, clock = Terminal(), StandingClock()
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
    terminal, clock = Terminal(), StandingClock()
    line = ProgressLine("records", terminal, clock)
    for left in (100, 1_000, 500):
        line.show(left)
        clock.jump(1_000)
    assert terminal.getvalue().split(CLEAR)[-1] == "500 records left, 500 a second, about 1 s to go"


def test_a_pipe_shows_nothing() -> None:
    pipe = io.StringIO()
    with ProgressLine("records", pipe, StandingClock()) as line:
        line.show(1)
    assert pipe.getvalue() == ""


def test_work_of_several_steps_counts_each_of_them_anew() -> None:
    terminal, clock = Terminal(), StandingClock()
    with ProgressLine(stream=terminal, clock=clock) as line:
        for left, noun in ((10 << 20, "bytes"), (5 << 20, "bytes"), (5, "tablets"), (3, "tablets")):
            line.show(left, noun)
            clock.jump(1_000)
    assert terminal.getvalue().split(CLEAR) == [
        "",
        "10.0 MiB left",
        "5.0 MiB left, 5.0 MiB a second, about 1 s to go",
        "5 tablets left",
        "3 tablets left, 2.0 a second, about 2 s to go",
        "",
    ]


def test_amounts_and_times_are_in_the_unit_that_fits() -> None:
    assert [amount(number, "bytes") for number in (0, 1023, 1536, 5 << 40)] == [
        "0 bytes",
        "1,023 bytes",
        "1.5 KiB",
        "5.0 TiB",
    ]
    assert [duration(seconds) for seconds in (0.2, 119, 120, 7_200)] == ["0 s", "119 s", "2 min", "2 h"]
