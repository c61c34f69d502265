"""The writer: whole frames after short writes of the system, durable names, and no second try after a failure."""

from __future__ import annotations

import errno
import math
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bookkeeper.errors import ExistsError, InvalidInputError, LeaseLostError, PermanentError, UnavailableError
from bookkeeper.storage.volume.file_ops import CALL_BYTES, FileOps
from bookkeeper.storage.wal.blocks.block import Block, encode_batch
from bookkeeper.storage.wal.blocks.block_pb2 import BlockHeader, FileHeader
from bookkeeper.storage.wal.blocks.frame import HEADER_BYTES_MAX
from bookkeeper.storage.wal.reading.block_reader import read_blocks, read_headers
from bookkeeper.storage.wal.writing.seal import Seal, read_seal, write_seal
from bookkeeper.storage.wal.writing.wal_writer import UNCACHED_BYTES, WalWriter
from tests.support.volumes import MACHINE, name_at, path_of, rooted
from tests.support.wal_commits import Journal, JournalOps
from tests.support.wal_files import Spec, append, block, records

SPECS = [Spec([b"a", b"b"]), Spec([b"c" * 100]), Spec([b"d"])]
HEADER = FileHeader(instance_id="west", session_id="s", created_time_ms=7)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=20)
@given(st.integers(1, 900))
def test_short_writes_are_continued(tmp_path: Path, bytes_max: int) -> None:
    ops = JournalOps(Journal())
    ops.write_bytes_max = bytes_max
    whole = WalWriter.create(MACHINE, name_at(tmp_path / f"whole{len(list(tmp_path.iterdir()))}"), HEADER)
    short = WalWriter.create(rooted(ops), name_at(tmp_path / f"short{len(list(tmp_path.iterdir()))}"), HEADER)
    for writer in (whole, short):
        append(writer, SPECS)
    assert short.position == path_of(short.name).stat().st_size == whole.position
    assert [b.payload for b in read_blocks(MACHINE, short.name, 1, 4)] == [
        b.payload for b in read_blocks(MACHINE, whole.name, 1, 4)
    ]
    for writer in (whole, short):
        writer.abandon()


def test_more_buffers_than_one_call_takes(tmp_path: Path) -> None:
    writer = WalWriter.create(MACHINE, name_at(tmp_path / "1.wal"), HEADER)
    append(writer, [Spec([b"%d" % index]) for index in range(1200)])
    assert writer.seal().offset == 1200
    assert sum(1 for _ in read_headers(MACHINE, writer.name)) == 1200


def test_a_group_is_one_call(tmp_path: Path) -> None:
    journal = Journal()
    writer = WalWriter.create(rooted(JournalOps(journal)), name_at(tmp_path / "1.wal"), HEADER)
    before = journal.count("writev")
    append(writer, SPECS)
    assert journal.count("writev") == before + 1
    writer.abandon()


class Amounts(FileOps):
    """The real calls; how much each was given."""

    def __init__(self) -> None:
        self.written: list[int] = []
        self.uncached: list[int] = []

    def writev(self, fd: int, buffers: Sequence[bytes | pa.Buffer | memoryview]) -> int:
        self.written.append(sum(len(memoryview(buffer)) for buffer in buffers))
        return super().writev(fd, buffers)

    def uncache(self, fd: int, position: int) -> None:
        self.uncached.append(position)
        super().uncache(fd, position)


def test_much_is_written_a_mebibyte_at_a_time(tmp_path: Path) -> None:
    ops = Amounts()
    writer = WalWriter.create(rooted(ops), name_at(tmp_path / "1.wal"), HEADER)
    large = Spec([b"%d" % number + b"x" * 200_000 for number in range(9)])
    append(writer, [large, large])
    assert max(ops.written) == CALL_BYTES
    assert len(ops.written) == 1 + math.ceil(sum(ops.written) / CALL_BYTES)
    assert sum(ops.written) == writer.position == path_of(writer.name).stat().st_size
    assert [found.payload for found in read_blocks(MACHINE, writer.name, 1, 18)] == [block(large, 1).payload] * 2
    writer.abandon()


