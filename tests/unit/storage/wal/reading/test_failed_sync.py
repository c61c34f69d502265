"""A sync that fails: the page cache shows bytes that the disk lacks. All sealed bytes of a recovery are on the disk
(R15).
"""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
import pytest

from bookkeeper.errors import CorruptionError, UnavailableError
from bookkeeper.storage.volume import local_volume
from bookkeeper.storage.volume.file_ops import CALL_BYTES, FileOps
from bookkeeper.storage.volume.sources import MappedSource
from bookkeeper.storage.wal.blocks.block_pb2 import FileHeader
from bookkeeper.storage.wal.reading import seal_proof as proven
from bookkeeper.storage.wal.reading import wal_recovery as recovery
from bookkeeper.storage.wal.reading.block_reader import read_blocks, read_headers
from bookkeeper.storage.wal.reading.wal_recovery import delete_log, recover
from bookkeeper.storage.wal.reading.wal_view import WalView
from bookkeeper.storage.wal.writing.seal import (
    COPY_SUFFIX,
    SEAL_SUFFIX,
    Seal,
    SealFile,
    encode_seal,
    read_seal,
    read_seal_file,
)
from bookkeeper.storage.wal.writing.wal_writer import WalWriter
from tests.support.failing_disk import failing_disk
from tests.support.faults import fault
from tests.support.page_cache import CachedFileOps, PageCache, path_of_descriptor
from tests.support.small_disk import NoMountError
from tests.support.volumes import MACHINE, name_at, path_of, rooted
from tests.support.wal_files import Spec, append, write_wal

BLOCKS = [Spec([b"a", b"b"]), Spec([b"c" * 5_000]), Spec([b"d"])]


ROWS = [b"a", b"b", b"c" * 5_000, b"d"]


def copies(log: Path) -> list[Path]:
    """Of a log."""
    return sorted(log.parent.glob(f"*{COPY_SUFFIX}"))


def lose_power(cache: PageCache, log: Path) -> None:
    """Of the machine that a log lies on."""
    for path in (log, *copies(log)):
        cache.lose_power(path)


def rows_below(seal: Seal, name: str) -> list[bytes]:
    """Every record up to a seal, read from the file as it is now."""
    return [
        row for block in read_blocks(MACHINE, name, 1, seal.offset) for row in block.batch().column("row").to_pylist()
    ]


def rows_left(seal: Seal, name: str) -> list[bytes] | None:
    """The same, or None where the file is damaged."""
    try:
        return rows_below(seal, name)
    except CorruptionError:
        return None


class Log:
    """A log over a modelled disk: the first ``synced`` blocks are durable, the sync of all others failed."""

    def __init__(self, directory: Path, synced: int) -> None:
        self.cache = PageCache()
        self.ops = CachedFileOps(self.cache)
        self.writer = WalWriter.create(rooted(self.ops), name_at(directory / "log" / "1.wal"), FileHeader())
        for spec in BLOCKS[:synced]:
            append(self.writer, [spec])
        self.durable = self.cache.on_disk(str(path_of(self.writer.name)))
        self.ops.fails = True
        with pytest.raises(UnavailableError, match="can't be synced"):
            append(self.writer, BLOCKS[synced:])
        self.writer.abandon()
        self.ops.fails = False

    @property
    def name(self) -> str:
        return self.writer.name

    def lose_power(self) -> None:
        lose_power(self.cache, path_of(self.writer.name))


def check_sealed_is_on_the_disk(directory: Path, synced: int) -> None:
    log = Log(directory, synced)
    shown = path_of(log.writer.name).read_bytes()
    assert log.durable == shown[: len(log.durable)] != shown, "the file shows more than its disk has"
    seal = recover(rooted(log.ops), log.name)
    log.lose_power()
    assert rows_left(seal, log.name) == ROWS, "a sealed record is lost with the power"
    assert recover(rooted(log.ops), log.name) == seal


