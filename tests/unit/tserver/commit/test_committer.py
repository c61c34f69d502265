"""Group commit: its acknowledgements, their times, and the other writes of a group after a failure."""

from __future__ import annotations

import queue
from concurrent.futures import Future
from pathlib import Path

import pytest

from bookkeeper.errors import (
    InvalidInputError,
    NotServingError,
    OverloadedError,
    UnavailableError,
)
from bookkeeper.model import BlockTarget
from bookkeeper.storage.wal.reading.block_reader import read_blocks
from bookkeeper.storage.wal.writing.block_merge import MergeLimits
from bookkeeper.storage.wal.writing.seal import read_seal
from bookkeeper.tserver.commit.commit_limits import CommitLimits
from bookkeeper.tserver.commit.submission import Durability
from tests.support.faults import fault
from tests.support.must_raise import must_raise
from tests.support.volumes import MACHINE
from tests.support.wal_commits import PATIENCE_S, Bench, SkewedClock, bench
from tests.support.wal_files import TO_EAST

NEVER_MS = 10_000_000
NO_BACKGROUND = CommitLimits(wal_sync_interval_ms=NEVER_MS)


def rows_of(name: str, last: int) -> list[bytes]:
    return [row for block in read_blocks(MACHINE, name, 1, last) for row in block.batch().column("row").to_pylist()]


def result(future: Future[object]) -> object:
    return future.result(PATIENCE_S)


def check_sync_order(directory: Path) -> None:
    """The law of the commit path, in one group of one submission at sync."""
    with bench(directory, NO_BACKGROUND) as b:
        created = len(b.journal.events)
        assert result(b.committer.submit(b.write(b"a", b"b"))) == (1, 2)
        assert b.journal.events[created:] == [
            "prepare w",
            "before_append",
            ">writev",
            "writev",
            ">fdatasync",
            "fdatasync",
            "fence",
            "synced",
            "applied w",
        ], "a write is acknowledged in another order than write, sync, fence"


def test_books_then_write_then_sync_then_fence_then_visible(tmp_path: Path) -> None:
    check_sync_order(tmp_path)


def test_without_its_sync_the_order_is_broken(tmp_path: Path) -> None:
    with (
        fault("answered-before-the-sync"),
        pytest.raises(AssertionError, match="in another order than write, sync, fence"),
    ):
        check_sync_order(tmp_path)


def test_writers_are_answered_before_others_hear_of_their_records(tmp_path: Path) -> None:
    """Those who ship a record begin at once, and a writer would wait for them."""
    heard: queue.Queue[bool] = queue.Queue()
    with bench(tmp_path, NO_BACKGROUND) as b:
        with b.ops.hold("fdatasync"):
            future = b.committer.submit(b.write(b"a"))
            b.journal.wait_for(">fdatasync")
            b.listener.on_answers = lambda: heard.put(future.done())
        assert heard.get(timeout=PATIENCE_S)


def test_sync_is_acknowledged_only_after_fdatasync(tmp_path: Path) -> None:
    with bench(tmp_path) as b:
        with b.ops.hold("fdatasync"):
            future = b.committer.submit(b.write(b"a"))
            b.journal.wait_for(">fdatasync")
            assert not future.done()
            assert "applied w" not in b.journal.events
        assert result(future) == (1, 1)


def test_flush_is_acknowledged_after_write_and_synced_in_the_background(tmp_path: Path) -> None:
    with bench(tmp_path, CommitLimits(wal_sync_interval_ms=20)) as b, b.ops.hold("fdatasync"):
        with b.ops.hold("writev"):
            future = b.committer.submit(b.write(b"a", durability=Durability.FLUSH))
            b.journal.wait_for(">writev", 2)
            assert not future.done()
        assert result(future) == (1, 1)
        assert b.journal.count("fdatasync") == 0
    assert b.journal.count("fdatasync") == 1
    assert b.listener.synced_to[0][1] == 1


def test_log_is_acknowledged_before_write(tmp_path: Path) -> None:
    with bench(tmp_path) as b, b.ops.hold("writev"):
        assert result(b.committer.submit(b.write(b"a", durability=Durability.LOG))) == (1, 1)
        assert b.journal.count("writev") == 1, "the file header only"
        assert b.journal.events.index("before_append") < b.journal.events.index("applied w")
        assert b.journal.events.index("fence") < b.journal.events.index("applied w")


