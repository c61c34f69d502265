"""Segments of an import give its records back in the order of its log."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
import pytest
from msgspec.structs import replace

from bookkeeper.bulk.booked_segment import segment_ref
from bookkeeper.bulk.replayed_records import chunks_of, in_written_order
from bookkeeper.errors import DeclinedError
from bookkeeper.metadata.values import SegmentEntry
from bookkeeper.storage.tablet.segments.locality_groups import GroupMap
from bookkeeper.storage.tablet.segments.segment_format import SegmentRef
from tests.support.given_files import Given, given_files
from tests.support.tservers import blocks_of, records
from tests.support.volumes import MACHINE

GROUPS = GroupMap({"geo": [b"g"]})


def _mixed(first: int) -> pa.RecordBatch:
    """Rows that do not ascend, of two groups in turn."""
    rows = [(b"%03d" % (97 * (first + number) % 101), b"%d" % number) for number in range(20)]
    parts = [records([row], b"fg"[number % 2 : number % 2 + 1], timestamp=5) for number, row in enumerate(rows)]
    (batch,) = pa.Table.from_batches(parts).combine_chunks().to_batches()
    return batch


@pytest.fixture
def given(tmp_path: Path) -> Given:
    return given_files(tmp_path, [_mixed(0), _mixed(20), _mixed(40)], GROUPS)


def _refs(given: Given) -> list[SegmentRef]:
    return [segment_ref(s.name, SegmentEntry.decode(s.entry.encode())) for s in reversed(given.whole.segments)]


def test_records_come_in_the_order_of_their_log(given: Given) -> None:
    refs = _refs(given)
    assert [len(chunk) for chunk in chunks_of(refs)] == [2, 2, 2]
    found = [record for batch in in_written_order(MACHINE, refs) for record in batch.to_pylist()]
    assert found == [record for block in blocks_of(given.log) for record in block.batch().to_pylist()]


def test_what_is_no_import_is_declined(given: Given) -> None:
    refs = _refs(given)
    with pytest.raises(DeclinedError, match="same number"):
        list(in_written_order(MACHINE, [*refs, refs[0]]))
    with patch("bookkeeper.bulk.replayed_records.CHUNK_BYTES", 10), pytest.raises(DeclinedError, match="one part"):
        list(in_written_order(MACHINE, refs))
    touching = [replace(ref, first_seq=1) for ref in refs]
    assert len(list(chunks_of(touching))) == 1