@pytest.mark.parametrize("synced", [0, 1, 2])
def test_what_is_sealed_after_a_failed_sync_survives_a_power_failure(tmp_path: Path, synced: int) -> None:
    check_sealed_is_on_the_disk(tmp_path, synced)


@pytest.mark.parametrize("synced", [0, 1, 2])
def test_a_recovery_that_believes_the_page_cache_seals_what_is_lost(tmp_path: Path, synced: int) -> None:
    with fault("the-page-cache-is-believed"), pytest.raises(AssertionError, match="a sealed record is lost"):
        check_sealed_is_on_the_disk(tmp_path, synced)


def test_a_header_whose_sync_failed_is_on_the_disk_when_it_is_sealed(tmp_path: Path) -> None:
    """The log that a tserver could not make: it has a name, and no process uses it."""
    ops = CachedFileOps(PageCache())
    ops.fails = True
    path = tmp_path / "log" / "1.wal"
    path.parent.mkdir()
    with pytest.raises(UnavailableError, match="can't be made"):
        WalWriter.create(rooted(ops), name_at(path), FileHeader())
    ops.fails = False
    assert recover(rooted(ops), name_at(path)).offset == 0
    lose_power(ops.cache, path)
    assert list(read_headers(MACHINE, name_at(path))) == []


def test_what_the_disk_has_is_not_copied(tmp_path: Path) -> None:
    """The usual case: the owner was killed. Its last sync succeeded, and no later block proves that."""
    writer = WalWriter.create(MACHINE, name_at(tmp_path / "log" / "1.wal"), FileHeader())
    append(writer, BLOCKS)
    writer.abandon()
    recover(MACHINE, writer.name)
    assert copies(path_of(writer.name)) == []


@pytest.mark.parametrize("refused", ["open", "read_disk"])
def test_a_log_is_copied_where_its_disk_can_not_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    """A filesystem without a way past the page cache, or a sector that is gone."""
    writer = WalWriter.create(MACHINE, name_at(tmp_path / "log" / "1.wal"), FileHeader())
    append(writer, BLOCKS)
    writer.abandon()
    ops = FileOps()

    def refuse(*_arguments: object) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    def open_cached(path: Path, flags: int) -> int:
        return refuse() if flags & os.O_DIRECT else FileOps.open(ops, path, flags)

    monkeypatch.setattr(ops, refused, open_cached if refused == "open" else refuse)
    seal = recover(rooted(ops), writer.name)
    assert len(copies(path_of(writer.name))) == 1
    path_of(writer.name).write_bytes(b"")
    assert rows_below(seal, writer.name) == ROWS, "the copy is the log"
    assert [at.last_offset for at in WalView(MACHINE, writer.name).headers()] == [2, 3, 4]


def test_a_recovery_whose_own_sync_fails_seals_nothing(tmp_path: Path) -> None:
    log = Log(tmp_path, 1)
    for _ in range(3):
        log.ops.fails = True
        with pytest.raises(UnavailableError, match="can't be recovered"):
            recover(rooted(log.ops), log.name)
        assert read_seal(MACHINE, log.name) is None
    log.ops.fails = False
    seal = recover(rooted(log.ops), log.name)
    log.lose_power()
    assert rows_below(seal, log.name) == ROWS


class CopiesFailOps(CachedFileOps):
    """The sync of a copy fails."""

    def fsync(self, fd: int) -> None:
        self.fails = path_of_descriptor(fd).endswith(COPY_SUFFIX)
        super().fsync(fd)


def test_a_copy_whose_sync_fails_is_no_log(tmp_path: Path) -> None:
    log = Log(tmp_path, 1)
    with pytest.raises(UnavailableError, match="can't be recovered"):
        recover(rooted(CopiesFailOps(log.cache)), log.name)
    assert read_seal(MACHINE, log.name) is None
    assert copies(path_of(log.writer.name)) == []


class PowerFailsError(Exception):
    """In the middle of a recovery."""


