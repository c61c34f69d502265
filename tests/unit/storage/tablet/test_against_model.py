"""Random writes, flushes and scans, in any order: the tablet and a model of ten lines give the same rows."""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from bookkeeper.config.table_properties import parse_properties
from bookkeeper.model import Extent
from bookkeeper.storage.tablet.memtable import FrozenMemtable
from bookkeeper.storage.tablet.scans.cell_versions import Retention, VersionFilter
from bookkeeper.storage.tablet.scans.scan import ScanPage
from bookkeeper.storage.tablet.scans.visibility import Authorizations
from bookkeeper.storage.tablet.segments.locality_groups import GroupMap
from bookkeeper.storage.tablet.segments.segment_format import NewSegment
from bookkeeper.storage.tablet.sorting import entries, merge, order, take
from bookkeeper.storage.tablet.tablet_data import TabletData
from bookkeeper.storage.tablet.tablet_resources import TabletResources
from bookkeeper.storage.tablet.tablet_settings import TabletSettings
from tests.support.tablet_model import (
    NOW_MS,
    Model,
    Record,
    age_off,
    batches,
    families,
    qualifiers,
    rows,
    scan_all,
    to_batch,
)
from tests.support.volumes import MACHINE, name_at

GROUPS = GroupMap({"one": frozenset({b"f"}), "two": frozenset({b"g", b"\xff"})})
REGROUPED = GroupMap({"one": frozenset({b"g"}), "three": frozenset({b"h\x00", b""})})
TINY = TabletSettings(
    young_blocks_max=3,
    small_runs_max=2,
    run_records_max=40,
    row_group_records=4,
    row_group_bytes=200,
    cache_bytes_max=4000,
    page_examined_records_max=25,
)
EXTENT = Extent("t", None, None)
optional_row = st.one_of(st.none(), rows)
page_sizes = st.sampled_from([1, 60, 200, 1 << 20])
column_names = st.tuples(families, qualifiers)
times = st.one_of(st.none(), st.integers(-2, 4))
authorizations = st.sampled_from([None, frozenset(), frozenset({b"secret"})])
questions = st.builds(VersionFilter, versions=st.sampled_from([None, 1, 2]), from_ms=times, to_ms=times)


class TabletMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.place = tempfile.TemporaryDirectory()
        self.tablet = TabletData(
            EXTENT, GROUPS, MACHINE, name_at(Path(self.place.name) / "t"), [], TabletResources(TINY)
        )
        self.model = Model()
        self.frozen: FrozenMemtable | None = None
        self.written: list[NewSegment] | None = None
        self.flush_id = 0
        self.flushed = 0
        self.merge: tuple[frozenset[str], list[NewSegment], set[int]] | None = None
        self.merged_before = False
        self.patch = pytest.MonkeyPatch()

    @initialize(few=st.booleans())
    def small_counts_as_large(self, few: bool) -> None:
        """Small batches would else never meet what is for large ones."""
        for module in (entries, take, merge, order) if few else ():
            self.patch.setattr(module, "FEW", 0)

    @rule(batch=batches)
    def apply(self, batch: list[Record]) -> None:
        self.tablet.apply(to_batch(batch), self.model.apply(batch))

    @rule()
    def begin_flush(self) -> None:
        frozen = self.tablet.begin_flush()
        assert self.frozen is None or frozen is self.frozen
        self.frozen = frozen

    @precondition(lambda self: self.frozen is not None)
    @rule()
    def write_segments(self) -> None:
        assert self.frozen is not None
        self.flush_id += 1
        self.written = self.tablet.write_segments(self.frozen, self.flush_id)
        assert sum(segment.records for segment in self.written) == self.frozen.records

    @precondition(lambda self: self.written is not None)
    @rule()
    def finish_flush(self) -> None:
        assert self.frozen is not None
        assert self.written is not None
        self.tablet.finish_flush(self.frozen, self.written)
        self.flushed = self.frozen.last_seq
        self.frozen = self.written = None

    @rule(groups=st.sampled_from([GROUPS, REGROUPED]))
    def set_groups(self, groups: GroupMap) -> None:
        self.tablet.configure(groups, self.tablet.properties)

    @rule(versions=st.sampled_from([1, 1, 2, 3, 50]), oldest=st.sampled_from([None, None, -1, 1, 2]))
    def set_properties(self, versions: int, oldest: int | None) -> None:
        before = self.model.retention
        if self.merged_before:  # dropped cells stay away: from then on a scan shows less, never more
            versions = min(versions, before.versions_max)
            oldest = max((time for time in (oldest, before.oldest_ms) if time is not None), default=None)
        off = 0 if oldest is None else age_off(oldest)
        properties = parse_properties({"table.versions.max": str(versions), "table.age_off_ms": str(off)})
        self.tablet.configure(self.tablet.groups, properties)
        self.model.retention = Retention(versions, oldest)

    @rule()
    def reopen_what_is_on_disk(self) -> None:
        """A crash: memory is lost, the WAL gives it back."""
        old = self.tablet
        self.tablet = TabletData(
            EXTENT, old.groups, MACHINE, old.directory, old.segments, TabletResources(TINY), properties=old.properties
        )
        rest = self.model.records[self.flushed :]
        if rest:
            self.tablet.apply(to_batch(rest), self.flushed + 1)
        self.frozen = self.written = self.merge = None

    @precondition(lambda self: self.tablet.segments and self.merge is None)
    @rule(data=st.data())
    def write_merged(self, data: Any) -> None:
        """Some of the segments; when all, and nothing is in memory, deletes are forgotten as of now."""
        names = [segment.name for segment in self.tablet.segments]
        chosen = frozenset(
            data.draw(st.lists(st.sampled_from(names), min_size=1)) if data.draw(st.booleans()) else names
        )
        drop_deletes = len(chosen) == len(names) and not self.tablet.memory_records
        written = self.tablet.write_merged(chosen, 1, NOW_MS, drop_deletes=drop_deletes, check_continue=lambda: None)
        unneeded = self.model.unneeded() if drop_deletes else set()
        if drop_deletes:
            assert sum(segment.records for segment in written) == len(self.model.records) - len(unneeded)
        self.merge = chosen, written, unneeded
        self.merged_before = True

    @precondition(lambda self: self.merge is not None)
    @rule()
    def replace_segments(self) -> None:
        assert self.merge is not None
        inputs, written, unneeded = self.merge
        self.tablet.replace_segments(inputs, written)
        self.model.gone |= unneeded
        self.merge = None

    @rule(
        start=optional_row,
        stop=optional_row,
        wanted=st.frozensets(families, max_size=3),
        columns=st.frozensets(column_names, max_size=3),
        page_bytes=page_sizes,
        version_filter=questions,
        held=authorizations,
    )
    def scan(
        self,
        start: bytes | None,
        stop: bytes | None,
        wanted: frozenset[bytes],
        columns: frozenset[tuple[bytes, bytes]],
        page_bytes: int,
        version_filter: VersionFilter,
        held: frozenset[bytes] | None,
    ) -> None:
        def in_scan(record: Record) -> bool:
            return (
                (start is None or record.row >= start)
                and (stop is None or record.row < stop)
                and (not wanted or record.family in wanted)
                and (not columns or record[1:3] in columns)
                and (held is None or record.visibility == b"" or (record.visibility == b"secret" and bool(held)))
            )

        authorizations = None if held is None else Authorizations(held)
        found = scan_all(
            self.tablet,
            page_bytes,
            start,
            stop,
            wanted,
            columns,
            version_filter=version_filter,
            authorizations=authorizations,
        )
        assert found == self.model.visible(in_scan, version_filter)

    @rule(row=rows)
    def read_row(self, row: bytes) -> None:
        found = scan_all(self.tablet, start=row, stop=row + b"\x00")
        assert found == self.model.visible(lambda record: record.row == row)

    @rule(data=st.data(), page_bytes=page_sizes, version_filter=questions)
    def scan_while_things_happen(self, data: Any, page_bytes: int, version_filter: VersionFilter) -> None:
        """A scan returns each cell that is there at the start and stays once; it returns no cell twice."""
        before = self.model.visible(version_filter=version_filter)
        touched: set[Any] = set()

        def meddle(page: ScanPage) -> None:
            assert page.next is not None
            for _ in range(data.draw(st.integers(0, 2))):
                choice = data.draw(st.integers(0, 4))
                if choice == 0:
                    batch = data.draw(batches)
                    touched.update(record.cell for record in batch)
                    self.apply(batch)
                elif choice == 1:
                    self.begin_flush()
                elif choice == 2 and self.frozen:
                    self.write_segments()
                elif choice == 3 and self.written:
                    self.finish_flush()
                elif self.merge:
                    self.replace_segments()

        found = scan_all(self.tablet, page_bytes, between_pages=meddle, version_filter=version_filter)
        cells = [record.cell for record in found]
        assert cells == sorted(cells)
        most = min(self.model.retention.versions_max, version_filter.versions or self.model.retention.versions_max)
        assert max(Counter(cells).values(), default=0) <= most
        untouched = [record for record in found if record.cell not in touched]
        assert untouched == [record for record in before if record.cell not in touched]
        assert set(found) <= set(before) | set(self.model.records)

    @invariant()
    def memory_is_what_no_segment_holds(self) -> None:
        assert self.tablet.memory_records == len(self.model.records) - self.flushed

    def teardown(self) -> None:
        assert scan_all(self.tablet) == self.model.visible()
        self.patch.undo()
        self.place.cleanup()


