"""The disk usage of a table: each file that counts, once."""

from __future__ import annotations

import pytest

from bookkeeper.errors import NotFoundError
from bookkeeper.master.queries.queries import Queries
from bookkeeper.master.queries.usage import FAMILIES, usage_of
from bookkeeper.metadata import keys, values
from bookkeeper.metadata.metadata_table import RowPut
from bookkeeper.metadata.values import FlushState, SegmentEntry
from bookkeeper.model import RowRange
from bookkeeper.rpc.contract.messages import TableUsage
from tests.support.master_world import World

TABLE = "9"


def entry(records: int, size_bytes: int, ranges: tuple[RowRange, ...] = ()) -> bytes:
    return SegmentEntry("default", records, size_bytes, b"a", b"z", 1, 9, 1, ranges).encode()


def tablet(world: World, end_row: bytes | None, named: tuple[str, ...], **cells: bytes) -> None:
    found = {keys.segment_column(name): raw for name, raw in cells.items()}
    found[keys.PREV_ROW] = values.encode_prev_row(None)
    found[keys.FLUSH] = FlushState(7, {}, 1, 1, {}, (), named).encode()
    world.table.put([RowPut(keys.tablet_row(TABLE, end_row), found)], 7)


def usage(world: World) -> TableUsage:
    return usage_of("t", world.table.scan(*keys.table_section(TABLE), FAMILIES))


def test_segments_that_count_are_summed_and_shared_ones_count_once(world: World) -> None:
    half = entry(5, 100, (RowRange(None, b"m"),))
    tablet(world, b"m", ("a", "shared"), a=entry(3, 30), shared=half, dead=entry(1000, 1000))
    tablet(world, None, ("b", "shared"), b=entry(4, 40), shared=half)
    assert usage(world) == TableUsage("t", tablets=2, segments=3, records=12, bytes=170)


def test_a_tablet_that_was_never_flushed_has_nothing_and_a_remnant_is_none(world: World) -> None:
    row = keys.tablet_row(TABLE, None)
    world.table.put([RowPut(row, {keys.PREV_ROW: values.encode_prev_row(None)})], 1)
    world.table.put([RowPut(keys.tablet_row(TABLE, b"m"), {keys.SERIAL: keys.SERIAL_VALUE})], 4)
    assert usage(world) == TableUsage("t", tablets=1, segments=0, records=0, bytes=0)


def test_tables_are_named_or_all(world: World) -> None:
    queries = Queries(world.table, world.tservers(), world.config, world.clock)
    every = queries.disk_usage([])
    assert [found.table for found in every] == sorted(table.name for table in world.config().tables.values())
    assert queries.disk_usage([every[0].table]) == every[:1]
    with pytest.raises(NotFoundError):
        queries.disk_usage(["nosuch"])
