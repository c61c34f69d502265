"""A full disk shows before any write: calls that need disk are refused, others go on, and later all do."""

from __future__ import annotations

import errno
from concurrent.futures import Future
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.errors import LeaseLostError, NoSpaceError
from bookkeeper.storage.wal.blocks.block import encode_batch
from bookkeeper.storage.wal.blocks.block_pb2 import BlockHeader, FileHeader
from bookkeeper.storage.wal.blocks.frame import frame_bytes
from bookkeeper.storage.wal.reading.block_reader import read_blocks
from bookkeeper.storage.wal.writing.seal import read_seal
from bookkeeper.storage.wal.writing.wal_writer import ENDING_BYTES, RESERVED_BYTES, WalWriter
from bookkeeper.tserver.commit.commit_limits import CommitLimits, disk_bytes
from tests.support.faults import fault
from tests.support.must_raise import must_raise
from tests.support.small_disk import NoMountError, small_disk
from tests.support.tservers import wait_until
from tests.support.volumes import MACHINE, name_at, rooted
from tests.support.wal_commits import PATIENCE_S, Bench, Journal, JournalOps, SkewedClock, bench
from tests.support.wal_files import records

FULL = OSError(errno.ENOSPC, "No space left on device")
HEADER = FileHeader(instance_id="west", session_id="session", created_time_ms=1)
HOUR_MS = 3_600_000


def result(future: Future[object]) -> object:
    return future.result(PATIENCE_S)


def rows_of(name: str, last: int) -> list[bytes]:
    return [row for block in read_blocks(MACHINE, name, 1, last) for row in block.batch().column("row").to_pylist()]


def check_refused(directory: Path) -> None:
    with bench(directory) as b:
        assert result(b.committer.submit(b.write(b"a"))) == (1, 1)
        size = (directory / "session" / "1.wal").stat().st_size
        b.ops.errors["allocate"] = FULL
        large = b.write(b"b")
        large.approx_bytes = 1 << 22
        with must_raise(
            NoSpaceError, "a write for which there is no room is not refused in time", match="make room there"
        ):
            result(b.committer.submit(large))
        barrier = b.write(name="barrier")
        barrier.approx_bytes = 0
        assert result(b.committer.submit(barrier)) is None
        assert (directory / "session" / "1.wal").stat().st_size == size
        assert "prepare barrier" in b.journal.events
        assert large.failure is None
        b.ops.errors.clear()
        large = b.write(b"c")
        large.approx_bytes = 1 << 22
        assert result(b.committer.submit(large)) == (2, 2)
        assert rows_of(b.committer.wal_name, 2) == [b"a", b"c"]
        assert not b.deaths


def test_writes_are_refused_while_there_is_no_room_and_go_on_afterwards(tmp_path: Path) -> None:
    check_refused(tmp_path)


def test_room_on_the_disk_is_noticed_without_a_write(tmp_path: Path) -> None:
    with bench(tmp_path) as b:
        b.ops.errors["allocate"] = FULL
        large = b.write(b"b")
        large.approx_bytes = 1 << 22
        with pytest.raises(NoSpaceError):
            result(b.committer.submit(large))
        assert b.committer.is_full
        b.ops.errors.clear()
        wait_until(lambda: not b.committer.is_full, "there is room, and nobody says so before the next write", 20.0)


def test_without_a_reservation_nothing_is_refused_in_time(tmp_path: Path) -> None:
    with (
        fault("disk-is-not-reserved"),
        pytest.raises(AssertionError, match="a write for which there is no room is not refused in time"),
    ):
        check_refused(tmp_path)


def test_a_disk_is_left_to_others_before_it_is_full(tmp_path: Path) -> None:
    writer = WalWriter.create(MACHINE, name_at(tmp_path / "1.wal"), HEADER, keep_free_bytes=1 << 60)
    with pytest.raises(NoSpaceError, match=f"at least {1 << 60} bytes are kept free"):
        writer.reserve(1)
    writer.abandon()


