"""Which tablets are flushed, and that a segment's entry in the books says what storage opens."""

from __future__ import annotations

from msgspec.structs import replace

from bookkeeper.bulk.booked_segment import segment_entry, segment_ref
from bookkeeper.model import RowRange
from bookkeeper.storage.tablet.segments.segment_format import SegmentRef
from bookkeeper.tserver.maintenance.flush_schedule import FlushLimits, TabletMemory, due_tablets

LIMITS = FlushLimits(memtable_bytes=100, total_bytes=250, sealed_log_age_ms=1_000)


def memory(active_bytes: int = 0, sealed_log_age_ms: int = -1) -> TabletMemory:
    return TabletMemory(active_bytes, sealed_log_age_ms)


def test_full_memtables_are_flushed_the_fullest_first() -> None:
    memories = {b"a": memory(100), b"b": memory(99), b"c": memory(140)}
    assert due_tablets(memories, LIMITS)[:2] == [b"c", b"a"]


def test_a_table_may_set_its_own_limit() -> None:
    memories = {b"a": TabletMemory(120, -1, 130), b"b": TabletMemory(60, -1, 50), b"c": memory(0)}
    assert due_tablets(memories, LIMITS) == [b"b"]


def test_a_tablet_that_holds_a_sealed_log_is_flushed_after_a_while() -> None:
    assert due_tablets({b"a": memory(1, 999), b"b": memory(1, 1_000)}, LIMITS) == [b"b"]


def test_a_record_that_other_hosts_lack_is_flushed_after_the_interval_of_its_table() -> None:
    fresh = TabletMemory(1, -1, 0, oldest_age_ms=999, interval_ms=1_000)
    memories = {b"a": fresh, b"b": replace(fresh, oldest_age_ms=1_000), b"c": replace(fresh, oldest_age_ms=-1)}
    assert due_tablets(memories, LIMITS) == [b"b"]
    assert due_tablets({b"a": replace(fresh, oldest_age_ms=10**9, interval_ms=0)}, LIMITS) == []


def test_when_all_together_hold_too_much_the_fullest_goes() -> None:
    memories = {b"a": memory(90), b"b": memory(80), b"c": memory(85)}
    assert due_tablets(memories, LIMITS) == [b"a"]
    assert due_tablets({b"a": memory(90), b"b": memory(80)}, LIMITS) == []
    assert due_tablets({}, LIMITS) == []


def test_an_entry_of_the_books_opens_as_the_segment_that_was_written() -> None:
    ref = SegmentRef("s", "g", 3, 40, b"a", b"z", 1, 3, 7)
    assert segment_ref(ref.name, segment_entry(ref)) == ref
    shared = replace(ref, ranges=(RowRange(None, b"c"), RowRange(b"d", None)))
    assert segment_ref(ref.name, segment_entry(shared)) == shared
