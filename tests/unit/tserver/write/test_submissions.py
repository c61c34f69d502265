"""The commit thread's answers to a replicated range (R20), beyond the judgement in ``test_slice_decision``; the writes
that it takes back; the records that become one block.
"""

from __future__ import annotations

import mmap
from pathlib import Path

import pyarrow as pa
import pytest
from msgspec.structs import replace

from bookkeeper.clock import SystemClock
from bookkeeper.errors import InvalidInputError, UnavailableError
from bookkeeper.model import MUTATION_SCHEMA, Extent, StreamKey
from bookkeeper.storage.tablet.segments.locality_groups import GroupMap
from bookkeeper.storage.tablet.tablet_data import TabletData
from bookkeeper.tserver.commit.submission import AppendPoint, Durability
from bookkeeper.tserver.receive.receiver import SliceApply, joined_records
from bookkeeper.tserver.receive.tablet_slice import ReceivedRange
from bookkeeper.tserver.tablets.block_targets import ConfigView, TableView
from bookkeeper.tserver.tablets.load_plan import Recovered
from bookkeeper.tserver.tablets.tablet import ReceivedBlock, ServedTablet, TabletRecords, Tenure, tablet_records
from bookkeeper.tserver.write.client_write import ClientWrite
from bookkeeper.tserver.write.server_times import UnlimitedTimes
from bookkeeper.tserver.write.write_context import BUSY_MS, WriteContext
from tests.support.jumping_clock import TestClock
from tests.support.must_raise import must_raise
from tests.support.tservers import records
from tests.support.volumes import MACHINE, name_at

WHOLE = Extent("1", None, None)
POINT = AppendPoint("w1", 1)
STREAM = StreamKey("east", "1.wal", "7", "1", 1)
OTHER = replace(STREAM, file="2.wal")
VIEW = TableView("1", "t", True, GroupMap({}), ())
RANGE = ReceivedRange(STREAM, ("east",), 0, 0, 1, (ReceivedBlock(1, 1, tablet_records(records([(b"a", b"v")]))),))


def served(directory: Path, recovered: Recovered | None = None) -> ServedTablet:
    return ServedTablet(
        WHOLE,
        TabletData(WHOLE, VIEW.groups, MACHINE, name_at(directory), []),
        recovered or Recovered(),
        Tenure(1, 1),
        0,
    )


def context() -> WriteContext:
    return WriteContext(SystemClock(), ConfigView(1, {"1": VIEW}), UnlimitedTimes(SystemClock()))


def test_a_host_is_busy_for_a_short_time_after_a_write(tmp_path: Path) -> None:
    clock = TestClock()
    writes = WriteContext(clock, ConfigView(1, {"1": VIEW}), UnlimitedTimes(clock))
    assert not writes.is_busy()
    batch = tablet_records(records([(b"a", b"1")]))
    ClientWrite(writes, [(served(tmp_path), batch)], None).prepare(POINT)
    assert writes.is_busy()
    clock.jump(BUSY_MS)
    assert not writes.is_busy()


def test_r20_a_message_that_saw_its_stream_in_the_books_before_it_was_forgotten_is_not_taken(tmp_path: Path) -> None:
    tablet = served(tmp_path)
    late = SliceApply(context(), tablet, RANGE, tablet.received.forgotten_count)
    tablet.received.forget_stream(STREAM)
    with must_raise(UnavailableError, "R20: a message of a stream that was forgotten is taken"):
        late.prepare(POINT)
    (draft,) = SliceApply(context(), tablet, RANGE, tablet.received.forgotten_count).prepare(POINT)
    assert draft.header.origin.to_offset == 1


def test_a_tablet_that_knows_the_stream_does_not_care_what_else_was_forgotten(tmp_path: Path) -> None:
    tablet = served(tmp_path, Recovered(high_water={STREAM: 0, OTHER: 5}))
    asked = tablet.received.forgotten_count
    tablet.received.forget_stream(OTHER)
    assert SliceApply(context(), tablet, RANGE, asked).prepare(POINT)


def test_a_write_that_is_given_up_gives_back_the_numbers_of_all_its_shares_of_a_tablet(tmp_path: Path) -> None:
    tablet = served(tmp_path)
    parts = [tablet_records(records(rows)) for rows in ([(b"a", b"1")], [(b"b", b"2"), (b"c", b"3")])]
    write = ClientWrite(context(), [(tablet, part) for part in parts], Durability.SYNC)
    assert [draft.header.first_seq for draft in write.prepare(POINT)] == [1, 2]
    assert tablet.next_seq == 4
    write.failed(UnavailableError("the books do not answer"))
    assert tablet.next_seq == 1


# ---- records that become one block


def block_of(batch: pa.RecordBatch, first: int) -> ReceivedBlock:
    return ReceivedBlock(first, first + batch.num_rows - 1, TabletRecords(batch, [b"f"], b"r", b"r"))


def test_shares_are_joined_in_order() -> None:
    whole = joined_records([block_of(records([(b"b", b"1"), (b"c", b"2")]), 1), block_of(records([(b"a", b"3")]), 3)])
    assert whole.batch.column("row").to_pylist() == [b"b", b"c", b"a"]


def test_shares_of_more_than_two_gigabytes_are_refused_and_not_cut() -> None:
    """Values of 1.1 GiB each, which nobody has written to: the machine has no memory for them."""
    size = 1_100 << 20
    offsets = pa.array([0, size], pa.int32()).buffers()[1]
    value = pa.Array.from_buffers(pa.binary(), 1, [None, offsets, pa.py_buffer(mmap.mmap(-1, size))])
    others = [records([(b"r", b"v")]).column(name) for name in MUTATION_SCHEMA.names[:-1]]
    batch = pa.RecordBatch.from_arrays([*others, value], schema=MUTATION_SCHEMA)
    with pytest.raises(InvalidInputError, match="too long to be one"):
        joined_records([block_of(batch, 1), block_of(batch, 2)])
