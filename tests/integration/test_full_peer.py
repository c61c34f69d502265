"""Disks without room, here and at a peer: writers get the error, the status shows it, and it ends by itself."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bookkeeper.client import Mutation
from bookkeeper.errors import TransientError
from tests.support.local_pair import local_pair
from tests.support.tservers import wait_until

pytestmark = pytest.mark.integration

EVERYTHING = 2**40
"""bytes that are kept free: there is no room for anything."""


def test_a_peer_without_room_is_a_peer_that_is_away_with_a_reason(tmp_path: Path) -> None:
    with local_pair(tmp_path) as (west, east):
        west.put("t", b"a", b"1")
        wait_until(lambda: east.rows("t") == {b"a": b"1"}, "the first row")
        east.replace_tserver(disk_reserve_bytes=EVERYTHING)
        west.put("t", b"b", b"2")

        def says_why() -> bool:
            errors = [state.last_error or "" for state in west.client.replication.status()]
            return any("has no room" in error and "make room there" in error for error in errors)

        wait_until(says_why, "the reason in the status")
        assert east.rows("t") == {b"a": b"1"}
        east.replace_tserver(disk_reserve_bytes=1)
        wait_until(lambda: east.rows("t") == west.rows("t") == {b"a": b"1", b"b": b"2"}, "the second row")


def test_a_writer_gives_up_with_the_reason_and_another_one_goes_on(tmp_path: Path) -> None:
    with local_pair(tmp_path) as (west, _):
        west.replace_tserver(disk_reserve_bytes=EVERYTHING)

        def says_why() -> bool:
            """While the tablet is on its way to the new tablet server, the reason is another."""
            writer = west.client.writer("t", deadline_ms=500)
            writer.add(Mutation(b"a").put(b"f", b"q", b"1"))
            with pytest.raises(TransientError, match="not in 500 ms: ") as given:
                writer.close()
            return re.search(r" has no room .* make room there", str(given.value)) is not None

        wait_until(says_why, "the reason in the error of a writer")
        assert west.rows("t") == {}
        west.replace_tserver(disk_reserve_bytes=1)
        west.put("t", b"a", b"1")
        assert west.rows("t") == {b"a": b"1"}
