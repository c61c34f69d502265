"""A range with a permanent error is narrowed to its smallest part, and the records around it are shipped."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bookkeeper.errors import (
    BookkeeperError,
    InvalidInputError,
    NotFoundError,
    PermanentError,
    RefusedError,
    UnavailableError,
)
from bookkeeper.model import BlockRange, BlockTarget, TargetKey
from bookkeeper.peers.protocol import Message
from bookkeeper.replay.ranges import RangeResult, results_from_table, results_to_batch
from bookkeeper.replay.stream import message_origins
from bookkeeper.storage.wal.blocks.block import Block, decode_batch
from bookkeeper.storage.wal.blocks.block_pb2 import FileHeader
from bookkeeper.storage.wal.reading.block_reader import first_block_behind, read_blocks, read_headers
from bookkeeper.storage.wal.writing.wal_writer import WalWriter
from tests.support.memory_peer import MemoryPeer
from tests.support.ranges import a_range
from tests.support.ship_bench import Bench, rows, specs_of
from tests.support.volumes import MACHINE, name_at
from tests.support.wal_files import EAST, TO_EAST, WEST, Spec, append, damage, write_wal
from tests.support.wal_files import block as block_of

OTHER = TargetKey("east", "r2", "t2", 2)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def refuses(row: bytes, error: BookkeeperError) -> Callable[[Message], frozenset[int]]:
    """A peer that refuses each message with this row."""

    def trouble(message: Message) -> frozenset[int]:
        for block in message.blocks:
            if row in decode_batch(block.records).column("row").to_pylist():
                raise error
        return frozenset()

    return trouble


def position_of(file: str, offset: int) -> tuple[int, int]:
    """The position of a record's block."""
    return next((at.position, at.end_position) for at in read_headers(MACHINE, file) if at.last_offset >= offset)


def test_a_block_whose_records_do_not_parse_is_named_and_what_lies_before_it_travels(bench: Bench) -> None:
    """Its checksum is right: it was written so. Only who has to take it apart finds out."""
    writer = WalWriter.create(MACHINE, name_at(bench.directory / "w" / "1.wal"), FileHeader(instance_id=WEST))
    append(writer, specs_of([2, 3]))
    groups = [("g", [b"f"]), ("h", [b"x"])]
    mixed = block_of(Spec([b"z"], block_targets=[BlockTarget(TO_EAST, ("g",))], groups=groups), 6)
    writer.append([Block(mixed.header, pa.py_buffer(b"no Arrow message"))])
    writer.seal()
    (result,) = bench.ship([a_range(writer.name, 1, 6)])
    assert result.error is not None
    assert result.error.code == "corruption"
    assert (result.acked_offset, bench.east.rows) == (5, rows(1, 5))
    assert result.failed == BlockRange(6, 6, *position_of(writer.name, 6))


def test_a_block_that_can_not_be_taken_apart_now_is_not_its_records_fault(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write_wal(bench.directory / "w", specs_of([2]))

    def fail(*_arguments: object) -> None:
        raise UnavailableError("no memory")

    monkeypatch.setattr(message_origins, "block_origins_of", fail)
    (result,) = bench.ship([a_range(file, 1, 2)])
    assert result.error is not None
    assert (result.error.code, result.failed, result.acked_offset) == ("unavailable", None, 0)


def check_narrowed(bench: Bench, sizes: list[int], bad: int) -> RangeResult:
    """Ship blocks of these sizes to a peer that refuses record ``bad``."""
    file = write_wal(bench.directory / "w", specs_of(sizes))
    bench.peers["east"] = MemoryPeer(EAST, trouble=refuses(b"%06d" % bad, InvalidInputError("too long for us")))
    total = sum(sizes)
    (result,) = bench.ship([a_range(file, 1, total)])
    starts = [sum(sizes[:n]) + 1 for n in range(len(sizes))]
    first = max(start for start in starts if start <= bad)
    last = first + sizes[starts.index(first)] - 1
    assert result.error is not None
    assert result.error.code == "invalid_input"
    assert result.failed is not None
    assert (result.failed.first, result.failed.last) == (first, last)
    assert result.acked_offset == first - 1
    assert bench.east.rows == rows(1, first - 1)
    start, end = position_of(file, bad)
    assert (result.failed.start_position or start, result.failed.end_position) == (start, end)
    return result


@pytest.mark.parametrize("bad", [1, 2, 7, 8, 12])
def test_a_block_that_the_peer_refuses_is_found_and_what_lies_before_it_arrives(bench: Bench, bad: int) -> None:
    check_narrowed(bench, [1, 3, 3, 1, 4], bad)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sizes=st.lists(st.integers(1, 4), min_size=1, max_size=20), data=st.data())
def test_whatever_the_blocks_the_one_is_found_with_few_messages(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], data: st.DataObject
) -> None:
    bench = Bench(tmp_path_factory.mktemp("halves"))
    check_narrowed(bench, sizes, data.draw(st.integers(1, sum(sizes))))
    assert len(bench.east.messages) <= 2 * len(sizes).bit_length() + 1


def test_what_is_filtered_before_it_belongs_to_the_failed_range(bench: Bench) -> None:
    specs = specs_of([2, 2, 2, 2])
    specs[1] = Spec(specs[1].rows, block_targets=())
    file = write_wal(bench.directory / "w", specs)
    bench.peers["east"] = MemoryPeer(EAST, trouble=refuses(b"000005", PermanentError("no")))
    (result,) = bench.ship([a_range(file, 1, 8)])
    start, end = position_of(file, 3)[0], position_of(file, 5)[1]
    assert (result.acked_offset, result.failed) == (2, BlockRange(3, 6, start, end))


