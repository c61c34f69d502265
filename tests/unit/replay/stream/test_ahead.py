"""Messages that leave before the one in front of them is answered: answers count in order, and nothing is skipped."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bookkeeper.errors import BookkeeperError, InvalidInputError, RefusedError, UnavailableError
from bookkeeper.model import StreamKey
from bookkeeper.peers.extensions import PipelinedSession
from bookkeeper.peers.protocol import Acked, Message, Peer, RetryLimits
from bookkeeper.peers.registry import Registry
from bookkeeper.replay.ranges import RangeResult
from bookkeeper.replay.stream.block_stream import MESSAGES_IN_FLIGHT_MAX
from bookkeeper.replay.stream.range_shipping import Sessions, Shipper
from tests.support.memory_peer import MemoryPeer
from tests.support.ranges import a_range
from tests.support.ship_bench import LONG_MS, Bench, rows, specs_of
from tests.support.volumes import MACHINE
from tests.support.wal_files import EAST, Spec, write_wal


@dataclass(slots=True)
class _InFlight:
    """``outcome`` came about when the message left; the sender hears of it when it asks."""

    session: _AheadOfAll
    outcome: Acked | BookkeeperError
    sends: int = 0

    def wait(self) -> Acked:
        self.sends = 1
        self.session.on_way -= 1
        if isinstance(self.outcome, BookkeeperError):
            raise self.outcome
        return self.outcome


@dataclass(slots=True)
class _AheadOfAll:
    """A session of a peer in memory that takes messages ahead; ``most`` were on their way at once."""

    peer: MemoryPeer
    stream: StreamKey
    sends: int = 0
    on_way: int = 0
    most: int = 0

    def ship(self, message: Message) -> Acked:
        self.sends += 1
        return self.peer.apply(self.stream, message)

    def start_shipping(self, message: Message) -> _InFlight:
        self.on_way += 1
        self.most = max(self.most, self.on_way)
        try:
            return _InFlight(self, self.peer.apply(self.stream, message))
        except BookkeeperError as error:
            return _InFlight(self, error)

    def close(self) -> None:
        pass


@dataclass(slots=True)
class _System:
    """A system with one session for all streams."""

    peer: MemoryPeer
    name: str = "memory"
    sessions: list[_AheadOfAll] = field(default_factory=list)

    def open(self, peer: Peer, stream: StreamKey, limits: RetryLimits) -> _AheadOfAll:
        del peer, limits
        self.sessions.append(_AheadOfAll(self.peer, stream))
        return self.sessions[-1]


def _ship(directory: Path, peer: MemoryPeer, specs: list[Spec]) -> tuple[RangeResult, list[_AheadOfAll]]:
    """All of a log, a block a message."""
    file = write_wal(directory / "w", specs)
    system = _System(peer)
    settings = Bench(directory, 1).settings
    shipper = Shipper(Sessions(Registry({"memory": lambda: system}), settings), MACHINE, settings)
    (result,) = shipper.ship([a_range(file, 1, sum(len(spec.rows) for spec in specs))], LONG_MS)
    assert sum(session.on_way for session in system.sessions) == 0, "a message is on its way when its stream is over"
    return result, system.sessions


def test_messages_leave_before_the_one_in_front_is_answered(tmp_path: Path) -> None:
    peer = MemoryPeer(EAST)
    result, sessions = _ship(tmp_path, peer, specs_of([10] * 6))
    assert (result.error, result.acked_offset, result.records, result.sent_records) == (None, 60, 60, 60)
    assert peer.rows == rows(1, 60)
    assert [m.after_offset - m.acked_offset for m in peer.messages] == [0, 10, 20, 20, 20, 20]
    assert [session.most for session in sessions] == [MESSAGES_IN_FLIGHT_MAX]
    assert isinstance(sessions[0], PipelinedSession)


def test_a_message_that_was_lost_goes_again_and_so_does_what_was_declined_behind_it(tmp_path: Path) -> None:
    peer = MemoryPeer(EAST)

    def lose_the_first(_message: Message) -> frozenset[int]:
        if len(peer.messages) == 1:
            raise UnavailableError("the connection broke")
        return frozenset()

    peer.trouble = lose_the_first
    result, _ = _ship(tmp_path, peer, specs_of([10] * 4))
    assert (result.error, result.acked_offset, result.records, result.sent_records) == (None, 40, 40, 70)
    assert peer.rows == rows(1, 40)


def check_order_of_answers(directory: Path) -> None:
    """The first message fails at one of its tablets for as long as it is sent; the second one has nothing for that."""
    peer = MemoryPeer(EAST, splits=[b"000005"])
    peer.trouble = lambda message: frozenset({0} if message.to_offset == 10 else ())
    result, _ = _ship(directory, peer, specs_of([10, 10, 10]))
    assert result.error is not None
    assert result.acked_offset == 0, "what the first tablet lacks counts as acknowledged"


def test_r19_an_answer_counts_when_all_in_front_of_it_is_acknowledged(tmp_path: Path) -> None:
    check_order_of_answers(tmp_path)


def test_a_refusal_stops_the_stream_where_it_is(tmp_path: Path) -> None:
    peer = MemoryPeer(EAST)

    def refuse(message: Message) -> frozenset[int]:
        if message.to_offset >= 20:
            raise RefusedError("not here")
        return frozenset()

    peer.trouble = refuse
    result, _ = _ship(tmp_path, peer, specs_of([10] * 5))
    assert result.error is not None
    assert (result.error.code, result.acked_offset, peer.rows) == ("refused", 10, rows(1, 10))


@pytest.mark.parametrize("bad", [1, 2, 3, 4])
def test_what_is_refused_for_its_records_is_named_while_others_are_on_their_way(tmp_path: Path, bad: int) -> None:
    peer = MemoryPeer(EAST)

    def dislike(message: Message) -> frozenset[int]:
        if any(block.first_offset == 10 * bad - 9 for block in message.blocks):
            raise InvalidInputError("a value is too long")
        return frozenset()

    peer.trouble = dislike
    result, _ = _ship(tmp_path, peer, specs_of([10] * 4))
    assert result.failed is not None
    assert (result.failed.first, result.failed.last) == (10 * bad - 9, 10 * bad)
    assert (result.acked_offset, peer.rows) == (10 * bad - 10, rows(1, 10 * bad - 10))
