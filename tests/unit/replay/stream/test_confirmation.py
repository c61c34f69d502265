"""A peer is asked for the last block that it acknowledged; what its answer, or the lack of one, means."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from msgspec.structs import replace

from bookkeeper.errors import PeerOlderError, RefusedError, StreamOverError, TableGoneError, UnavailableError
from bookkeeper.model import StreamKey
from bookkeeper.peers.extensions import ConfirmingSession
from bookkeeper.peers.protocol import Acked, Message, Peer, RetryLimits
from bookkeeper.peers.registry import Registry
from bookkeeper.replay.ranges import RangeResult
from bookkeeper.replay.stream.range_shipping import Sessions, Shipper
from tests.support.faults import fault
from tests.support.memory_peer import MemoryPeer
from tests.support.ranges import a_range
from tests.support.ship_bench import LONG_MS, Bench, rows, specs_of
from tests.support.volumes import MACHINE, path_of
from tests.support.wal_files import EAST, write_wal

Answer = Callable[[str, Message], int | None]


def nothing_missing(_file: str, _message: Message) -> int | None:
    """All is there."""
    return 0


@dataclass(slots=True)
class _Session:
    """It opens its stream with its first message."""

    peer: MemoryPeer
    stream: StreamKey
    answer: Answer
    asked: list[tuple[str, int, int]]
    sends: int = 0
    check: Callable[[], None] | None = None

    def check_when_opened(self, check: Callable[[], None]) -> None:
        self.check = check

    def missing_records(self, file: str, message: Message) -> int | None:
        assert message.acked_offset == message.after_offset, "a tablet would decline it"
        self.asked.append((file, message.after_offset + 1, message.to_offset))
        return self.answer(file, message)

    def ship(self, message: Message) -> Acked:
        if not self.sends and self.check is not None:
            self.check()
        self.sends += 1
        return self.peer.apply(self.stream, message)

    def close(self) -> None:
        pass


@dataclass(slots=True)
class Source:
    """Ships ranges of a log with blocks of ten records, each time as another process."""

    directory: Path
    answer: Answer = nothing_missing
    peer: MemoryPeer = field(default_factory=lambda: MemoryPeer(EAST))
    asked: list[tuple[str, int, int]] = field(default_factory=list)
    name: str = "memory"

    def open(self, peer: Peer, stream: StreamKey, limits: RetryLimits) -> _Session:
        del peer, limits
        made = _Session(self.peer, stream, self.answer, self.asked)
        assert isinstance(made, ConfirmingSession)
        return made

    def log(self, name: str = "w") -> str:
        return write_wal(self.directory / name, specs_of([10] * 4))

    def ship(self, file: str, first: int, confirm_file: str, confirm_first: int, run_id: str = "") -> RangeResult:
        settings = Bench(self.directory, 1).settings
        shipper = Shipper(Sessions(Registry({"memory": lambda: self}), settings), MACHINE, settings)
        wanted = a_range(file, first, 40, run_id=run_id)
        named = replace(wanted, confirm_file=confirm_file, confirm_first=confirm_first)
        (result,) = shipper.ship([named], LONG_MS)
        return result


@pytest.fixture
def source(tmp_path: Path) -> Source:
    return Source(tmp_path)


def ended(result: RangeResult) -> tuple[str | None, int]:
    return None if result.error is None else result.error.code, result.acked_offset


def test_the_block_is_asked_for_before_the_first_message_and_the_last_one_is_named(source: Source) -> None:
    file = source.log()
    result = source.ship(file, 21, file, 11)
    assert (ended(result), source.asked, result.block_first) == ((None, 40), [(file, 11, 20)], 31)
    assert source.peer.rows == rows(21, 20)
    position = result.block_position
    source.asked.clear()
    assert 0 < position < path_of(file).stat().st_size
    assert ended(source.ship(file, 1, "", 0)) == (None, 40)
    assert source.asked == [], "nothing is known of an earlier block"


def check_stop(source: Source) -> None:
    """The peer lacks records of the block."""
    source.answer = lambda _file, _message: 3
    file = source.log()
    result = source.ship(file, 21, file, 11)
    assert ended(result) == (PeerOlderError.code, 20), "a message went to a peer that lacks the one before it"
    assert not source.peer.messages


def test_a_peer_that_lacks_it_gets_nothing_more_in_this_run(source: Source) -> None:
    check_stop(source)


def test_if_it_is_believed_the_next_message_hides_the_loss(source: Source) -> None:
    with fault("acknowledged-blocks-are-believed"), pytest.raises(AssertionError, match="a message went to a peer"):
        check_stop(source)


@pytest.mark.parametrize("said", [None, -1, 11])
def test_what_can_not_be_true_or_is_not_told_is_no_finding(source: Source, said: int | None) -> None:
    source.answer = lambda _file, _message: said
    file = source.log()
    assert ended(source.ship(file, 21, file, 11)) == (None, 40)


def fails(error: Exception) -> Answer:
    def answer(_file: str, _message: Message) -> int | None:
        raise error

    return answer


def test_a_question_without_an_answer_is_asked_again(source: Source) -> None:
    source.answer = fails(UnavailableError("away"))
    file = source.log()
    assert ended(source.ship(file, 21, file, 11)) == ("unavailable", 20)


@pytest.mark.parametrize("error", [RefusedError("not you"), TableGoneError("no table")])
def test_a_refusal_says_nothing_about_the_block(source: Source, error: Exception) -> None:
    source.answer = fails(error)
    file = source.log()
    assert ended(source.ship(file, 21, file, 11)) == (None, 40)


def test_a_stream_that_the_peer_does_not_know_is_lost_while_its_file_is_there(source: Source) -> None:
    source.answer = fails(StreamOverError("no such stream"))
    file, earlier = source.log(), source.log("earlier")
    assert ended(source.ship(file, 1, earlier, 31)) == (PeerOlderError.code, 0)
    assert ended(source.ship(file, 21, file, 11)) == (None, 40), "its own stream is open"


def test_an_earlier_log_that_is_gone_needs_no_answer(source: Source) -> None:
    source.answer = fails(StreamOverError("no such stream"))
    file = source.log()
    assert ended(source.ship(file, 1, f"{file}-gone", 31)) == (None, 40)
    assert source.asked == []


def test_a_file_that_goes_while_the_peer_is_asked_was_over(source: Source) -> None:
    file, earlier = source.log(), source.log("earlier")

    def answer(_file: str, _message: Message) -> int | None:
        path_of(earlier).unlink()
        raise StreamOverError("its end was reported")

    source.answer = answer
    assert ended(source.ship(file, 1, earlier, 31)) == (None, 40)


def test_a_repeated_run_asks_nothing(source: Source) -> None:
    file = source.log()
    assert ended(source.ship(file, 21, file, 11, run_id="again")) == (None, 40)
    assert source.asked == []