def test_what_a_log_has_reserved_is_used_when_others_have_filled_the_disk(tmp_path: Path) -> None:
    try:
        with small_disk(tmp_path / "disk", 8 << 20) as disk:
            writer = WalWriter.create(MACHINE, name_at(disk.directory / "1.wal"), HEADER, keep_free_bytes=4 << 20)
            writer.reserve(1)
            disk.fill(leave_bytes=1 << 20)
            writer.reserve(RESERVED_BYTES // 2)
            with pytest.raises(NoSpaceError, match="kept free"):
                writer.reserve(2 * RESERVED_BYTES)
            assert disk.free_bytes() == 1 << 20
            disk.release()
            writer.reserve(2 * RESERVED_BYTES)
            writer.abandon()
    except NoMountError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("call", ["writev", "fsync"])
def test_a_log_that_can_not_be_made_leaves_no_file(tmp_path: Path, call: str) -> None:
    ops = JournalOps(Journal())
    ops.errors[call] = FULL
    with pytest.raises(NoSpaceError, match=r"1\.wal can't be made"):
        WalWriter.create(rooted(ops), name_at(tmp_path / "1.wal"), HEADER)
    assert not list(tmp_path.iterdir())


def test_what_was_reserved_is_given_back_with_the_seal(tmp_path: Path) -> None:
    with bench(tmp_path) as b:
        large = b.write(b"a")
        large.approx_bytes = 1 << 22
        result(b.committer.submit(large))
        assert b.committer.roll() is not None
    assert (tmp_path / "session" / "1.wal").stat().st_blocks * 512 < 1 << 16


def check_roll(directory: Path, call: str) -> None:
    """``call`` refuses the bytes of a roll; the reserve is enough for the writes between."""
    with bench(directory) as b:
        assert result(b.committer.submit(b.write(b"a"))) == (1, 1)
        b.ops.errors[call] = FULL
        with pytest.raises(NoSpaceError):
            b.committer.roll()
        del b.ops.errors[call]
        assert result(b.committer.submit(b.write(b"b"))) == (2, 2), "the same log goes on"
        name = b.committer.wal_name
        assert read_seal(MACHINE, name) is None
        assert b.committer.roll() == read_seal(MACHINE, name)
        assert rows_of(name, 2) == [b"a", b"b"]
        assert result(b.committer.submit(b.write(b"c"))) == (1, 1)
        assert not b.deaths


@pytest.mark.parametrize("call", ["writev", "link"])
def test_a_log_goes_on_when_its_seal_or_the_next_one_finds_no_room(tmp_path: Path, call: str) -> None:
    check_roll(tmp_path, call)


@pytest.mark.parametrize("call", ["writev", "link"])
def test_a_seal_that_somebody_waits_for_takes_the_disk_that_is_reserved(tmp_path: Path, call: str) -> None:
    with bench(tmp_path) as b:
        result(b.committer.submit(b.write(b"a")))
        name = b.committer.wal_name
        b.ops.errors[call], b.ops.freed_by_cut = FULL, {call}
        seal = b.committer.roll()
        assert seal is not None
        assert seal == read_seal(MACHINE, name)
        assert not b.deaths


def test_a_log_keeps_disk_for_its_end_when_writes_get_no_more(tmp_path: Path) -> None:
    ops = JournalOps(Journal())
    writer = WalWriter.create(rooted(ops), name_at(tmp_path / "1.wal"), HEADER)
    writer.reserve(1)
    ops.errors["allocate"] = FULL
    length = 0
    while True:
        try:
            writer.reserve(length + 1024)
        except NoSpaceError:
            break
        length += 1024
    before = (tmp_path / "1.wal").stat().st_blocks * 512
    assert before - length >= ENDING_BYTES
    writer.free_reserved()
    assert (tmp_path / "1.wal").stat().st_blocks * 512 < ENDING_BYTES
    writer.abandon()


def test_else_a_full_disk_would_end_the_server(tmp_path: Path) -> None:
    with fault("rolls-do-not-reserve"), pytest.raises(LeaseLostError, match="the log can't be sealed"):
        check_roll(tmp_path, "link")


def test_a_log_that_is_due_to_end_is_ended_when_there_is_room(tmp_path: Path) -> None:
    clock = SkewedClock()
    with bench(tmp_path, CommitLimits(wal_roll_age_ms=HOUR_MS), clock) as b:
        result(b.committer.submit(b.write(b"a")))
        first = b.committer.wal_name
        b.ops.errors["link"] = FULL
        clock.ahead_ns += 2 * HOUR_MS * 1_000_000
        result(b.committer.submit(b.write(b"b")))
        assert b.committer.wal_name == first
        b.ops.errors.clear()
        b.journal.wait_for("rolled")
        assert not b.deaths


def test_a_server_that_ends_without_room_leaves_its_log_to_recovery(tmp_path: Path) -> None:
    b = Bench(tmp_path)
    result(b.committer.submit(b.write(b"a")))
    b.ops.errors["link"] = FULL
    b.committer.close()
    assert not b.deaths
    assert read_seal(MACHINE, b.committer.wal_name) is None


@given(st.lists(st.integers(0, 64 * 1024), min_size=1, max_size=8), st.integers(0, 3))
def test_what_is_reserved_is_enough_for_any_rows(lengths: list[int], targets: int) -> None:
    rows = sorted(b"r" * length for length in lengths)
    batch = records(rows)
    header = BlockHeader(table_id="1", first_offset=1 << 60, record_count=len(rows), min_row=rows[0], max_row=rows[-1])
    header.groups.add(name="default", families=[b"f"])
    for number in range(targets):
        header.block_targets.add(cluster="c" * 60, remote_table_id=str(number), incarnation=1)
    taken = frame_bytes(header.ByteSize(), encode_batch(batch).size)
    assert taken <= disk_bytes([batch.nbytes])
