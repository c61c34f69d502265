"""A read-only table or cluster takes no user's write, and all that other clusters send (L6)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from bookkeeper.coordination.config_changes import change_table, set_read_only
from bookkeeper.errors import ReadOnlyError
from bookkeeper.model import Extent, StreamKey
from tests.support.must_raise import must_raise
from tests.support.tservers import Ground, LocalNode, ground, records, replicate_request, source_block

pytestmark = pytest.mark.integration

STREAM = StreamKey("east-instance", "their/1.wal", "7", "1", 1)
OLD = {(b"old", b"f", b"q"): b"v"}


@pytest.fixture
def west(tmp_path: Path) -> Iterator[Ground]:
    with ground(tmp_path / "west", {"tserver.wal_sync_interval_ms": 20}) as made:
        yield made


def _served(west: Ground, table_id: str) -> tuple[LocalNode, Extent]:
    """A table with one old row, at a tserver of its own."""
    (extent,) = west.create_table(table_id)
    node = west.local()
    west.assign(node, extent)
    west.write(node, extent, records([(b"old", b"v")]))
    return node, extent


def _confirm(west: Ground, node: LocalNode) -> None:
    west.tserver(node).confirm_config(west.coordination.generation())


def _set_table(west: Ground, table_id: str, value: str) -> None:
    change_table(west.coordination, table_id, lambda table: replace(table, properties={"table.read_only": value}))


def _is_refused_and_receives(west: Ground, node: LocalNode, extent: Extent, reason: str) -> None:
    for batch in (records([(b"new", b"v")]), records([(b"old", b"")], delete=True)):
        for durability in ("sync", "none"):
            with must_raise(ReadOnlyError, "a read-only table takes a write of a user", match=reason):
                west.write(node, extent, batch, durability)
    assert west.scan(node, extent) == OLD
    token = west.tserver(node).open_stream(STREAM)
    block = source_block(1, records([(b"sent", b"v")], timestamp=5))
    result = west.tserver(node).replicate(replicate_request(token, STREAM, 0, 0, 1, [block]))
    assert result.records_applied == 1
    assert west.scan(node, extent) == {**OLD, (b"sent", b"f", b"q"): b"v"}


def test_a_read_only_table_takes_no_users_write(west: Ground) -> None:
    node, extent = _served(west, "1")
    (free,) = west.create_table("2")
    west.assign(node, free)
    _set_table(west, "1", "true")
    _confirm(west, node)
    _is_refused_and_receives(west, node, extent, r"table table1 is read-only.*readonly -t table1 off")
    west.write(node, free, records([(b"new", b"v")]))
    _set_table(west, "1", "false")
    _confirm(west, node)
    west.write(node, extent, records([(b"new", b"v")]))
    assert (b"new", b"f", b"q") in west.scan(node, extent)


def test_a_read_only_cluster_takes_no_users_write_to_any_table(west: Ground) -> None:
    node, extent = _served(west, "1")
    set_read_only(west.coordination, True)
    _confirm(west, node)
    _is_refused_and_receives(west, node, extent, r"this cluster is read-only.*readonly --cluster off")
    (later,) = west.create_table("2")
    west.assign(node, later)
    with pytest.raises(ReadOnlyError):
        west.write(node, later, records([(b"new", b"v")]))
    set_read_only(west.coordination, False)
    _confirm(west, node)
    west.write(node, extent, records([(b"new", b"v")]))


def test_a_tserver_that_starts_later_knows_it_from_the_start(west: Ground) -> None:
    (extent,) = west.create_table("1")
    set_read_only(west.coordination, True)
    node = west.local()
    west.assign(node, extent)
    with pytest.raises(ReadOnlyError):
        west.write(node, extent, records([(b"new", b"v")]))


def test_r14_no_write_is_taken_after_the_confirmation(west: Ground) -> None:
    """Writers at full speed: all writes after the confirmation are refused; all stored records came before it."""
    node, extent = _served(west, "1")
    confirmed = threading.Event()
    began = threading.Barrier(3)
    taken: list[str] = []

    def write(writer: int) -> None:
        began.wait(60)
        for number in range(10_000):
            late = confirmed.is_set()
            try:
                west.write(node, extent, records([(b"%d-%05d" % (writer, number), b"v")]), "flush")
            except ReadOnlyError:
                if late:
                    return
            else:
                if late:
                    taken.append(f"write {number} of {writer} was taken after the confirmation")
                    return

    writers = [threading.Thread(target=write, args=(writer,)) for writer in range(2)]
    for thread in writers:
        thread.start()
    began.wait(60)
    set_read_only(west.coordination, True)
    _confirm(west, node)
    confirmed.set()
    for thread in writers:
        thread.join(60)
    assert not taken, "R14: a write is taken after the confirmation"
