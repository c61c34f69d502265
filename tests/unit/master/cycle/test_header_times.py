"""The age of what was missing before this leader, from block headers: the oldest first, bounded, beside the cycle."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import pytest

from bookkeeper.master.calls.keyed_executors import KeyedExecutors
from bookkeeper.master.cycle import header_times
from bookkeeper.master.cycle.header_times import RETRY_MS, HeaderTimes
from bookkeeper.master.index.file_entry import FileEntry
from bookkeeper.master.index.outstanding import Outstanding
from bookkeeper.master.index.target_progress import Amount
from bookkeeper.master.quarantine.quarantined_ranges import Quarantine, RangeKey
from bookkeeper.metadata import keys, values
from bookkeeper.metadata.metadata_table import RowPut
from bookkeeper.metadata.values import Quarantined
from bookkeeper.model import BlockRange, BlockTarget, TargetKey, TargetShare
from bookkeeper.storage.wal.blocks.block_pb2 import FileHeader
from bookkeeper.storage.wal.blocks.target_shares import LogShares
from bookkeeper.storage.wal.reading.block_reader import read_headers
from bookkeeper.storage.wal.writing.wal_writer import WalWriter
from tests.support.faults import fault
from tests.support.master_values import EAST, entry, shipping
from tests.support.master_world import World, open_status
from tests.support.tservers import wait_until
from tests.support.wal_files import Spec, block, damage
from tests.unit.master.cycle.test_cycle import LAST, Running

OTHER = TargetKey("east", "r2", "2", 2)
MINUTE_MS = 60_000


class Headers:
    """The reader of one reign, over real logs and books, driven by hand."""

    def __init__(self, world: World) -> None:
        self.world, self.files, self.lanes = world, Outstanding(), KeyedExecutors()
        self.shipping = shipping()
        self.quarantine = Quarantine(
            world.table, world.master().reign, world.clock, world.settings.replication, lambda _: None
        )
        self.reader = HeaderTimes(
            world.table,
            world.tservers().volume,
            world.clock,
            self.shipping,
            self.quarantine,
            self.lanes,
            lambda: self.files,
        )
        self.session = world.tserver()

    def log(self, number: int, ages_s: Sequence[int], others: int = 0, older_s: int = 0) -> str:
        """A log with a block of two records at each age; before each, blocks of another table that are older."""
        now_ms, offset, shares = self.world.clock.wall_ms(), 0, LogShares()
        writer = WalWriter.create(self.world.volume, self.world.name(self.session, number), FileHeader())
        for age_s in ages_s:
            written = [(OTHER, "2", age_s + older_s)] * others + [(EAST, "1", age_s)]
            for target, table_id, block_age_s in written:
                made = block(
                    Spec(
                        [b"a", b"b"],
                        block_targets=[BlockTarget(target, None)],
                        table_id=table_id,
                        write_time_ms=now_ms - block_age_s * 1_000,
                    ),
                    offset + 1,
                )
                shares, offset = shares.counting([made]), offset + 2
                writer.append([made])
        writer.sync()
        writer.seal()
        return writer.name

    def missing(self, log: str, records: int, finished: int = 0, created_ms: int = 1_000) -> FileEntry:
        """The file of a log; of the target's records the peer has ``finished``, as the books say."""
        made = entry(log.encode(), 1_000, amount=Amount(records, records * 10), created=created_ms, closed=True)
        self.files.add(made)
        if finished:
            self.ship(made, finished)
        return made

    def ship(self, made: FileEntry, finished: int) -> None:
        """A worker finished so many records of the target."""
        at = next(
            at
            for at in read_headers(self.world.volume, made.name())
            if at.header.block_targets[0].cluster == "east"
            if at.header.block_targets[0].source_table_id == "1" and at.header.target_records[0] >= finished
        )
        done = open_status(0)
        done.replication_finished_offset, done.finished_bytes = at.last_offset, at.end_position
        done.finished_share_records = finished
        put = RowPut(keys.repl_row(made.name()), {keys.done_column(EAST): values.encode_status(done)})
        self.world.table.put([put], keys.done_rank(at.last_offset))
        self.shipping.shipment((made.file, EAST)).share = Amount(finished, finished * 10)

    def cycle(self) -> None:
        """A full cycle has found these files."""
        behind = sorted(self.files.values(), key=lambda made: made.file)
        self.reader._behind, self.reader._is_new = behind, True
        while self.reader.round(self.world.clock.boot_ns()):
            self.world.clock.jump(header_times.PAUSE_MS)

    def age_s(self, made: FileEntry, finished: int = 0) -> float | None:
        """The age that the status shows."""
        now_ns = self.world.clock.boot_ns()
        written_ns = self.shipping.times.written_ns((made.file, EAST), finished, now_ns)
        return None if written_ns is None else (now_ns - written_ns) / 1e9


