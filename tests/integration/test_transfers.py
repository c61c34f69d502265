"""Content on its way to a host: several parts at once, also when they come in another order or not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from itertools import count
from pathlib import Path
from random import Random

import pytest

from bookkeeper.errors import CorruptionError, UnavailableError
from bookkeeper.rpc.contract.messages import SegmentAck, SegmentTransit
from bookkeeper.rpc.contract.services import TServer
from bookkeeper.tserver.leading.copy_pace import PAUSE_MAX_MS, CopyPace
from bookkeeper.tserver.leading.host_calls import HostLink
from bookkeeper.tserver.leading.transfer import PARTS_AT_ONCE, Outcome, Sent, SentCounters, Transfer
from tests.support.jumping_clock import TestClock
from tests.support.led_hosts import Hosts, hosts
from tests.support.tservers import records

pytestmark = pytest.mark.integration

PART_BYTES = 1_000
PARTS = 12

Order = Callable[[Sequence[SegmentTransit]], Sequence[SegmentTransit]]
"""In which order parts arrive that are on their way together."""


class Way:
    """Parts on their way to a host; they arrive when the sender waits."""

    def __init__(self, host: TServer, order: Order) -> None:
        self._host, self._order = host, order
        self._sent: list[SegmentTransit] = []
        self._acks: dict[int, SegmentAck] = {}
        self.most = 0

    def send(self, transit: SegmentTransit) -> None:
        """See :class:`Transits`."""
        self._sent.append(transit)
        self.most = max(self.most, len(self._sent))

    def receive(self) -> SegmentAck:
        """See :class:`Transits`."""
        for transit in self._order([one for one in self._sent if id(one) not in self._acks]):
            self._acks[id(transit)] = self._host.segment_transit(transit)
        return self._acks.pop(id(self._sent.pop(0)))


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Hosts]:
    with hosts(tmp_path, "host1", "host2") as made:
        yield made


def pace_of(is_busy: bool, pauses: list[float]) -> CopyPace:
    """The pace of a lane whose thread takes a second of CPU time for each part."""
    computed_ns = count(0, 1_000_000_000)
    return CopyPace(TestClock(), 0.1, lambda: is_busy, pauses.append, lambda: next(computed_ns))


class Copies:
    """A segment of several parts on host1, which host2 lacks."""

    def __init__(self, world: Hosts) -> None:
        self.world = world
        self.extent = world.table("host1", "host2", properties={"table.copies_min": "1"})
        world.lead(self.extent, "host1")
        world.wait_same(self.extent, "host1", "host2")
        world.node("host1").process.parts.tablets.leading.senders.close()
        node = world.node("host1")
        value = Random(1).randbytes(PARTS * PART_BYTES - PART_BYTES // 2)
        assert world.ground.write(node, self.extent, records([(b"a", value)])) == ()
        world.ground.tserver(node).flush_tablet(self.extent)
        self.counters = SentCounters()

    def turn(self, order: Order, pace: CopyPace | None = None) -> tuple[Outcome, Way]:
        """Send the segment; the outcome, and the way that its parts took."""
        pace = pace or pace_of(False, [])
        chain = self.world.chain("host1", self.extent)
        host = self.world.ground.tserver(self.world.node("host2"))
        way = Way(host, order)
        link = HostLink(host, lambda: nullcontext(way), PART_BYTES)
        return Transfer(chain, chain.replica.target("host2"), link, self.counters, pace).turn(lambda: False), way

    def is_whole(self) -> bool:
        """Whether host2 has the same files."""
        return self.world.files("host2", self.extent) == self.world.files("host1", self.extent)


@pytest.fixture
def copies(world: Hosts) -> Copies:
    return Copies(world)


def test_some_parts_are_on_their_way_at_once_and_no_more(copies: Copies) -> None:
    outcome, way = copies.turn(lambda parts: parts)
    assert (outcome, copies.is_whole()) == (Outcome.SENT, True)
    assert way.most == PARTS_AT_ONCE
    (size,) = map(len, copies.world.files("host1", copies.extent).values())
    assert size > (PARTS - 1) * PART_BYTES
    assert copies.counters.sent == Sent(segments=1, files=1, payload_bytes=size, rows=1)


def test_between_parts_a_lane_pauses_while_clients_write(copies: Copies) -> None:
    pauses: list[float] = []
    outcome, _ = copies.turn(lambda parts: parts, pace_of(True, pauses))
    assert (outcome, copies.is_whole()) == (Outcome.SENT, True)
    (size,) = map(len, copies.world.files("host1", copies.extent).values())
    assert pauses == [PAUSE_MAX_MS] * (-(-size // PART_BYTES) - 1), "a copy takes the time of clients"


def test_parts_that_overtake_each_other_leave_no_gap(copies: Copies) -> None:
    arrived: list[int] = []

    def in_another_order_at_first(parts: Sequence[SegmentTransit]) -> Sequence[SegmentTransit]:
        found = parts if arrived else parts[::-1]
        arrived.extend(part.start // PART_BYTES for part in found)
        return found

    outcome, _ = copies.turn(in_another_order_at_first)
    assert (outcome, copies.is_whole()) == (Outcome.SENT, True), "bytes are missing where parts came in another order"
    assert arrived[: PARTS_AT_ONCE + 1] == [*reversed(range(PARTS_AT_ONCE)), PARTS_AT_ONCE]
    assert arrived[PARTS_AT_ONCE + 1] < PARTS_AT_ONCE, "parts behind the gap are not sent again"


def test_a_host_that_goes_away_gets_the_remaining_parts_later(copies: Copies) -> None:
    arrived: list[int] = []

    def until_the_fifth(parts: Sequence[SegmentTransit]) -> Sequence[SegmentTransit]:
        if len(arrived) >= 5:
            raise UnavailableError("it is away")
        arrived.extend(part.start for part in parts[:1])
        return parts[:1]

    with pytest.raises(UnavailableError, match="it is away"):
        copies.turn(until_the_fifth)
    assert arrived == [number * PART_BYTES for number in range(5)]
    before = copies.counters.sent.payload_bytes
    assert before == 5 * PART_BYTES
    outcome, _ = copies.turn(lambda parts: parts)
    assert (outcome, copies.is_whole()) == (Outcome.SENT, True)
    (size,) = map(len, copies.world.files("host1", copies.extent).values())
    assert copies.counters.sent.payload_bytes == size


def test_a_file_that_ends_too_early_here_is_damaged(copies: Copies) -> None:
    held = copies.world.held("host1", copies.extent)
    (name,) = copies.world.files("host1", copies.extent)
    path = copies.world.settings("host1").replicas_dir / name
    path.write_bytes(path.read_bytes()[: 3 * PART_BYTES + 1])
    assert held.replica.files == {name}
    with pytest.raises(CorruptionError, match="ends before its"):
        copies.turn(lambda parts: parts)