class CutOps(CachedFileOps):
    """The power fails before the call of this number; a write that is cut has written half."""

    def __init__(self, cache: PageCache, calls: int) -> None:
        super().__init__(cache)
        self._left = calls

    def _count(self) -> bool:
        self._left -= 1
        return self._left < 0

    def writev(self, fd: int, buffers: Sequence[bytes | pa.Buffer | memoryview]) -> int:
        if self._count():
            half = memoryview(buffers[0])[: len(memoryview(buffers[0])) // 2]
            super().writev(fd, [half])
            raise PowerFailsError
        return super().writev(fd, buffers)

    def fsync(self, fd: int) -> None:
        if self._count():
            raise PowerFailsError
        super().fsync(fd)

    def link(self, source: Path, target: Path) -> None:
        if self._count():
            raise PowerFailsError
        super().link(source, target)


def recover_cut(directory: Path, calls: int) -> bool:
    """Recover with a power failure after so many calls, and once more; whether there were so many calls."""
    log = Log(directory, 1)
    cut = True
    with suppress(PowerFailsError):
        recover(rooted(CutOps(log.cache, calls)), log.name)
        cut = False
    log.lose_power()
    before = read_seal(MACHINE, log.name)
    seal = recover(rooted(log.ops), log.name)
    assert before in (None, seal)
    log.lose_power()
    assert rows_below(seal, log.name) == ROWS[: seal.offset]
    assert seal.offset >= 2, "the synced records"
    delete_log(MACHINE, log.name)
    assert list(path_of(log.writer.name).parent.iterdir()) == [], "copies that no seal names go with the log"
    return cut


def test_a_power_failure_at_any_call_of_a_recovery_loses_nothing_that_was_synced(tmp_path: Path) -> None:
    calls = 0
    while recover_cut(tmp_path / str(calls), calls):
        calls += 1
    assert calls >= 10, "a sync, the copy's frames, its sync, the directory's, the seal, its sync, its name"


def test_what_later_blocks_prove_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cost is that of the last groups, however long the log is."""
    writer = WalWriter.create(MACHINE, name_at(tmp_path / "log" / "1.wal"), FileHeader())
    for _ in range(60):
        append(writer, [Spec([b"x" * 100_000])])
    writer.abandon()
    ops, read = FileOps(), list[int]()

    def read_disk(fd: int, buffer: mmap.mmap, position: int) -> int:
        read.append(position)
        return FileOps.read_disk(ops, fd, buffer, position)

    monkeypatch.setattr(ops, "read_disk", read_disk)
    assert recover(rooted(ops), writer.name).offset == 60
    last = list(read_headers(MACHINE, writer.name))[-1]
    assert 0 < len(read) <= 2
    assert min(read) > last.position - CALL_BYTES > 10 * CALL_BYTES


class Meanwhile(FileOps):
    """Something else happens before the seal is made."""

    def __init__(self, act: Callable[[], object]) -> None:
        self._act = act

    def link(self, source: Path, target: Path) -> None:
        self._act()
        super().link(source, target)


def test_two_recoveries_agree_on_one_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = write_wal(tmp_path / "log" / "1.wal", BLOCKS)
    monkeypatch.setattr(proven, "is_on_disk", lambda *_arguments: False)
    seals = list[Seal]()
    seals.append(recover(rooted(Meanwhile(lambda: seals.append(recover(MACHINE, name)))), name))
    assert seals[0] == seals[1]
    found = read_seal_file(MACHINE, name)
    assert found is not None
    assert copies(path_of(name)) == [path_of(name + found.copy)]
    assert rows_below(seals[0], name) == ROWS


def test_a_copy_does_not_replace_a_log_that_another_recovery_sealed(tmp_path: Path) -> None:
    """The other one counted more, of an owner that lives after all, and found all of it on the disk."""
    writer = WalWriter.create(MACHINE, name_at(tmp_path / "log" / "1.wal"), FileHeader())
    append(writer, BLOCKS[:1])

    def write_on() -> None:
        append(writer, BLOCKS[1:])
        assert recover(MACHINE, writer.name).offset == 4

    with patch.object(proven, "is_on_disk", side_effect=[False, True]):
        seal = recover(rooted(Meanwhile(write_on)), writer.name)
    assert seal.offset == 4
    assert rows_below(seal, writer.name) == ROWS
    assert copies(path_of(writer.name)) == []


class Evicting:
    """A mapped log whose last page is dropped when it was counted, and read from a disk that lacks it."""

    def __init__(self, raw: bytes, reads: int) -> None:
        self._raw = raw
        self._reads = reads
        self.size = len(raw)

    def read(self, position: int, length: int) -> pa.Buffer:
        self._reads -= 1
        raw = self._raw if self._reads >= 0 else self._raw[:-200] + bytes(200)
        return pa.py_buffer(raw[position : position + length])


def test_bytes_that_change_between_counting_and_copying_are_not_sealed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = write_wal(tmp_path / "log" / "1.wal", BLOCKS)
    path = path_of(name)
    raw = path.read_bytes()

    class Counting(MappedSource):
        reads = 0

        def read(self, position: int, length: int) -> pa.Buffer:
            Counting.reads += 1
            return super().read(position, length)

    recovery.count_blocks(name, Counting(pa.py_buffer(raw)))
    header_reads = 2  # for the log's name
    monkeypatch.setattr(proven, "is_on_disk", lambda *_arguments: False)
    source = Evicting(raw, Counting.reads + header_reads)
    with (
        patch.object(local_volume, "map_file", return_value=source),
        pytest.raises(UnavailableError, match="changes while"),
    ):
        recover(MACHINE, name)
    assert read_seal(MACHINE, name) is None
    assert copies(path) == []
    assert recover(MACHINE, name).offset == 4


@pytest.mark.parametrize("copy", ["../../1.wal", ".copy", f".{'0' * 32}.copy/..", 7])
def test_a_seal_names_a_copy_of_its_own_log_only(tmp_path: Path, copy: object) -> None:
    name = write_wal(tmp_path / "log" / "1.wal", BLOCKS, seal=True)
    found = read_seal_file(MACHINE, name)
    assert found is not None
    path_of(name + SEAL_SUFFIX).write_bytes(encode_seal(SealFile(found.seal, copy)))  # type: ignore[arg-type]
    with pytest.raises(CorruptionError, match="does not parse"):
        list(read_headers(MACHINE, name))


# ---- a real disk


def check_a_disk_that_fails(directory: Path) -> None:
    with failing_disk(directory) as disk:
        writer = WalWriter.create(MACHINE, name_at(disk.directory / "log" / "1.wal"), FileHeader())
        append(writer, BLOCKS[:1])
        disk.fail()
        with pytest.raises(UnavailableError, match="can't be synced"):
            append(writer, BLOCKS[1:])
        writer.abandon()
        disk.mend()
        with disk.after_power_failure() as left:
            assert (left / "log" / "1.wal").read_bytes() != path_of(writer.name).read_bytes(), (
                "the page cache shows more"
            )
            assert recover(MACHINE, name_at(left / "log" / "1.wal")).offset == 2
        seal = recover(MACHINE, writer.name)
        assert seal.offset == 4
        with disk.after_power_failure() as left:
            name = name_at(left / "log" / "1.wal")
            assert read_seal(MACHINE, name) == seal
            assert rows_left(seal, name) == ROWS, "a sealed record is lost with the power"


@pytest.fixture
def disks(tmp_path: Path) -> Path:
    """A directory below which disks that fail can be made."""
    try:
        with failing_disk(tmp_path / "trial"):
            return tmp_path
    except NoMountError as error:
        pytest.skip(str(error))


def test_what_is_sealed_after_a_real_disk_failed_is_on_it(disks: Path) -> None:
    check_a_disk_that_fails(disks / "disk")


def test_a_recovery_that_believes_the_page_cache_of_a_real_disk_seals_what_is_lost(disks: Path) -> None:
    with fault("the-page-cache-is-believed"), pytest.raises(AssertionError, match="a sealed record is lost"):
        check_a_disk_that_fails(disks / "disk")