@pytest.fixture
def headers(world: World) -> Iterator[Headers]:
    world.create_table("2")
    found = Headers(world)
    yield found
    found.lanes.stop()


def test_the_first_missing_record_of_the_target_has_the_age(headers: Headers) -> None:
    log = headers.log(1, [500, 400, 300, 20], others=3)
    made = headers.missing(log, 8, finished=2)
    assert headers.age_s(made, 2) is None, "never the age of the file"
    headers.cycle()
    shown = [headers.age_s(made, finished) for finished in (2, 4, 6)]
    assert shown == pytest.approx([400, 300, 20], abs=2), "other tables' blocks count for nothing"
    assert not headers.shipping.times.is_unread


def test_a_read_goes_on_where_the_books_are_not_where_the_snapshot_was(headers: Headers) -> None:
    made = headers.missing(headers.log(1, [500, 400, 300]), 6, finished=4)
    headers.cycle()
    assert headers.age_s(made, 4) == pytest.approx(300, abs=2)
    assert len(headers.shipping.times.steps[made.file, EAST]) == 1


def test_a_long_log_is_read_in_parts_before_its_records_are_finished(
    headers: Headers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(header_times, "HEADERS_MAX", 5)
    made = headers.missing(headers.log(1, [900 - 100 * n for n in range(8)], others=3), 16)
    reader, clock = headers.reader, headers.world.clock
    reader._behind, reader._is_new = [made], True
    assert reader.round(clock.boot_ns()), "there is more to read"
    for finished in range(0, 16, 2):
        if finished:
            headers.ship(made, finished)
        for _ in range(4):
            clock.jump(1)
            reader.round(clock.boot_ns())
        assert headers.age_s(made, finished) == pytest.approx(900 - 50 * finished, abs=10)


def test_a_log_that_can_not_be_read_stays_unknown_and_is_tried_again(headers: Headers) -> None:
    log = headers.world.name(headers.session, 1)
    made = headers.missing(log, 4)
    headers.cycle()
    assert headers.age_s(made) is None
    headers.log(1, [70, 60])
    headers.cycle()
    assert headers.age_s(made) is None, "a read that failed is not repeated at once"
    headers.world.clock.jump(RETRY_MS + 1)
    headers.cycle()
    assert headers.age_s(made) == pytest.approx(70, abs=3)


def test_the_oldest_files_are_read_first_and_no_more_than_the_maximum(
    headers: Headers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(header_times, "FILES_MAX", 2)
    made = [
        headers.missing(headers.log(number, [1_000 - number]), 2, created_ms=number * 1_000) for number in range(1, 5)
    ]
    random.Random(1).shuffle(made)
    headers.cycle()
    known = {one.number for one in made if headers.age_s(one) is not None}
    assert known == {1, 2}
    assert headers.shipping.times.is_unread, "the others follow"
    headers.files.remove(next(one.file for one in made if one.number == 1))
    headers.cycle()
    assert headers.age_s(next(one for one in made if one.number == 3)) == pytest.approx(997, abs=3)


@pytest.mark.parametrize("is_place_known", [True, False])
def test_a_range_in_quarantine_has_the_age_of_its_first_block_after_a_new_master(
    headers: Headers, is_place_known: bool
) -> None:
    log = headers.log(1, [500, 400, 300])
    second = list(read_headers(headers.world.volume, log))[1]
    blocks = BlockRange(3, 4, second.position if is_place_known else 0, second.end_position)
    key = RangeKey(log, EAST, 3)
    headers.quarantine.ranges = {key: Quarantined(blocks, "invalid_input", "too long", headers.world.clock.wall_ms())}
    headers.cycle()
    written_ns = headers.shipping.times.ranges[log.encode(), EAST, 3]
    assert (headers.world.clock.boot_ns() - written_ns) / 1e9 == pytest.approx(400, abs=2)


@pytest.mark.parametrize("is_place_known", [True, False])
def test_a_range_in_quarantine_that_begins_with_another_table_has_the_age_of_its_own_first_block(
    headers: Headers, is_place_known: bool
) -> None:
    log = headers.log(1, [500, 400], others=2, older_s=50)
    first = next(iter(read_headers(headers.world.volume, log)))
    blocks = BlockRange(1, 6, first.position if is_place_known else 0, 0)
    key = RangeKey(log, EAST, 1)
    headers.quarantine.ranges = {key: Quarantined(blocks, "invalid_input", "too long", headers.world.clock.wall_ms())}
    headers.cycle()
    written_ns = headers.shipping.times.ranges[log.encode(), EAST, 1]
    assert (headers.world.clock.boot_ns() - written_ns) / 1e9 == pytest.approx(500, abs=2)


def test_a_range_whose_header_is_damaged_is_as_old_as_its_quarantine_at_least(headers: Headers) -> None:
    log = headers.log(1, [500, 400, 300])
    second = list(read_headers(headers.world.volume, log))[1]
    damage(log, 3, header=True, root=headers.world.settings.directory)
    since_ms = headers.world.clock.wall_ms() - 5 * MINUTE_MS
    blocks = BlockRange(3, 4, second.position, second.end_position)
    headers.quarantine.ranges = {RangeKey(log, EAST, 3): Quarantined(blocks, "corruption", "no block", since_ms)}
    headers.cycle()
    written_ns = headers.shipping.times.ranges[log.encode(), EAST, 3]
    assert (headers.world.clock.boot_ns() - written_ns) / 1e9 == pytest.approx(300, abs=2)


# ---- with the cycle


def needed(world: World, file: str, target: TargetKey, records: int) -> None:
    """The tserver says that the peer needs so many records, all of the target."""
    status = open_status(records)
    status.shares.extend(values.encode_shares([TargetShare(target, records, records * 10)]))
    put = RowPut(LAST, {keys.repl_column(file): values.encode_status(status)})
    world.table.put([put], keys.needed_rank(records))


def check_new_master_learns_the_age(world: World) -> None:
    """Records of a minute ago are missing when a master begins to lead; one more comes."""
    target, session = world.enable("1"), world.tserver()
    world.locate(LAST, session)
    file, made_ms = world.name(session), world.clock.wall_ms() - MINUTE_MS
    writer, shares = WalWriter.create(world.volume, file, FileHeader()), LogShares()
    for offset in (1, 2, 3):
        made = block(
            Spec([b"a"], block_targets=[BlockTarget(target, None)], table_id="1", write_time_ms=made_ms), offset
        )
        shares = shares.counting([made])
        writer.append([made])
    writer.sync()
    needed(world, file, target, 3)
    running = Running(world, world.master())
    reader = HeaderTimes(
        world.table,
        world.tservers().volume,
        world.clock,
        running.shipping,
        running.quarantine,
        running.lanes,
        lambda: running.master.books.snapshot.files,
    )
    running.dispatcher.read_headers = reader.begin
    running.once()
    needed(world, file, target, 4)
    running.event_queue.nudge(session)
    running.once()
    times, key = running.shipping.times, (file.encode(), target)
    try:
        wait_until(lambda: times.is_known(key, 0), "the age of the first record", limit_s=5)
        now_ns = world.clock.boot_ns()
        ages_s = [(now_ns - (times.written_ns(key, finished, now_ns) or 0)) / 1e9 for finished in (0, 3)]
        assert ages_s == pytest.approx([60, 0], abs=5)
    finally:
        running.lanes.stop()
        writer.abandon()


def test_a_new_master_learns_the_age_of_what_was_missing_before(world: World) -> None:
    check_new_master_learns_the_age(world)


def test_if_no_header_is_read_the_age_stays_unknown(world: World) -> None:
    with fault("headers-are-not-read"), pytest.raises(AssertionError, match="the age of the first record"):
        check_new_master_learns_the_age(world)
