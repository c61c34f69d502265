"""Commands that print again and again."""

from __future__ import annotations

import threading

import pytest

from bookkeeper.errors import NotFoundError, UnavailableError
from shell.watching import repeat
from tests.support.jumping_clock import TestClock


def test_a_watch_survives_a_transient_error_and_ends_with_a_permanent_one(capsys: pytest.CaptureFixture[str]) -> None:
    answers = iter(["one", UnavailableError("no master leads now"), "two", NotFoundError("no table t")])

    def show() -> None:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        print(answer)

    clock = TestClock()
    with pytest.raises(NotFoundError):
        repeat(show, 0, clock, threading.Event())
    out, err = capsys.readouterr()
    assert out == "one\ntwo\n", "no screen is cleared in a pipe"
    assert err == "error: no master leads now\n"


def test_a_watch_ends_when_it_is_told_to() -> None:
    ended = threading.Event()
    shown: list[int] = []

    def show() -> None:
        shown.append(1)
        if len(shown) == 3:
            ended.set()

    repeat(show, 0, TestClock(), ended)
    assert len(shown) == 3
