"""Each row's records arrive once and in order, as far as answers are known, also when single writes fail."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from bookkeeper.client import tablet_queues
from bookkeeper.client.mutation import Mutation, encode_mutations
from bookkeeper.client.tablet_extents import TableMap
from bookkeeper.client.tablet_queues import UNLOCATED, Flight, TabletQueues
from bookkeeper.model import Extent
from tests.support.fake_cluster import extents_of

ROWS = [b"a", b"b", b"c", b"d", b"e", b"f"]
ADDRESSES = ["one:1", "two:2"]


class Queues(RuleBasedStateMachine):
    """Adds numbered records of few rows, sends, loses, moves and splits tablets; in the end everything is there."""

    def __init__(self) -> None:
        super().__init__()
        self.queues = TabletQueues()
        self.added: dict[bytes, int] = dict.fromkeys(ROWS, 0)
        self.arrived: dict[bytes, list[int]] = {row: [] for row in ROWS}
        self.in_flight: dict[Extent, tuple[Flight, list[tuple[bytes, int]]]] = {}
        self.given_up: list[Flight] = []
        self.now_ns = 0

    @rule(rows=st.lists(st.sampled_from(ROWS), min_size=1, max_size=8))
    def add(self, rows: list[bytes]) -> None:
        mutations = []
        for row in rows:
            self.added[row] += 1
            mutations.append(Mutation(row).put(b"f", b"q", b"%d" % self.added[row]))
        self.queues.add(encode_mutations(mutations))

    @rule(ends=st.sets(st.sampled_from(ROWS), max_size=3), data=st.data())
    def locate(self, ends: set[bytes], data: st.DataObject) -> None:
        extents = extents_of(*sorted(ends))
        choice = st.sampled_from([None, *ADDRESSES])
        self.queues.relocate(TableMap(tuple(extents), tuple(data.draw(choice) for _ in extents), (1,) * len(extents)))

    @rule(data=st.data())
    def locate_the_same(self, data: st.DataObject) -> None:
        extents = sorted(self.queues.extents(), key=lambda e: e.end_row or b"\xff")
        addresses = tuple(data.draw(st.sampled_from(ADDRESSES)) for _ in extents)
        if extents:
            self.queues.relocate(TableMap(tuple(extents), addresses, (1,) * len(extents)))

    @rule(address=st.sampled_from(ADDRESSES), bytes_max=st.sampled_from([1, 200, 10**6]))
    def take(self, address: str, bytes_max: int) -> None:
        self.now_ns += 1
        for flight in self.queues.take(address, bytes_max, self.now_ns):
            extent, batch = flight.extent, flight.batch
            assert extent not in self.in_flight, "two batches of one tablet on their way"
            assert flight.address == address
            rows, values = batch.column("row").to_pylist(), batch.column("value").to_pylist()
            assert all(extent.contains(row) for row in rows)
            self.in_flight[extent] = flight, [(row, int(value)) for row, value in zip(rows, values, strict=True)]

    @precondition(lambda self: self.in_flight)
    @rule(data=st.data(), applied=st.booleans())
    def answer(self, data: st.DataObject, applied: bool) -> None:
        extent = data.draw(st.sampled_from(sorted(self.in_flight, key=lambda e: e.end_row or b"\xff")))
        self.land(extent, applied)

    def land(self, extent: Extent, applied: bool) -> None:
        flight, records = self.in_flight.pop(extent)
        if applied:
            for row, number in records:
                self.arrived[row].append(number)
            assert self.queues.written(flight)
        else:
            self.queues.failed(flight)

    @rule(ends=st.sets(st.sampled_from(ROWS), max_size=3), young=st.integers(0, 3), data=st.data())
    def give_up(self, ends: set[bytes], young: int, data: st.DataObject) -> None:
        extents = data.draw(st.sampled_from([tuple(extents_of(*sorted(ends))), tuple(self.queues.extents())]))
        addresses = tuple(data.draw(st.sampled_from([None, *ADDRESSES])) for _ in extents)
        before_ns = self.now_ns - young
        elsewhere = dict(zip(extents, addresses, strict=True))
        ended = {
            extent: flight
            for extent, (flight, _) in self.in_flight.items()
            if flight.began_ns < before_ns and elsewhere.get(extent) != flight.address
        }
        found = TableMap(extents, addresses, (1,) * len(extents))
        alone = self.queues.give_up(found, before_ns)
        for extent, flight in ended.items():
            del self.in_flight[extent]
            self.given_up.append(flight)
        assert alone == {one.address for one in ended.values()} - {one.address for one, _ in self.in_flight.values()}
        self.queues.relocate(found)

    @precondition(lambda self: self.given_up)
    @rule(data=st.data(), applied=st.booleans())
    def answer_late(self, data: st.DataObject, applied: bool) -> None:
        flight = self.given_up.pop(data.draw(st.integers(0, len(self.given_up) - 1)))
        if applied:
            assert not self.queues.written(flight), "an answer to a flight that was given up"
        else:
            self.queues.failed(flight)

    @invariant()
    def what_arrived_is_in_order_and_once(self) -> None:
        for row, numbers in self.arrived.items():
            assert numbers == list(range(1, len(numbers) + 1)), row

    @invariant()
    def nothing_is_lost_and_bytes_are_counted(self) -> None:
        unwritten = list(self.queues.unwritten())
        assert self.queues.unwritten_bytes == sum(batch.nbytes for batch in unwritten)
        assert self.queues.is_empty == (sum(batch.num_rows for batch in unwritten) == 0)
        for row in ROWS:
            waiting = [int(one["value"]) for batch in unwritten for one in batch.to_pylist() if one["row"] == row]
            assert [*self.arrived[row], *waiting] == list(range(1, self.added[row] + 1))

    def teardown(self) -> None:
        for extent in list(self.in_flight):
            self.land(extent, applied=True)
        self.queues.relocate(TableMap(tuple(extents_of(b"c")), ("one:1", "two:2"), (1, 1)))
        while not self.queues.is_empty:
            assert not self.queues.stuck()
            self.take("one:1", 10**6)
            self.take("two:2", 10**6)
            assert self.in_flight
            for extent in list(self.in_flight):
                self.land(extent, applied=True)
        self.what_arrived_is_in_order_and_once()


TestQueues = Queues.TestCase
TestQueues.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)


def _batch(row: bytes, size: int) -> object:
    return encode_mutations([Mutation(row).put(b"f", b"q", bytes(size))])


def test_small_batches_of_a_tablet_leave_together_and_large_ones_alone() -> None:
    queues = TabletQueues()
    for _ in range(10):
        queues.add(_batch(b"a", 1000))
    queues.add(_batch(b"a", tablet_queues.JOIN_BELOW_BYTES))
    assert queues.stuck() == [UNLOCATED]
    queues.relocate(TableMap(tuple(extents_of()), ("one:1",), (1,)))
    for rows in (10, 1):
        (flight,) = queues.take("one:1", 10**9, 0)
        assert flight.batch.num_rows == rows
        queues.written(flight)
    assert queues.is_empty


def test_a_batch_that_fills_a_call_leaves_alone() -> None:
    queues = TabletQueues()
    queues.relocate(TableMap(tuple(extents_of(b"b", b"d")), ("one:1",) * 3, (1,) * 3))
    for row, size in ((b"a", 10), (b"c", 5000), (b"e", 10)):
        queues.add(_batch(row, size))
    calls = []
    while not queues.is_empty:
        taken = queues.take("one:1", 1000, 0)
        calls.append([flight.extent.end_row for flight in taken])
        for flight in taken:
            queues.written(flight)
    assert calls == [[b"b"], [b"d"], [None]]


def test_a_tablet_that_had_to_stay_behind_goes_first_the_next_time() -> None:
    queues = TabletQueues()
    queues.relocate(TableMap(tuple(extents_of(b"b", b"d")), ("one:1",) * 3, (1,) * 3))
    for _ in range(3):
        for row in (b"a", b"c", b"e"):
            queues.add(_batch(row, tablet_queues.JOIN_BELOW_BYTES))
    order = []
    while not queues.is_empty:
        (flight,) = queues.take("one:1", 1, 0)
        order.append(flight.extent.end_row)
        queues.written(flight)
    assert order == [b"b", b"d", None] * 3


def test_a_failed_tablet_rests_until_it_was_located_again() -> None:
    queues = TabletQueues()
    found = TableMap(tuple(extents_of()), ("one:1",), (1,))
    queues.relocate(found)
    queues.add(_batch(b"a", 10))
    (flight,) = queues.take("one:1", 1, 0)
    queues.failed(flight)
    assert queues.stuck() == [flight.extent]
    assert queues.take("one:1", 1, 0) == []
    queues.relocate(found)
    assert queues.stuck() == []
    assert len(queues.take("one:1", 1, 0)) == 1


def test_who_sends_is_called_only_for_what_can_be_sent() -> None:
    queues = TabletQueues()
    assert queues.add(_batch(b"a", 1)), "the location is unknown"
    low, high = extents_of(b"c")
    queues.relocate(TableMap((low, high), ("one:1", "one:1"), (1, 1)))
    (flight,) = queues.take("one:1", 10**6, 0)
    assert flight.extent == low
    assert not queues.add(_batch(b"b", 1)), "it follows what is on its way"
    assert queues.add(_batch(b"d", 1)), "nothing of its tablet is on its way"
    queues.failed(flight)
    assert queues.add(_batch(b"b", 1)), "its tablet is to be looked for"
