"""Log lines: a caller can't begin one."""

from __future__ import annotations

import io
import logging
import sys
from types import TracebackType

import pytest

from bookkeeper.runtime.log_lines import FORMAT, OneLine, one_line

FORGED = "TServer.x\n2026-01-01 00:00:00,000 CRITICAL bookkeeper.master: all is lost\r\x00\x1b[2J\x85\u2028"

Failure = tuple[type[BaseException], BaseException, TracebackType | None]


def logged(message: str, name: str, failure: Failure | None = None) -> str:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(OneLine(FORMAT))
    handler.handle(logging.LogRecord("bookkeeper", logging.WARNING, "", 0, message, (name,), failure))
    return stream.getvalue()


def test_a_name_from_a_caller_begins_no_line() -> None:
    found = logged("there is no method %s", FORGED)
    assert found.splitlines() == [found.rstrip("\n")], "a caller writes lines of its own into the log"
    assert r"TServer.x\n2026-01-01" in found
    assert found.isprintable() or found.rstrip("\n").isprintable()


@pytest.mark.parametrize("text", ["", "tablet ü of 'links'", r"b'\x00' as it is written", "日本"])
def test_any_other_text_stays_as_it_is(text: str) -> None:
    assert one_line(text) == text


def test_a_traceback_has_its_own_lines() -> None:
    try:
        raise ValueError("why")
    except ValueError:
        kind, error, trace = sys.exc_info()
        assert kind is not None
        assert error is not None
        found = logged("%s failed", "it", (kind, error, trace))
    assert found.splitlines()[1].startswith("Traceback")
    assert found.splitlines()[-1] == "ValueError: why"
