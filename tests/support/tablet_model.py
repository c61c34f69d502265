"""The ten lines that a tablet must agree with, and the generators of what is done to both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from itertools import takewhile
from typing import NamedTuple

import pyarrow as pa
from hypothesis import strategies as st

from bookkeeper.model import MUTATION_SCHEMA
from bookkeeper.storage.tablet.scans.cell_versions import ALL_VERSIONS, Retention, VersionFilter
from bookkeeper.storage.tablet.scans.scan import ScanPage
from bookkeeper.storage.tablet.scans.visibility import Authorizations
from bookkeeper.storage.tablet.tablet_data import TabletData

Cell = tuple[bytes, bytes, bytes, bytes]

NOW_MS = 1_000
"""When these scans take place."""


class Record(NamedTuple):
    """A row of MUTATION_SCHEMA."""

    row: bytes
    family: bytes
    qualifier: bytes
    visibility: bytes
    timestamp: int
    delete: bool
    value: bytes

    @property
    def cell(self) -> Cell:
        return self[:4]


class Model:
    """All records by sequence number; of a cell, newest first, a reader sees what stands before the first delete."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.gone: set[int] = set()
        """Places in ``records`` of those that a compaction of everything dropped: they hide nothing any more."""
        self.retention = Retention()

    def apply(self, records: Iterable[Record]) -> int:
        first_seq = len(self.records) + 1
        self.records += records
        return first_seq

    def cells(self) -> dict[Cell, list[Record]]:
        """The history of each cell, newest first."""
        found: dict[Cell, list[tuple[int, int, Record]]] = {}
        for seq, record in enumerate(self.records):
            if seq not in self.gone:
                found.setdefault(record.cell, []).append((record.timestamp, seq, record))
        return {cell: [record for _, _, record in sorted(found[cell])[::-1]] for cell in sorted(found)}

    def visible(
        self, wanted: Callable[[Record], bool] = lambda _: True, version_filter: VersionFilter = ALL_VERSIONS
    ) -> list[Record]:
        oldest, low, high = self.retention.oldest_ms, version_filter.from_ms, version_filter.to_ms
        shown: list[Record] = []
        for history in self.cells().values():
            counting = list(takewhile(lambda record: not record.delete, history))[: self.retention.versions_max]
            counting = [record for record in counting if oldest is None or record.timestamp >= oldest]
            counting = [record for record in counting if low is None or record.timestamp >= low]
            counting = [record for record in counting if high is None or record.timestamp < high]
            shown += [record for record in counting[: version_filter.versions] if wanted(record)]
        return shown

    def unneeded(self) -> set[int]:
        """Places of the records that a compaction of everything drops now."""
        kept = Counter(self.visible())
        gone = set(range(len(self.records)))
        for seq in reversed(range(len(self.records))):
            if seq not in self.gone and kept[self.records[seq]]:
                kept[self.records[seq]] -= 1
                gone.discard(seq)
        return gone


def age_off(oldest_ms: int) -> int:
    """The property under which nothing older than this is shown at :data:`NOW_MS`."""
    return NOW_MS - oldest_ms


def to_batch(records: Collection[Record]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([record._asdict() for record in records], schema=MUTATION_SCHEMA)


def to_records(batch: pa.RecordBatch) -> list[Record]:
    assert batch.schema.equals(MUTATION_SCHEMA)
    batch.validate(full=True)
    return [Record(*row.values()) for row in batch.to_pylist()]


def scan_all(
    tablet: TabletData,
    page_bytes: int = 1 << 20,
    start: bytes | None = None,
    stop: bytes | None = None,
    families: Collection[bytes] = (),
    columns: Collection[tuple[bytes, bytes]] = (),
    between_pages: Callable[[ScanPage], None] = lambda _: None,
    version_filter: VersionFilter = ALL_VERSIONS,
    authorizations: Authorizations | None = None,
) -> list[Record]:
    """All pages of a scan, joined."""
    found: list[Record] = []
    resume: bytes | None = None
    while True:
        page = tablet.scan_page(
            start, stop, families, columns, resume, page_bytes, version_filter, NOW_MS, authorizations
        )
        found += to_records(page.records)
        if page.next is None:
            return found
        assert page.next != resume, "a page must go on"
        resume = page.next
        between_pages(page)


TRICKY = [b"\x00", b"\xff", b"\x00\x00", b"\xff\xff", b"a", b"aa", b"a\x00", b"ab", b"b"]
LONG = [b"prefix-of-many-rows-" + end for end in (b"", b"\x00", b"\x00\x00", b"1", b"11", b"2")]

rows = st.one_of(st.sampled_from(TRICKY), st.sampled_from(LONG), st.binary(min_size=1, max_size=3))
"""Short byte strings that collide often and hold the bytes that break naive encodings."""
qualifiers = st.one_of(st.sampled_from([b"", b"q"]), st.sampled_from(TRICKY), st.binary(max_size=2))
families = st.sampled_from([b"", b"f", b"g", b"h\x00", b"\xff"])
records = st.builds(
    Record,
    row=rows,
    family=families,
    qualifier=qualifiers,
    visibility=st.sampled_from([b"", b"secret", b"\x00"]),
    timestamp=st.one_of(st.integers(-3, 3), st.sampled_from([-(2**63), 2**63 - 1])),
    delete=st.booleans(),
    value=st.binary(max_size=6),
)
few_cells = st.builds(
    Record,
    row=st.sampled_from([b"a", b"b", b"b\x00"]),
    family=st.sampled_from([b"f", b"g"]),
    qualifier=st.just(b"q"),
    visibility=st.just(b""),
    timestamp=st.integers(0, 2),
    delete=st.booleans(),
    value=st.binary(max_size=1),
)
"""So few that versions of one cell meet in every part of a tablet."""
batches = st.one_of(
    st.lists(few_cells, min_size=1, max_size=3),
    st.lists(records, min_size=1, max_size=30),
    st.lists(few_cells, min_size=1, max_size=30),
)