@pytest.mark.parametrize(
    "error", [NotFoundError("no table"), RefusedError("another cluster"), UnavailableError("away")]
)
def test_what_is_no_records_fault_is_neither_narrowed_nor_named(bench: Bench, error: BookkeeperError) -> None:
    file = write_wal(bench.directory / "w", specs_of([2, 2, 2]))
    bench.peers["east"] = MemoryPeer(EAST, trouble=refuses(b"000003", error))
    (result,) = bench.ship([a_range(file, 1, 6)])
    assert result.error is not None
    assert (result.failed, len(bench.east.messages)) == (None, 1)


def test_a_peer_that_takes_the_halves_of_what_it_refused_gets_all(bench: Bench) -> None:
    def too_long(message: Message) -> frozenset[int]:
        if len(message.blocks) > 2:
            raise InvalidInputError("a message of more than two blocks")
        return frozenset()

    file = write_wal(bench.directory / "w", specs_of([1] * 9))
    bench.peers["east"] = MemoryPeer(EAST, trouble=too_long)
    (result,) = bench.ship([a_range(file, 1, 9)])
    assert (result.error, result.failed, result.acked_offset, result.records) == (None, None, 9, 9)
    assert bench.east.rows == rows(1, 9)


@pytest.mark.parametrize("header", [False, True], ids=["payload", "header"])
def test_damage_is_named_up_to_where_the_file_is_whole_again(bench: Bench, header: bool) -> None:
    file = write_wal(bench.directory / "w", specs_of([2, 3, 2, 2]), seal=True)
    start, end = position_of(file, 3)
    damage(file, 3, header=header)
    (result,) = bench.ship([a_range(file, 1, 9)])
    assert result.error is not None
    assert result.error.code == "corruption"
    assert (result.acked_offset, result.failed) == (2, BlockRange(3, 5, start, end))
    (rest,) = bench.ship([a_range(file, 6, 9, hint=end)])
    assert (rest.error, rest.acked_offset) == (None, 9)
    assert bench.east.rows == [*rows(1, 2), *rows(6, 4)]


def test_damage_behind_which_nothing_is_whole_ends_with_what_is_wanted(bench: Bench) -> None:
    file = write_wal(bench.directory / "w", specs_of([2, 3, 2]), seal=True)
    start, _ = position_of(file, 6)
    damage(file, 6)
    (result,) = bench.ship([a_range(file, 1, 7)])
    assert (result.acked_offset, result.failed) == (5, BlockRange(6, 7, start, 0))


def test_a_file_whose_beginning_is_damaged_is_named_whole(bench: Bench) -> None:
    file = write_wal(bench.directory / "w", specs_of([2, 3]), seal=True)
    path = bench.directory / "w"
    path.write_bytes(b"\x00" + path.read_bytes()[1:])
    (result,) = bench.ship([a_range(file, 1, 5)])
    assert result.failed == BlockRange(1, 5, 0, 0)


def test_damage_stops_only_the_targets_that_want_what_lies_there(bench: Bench) -> None:
    both = (BlockTarget(TO_EAST, None), BlockTarget(OTHER, None))
    file = write_wal(bench.directory / "w", [Spec(rows(n, 2), block_targets=both) for n in (1, 3, 5, 7)], seal=True)
    _, end = position_of(file, 3)
    damage(file, 3)
    behind = a_range(file, 5, 8, hint=end, target=OTHER, range_id=2)
    before = a_range(file, 1, 8)
    results = {result.range_id: result for result in bench.ship([before, behind])}
    assert (results[1].acked_offset, results[2].acked_offset) == (2, 8)
    assert (results[1].error is None, results[2].error) == (False, None)
    assert results[1].failed is not None
    assert (results[1].failed.first, results[1].failed.last) == (3, 4)


def test_several_places_of_damage_are_told_one_by_one(bench: Bench) -> None:
    file = write_wal(bench.directory / "w", specs_of([1] * 6), seal=True)
    for offset in (5, 3, 2):  # a damaged header leads no further: the later ones first
        damage(file, offset, header=True)
    (result,) = bench.ship([a_range(file, 1, 6)])
    assert result.failed is not None
    assert (result.failed.first, result.failed.last) == (2, 3)
    (result,) = bench.ship([a_range(file, 4, 6, hint=result.failed.end_position)])
    assert result.failed is not None
    assert (result.acked_offset, result.failed.first, result.failed.last) == (4, 5, 5)


def test_a_run_of_its_own_is_not_swallowed_as_a_repeat(bench: Bench) -> None:
    file = write_wal(bench.directory / "w", specs_of([2, 2]))
    once, again = a_range(file, 1, 4), a_range(file, 3, 4, run_id="again")
    bench.ship([once])
    assert bench.ship([once])[0].resent == 4
    for resent in (0, 2):
        (result,) = bench.ship([again])
        assert (result.records, result.resent, result.error) == (2, resent, None)
    assert bench.east.rows == [*rows(1, 4), *rows(3, 2)]


def test_failed_ranges_travel_in_result_rows(bench: Bench) -> None:
    result = check_narrowed(bench, [2, 2], 3)
    assert results_from_table(results_to_batch([result])) == [result]


def test_a_whole_block_is_found_behind_any_byte(bench: Bench) -> None:
    file = write_wal(bench.directory / "w", specs_of([2, 3, 2]), seal=True)
    places = list(read_headers(MACHINE, file))
    for byte in (0, places[0].position - 1, places[0].position, places[1].position - 1, places[1].position):
        found = first_block_behind(MACHINE, file, byte)
        assert found is not None
        assert found.position == min(at.position for at in places if at.position > byte)
        assert found.load().header == next(iter(read_blocks(MACHINE, file, found.header.first_offset, 7))).header
    assert first_block_behind(MACHINE, file, places[2].position) is None