def test_none_is_not_logged_and_takes_no_offset(tmp_path: Path) -> None:
    with bench(tmp_path, NO_BACKGROUND) as b:
        unlogged = b.write(b"a", durability=Durability.NONE)
        assert result(b.committer.submit(unlogged)) == (0, 0)
        assert unlogged.placed[0].wal_name == ""
        assert unlogged.placed[0].batch.num_rows == 1
        assert result(b.committer.submit(b.write(b"b"))) == (1, 1)
        assert rows_of(b.committer.wal_name, 1) == [b"b"]


def check_none_is_logged_for_a_peer(directory: Path) -> None:
    with bench(directory, NO_BACKGROUND) as b:
        stamped = b.write(b"a", durability=Durability.NONE)
        stamped.block_targets = [BlockTarget(TO_EAST, None)]
        assert result(b.committer.submit(stamped)) == (1, 1), "what a peer gets is not in the log"
        result(b.committer.submit(b.write()))
        assert rows_of(b.committer.wal_name, 1) == [b"a"]


def test_none_acts_as_log_for_records_with_a_target(tmp_path: Path) -> None:
    check_none_is_logged_for_a_peer(tmp_path)


def test_a_peer_would_get_what_the_primary_has_not_logged(tmp_path: Path) -> None:
    with fault("none-is-never-logged"), pytest.raises(AssertionError, match="what a peer gets is not in the log"):
        check_none_is_logged_for_a_peer(tmp_path)


def test_one_sync_serves_all_that_gathered_during_the_last_one(tmp_path: Path) -> None:
    with bench(tmp_path, NO_BACKGROUND) as b:
        with b.ops.hold("fdatasync"):
            first = b.committer.submit(b.write(b"a", name="first"))
            b.journal.wait_for(">fdatasync")
            others = [b.committer.submit(b.write(b"%d" % i, name=f"{i}")) for i in range(10)]
        assert [result(f) for f in (first, *others)] == [(i, i) for i in range(1, 12)]
        assert b.journal.count("fdatasync") == 2
        applied = [event for event in b.journal.events if event.startswith("applied")]
        assert applied == ["applied first", *(f"applied {i}" for i in range(10))]
        assert [block.header.record_count for block in b.listener.blocks] == [1, 10], "small neighbours share a block"


def test_a_group_ends_at_its_limits(tmp_path: Path) -> None:
    limits = CommitLimits(wal_sync_interval_ms=NEVER_MS, group_count_max=3, group_bytes_max=250)
    with bench(tmp_path, limits) as b:
        with b.ops.hold("fdatasync"):
            futures = [b.committer.submit(b.write(b"a"))]
            b.journal.wait_for(">fdatasync")
            small = [b.write(b"a") for _ in range(6)]
            for write in small:
                write.approx_bytes = 1
            futures += [b.committer.submit(write) for write in [*small, *(b.write(b"a") for _ in range(4))]]
        for future in futures:
            result(future)
        assert [block.header.record_count for block in b.listener.blocks] == [1, 3, 3, 3, 1]


def test_log_behind_sync_in_one_group_waits_so_that_order_holds(tmp_path: Path) -> None:
    with bench(tmp_path, NO_BACKGROUND) as b:
        with b.ops.hold("fdatasync"):
            b.committer.submit(b.write(b"a"))
            b.journal.wait_for(">fdatasync")
            early = b.committer.submit(b.write(b"b", name="early", durability=Durability.LOG))
            synced = b.committer.submit(b.write(b"c", name="synced"))
            late = b.committer.submit(b.write(b"d", name="late", durability=Durability.LOG))
        assert [result(f) for f in (early, synced, late)] == [(2, 2), (3, 3), (4, 4)]
        events = b.journal.events
        writes = [index for index, event in enumerate(events) if event == "writev"]
        assert events.index("applied early") < writes[2] < events.index("applied synced") < events.index("applied late")


def test_a_refused_submission_fails_alone_and_takes_no_offset(tmp_path: Path) -> None:
    with bench(tmp_path, NO_BACKGROUND) as b:
        with b.ops.hold("fdatasync"):
            b.committer.submit(b.write(b"a"))
            b.journal.wait_for(">fdatasync")
            refused = b.write(b"x", name="refused")
            refused.prepare_error = NotServingError("moved")
            broken = b.committer.submit(refused)
            good = b.committer.submit(b.write(b"b"))
        with pytest.raises(NotServingError):
            result(broken)
        assert result(good) == (2, 2)
        assert "failed refused" not in b.journal.events, "prepare that raised has nothing to take back"


