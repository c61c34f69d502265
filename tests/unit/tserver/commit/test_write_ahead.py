"""While one group is synced the next is prepared and written: the laws that still hold."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import nullcontext
from pathlib import Path

import pytest

from bookkeeper.errors import LeaseLostError, UnavailableError
from bookkeeper.storage.wal.blocks.block_pb2 import FileHeader
from bookkeeper.storage.wal.reading.block_reader import read_blocks
from bookkeeper.storage.wal.writing.seal import read_seal
from bookkeeper.storage.wal.writing.wal_writer import WalWriter
from bookkeeper.tserver.commit.commit_limits import CommitLimits
from bookkeeper.tserver.commit.submission import Durability
from tests.support.faults import fault
from tests.support.volumes import MACHINE, name_at, rooted
from tests.support.wal_commits import PATIENCE_S, Bench, Journal, JournalOps, bench
from tests.support.wal_files import Spec, block

AHEAD = CommitLimits(wal_sync_interval_ms=10_000_000, ahead_bytes_min=1)
FILE_HEADER = 1
"""Calls of ``writev`` that make a new log."""


def result(future: Future[object]) -> object:
    return future.result(PATIENCE_S)


def rows_of(name: str, last: int) -> list[bytes]:
    return [row for found in read_blocks(MACHINE, name, 1, last) for row in found.batch().column("row").to_pylist()]


def nothing(_b: Bench) -> None:
    """Do nothing meanwhile."""


def check_answers(directory: Path) -> None:
    """L1: records that are written during another group's sync wait for a sync of their own."""
    with bench(directory, AHEAD) as b:
        with b.ops.hold("fdatasync"):
            first = b.committer.submit(b.write(b"a", name="first"))
            b.journal.wait_for(">fdatasync")
            second = b.committer.submit(b.write(b"b", name="second"))
            b.journal.wait_for("writev", FILE_HEADER + 2)
            assert not first.done()
            assert not second.done()
        assert [result(first), result(second)] == [(1, 1), (2, 2)]
        events = b.journal.events
        assert events.index("writev", events.index(">fdatasync")) < events.index("fdatasync"), "written meanwhile"
        synced = [index for index, event in enumerate(events) if event == "fdatasync"]
        assert len(synced) == 2, "records written during a sync have no sync of their own"
        assert synced[0] < events.index("applied first") < synced[1] < events.index("applied second")
        assert [offset for _, offset, _ in b.listener.synced_to] == [1, 2]
        assert rows_of(b.committer.wal_name, 2) == [b"a", b"b"]


def test_what_is_written_while_a_group_is_synced_waits_for_a_sync_of_its_own(tmp_path: Path) -> None:
    check_answers(tmp_path)


def test_else_it_would_be_acknowledged_and_lost_with_the_machine(tmp_path: Path) -> None:
    with (
        fault("sync-counts-what-came-meanwhile"),
        pytest.raises(AssertionError, match="records written during a sync have no sync of their own"),
    ):
        check_answers(tmp_path)


def test_a_sync_makes_durable_what_was_written_when_it_began(tmp_path: Path) -> None:
    journal = Journal()
    ops = JournalOps(journal)
    writer = WalWriter.create(rooted(ops), name_at(tmp_path / "1.wal"), FileHeader())
    writer.append([block(Spec([b"a"]), 1)])
    end = writer.position
    with ops.hold("fdatasync"):
        syncing = threading.Thread(target=writer.sync)
        syncing.start()
        journal.wait_for(">fdatasync")
        writer.append([block(Spec([b"b"]), 2)])
    syncing.join()
    assert (writer.synced_offset, writer.synced_position) == (1, end)
    writer.sync()
    assert (writer.synced_offset, writer.synced_position) == (2, writer.position)
    writer.abandon()


def check_beginning(directory: Path, meanwhile: Callable[[Bench], None] = nothing) -> None:
    """A write that depends on a read is prepared once all writes before it are applied, also with writes ahead."""
    with bench(directory, AHEAD) as b:
        with b.ops.hold("fdatasync"):
            first = b.committer.submit(b.write(b"a", name="first"))
            b.journal.wait_for(">fdatasync")
            judged = b.committer.submit(b.write(b"b", name="judged"), begins_group=True)
            last = b.committer.submit(b.write(b"c", name="last"))
            meanwhile(b)
        assert [result(first), result(judged), result(last)] == [(1, 1), (2, 2), (3, 3)]
        events = b.journal.events
        assert events.index("applied first") < events.index("prepare judged") < events.index("prepare last"), (
            "a write is judged before those ahead of it are applied"
        )


def test_what_begins_a_group_is_prepared_when_all_before_it_is_applied(tmp_path: Path) -> None:
    check_beginning(tmp_path)


def test_else_it_would_judge_by_what_is_not_true_any_more(tmp_path: Path) -> None:
    with (
        fault("conditions-see-the-past"),
        pytest.raises(AssertionError, match="a write is judged before those ahead of it are applied"),
    ):
        check_beginning(tmp_path, lambda b: b.journal.wait_for("prepare judged"))


def check_apart(b: Bench, meanwhile: Callable[[Bench], None] = nothing) -> None:
    """Submissions share the state of their tablets: none is prepared while another one is applied."""
    first = b.write(b"a", name="first")
    others: list[Future[object]] = []

    def while_applied() -> None:
        others.append(b.committer.submit(b.write(b"b", name="second")))
        meanwhile(b)
        b.journal.note("applied all of it")

    first.on_applied = while_applied
    result(b.committer.submit(first))
    result(others[0])
    assert b.journal.events.index("applied all of it") < b.journal.events.index("prepare second"), (
        "a write is prepared while another one is applied"
    )


