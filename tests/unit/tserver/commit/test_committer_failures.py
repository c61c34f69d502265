"""Group commit when the lease, the log or the code fails: no writer gets an acknowledgement, and the tserver ends."""

from __future__ import annotations

import errno
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

import pytest

from bookkeeper.errors import LeaseLostError, UnavailableError
from bookkeeper.storage.volume.file_ops import FileOps
from bookkeeper.storage.wal.reading.block_reader import read_blocks
from bookkeeper.storage.wal.reading.wal_recovery import recover
from bookkeeper.storage.wal.writing.seal import read_seal
from bookkeeper.tserver.commit.submission import Durability
from tests.support.faults import fault
from tests.support.must_raise import must_raise
from tests.support.volumes import MACHINE, rooted
from tests.support.wal_commits import PATIENCE_S, Bench, bench


def rows_of(name: str, last: int) -> list[bytes]:
    return [row for block in read_blocks(MACHINE, name, 1, last) for row in block.batch().column("row").to_pylist()]


def result(future: Future[object]) -> object:
    return future.result(PATIENCE_S)


def check_lost_lease(directory: Path) -> None:
    """Rule R15 at the owner: a durable group is not acknowledged by a process that may be believed dead."""
    with bench(directory) as b:
        b.fence_error = LeaseLostError("gone")
        with must_raise(LeaseLostError, "R15: an owner without a lease acknowledges"):
            result(b.committer.submit(b.write(b"a")))
        assert "applied w" not in b.journal.events
        assert not b.listener.synced_to, "no listener counts on it either"
        assert len(b.deaths) == 1
        with pytest.raises(UnavailableError):
            b.committer.submit(b.write(b"b"))


@pytest.mark.parametrize("durability", list(Durability))
def test_nothing_is_acknowledged_without_a_lease(tmp_path: Path, durability: Durability) -> None:
    b = Bench(tmp_path)
    b.fence_error = LeaseLostError("gone")
    future = b.committer.submit(b.write(b"a", durability=durability))
    b.journal.wait_for("die")
    with pytest.raises(LeaseLostError):
        result(future)
    assert "applied w" not in b.journal.events
    b.committer.close()


def test_a_lost_lease_ends_the_process(tmp_path: Path) -> None:
    check_lost_lease(tmp_path)


def test_without_the_fence_a_zombie_would_acknowledge(tmp_path: Path) -> None:
    with fault("no-fence"), pytest.raises(AssertionError, match="an owner without a lease acknowledges"):
        check_lost_lease(tmp_path)


def check_sealed_under_the_owner(directory: Path) -> None:
    """Recovery and an owner that lives after all: records after the seal are never acknowledged."""
    with bench(directory) as b:
        assert result(b.committer.submit(b.write(b"a"))) == (1, 1)
        name = b.committer.wal_name
        seal = recover(MACHINE, name)
        with must_raise(LeaseLostError, "R15: an owner acknowledges a write behind the seal"):
            result(b.committer.submit(b.write(b"b")))
        assert len(b.deaths) == 1
        assert seal.offset == 1
        assert read_seal(MACHINE, name) == seal
        assert rows_of(name, 1) == [b"a"]


def test_a_log_sealed_by_somebody_else_takes_no_more(tmp_path: Path) -> None:
    check_sealed_under_the_owner(tmp_path)


def test_without_a_look_at_the_seal_an_owner_would_acknowledge_what_nobody_reads(tmp_path: Path) -> None:
    with (
        fault("seal-not-read"),
        pytest.raises(AssertionError, match="an owner acknowledges a write behind the seal"),
    ):
        check_sealed_under_the_owner(tmp_path)


class WritingMeanwhile(FileOps):
    """A recovery's calls; between counting and sealing, the owner writes."""

    def __init__(self, write: Callable[[], None]) -> None:
        self._write = write

    def link(self, source: Path, target: Path) -> None:
        self._write()
        super().link(source, target)


def check_recovery_of_the_living(directory: Path) -> None:
    """Acknowledged records lie below the seal after any event between counting and sealing."""
    with bench(directory) as b:
        assert result(b.committer.submit(b.write(b"a"))) == (1, 1)
        acknowledged = [1]

        def write() -> None:
            error = b.committer.submit(b.write(b"b")).exception(PATIENCE_S)
            acknowledged.extend([] if error else [2])

        seal = recover(rooted(WritingMeanwhile(write)), b.committer.wal_name)
        assert max(acknowledged) <= seal.offset, "R15: an acknowledged write lies behind the seal"


def test_recovery_of_a_log_whose_owner_lives_loses_nothing_acknowledged(tmp_path: Path) -> None:
    check_recovery_of_the_living(tmp_path)


def test_counting_without_a_fence_would_lose_it(tmp_path: Path) -> None:
    with (
        fault("counted-without-fence"),
        pytest.raises(AssertionError, match="an acknowledged write lies behind the seal"),
    ):
        check_recovery_of_the_living(tmp_path)


def test_a_recovery_that_has_begun_to_count_is_enough(tmp_path: Path) -> None:
    b = Bench(tmp_path)
    (tmp_path / "session" / "1.wal.fence").touch()
    with pytest.raises(LeaseLostError):
        result(b.committer.submit(b.write(b"a")))
    b.committer.close()
    assert len(b.deaths) == 1


@pytest.mark.parametrize("call", ["writev", "fdatasync"])
def test_a_log_that_fails_ends_the_process(tmp_path: Path, call: str) -> None:
    b = Bench(tmp_path)
    b.ops.errors[call] = OSError(errno.EIO, "the disk is gone")
    futures = [b.committer.submit(b.write(b"a")) for _ in range(3)]
    b.journal.wait_for("die")
    for future in futures:
        with pytest.raises((LeaseLostError, UnavailableError)):
            result(future)
    assert "applied w" not in b.journal.events
    assert "the disk is gone" in b.deaths[0]
    b.committer.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("where", ["prepare", "applied", "books"])
def test_an_unforeseen_error_ends_the_process(tmp_path: Path, where: str) -> None:
    b = Bench(tmp_path)
    write = b.write(b"a")
    if where == "prepare":
        write.prepare_error = ZeroDivisionError()
    elif where == "applied":
        write.applied_error = ZeroDivisionError()
    else:
        b.listener.error = ZeroDivisionError()
    future = b.committer.submit(write)
    b.journal.wait_for("die")
    with pytest.raises(LeaseLostError):
        result(future)
    b.committer.close()
    assert "ZeroDivisionError" in b.deaths[0]