def test_a_draft_that_fits_no_block_fails_alone(tmp_path: Path) -> None:
    limits = CommitLimits(merge=MergeLimits(block_bytes_max=1000))
    with bench(tmp_path, limits) as b:
        large = b.write(*[b"x" * 50] * 40, name="large")
        with pytest.raises(InvalidInputError, match="write smaller batches"):
            result(b.committer.submit(large))
        assert "failed large" in b.journal.events
        unnamed = b.write(b"x", name="unnamed")
        unnamed.table_id = ""
        with pytest.raises(InvalidInputError):
            result(b.committer.submit(unnamed))
        assert result(b.committer.submit(b.write(b"a"))) == (1, 1)


def check_books_first(directory: Path) -> None:
    """Rule R12: when the books refuse, nothing of the group is in the log or acknowledged."""
    with bench(directory, NO_BACKGROUND) as b:
        writes = b.journal.count("writev")
        b.listener.error = UnavailableError("no books")
        for durability in (Durability.SYNC, Durability.LOG):
            refused = b.write(b"a", durability=durability)
            with must_raise(UnavailableError, "R12: a write that the books refused is acknowledged"):
                result(b.committer.submit(refused))
            assert refused.failure is b.listener.error
        assert b.journal.count("writev") == writes
        b.listener.error = None
        assert result(b.committer.submit(b.write(b"c"))) == (1, 1)
        assert rows_of(b.committer.wal_name, 1) == [b"c"]
        assert not b.deaths


def test_when_the_books_refuse_nothing_is_logged_or_acknowledged(tmp_path: Path) -> None:
    check_books_first(tmp_path)


def test_without_the_books_a_write_would_be_acknowledged_and_never_shipped(tmp_path: Path) -> None:
    with (
        fault("books-not-awaited"),
        pytest.raises(AssertionError, match="a write that the books refused is acknowledged"),
    ):
        check_books_first(tmp_path)


def test_a_given_up_group_is_taken_back_in_reverse(tmp_path: Path) -> None:
    with bench(tmp_path, NO_BACKGROUND) as b:
        with b.ops.hold("fdatasync"):
            b.committer.submit(b.write(b"a"))
            b.journal.wait_for(">fdatasync")
            futures = [b.committer.submit(b.write(b"b", name=name)) for name in ("one", "two")]
            b.listener.error = UnavailableError("no books")
        for future in futures:
            with pytest.raises(UnavailableError):
                result(future)
        assert [e for e in b.journal.events if e.startswith("failed")] == ["failed two", "failed one"]


def test_a_barrier_waits_for_all_before_it_and_syncs_what_was_only_written(tmp_path: Path) -> None:
    with bench(tmp_path, NO_BACKGROUND) as b:
        result(b.committer.submit(b.write(b"a", durability=Durability.FLUSH)))
        assert b.journal.count("fdatasync") == 0
        assert result(b.committer.submit(b.write(name="barrier"))) is None
        assert b.journal.count("fdatasync") == 1
        assert b.listener.synced_to == [(b.committer.wal_name, 1, b.listener.synced_to[0][2])]
        assert result(b.committer.submit(b.write(name="again"))) is None
        assert b.journal.count("fdatasync") == 1, "nothing new, nothing to sync"


def test_a_full_queue_says_so_and_takes_more_later(tmp_path: Path) -> None:
    limits = CommitLimits(queue_count_max=3, queue_bytes_max=1000)
    with bench(tmp_path, limits) as b:
        with b.ops.hold("fdatasync"):
            futures = [b.committer.submit(b.write(b"a"))]
            b.journal.wait_for(">fdatasync")
            large = b.write(b"a")
            large.approx_bytes = 5000
            futures.append(b.committer.submit(large))
            with pytest.raises(OverloadedError):
                b.committer.submit(b.write(b"a"))
        for future in futures:
            result(future)
        with b.ops.hold("fdatasync"):
            futures = [b.committer.submit(b.write(b"a"))]
            b.journal.wait_for(">fdatasync", 3)
            futures += [b.committer.submit(b.write(b"a")) for _ in range(3)]
            with pytest.raises(OverloadedError):
                b.committer.submit(b.write(b"a"))
        assert [result(f) for f in futures] == [(i, i) for i in range(3, 7)]
        assert b.committer.queued_bytes == 0


def test_a_cancelled_submission_is_not_prepared(tmp_path: Path) -> None:
    with bench(tmp_path) as b:
        with b.ops.hold("fdatasync"):
            b.committer.submit(b.write(b"a"))
            b.journal.wait_for(">fdatasync")
            cancelled = b.committer.submit(b.write(b"b", name="cancelled"))
            assert cancelled.cancel()
        assert result(b.committer.submit(b.write(b"c"))) == (2, 2)
        assert "prepare cancelled" not in b.journal.events