def test_nothing_is_prepared_while_something_is_applied(tmp_path: Path) -> None:
    with bench(tmp_path, AHEAD) as b:
        check_apart(b)


def test_without_the_lock_it_would_be(tmp_path: Path) -> None:
    with bench(tmp_path, AHEAD) as b:
        b.committer._staging = nullcontext()  # type: ignore[assignment]
        with pytest.raises(AssertionError, match="a write is prepared while another one is applied"):
            check_apart(b, lambda b: b.journal.wait_for("prepare second"))


def test_small_writes_gather_while_a_group_is_synced(tmp_path: Path) -> None:
    with bench(tmp_path, CommitLimits(ahead_bytes_min=300)) as b:
        with b.ops.hold("fdatasync"):
            futures = [b.committer.submit(b.write(b"a"))]
            b.journal.wait_for(">fdatasync")
            futures += [b.committer.submit(b.write(b"b", name="second")), b.committer.submit(b.write(b"c"))]
            assert "prepare second" not in b.journal.events
            futures.append(b.committer.submit(b.write(b"d")))
            b.journal.wait_for("prepare second")
        for future in futures:
            result(future)
        assert [found.header.record_count for found in b.listener.blocks] == [1, 3], "they share a block"


def test_a_group_that_is_written_ahead_ends_at_its_limits(tmp_path: Path) -> None:
    limits = CommitLimits(wal_sync_interval_ms=10_000_000, ahead_bytes_min=1, group_count_max=2)
    with bench(tmp_path, limits) as b:
        with b.ops.hold("fdatasync"):
            futures = [b.committer.submit(b.write(b"a"))]
            b.journal.wait_for(">fdatasync")
            futures += [b.committer.submit(b.write(b"%d" % number, name=f"{number}")) for number in range(4)]
            b.journal.wait_for("prepare 1")
        assert [result(future) for future in futures] == [(n, n) for n in range(1, 6)]
        events = b.journal.events
        assert events.index("applied 1") < events.index("prepare 2") or b.journal.count("fdatasync") == 3


def test_a_roll_waits_for_all_that_is_under_way(tmp_path: Path) -> None:
    with bench(tmp_path, AHEAD) as b:
        first = b.committer.wal_name
        with b.ops.hold("fdatasync"):
            futures = [b.committer.submit(b.write(b"a"))]
            b.journal.wait_for(">fdatasync")
            futures.append(b.committer.submit(b.write(b"b")))
            b.journal.wait_for("writev", FILE_HEADER + 2)
            with pytest.raises(UnavailableError, match="not rolled within 1 ms"):
                b.committer.roll(timeout_ms=1)
            futures.append(b.committer.submit(b.write(b"c")))
        assert [result(future) for future in futures] == [(1, 1), (2, 2), (1, 1)]
        seal = read_seal(MACHINE, first)
        assert seal is not None
        assert seal.offset == 2
        assert (rows_of(first, 2), rows_of(b.committer.wal_name, 1)) == ([b"a", b"b"], [b"c"])


def test_a_log_under_constant_load_is_rolled(tmp_path: Path) -> None:
    limits = CommitLimits(wal_roll_bytes=4000, ahead_bytes_min=1)
    with bench(tmp_path, limits) as b:
        futures = [b.committer.submit(b.write(b"%d" % number)) for number in range(400)]
        for future in futures:
            result(future)
        b.journal.wait_for("rolled")
    rows = [row for name, seal in b.listener.seals if seal.offset for row in rows_of(name, seal.offset)]
    assert rows == [b"%d" % number for number in range(400)]


@pytest.mark.parametrize("call", ["writev", "fdatasync"])
def test_when_one_thread_fails_the_other_acknowledges_nothing_more(tmp_path: Path, call: str) -> None:
    b = Bench(tmp_path, AHEAD)
    with b.ops.hold("fdatasync"):
        first = b.committer.submit(b.write(b"a", name="first"))
        b.journal.wait_for(">fdatasync")
        b.ops.errors[call] = OSError(errno.EIO, "the disk is gone")
        second = b.committer.submit(b.write(b"b", name="second"))
        if call == "writev":
            b.journal.wait_for("die")
        else:
            b.journal.wait_for("writev", FILE_HEADER + 2)
    with pytest.raises((LeaseLostError, UnavailableError)):
        result(second)
    b.committer.close()
    assert "applied second" not in b.journal.events
    assert first.done()
    assert ("applied first" in b.journal.events) == (first.exception() is None)
    assert "the disk is gone" in b.deaths[0]


@pytest.mark.parametrize("durability", [Durability.LOG, Durability.FLUSH])
def test_what_asks_for_less_is_answered_in_order_all_the_same(tmp_path: Path, durability: Durability) -> None:
    with bench(tmp_path, AHEAD) as b:
        with b.ops.hold("fdatasync"):
            first = b.committer.submit(b.write(b"a", name="first"))
            b.journal.wait_for(">fdatasync")
            less = b.committer.submit(b.write(b"b", name="less", durability=durability))
            b.journal.wait_for("writev", FILE_HEADER + 2)
        assert [result(first), result(less)] == [(1, 1), (2, 2)]
        assert b.journal.events.index("applied first") < b.journal.events.index("applied less")
        assert b.journal.count("fdatasync") == 1