TabletMachine.TestCase.settings = settings(
    max_examples=60, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)
TestAgainstModel = TabletMachine.TestCase


@given(batch=st.lists(batches, max_size=4), page_bytes=page_sizes)
@settings(max_examples=60, deadline=None)
def test_versions_of_one_cell_in_every_part_show_the_newest(batch: list[list[Record]], page_bytes: int) -> None:
    with tempfile.TemporaryDirectory() as place:
        tablet = TabletData(EXTENT, GROUPS, MACHINE, name_at(Path(place)), [], TabletResources(TINY))
        model = Model()
        for flush_id, some in enumerate(batch, 1):
            one_cell = [record._replace(row=b"r", family=b"f", qualifier=b"", visibility=b"") for record in some]
            tablet.apply(to_batch(one_cell), model.apply(one_cell))
            frozen = tablet.begin_flush()
            assert frozen is not None
            if flush_id < len(batch):
                tablet.finish_flush(frozen, tablet.write_segments(frozen, flush_id))
        assert scan_all(tablet, page_bytes) == model.visible()


@pytest.mark.parametrize("part", [0, 1, *(pytest.param(part, marks=pytest.mark.long) for part in (2, 3, 4, 5))])
def test_small_worlds(part: int, tmp_path: Path) -> None:
    """Three cells, single records, every kind of place for them: most bugs show here."""
    for seed in range(part * 40, part * 40 + 40):
        chance = random.Random(seed)
        tablet = TabletData(EXTENT, GROUPS, MACHINE, name_at(tmp_path / str(seed)), [], TabletResources(TINY))
        model = Model()
        for step in range(1, 13):
            some = [
                Record(chance.choice([b"a", b"b"]), b"f", chance.choice([b"", b"q"]), b"", chance.randrange(3), *last)
                for last in chance.choices([(True, b""), (False, b"%d" % step)], k=chance.choice([1, 1, 2]))
            ]
            tablet.apply(to_batch(some), model.apply(some))
            if chance.random() < 0.15:
                frozen = tablet.begin_flush()
                if frozen is not None and chance.random() < 0.7:
                    tablet.finish_flush(frozen, tablet.write_segments(frozen, step))
            assert scan_all(tablet, chance.choice([1, 1 << 20])) == model.visible(), f"seed {seed}, step {step}"