def test_close_commits_what_was_submitted_and_seals(tmp_path: Path) -> None:
    b = Bench(tmp_path)
    with b.ops.hold("fdatasync"):
        futures = [b.committer.submit(b.write(b"%d" % i, durability=Durability(i % 4))) for i in range(40)]
    b.committer.close()
    b.committer.close()
    assert all(future.done() for future in futures)
    name, seal = b.listener.seals[0]
    assert (seal.offset, read_seal(MACHINE, name)) == (30, seal)
    assert rows_of(name, 30) == [b"%d" % i for i in range(40) if i % 4]
    for refused in (lambda: b.committer.submit(b.write(b"x")), b.committer.roll):
        with pytest.raises(UnavailableError):
            refused()


def test_rolling_on_demand_returns_when_a_new_log_is_there(tmp_path: Path) -> None:
    with bench(tmp_path, NO_BACKGROUND) as b:
        assert b.committer.roll() is None, "nothing in it"
        first = b.committer.wal_name
        result(b.committer.submit(b.write(b"a", durability=Durability.FLUSH)))
        seal = b.committer.roll()
        assert seal == read_seal(MACHINE, first)
        assert seal is not None
        assert seal.offset == 1
        assert b.listener.seals == [(first, seal)]
        second = b.committer.wal_name
        assert second != first
        assert result(b.committer.submit(b.write(b"b"))) == (1, 1)
        assert (rows_of(first, 1), rows_of(second, 1)) == ([b"a"], [b"b"])


def test_what_was_submitted_before_a_roll_is_in_the_sealed_log(tmp_path: Path) -> None:
    with bench(tmp_path, NO_BACKGROUND) as b:
        with b.ops.hold("fdatasync"):
            before = [b.committer.submit(b.write(b"a")) for _ in range(3)]
        seal = b.committer.roll()
        assert seal is not None
        assert seal.offset == 3
        assert all(future.done() for future in before)


def test_a_roll_that_takes_too_long_is_done_later(tmp_path: Path) -> None:
    with bench(tmp_path, NO_BACKGROUND) as b:
        with b.ops.hold("fdatasync"):
            written = b.committer.submit(b.write(b"a"))
            with pytest.raises(UnavailableError, match="not rolled within 1 ms"):
                b.committer.roll(timeout_ms=1)
        assert result(written) == (1, 1)
        b.journal.wait_for("rolled")
        assert result(b.committer.submit(b.write(b"b"))) == (1, 1)


def test_rolling_by_size(tmp_path: Path) -> None:
    with bench(tmp_path, CommitLimits(wal_roll_bytes=2000)) as b:
        for index in range(8):
            result(b.committer.submit(b.write(b"%d" % index)))
    assert len(b.listener.seals) >= 3
    rows = [row for name, seal in b.listener.seals if seal.offset for row in rows_of(name, seal.offset)]
    assert rows == [b"%d" % index for index in range(8)]
    assert all(seal.position < 2000 + 1000 for _, seal in b.listener.seals)


def test_a_log_that_is_due_to_end_goes_on_while_the_books_do_not_answer(tmp_path: Path) -> None:
    clock = SkewedClock()
    with bench(tmp_path, CommitLimits(wal_roll_age_ms=NEVER_MS), clock) as b:
        b.listener.books_answer = False
        clock.ahead_ns += 2 * NEVER_MS * 1_000_000
        for number in range(1, 4):
            assert result(b.committer.submit(b.write(b"a"))) == (number, number)
        assert not b.listener.seals, "the next log would need first uses, for which all writes wait"
        b.listener.books_answer = True
        clock.ahead_ns += 2 * NEVER_MS * 1_000_000
        result(b.committer.submit(b.write(b"a")))
        b.journal.wait_for("rolled")


def test_rolling_by_age_only_when_there_is_something(tmp_path: Path) -> None:
    clock = SkewedClock()
    with bench(tmp_path, CommitLimits(wal_roll_age_ms=NEVER_MS), clock) as b:
        clock.ahead_ns += 2 * NEVER_MS * 1_000_000
        result(b.committer.submit(b.write()))
        assert not b.listener.seals
        result(b.committer.submit(b.write(b"a")))
        b.journal.wait_for("rolled")
        assert [seal.offset for _, seal in b.listener.seals] == [1]
        assert result(b.committer.submit(b.write(b"b"))) == (1, 1)
