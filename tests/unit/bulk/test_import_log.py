"""The logs of an import are as others: blocks of one tablet, in the order of the input, stamped, with their groups."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from bookkeeper.bulk.import_log import BLOCK_BYTES, BLOCK_RECORDS, ImportLogs
from bookkeeper.model import BlockTarget, Extent, TargetKey
from bookkeeper.storage.tablet.segments.locality_groups import GroupMap
from bookkeeper.storage.wal.blocks.block_messages import block_target_from_pb
from bookkeeper.storage.wal.blocks.block_pb2 import FileHeader
from bookkeeper.storage.wal.reading.block_reader import read_blocks
from tests.support.faults import fault
from tests.support.tablet_model import Record, to_batch
from tests.support.volumes import MACHINE, name_at

EXTENTS = [Extent("1", b"h", None), Extent("1", None, b"h")]
STAMP = BlockTarget(TargetKey("east", "r1", "1", 3), ("geo",))


def _logs(place: Path) -> ImportLogs:
    header = FileHeader(instance_id="west", session_id="import", created_time_ms=9)
    return ImportLogs(MACHINE, name_at(place), "name", header, EXTENTS, GroupMap({"geo": [b"g"]}), [STAMP], ["east"])


def _put(row: bytes, value: bytes, family: bytes = b"f") -> Record:
    return Record(row, family, b"q", b"", 5, False, value)


def test_each_tablet_has_a_log_in_the_order_of_the_input(tmp_path: Path) -> None:
    logs = _logs(tmp_path)
    logs.add(to_batch([_put(b"z", b"1"), _put(b"b", b"2", b"g"), _put(b"a", b"3")]))
    logs.add(to_batch([_put(b"a", b"4"), _put(b"b", b"5")]))
    found = logs.finish()
    assert [(log.offset, log.created_ms) for log in (found[extent] for extent in EXTENTS)] == [(4, 9), (1, 9)]
    log = found[EXTENTS[0]]
    first, second = read_blocks(MACHINE, log.name, 1, log.offset)
    assert [block.batch().column("value").to_pylist() for block in (first, second)] == [[b"2", b"3"], [b"4", b"5"]]
    assert second.end_position == log.position
    assert [block_target_from_pb(block_target) for block_target in first.header.block_targets] == [STAMP]
    assert [(group.name, list(group.families)) for group in first.header.groups] == [
        ("default", [b"f"]),
        ("geo", [b"g"]),
    ]
    assert [group.name for group in second.header.groups] == ["default"]
    assert (first.header.end_row, first.header.min_row, first.header.max_row) == (b"h", b"a", b"b")


def test_a_large_part_becomes_blocks_of_the_size_of_others(tmp_path: Path) -> None:
    logs = _logs(tmp_path)
    logs.add(to_batch([_put(b"a%06d" % number, b"v") for number in range(2 * BLOCK_RECORDS + 1)]))
    log = logs.finish()[EXTENTS[0]]
    counts = [block.header.record_count for block in read_blocks(MACHINE, log.name, 1, log.offset)]
    assert counts == [BLOCK_RECORDS, BLOCK_RECORDS, 1]


LARGE = BLOCK_BYTES // 2


def no_block_is_larger_than_its_records_need(place: Path, values: list[int]) -> None:
    """Import these lengths of values as two batches: runs of large ones cross their border."""
    logs, middle = _logs(place), len(values) // 2
    puts = [_put(b"a%06d" % number, bytes(size)) for number, size in enumerate(values)]
    for part in (puts[:middle], puts[middle:]):
        logs.add(to_batch(part))
    log = logs.finish()[EXTENTS[0]]
    blocks = list(read_blocks(MACHINE, log.name, 1, log.offset))
    assert [len(record) for block in blocks for record in block.batch().column("value").to_pylist()] == values
    largest = max(len(block.payload) for block in blocks if block.header.record_count > 1)
    assert largest <= 2 * BLOCK_BYTES, f"a block of {largest} bytes: a peer takes no frame with it"


@pytest.mark.parametrize("first_large", [0, 1000, 3998, 4000, 7995])
def test_a_run_of_large_values_among_small_ones_is_several_blocks(tmp_path: Path, first_large: int) -> None:
    values = [1] * 8000
    values[first_large : first_large + 5] = [LARGE] * 5
    no_block_is_larger_than_its_records_need(tmp_path, values)


def test_cut_by_the_average_a_block_is_larger_than_a_frame(tmp_path: Path) -> None:
    with (
        fault("blocks-are-cut-by-the-average"),
        pytest.raises(AssertionError, match="a peer takes no frame with it"),
    ):
        no_block_is_larger_than_its_records_need(tmp_path, [1] * 1000 + [LARGE] * 5 + [1] * 6995)


def test_more_tablets_than_logs_may_be_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def written(place: Path) -> list[tuple[int, list[bytes]]]:
        logs = _logs(place)
        for value in (b"1", b"2", b"3"):
            logs.add(to_batch([_put(b"z", value), _put(b"a", value), _put(b"b", value)]))
        found = logs.finish()
        blocks = [
            block for extent in EXTENTS for block in read_blocks(MACHINE, found[extent].name, 1, found[extent].offset)
        ]
        return [(block.first_offset, block.batch().column("value").to_pylist()) for block in blocks]

    at_once = written(tmp_path / "at once")
    monkeypatch.setattr("bookkeeper.bulk.import_log.OPEN_MAX", 1)
    assert written(tmp_path / "in turn") == at_once


def descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def test_any_number_of_tablets_takes_a_bounded_number_of_descriptors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bookkeeper.bulk.import_log.OPEN_MAX", 10)
    rows = [b"%04d" % number for number in range(60)]
    extents = [Extent("1", end, start) for start, end in pairwise([None, *rows, None])]
    header = FileHeader(instance_id="west", session_id="import", created_time_ms=9)
    logs = ImportLogs(MACHINE, name_at(tmp_path), "name", header, extents, GroupMap({}), [STAMP], ["east"])
    before = descriptors()
    for _ in range(2):
        logs.add(to_batch([_put(row, b"v") for row in rows]))
        assert descriptors() <= before + 10
    assert {log.offset for log in logs.finish().values()} == {2}
    assert descriptors() == before
