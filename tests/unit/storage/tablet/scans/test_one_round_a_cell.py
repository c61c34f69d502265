"""Older versions of a cell never come back in a later round, also from a block of which nothing was taken before."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from bookkeeper.model import MUTATION_SCHEMA, Extent
from bookkeeper.storage.tablet.segments.locality_groups import GroupMap
from bookkeeper.storage.tablet.tablet_data import TabletData
from tests.support.volumes import MACHINE, name_at


def _record(row: bytes, value: bytes, delete: bool = False) -> pa.RecordBatch:
    fields = {"row": row, "family": b"f", "qualifier": b"q", "visibility": b"", "timestamp": 100}
    return pa.RecordBatch.from_pylist([{**fields, "delete": delete, "value": value}], schema=MUTATION_SCHEMA)


def test_a_delete_hides_a_put_of_a_block_of_which_nothing_was_taken_in_its_round(tmp_path: Path) -> None:
    data = TabletData(Extent("1", None, None), GroupMap({}), MACHINE, name_at(tmp_path), [])
    data.apply(_record(b"b", b"old"), 1)
    data.apply(_record(b"a", b"new"), 2)
    data.apply(_record(b"b", b"", delete=True), 3)
    page = data.scan_page(None, None, (), (), None, 1 << 20)
    assert page.records.column("row").to_pylist() == [b"a"]
