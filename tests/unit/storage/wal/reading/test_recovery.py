"""Recovery: it accepts each state that a crash may leave, refuses impossible ones, and readers agree on the end."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from bookkeeper.errors import CorruptionError, InvalidInputError, NotFoundError, TransientError, UnavailableError
from bookkeeper.model import Barrier, BlockTarget, TargetKey
from bookkeeper.storage.volume.sources import MappedSource, map_file
from bookkeeper.storage.wal.blocks.block import Block, encode_batch
from bookkeeper.storage.wal.blocks.block_messages import block_target_to_pb
from bookkeeper.storage.wal.blocks.block_pb2 import BlockHeader, FileHeader, Predecessor
from bookkeeper.storage.wal.blocks.frame import BLOCK_MAGIC, FILE_MAGIC
from bookkeeper.storage.wal.reading.block_reader import read_blocks, read_headers
from bookkeeper.storage.wal.reading.wal_recovery import delete_log, file_summary, find_end, recover
from bookkeeper.storage.wal.writing.seal import SEAL_SUFFIX, Seal, read_seal, write_seal
from bookkeeper.storage.wal.writing.wal_writer import WalWriter
from tests.support.faults import fault
from tests.support.must_raise import must_raise
from tests.support.volumes import MACHINE, name_at, path_of, rooted
from tests.support.wal_commits import Journal, JournalOps
from tests.support.wal_files import TO_EAST, Spec, append, block, lay_out, records, write_wal

SPECS = [Spec([b"a", b"b"]), Spec([b"c" * 64]), Spec([b"d"])]


class Content:
    """A log as bytes, and the starts of its blocks."""

    def __init__(self, directory: Path) -> None:
        name = write_wal(directory / "log" / "1.wal", SPECS)
        self.raw = path_of(name).read_bytes()
        self.starts = [at.position for at in read_headers(MACHINE, name)]
        self.ends = [self.starts[0], *(at.end_position for at in read_headers(MACHINE, name))]
        self.offsets = [0, 2, 3, 4]

    def seal(self, blocks: int) -> Seal:
        return Seal(self.offsets[blocks], self.ends[blocks])

    def end_of(self, raw: bytes | bytearray) -> Seal:
        return find_end("x.wal", MappedSource(pa.py_buffer(bytes(raw))))


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> Content:
    return Content(tmp_path_factory.mktemp("content"))


def test_a_torn_tail_is_accepted_at_every_byte(content: Content) -> None:
    for length in range(content.ends[2], content.ends[3]):
        assert content.end_of(content.raw[:length]) == content.seal(2), length
    assert content.end_of(content.raw) == content.seal(3)


def test_any_prefix_of_a_log_is_a_log(content: Content) -> None:
    for length in range(len(content.raw) + 1):
        whole = sum(end <= length for end in content.ends) - 1
        assert content.end_of(content.raw[:length]) == (content.seal(whole) if whole >= 0 else Seal(0, 0)), length


@pytest.mark.parametrize("zeros", [1, 7, 8, 32, 4096, 100_000])
def test_a_tail_of_zeros_is_accepted(content: Content, zeros: int) -> None:
    for blocks, end in enumerate(content.ends):
        assert content.end_of(content.raw[:end] + bytes(zeros)) == content.seal(blocks)
    assert content.end_of(bytes(zeros)) == Seal(0, 0), "the header had no time to reach the disk"


@given(st.integers(1, 600), st.integers(0, 2000))
def test_a_last_block_whose_pages_came_in_part_is_a_torn_tail(content: Content, lost: int, more: int) -> None:
    raw = bytearray(content.raw) + bytes(more)
    raw[content.ends[3] - lost : content.ends[3]] = bytes(lost)
    assume(raw[: len(content.raw)] != content.raw)
    assert content.end_of(raw) == content.seal(2)


@given(st.integers(0, 7), st.data())
def test_damage_before_a_whole_block_is_never_cut_off(content: Content, bit: int, data: st.DataObject) -> None:
    at = data.draw(st.integers(content.starts[0], content.ends[2] - 1))
    raw = bytearray(content.raw)
    raw[at] ^= 1 << bit
    with pytest.raises(CorruptionError) as caught:
        content.end_of(raw)
    assert int(caught.value.details["position"]) <= at


def check_damage_is_not_cut_off(directory: Path) -> None:
    """The first block is damaged, whole ones follow: sealing before it would lose them silently."""
    content = Content(directory)
    raw = bytearray(content.raw)
    raw[content.ends[1] - 20] ^= 1
    path = lay_out(directory, raw)
    with must_raise(CorruptionError, "a whole block behind damage is cut off", match="whole block follows"):
        recover(MACHINE, name_at(path))
    assert read_seal(MACHINE, name_at(path)) is None
    assert path.read_bytes() == raw


def test_a_damaged_log_is_not_sealed(tmp_path: Path) -> None:
    check_damage_is_not_cut_off(tmp_path)


def test_without_looking_behind_damage_blocks_would_be_lost_silently(tmp_path: Path) -> None:
    with fault("damage-is-a-torn-tail"), pytest.raises(AssertionError, match="a whole block behind damage is cut off"):
        check_damage_is_not_cut_off(tmp_path)


def test_a_torn_block_behind_damage_still_proves_what_was_durable(tmp_path: Path) -> None:
    writer = WalWriter.create(MACHINE, name_at(tmp_path / "log" / "1.wal"), FileHeader())
    append(writer, SPECS[:1])
    synced = writer.position
    append(writer, SPECS[1:2])
    writer.abandon()
    raw = bytearray(path_of(writer.name).read_bytes()[:-8])
    raw[synced - 20] ^= 1
    path_of(writer.name).write_bytes(raw)
    with pytest.raises(CorruptionError, match="proves that this was durable"):
        recover(MACHINE, writer.name)


def test_a_person_may_give_up_what_was_perhaps_never_synced(tmp_path: Path) -> None:
    writer = WalWriter.create(MACHINE, name_at(tmp_path / "log" / "1.wal"), FileHeader())
    append(writer, SPECS[:1])
    synced = writer.position
    writer.append([block(spec, first) for spec, first in zip(SPECS[1:], (3, 4), strict=True)])
    writer.abandon()
    whole = path_of(writer.name).read_bytes()
    for damaged_at, accepted in ((synced - 20, False), (synced + 20, True)):
        raw = bytearray(whole)
        raw[damaged_at] ^= 1
        path = lay_out(tmp_path / str(damaged_at), raw)
        with pytest.raises(CorruptionError, match="was durable" if not accepted else "whole block follows"):
            recover(MACHINE, name_at(path))
        if accepted:
            assert recover(MACHINE, name_at(path), give_up_unproven=True) == Seal(2, synced)
        else:
            with pytest.raises(CorruptionError, match="was durable"):
                recover(MACHINE, name_at(path), give_up_unproven=True)


@given(st.integers(0, 7), st.data())
def test_damage_in_the_file_header_is_never_taken_for_an_empty_log(
    content: Content, bit: int, data: st.DataObject
) -> None:
    raw = bytearray(content.raw)
    raw[data.draw(st.integers(0, content.starts[0] - 1))] ^= 1 << bit
    with pytest.raises(CorruptionError):
        content.end_of(raw)


@pytest.mark.parametrize("raw", [b"PWAL" + bytes(64), b"hello", BLOCK_MAGIC + bytes(28), b"\x01" + bytes(99)])
def test_a_foreign_file_is_not_sealed(tmp_path: Path, raw: bytes) -> None:
    path = tmp_path / "1.wal"
    path.write_bytes(raw)
    with pytest.raises(CorruptionError, match="file header"):
        recover(MACHINE, name_at(path))
    assert read_seal(MACHINE, name_at(path)) is None


def test_blocks_of_another_log_are_no_blocks_here(content: Content, tmp_path: Path) -> None:
    """A user may store a log in a log: in a torn tail its blocks must not be taken for ours."""
    other = write_wal(tmp_path / "other.wal", SPECS)
    inner = path_of(other).read_bytes()
    for tail in (inner, inner[content.starts[0] :], content.raw[content.starts[0] :]):
        for shift in range(0, 16, 4):
            assert content.end_of(content.raw + b"\x01" * shift + tail) == content.seal(3)
    outer = Spec([content.raw, inner])
    name = write_wal(tmp_path / "outer.wal", [Spec([b"a"]), outer])
    raw = path_of(name).read_bytes()
    first_end = next(iter(read_headers(MACHINE, name))).end_position
    for cut in range(1, len(raw) - first_end, 64):
        assert content.end_of(raw[:-cut]) == Seal(1, first_end)


def test_a_tail_full_of_magic_is_searched_in_time(content: Content) -> None:
    assert content.end_of(content.raw + (BLOCK_MAGIC + b"\xff\xff\x0f\0") * 50_000) == content.seal(3)
    assert content.end_of(content.raw + FILE_MAGIC * 1000) == content.seal(3)


def test_a_log_where_a_block_is_missing_is_damaged(content: Content, tmp_path: Path) -> None:
    """Frames are bound to their place, so a block that was cut out takes those behind it along: never silently."""
    raw = content.raw[: content.starts[1]] + content.raw[content.starts[2] :]
    assert content.end_of(raw) == content.seal(1), "nothing there proves itself any more"
    path = tmp_path / "1.wal"
    path.write_bytes(raw)
    write_seal(MACHINE, name_at(path), content.seal(3))
    with pytest.raises(CorruptionError, match="shorter than its seal"):
        read_headers(MACHINE, name_at(path))


def test_recovery_is_idempotent_and_changes_nothing_but_the_seal(content: Content, tmp_path: Path) -> None:
    path = lay_out(tmp_path, content.raw[:-1])
    seal = recover(MACHINE, name_at(path))
    assert seal == content.seal(2) == recover(MACHINE, name_at(path)) == read_seal(MACHINE, name_at(path))
    assert path.read_bytes() == content.raw[:-1]
    assert sorted(p.name for p in path.parent.iterdir()) == ["1.wal", "1.wal.fence", "1.wal.seal"]
    assert [b.last_offset for b in read_blocks(MACHINE, name_at(path), 1, 3)] == [2, 3]


def test_recovery_syncs_before_it_counts_and_fences_before_it_syncs(content: Content, tmp_path: Path) -> None:
    path = lay_out(tmp_path, content.raw)
    journal = Journal()
    ops = JournalOps(journal)
    with ThreadPoolExecutor(1) as pool, ops.hold("fsync"):
        recovering = pool.submit(recover, rooted(ops), name_at(path))
        journal.wait_for(">fsync")
        assert path.with_name("1.wal.fence").exists()
        with path.open("ab") as file:
            file.write(b"\x01")
    assert recovering.result() == content.seal(3)
    assert journal.count("fsync") == 3, "the log, the seal, its name"


def test_concurrent_recoveries_agree(content: Content, tmp_path: Path) -> None:
    for attempt in range(10):
        path = lay_out(tmp_path / str(attempt), content.raw[: -1 - attempt])
        start = threading.Barrier(4)

        def race(name: str, start: threading.Barrier = start) -> Seal:
            start.wait()
            return recover(MACHINE, name)

        with ThreadPoolExecutor(4) as pool:
            seals = set(pool.map(race, [name_at(path)] * 4))
        assert seals == {content.seal(2)}
    assert not list(tmp_path.rglob("*.tmp"))


def test_the_owner_may_have_sealed_first(tmp_path: Path) -> None:
    name = write_wal(tmp_path / "1.wal", SPECS, seal=True)
    assert recover(MACHINE, name) == Seal(4, path_of(name).stat().st_size)
    assert not path_of(name).with_name("1.wal.fence").exists()


def test_the_first_seal_wins_whatever_it_says(content: Content, tmp_path: Path) -> None:
    path = lay_out(tmp_path, content.raw)
    assert write_seal(MACHINE, name_at(path), content.seal(1)) == content.seal(1)
    assert write_seal(MACHINE, name_at(path), content.seal(3)) == content.seal(1)
    assert recover(MACHINE, name_at(path)) == content.seal(1)
    assert [at.last_offset for at in read_headers(MACHINE, name_at(path))] == [2]


@pytest.mark.parametrize("raw", [b"", b"\x89BK", bytes(100)])
def test_a_log_that_died_at_birth_is_empty(tmp_path: Path, raw: bytes) -> None:
    path = tmp_path / "1.wal"
    path.write_bytes(raw)
    assert recover(MACHINE, name_at(path)) == Seal(0, 0)
    assert list(read_headers(MACHINE, name_at(path))) == []
    assert dict(file_summary(MACHINE, name_at(path)).tablets) == {}
    with pytest.raises(NotFoundError):
        read_blocks(MACHINE, name_at(path), 1, 1)


def test_only_local_logs_that_exist_can_be_recovered(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        recover(MACHINE, name_at(tmp_path / "1.wal"))
    assert not list(tmp_path.iterdir())
    with pytest.raises(InvalidInputError):
        recover(MACHINE, "hdfs://somewhere/1.wal")


def test_a_summary_counts_tablets_from_headers_alone(tmp_path: Path) -> None:
    other = BlockTarget(TargetKey("north", "r9", "t1", 4), ("g",))
    writer = WalWriter.create(MACHINE, name_at(tmp_path / "1.wal"), FileHeader(created_time_ms=99))
    described: list[tuple[str, bytes | None, list[BlockTarget], tuple[str, int] | None]] = [
        ("t1", b"m", [], ("old.wal", 7)),
        ("t1", None, [other], None),
        ("t1", b"m", [BlockTarget(TO_EAST, None), other], None),
        ("t1", b"", [], None),
        ("t1", b"m", [], ("elsewhere.wal", 12)),
        ("t2", None, [], None),
    ]
    for table_id, end_row, block_targets, after in described:
        header = BlockHeader(first_offset=writer.offset + 1, record_count=2, table_id=table_id)
        header.block_targets.extend(map(block_target_to_pb, block_targets))
        if end_row is not None:
            header.end_row = end_row
        if after is not None:
            header.after.append(Predecessor(file=after[0], offset=after[1]))
        writer.append([Block(header, encode_batch(records([b"a", b"b"])))])
    with pytest.raises(TransientError, match="recover it first"):
        file_summary(MACHINE, writer.name)
    seal = writer.seal()
    summary = file_summary(MACHINE, writer.name)
    assert (summary.created_time_ms, summary.seal) == (99, seal)
    assert list(summary.tablets) == [("t1", b"m"), ("t1", None), ("t1", b""), ("t2", None)]
    tablet = summary.tablets["t1", b"m"]
    assert (tablet.first_offset, tablet.last_offset) == (1, 10)
    assert tablet.barriers == (Barrier(1, "old.wal", 7), Barrier(9, "elsewhere.wal", 12))
    assert tablet.block_targets == {BlockTarget(TO_EAST, None), other}
    assert summary.tablets["t2", None].block_targets == frozenset()
    assert summary.tablets["t2", None].barriers == ()


def test_a_deleted_log_leaves_nothing(tmp_path: Path) -> None:
    path = path_of(write_wal(tmp_path / "1[x].wal", SPECS))
    recover(MACHINE, name_at(path))
    (tmp_path / "1[x].wal.seal.abc.tmp").touch()
    (tmp_path / "11.wal").touch()
    delete_log(MACHINE, name_at(path))
    delete_log(MACHINE, name_at(path))
    assert [p.name for p in tmp_path.iterdir()] == ["11.wal"]
    delete_log(MACHINE, name_at(tmp_path / "no" / "such.wal"))


def test_reading_goes_on_while_the_file_is_deleted(tmp_path: Path) -> None:
    name = write_wal(tmp_path / "1.wal", SPECS, seal=True)
    blocks = read_blocks(MACHINE, name, 1, 4)
    next(blocks)
    delete_log(MACHINE, name)
    assert [block.batch().num_rows for block in blocks] == [1, 1]
    with pytest.raises(NotFoundError):
        map_file(path_of(name))


def test_a_seal_that_can_not_be_read_ends_no_process_and_may_be_read_later(tmp_path: Path) -> None:
    name = write_wal(tmp_path / "log" / "1.wal", SPECS)
    unreadable = path_of(f"{name}{SEAL_SUFFIX}")
    unreadable.mkdir()
    with pytest.raises(UnavailableError, match="can't be read"):
        recover(MACHINE, name)
    unreadable.rmdir()
    assert recover(MACHINE, name).offset == 4