def test_memory_of_what_is_durable_is_let_go_unless_replication_reads_on(tmp_path: Path) -> None:
    ops = Amounts()
    writer = WalWriter.create(rooted(ops), name_at(tmp_path / "1.wal"), HEADER)
    append(writer, [Spec([b"small"], block_targets=())])
    assert ops.uncached == [], "a page or two: not worth a call"
    large = [b"x" * (UNCACHED_BYTES * 2 // 5)]
    writer.append([block(Spec(large, block_targets=()), 2)])
    assert ops.uncached == [], "not durable"
    writer.sync()
    assert ops.uncached == [writer.position]
    append(writer, [Spec(large), Spec(large, block_targets=())])
    assert len(ops.uncached) == 1
    assert [found.last_offset for found in read_headers(MACHINE, writer.name)] == [1, 2, 3, 4]
    writer.abandon()


def test_a_new_log_and_the_way_to_it_are_durable(tmp_path: Path) -> None:
    journal = Journal()
    writer = WalWriter.create(rooted(JournalOps(journal)), name_at(tmp_path / "new" / "session" / "1.wal"), HEADER)
    assert journal.count("fsync") == 4, "two new directories in their parents, the file, its name"
    assert writer.name == name_at(tmp_path / "new" / "session" / "1.wal")
    assert (writer.offset, writer.synced_offset, writer.created_time_ms) == (0, 0, 7)
    assert writer.position == writer.synced_position == path_of(writer.name).stat().st_size
    writer.abandon()


def test_synced_is_what_was_written_before_the_sync(tmp_path: Path) -> None:
    journal = Journal()
    writer = WalWriter.create(rooted(JournalOps(journal)), name_at(tmp_path / "1.wal"), HEADER)
    append(writer, SPECS[:1])
    writer.append([block(SPECS[1], 3)])
    assert (writer.offset, writer.synced_offset) == (3, 2)
    assert writer.synced_position < writer.position
    writer.sync()
    writer.sync()
    assert (writer.synced_offset, writer.synced_position) == (3, writer.position)
    assert journal.count("fdatasync") == 2, "nothing new, no call"
    writer.abandon()


def test_a_seal_is_durable_and_final(tmp_path: Path) -> None:
    journal = Journal()
    writer = WalWriter.create(rooted(JournalOps(journal)), name_at(tmp_path / "1.wal"), HEADER)
    writer.append([block(SPECS[0], 1)])
    created = journal.count("fsync")
    seal = writer.seal()
    assert seal == Seal(2, path_of(writer.name).stat().st_size) == read_seal(MACHINE, writer.name)
    assert (journal.count("fdatasync"), journal.count("fsync")) == (1, created + 2), "data; seal file, its name"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1.wal", "1.wal.seal"]
    with pytest.raises(PermanentError, match="closed"):
        writer.append([block(SPECS[1], 3)])
    with pytest.raises(PermanentError):
        writer.seal()


def test_names_are_never_used_again(tmp_path: Path) -> None:
    WalWriter.create(MACHINE, name_at(tmp_path / "1.wal"), HEADER).abandon()
    with pytest.raises(ExistsError):
        WalWriter.create(MACHINE, name_at(tmp_path / "1.wal"), HEADER)


def test_a_place_that_can_not_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UnavailableError, match=r"1\.wal"):
        WalWriter.create(MACHINE, name_at(tmp_path / "file" / "1.wal"), HEADER)


@pytest.mark.parametrize("first", [1, 2, 4])
def test_offsets_have_no_gaps(tmp_path: Path, first: int) -> None:
    writer = WalWriter.create(MACHINE, name_at(tmp_path / "1.wal"), HEADER)
    append(writer, SPECS[:1])
    position = writer.position
    with pytest.raises(InvalidInputError, match="can't follow offset 2"):
        writer.append([block(SPECS[1], first)])
    assert (writer.position, path_of(writer.name).stat().st_size) == (position, position)
    writer.append([block(SPECS[1], 3)])
    writer.abandon()


def test_a_block_without_records_or_above_the_limits_is_refused(tmp_path: Path) -> None:
    writer = WalWriter.create(MACHINE, name_at(tmp_path / "1.wal"), HEADER)
    with pytest.raises(InvalidInputError):
        writer.append([Block(BlockHeader(first_offset=1), encode_batch(records([])))])
    wide = BlockHeader(first_offset=1, record_count=1, table_id="x" * HEADER_BYTES_MAX)
    with pytest.raises(InvalidInputError, match="above the limits"):
        writer.append([Block(wide, encode_batch(records([b"a"])))])
    writer.abandon()


def write_and_seal(writer: WalWriter) -> None:
    writer.append([block(SPECS[0], 1)])
    writer.sync()
    writer.seal()


@pytest.mark.parametrize("call", ["writev", "fdatasync", "fsync"])
def test_after_a_failure_nothing_is_tried_again(tmp_path: Path, call: str) -> None:
    ops = JournalOps(Journal())
    writer = WalWriter.create(rooted(ops), name_at(tmp_path / "1.wal"), HEADER)
    ops.errors[call] = OSError(errno.EIO, "broken")
    with pytest.raises(UnavailableError, match="broken"):
        write_and_seal(writer)
    del ops.errors[call]
    assert writer.synced_offset in (0, 2)
    for again in (lambda: writer.append([block(SPECS[0], writer.offset + 1)]), writer.seal):
        with pytest.raises(PermanentError):
            again()
    assert read_seal(MACHINE, writer.name) is None
    assert [path.name for path in tmp_path.iterdir()] == ["1.wal"]


def test_an_owner_that_was_overtaken_learns_it_from_the_seal(tmp_path: Path) -> None:
    writer = WalWriter.create(MACHINE, name_at(tmp_path / "1.wal"), HEADER)
    append(writer, SPECS[:1])
    earlier = write_seal(MACHINE, writer.name, Seal(writer.offset, writer.position))
    append(writer, SPECS[1:])
    with pytest.raises(LeaseLostError):
        writer.seal()
    assert read_seal(MACHINE, writer.name) == earlier


def test_a_writer_that_rests_goes_on_where_it_was_and_its_records_are_durable_meanwhile(tmp_path: Path) -> None:
    journal = Journal()
    writer = WalWriter.create(rooted(JournalOps(journal)), name_at(tmp_path / "1.wal"), HEADER)
    for spec in SPECS:
        append(writer, [spec])
        writer.pause()
        assert (writer.synced_offset, writer.synced_position) == (writer.offset, path_of(writer.name).stat().st_size)
    seal = writer.seal()
    assert [block.header.record_count for block in read_blocks(MACHINE, writer.name, 1, seal.offset)] == [2, 1, 1]


def test_a_writer_that_rests_does_not_write_behind_somebody_else(tmp_path: Path) -> None:
    writer = WalWriter.create(MACHINE, name_at(tmp_path / "1.wal"), HEADER)
    append(writer, SPECS[:1])
    writer.pause()
    with path_of(writer.name).open("ab") as other:
        other.write(b"x")
    with pytest.raises(UnavailableError, match="were written"):
        append(writer, SPECS[1:])
    with pytest.raises(PermanentError, match="closed or has failed"):
        append(writer, SPECS[1:])
