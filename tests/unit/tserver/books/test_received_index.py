"""The cells of received streams: a process writes each once, before the first message of its stream (R20)."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from bookkeeper.clock import SystemClock
from bookkeeper.errors import UnavailableError
from bookkeeper.model import StreamKey
from bookkeeper.runtime.session_retries import SessionRetries
from bookkeeper.tserver.books.received_index import ReceivedIndex
from tests.support.books import sqlite_books
from tests.support.failing_metadata import FailingMetadata
from tests.support.master_world import StoppedSession

STREAM = StreamKey("west", "wal/s-1/000001.wal", "1", "2", 1)


def test_a_stream_that_was_announced_is_opened_again_while_the_books_are_away(tmp_path: Path) -> None:
    clock, died, table = SystemClock(), list[str](), FailingMetadata(sqlite_books(tmp_path / "metadata.db"))
    index = ReceivedIndex(table, SessionRetries(StoppedSession("s-1"), clock, random.Random(1)), clock, died.append)
    away = table.failing(lambda _call, _columns: True)
    with table.failing(lambda _call, _columns: True), pytest.raises(UnavailableError):
        index.announce(STREAM)
    index.announce(STREAM)
    assert index.is_open(STREAM)
    with away:
        index.announce(STREAM)
        index.forget([STREAM])
        with pytest.raises(UnavailableError):
            index.announce(STREAM)
    table.close()
    assert died == []
