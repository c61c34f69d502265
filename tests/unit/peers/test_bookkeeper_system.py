"""How the replica system ``bookkeeper`` finds its way, loses it, and finds it again."""

from __future__ import annotations

import contextlib
import random
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from msgspec.structs import replace

from bookkeeper.clock import SystemClock
from bookkeeper.config.file import new_settings
from bookkeeper.config.sections import Settings
from bookkeeper.errors import (
    DeclinedError,
    GapError,
    InvalidInputError,
    NoTServerError,
    NotServingError,
    OverloadedError,
    PeerOlderError,
    RefusedError,
    StreamExpiredError,
    TableGoneError,
    UnavailableError,
)
from bookkeeper.model import StreamKey
from bookkeeper.peers import known_tservers
from bookkeeper.peers.bookkeeper import BookkeeperSession, BookkeeperSystem, may_retry
from bookkeeper.peers.extensions import SegmentTransfer
from bookkeeper.peers.known_tservers import KnownTServers
from bookkeeper.peers.protocol import Acked, Message, MessageBlock, Peer
from bookkeeper.peers.registry import retry_limits
from bookkeeper.peers.segment_files import missing_parts
from bookkeeper.rpc.contract.messages import ReplicateRequest
from bookkeeper.storage.wal.blocks.block import encode_batch
from tests.support.faults import fault
from tests.support.given_files import given_files
from tests.support.memory_peer import MemoryPeer
from tests.support.must_raise import must_raise
from tests.support.thrift_peer import ThriftPeer
from tests.support.tservers import records as batch_of
from tests.support.volumes import MACHINE, path_of
from tests.support.wal_files import EAST, NORTH, WEST, records

STREAM = StreamKey(WEST, "w", "t1", "r1", 1)


class NoWait(SystemClock):
    """Waits are counted and take no time."""

    def __init__(self) -> None:
        self.waits_ms: list[float] = []

    def wait(self, event: threading.Event, timeout_ms: float) -> bool:
        self.waits_ms.append(timeout_ms)
        return event.is_set()


def message(after: int, to: int, blocks: int = 1) -> Message:
    parts = []
    step = (to - after) // blocks
    for first in range(after + 1, to + 1, step):
        rows = [b"%06d" % n for n in range(first, first + step)]
        parts.append(MessageBlock(first, first + step - 1, encode_batch(records(rows)), len(rows), rows[0], rows[-1]))
    return Message((WEST,), after, after, to, tuple(parts))


@pytest.fixture
def peer() -> Iterator[ThriftPeer]:
    with ThriftPeer(MemoryPeer(EAST), tserver_count=2) as running:
        yield running


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return new_settings(tmp_path, "west", instance_id=WEST)


@pytest.fixture
def clock() -> NoWait:
    return NoWait()


def opened(peer: ThriftPeer, settings: Settings, clock: NoWait, quorum: str | None = None) -> BookkeeperSession:
    system = BookkeeperSystem(settings, clock, random.Random(1))
    return system.open(Peer("east", quorum or peer.quorum, EAST), STREAM, retry_limits(settings))


def closed_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


def test_the_tserver_is_asked_for_by_the_table_of_the_peer(peer: ThriftPeer, settings: Settings, clock: NoWait) -> None:
    session = opened(peer, settings, clock)
    session.ship(message(0, 5))
    session.ship(message(5, 9))
    assert peer.picked == ["r1"]
    assert peer.memory.opened == 1
    assert session.tserver == peer.tservers[0].address


def without_masters(settings: Settings, clock: NoWait) -> None:
    """A second stream begins when no master of the peer answers; then another cluster has the place of the tserver."""
    system, later = BookkeeperSystem(settings, clock, random.Random(1)), replace(STREAM, file="w2")
    limits = retry_limits(settings)
    with ThriftPeer(MemoryPeer(EAST)) as peer:
        there = Peer("east", peer.quorum, EAST)
        system.open(there, STREAM, limits).ship(message(0, 5))
        peer.master.stop(grace_ms=0)
        try:
            system.open(there, later, limits).ship(message(0, 5))
        except UnavailableError as error:
            raise AssertionError("the stream waits for a master of the peer") from error
        port = int(peer.tservers[0].address.rpartition(":")[2])
    with ThriftPeer(MemoryPeer(NORTH), tserver_port=port) as other:
        with pytest.raises(UnavailableError, match="no master of east names a leader"):
            system.open(there, replace(STREAM, file="w3"), limits).ship(message(0, 5))
        assert other.memory.messages == [], "R23: another cluster gets the data"


def test_r23_without_a_master_a_stream_begins_at_the_tserver_that_is_known_and_at_no_other_cluster(
    settings: Settings, clock: NoWait
) -> None:
    without_masters(settings, clock)


def test_without_its_rule_a_stream_waits_for_a_master_of_the_peer(settings: Settings, clock: NoWait) -> None:
    with fault("only-a-master-knows-tservers"), pytest.raises(AssertionError, match="the stream waits for a master"):
        without_masters(settings, clock)


STOPPED_MS = 8_000
"""Time-out of a message in tests of a stopped master."""


@contextmanager
def stopped_master() -> Iterator[socket.socket]:
    """A place that takes connections and answers nothing, as a stopped process does."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        yield server


def callers_of(server: socket.socket) -> int:
    """The connections that wait there; they are closed."""
    count = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            server.accept()[0].close()
            count += 1
    return count


def begin(system: BookkeeperSystem, quorum: str, file: str, timeout_ms: int = STOPPED_MS) -> BookkeeperSession:
    """A stream that has its first message at the peer; raises AssertionError when it waits for a master."""
    limits = replace(retry_limits(system.settings), message_retries=1, message_timeout_ms=timeout_ms)
    session = system.open(Peer("east", quorum, EAST), replace(STREAM, file=file), limits)
    try:
        assert session.ship(message(0, 5)).offset == 5
    except UnavailableError as error:
        raise AssertionError(f"the stream waits for a master: {error.message}") from error
    return session


def in_a_new_process(peer: ThriftPeer, settings: Settings, clock: NoWait) -> None:
    """Another process of the host begins streams while no master lives."""
    begin(BookkeeperSystem(settings, clock, random.Random(1)), peer.quorum, "w1")
    peer.master.stop(grace_ms=0)
    begin(BookkeeperSystem(settings, clock, random.Random(1)), peer.quorum, "w2")


def at_the_other_tserver(peer: ThriftPeer, settings: Settings, clock: NoWait) -> None:
    """Two tservers opened streams; no master lives, and the one that did it last dies."""
    system = BookkeeperSystem(settings, clock, random.Random(1))
    first, second = (begin(system, peer.quorum, file) for file in ("w1", "w2"))
    assert first.tserver != second.tserver
    peer.master.stop(grace_ms=0)
    peer.tservers[1].stop(grace_ms=0)
    assert begin(system, peer.quorum, "w3").tserver == first.tserver


def at_a_tserver_that_came_back(peer: ThriftPeer, settings: Settings, clock: NoWait) -> None:
    """No master lives; a tserver does not take a message, and takes the next one."""
    system = BookkeeperSystem(settings, clock, random.Random(1))
    session = begin(system, peer.quorum, "w1")
    peer.master.stop(grace_ms=0)
    peer.missing = "open_stream"
    with pytest.raises(AssertionError, match="waits for a master: no master of east names a leader"):
        begin(system, peer.quorum, "w2")
    peer.missing = ""
    assert begin(system, peer.quorum, "w2").tserver == session.tserver


def beside_a_stopped_master(peer: ThriftPeer, settings: Settings, clock: NoWait) -> None:
    """The only master of the peer is stopped: it takes connections, and answers nothing."""
    system = BookkeeperSystem(settings, clock, random.Random(1))
    begin(system, peer.quorum, "w1")
    with stopped_master() as master:
        quorum = f"127.0.0.1:{master.getsockname()[1]}"
        began_ns = clock.boot_ns()
        begin(system, quorum, "w2")
        waited_ms = (clock.boot_ns() - began_ns) / 1e6
        assert waited_ms < STOPPED_MS, f"a new stream waits {waited_ms:.0f} ms for the stopped master"
        assert callers_of(master) > 0
        begin(system, quorum, "w3")
        assert callers_of(master) == 0, "each new stream waits for the stopped master"


WITHOUT_A_MASTER = {
    "known-tservers-of-one-process": in_a_new_process,
    "one-tserver-is-known": at_the_other_tserver,
    "failed-tservers-are-forgotten": at_a_tserver_that_came_back,
    "masters-are-waited-for": beside_a_stopped_master,
    "silence-is-forgotten": beside_a_stopped_master,
}


@pytest.mark.parametrize("play", dict.fromkeys(WITHOUT_A_MASTER.values()), ids=lambda play: play.__name__)
def test_without_a_master_streams_begin_at_known_tservers(
    peer: ThriftPeer, settings: Settings, clock: NoWait, play: Callable[[ThriftPeer, Settings, NoWait], None]
) -> None:
    play(peer, settings, clock)


@pytest.mark.parametrize("switch", WITHOUT_A_MASTER)
def test_a_switch_ends_streams_without_a_master(
    peer: ThriftPeer, settings: Settings, clock: NoWait, switch: str
) -> None:
    with (
        fault(switch),
        pytest.raises(AssertionError, match="waits"),
    ):
        WITHOUT_A_MASTER[switch](peer, settings, clock)


@pytest.mark.parametrize("text", ["", "[1]", "{", '{"i-east": 7}'])
def test_a_damaged_list_of_known_tservers_is_an_empty_one(tmp_path: Path, text: str) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / known_tservers.FILE).write_text(text)
    known = KnownTServers(tmp_path)
    assert known.of(EAST) == ()
    known.note(EAST, "east:1")
    assert KnownTServers(tmp_path).of(EAST) == ("east:1",)


def test_the_list_of_known_tservers_is_short_and_the_latest_is_first(tmp_path: Path) -> None:
    known = KnownTServers(tmp_path)
    for number in range(2 * known_tservers.ADDRESSES_MAX):
        known.note(EAST, f"east:{number}")
        known.note(f"i-{number}", "north:1")
    assert known.of(EAST)[0] == f"east:{2 * known_tservers.ADDRESSES_MAX - 1}"
    assert len(known.of(EAST)) == known_tservers.ADDRESSES_MAX
    assert KnownTServers(tmp_path).of(EAST) == known.of(EAST)
    known.put_last(EAST, known.of(EAST)[0])
    assert known.of(EAST)[-1] == f"east:{2 * known_tservers.ADDRESSES_MAX - 1}"


def test_any_master_of_the_quorum_will_do(peer: ThriftPeer, settings: Settings, clock: NoWait) -> None:
    session = opened(peer, settings, clock, quorum=f"{closed_port()},{peer.quorum}")
    assert session.ship(message(0, 5)).offset == 5


def test_a_peer_that_nobody_answers_for_is_unavailable_and_each_master_is_named(
    peer: ThriftPeer, settings: Settings, clock: NoWait
) -> None:
    one, two = closed_port(), closed_port()
    with pytest.raises(UnavailableError, match=f"{one}.*{two}"):
        opened(peer, settings, clock, quorum=f"{one},{two}").ship(message(0, 5))
    assert len(clock.waits_ms) == settings.replay.message_retries


def test_a_quorum_that_can_not_be_one_is_refused_at_once(peer: ThriftPeer, settings: Settings, clock: NoWait) -> None:
    with pytest.raises(InvalidInputError):
        opened(peer, settings, clock, quorum="not an address")


def test_another_cluster_at_the_address_is_refused_without_another_try(settings: Settings, clock: NoWait) -> None:
    with (
        ThriftPeer(MemoryPeer(NORTH)) as other,
        must_raise(RefusedError, "another cluster at the address of the peer gets the data", match="define it again"),
    ):
        opened(other, settings, clock).ship(message(0, 5))
    assert clock.waits_ms == []
    assert other.memory.messages == []


def test_a_cluster_that_takes_over_the_address_gets_nothing(settings: Settings, clock: NoWait) -> None:
    with ThriftPeer(MemoryPeer(EAST)) as first:
        session = opened(first, settings, clock)
        session.ship(message(0, 5))
        _, _, port = first.quorum.rpartition(":")
    with ThriftPeer(MemoryPeer(NORTH), master_port=int(port)) as second, pytest.raises(RefusedError):
        session.ship(message(5, 9))
    assert second.memory.messages == []


def test_an_expired_stream_is_opened_again_at_the_same_tserver(
    peer: ThriftPeer, settings: Settings, clock: NoWait
) -> None:
    session = opened(peer, settings, clock)
    session.ship(message(0, 5))
    peer.expire()
    assert session.ship(message(5, 9)) == Acked(9, 4, 0)
    assert (len(peer.picked), peer.memory.opened) == (1, 2)


def test_whenever_a_stream_was_opened_its_owner_checks_before_the_next_message(
    peer: ThriftPeer, settings: Settings, clock: NoWait
) -> None:
    session = opened(peer, settings, clock)
    came: list[int] = []
    session.check_when_opened(lambda: came.append(len(peer.memory.messages)))
    for message_of in (session.ship, lambda message: session.start_shipping(message).wait()):
        session.ship(message(0, 5))
        peer.expire()
        with suppress(StreamExpiredError):
            message_of(message(5, 9))
        message_of(message(5, 9))
    assert came == [0, 1, 4]

    def fail() -> None:
        raise PeerOlderError("it lacks records")

    session.check_when_opened(fail)
    peer.expire()
    with suppress(StreamExpiredError):
        session.start_shipping(message(9, 12)).wait()
    before = len(peer.memory.messages)
    for _ in range(2):
        with pytest.raises(PeerOlderError):
            session.ship(message(9, 12))
        with pytest.raises(PeerOlderError):
            session.start_shipping(message(9, 12)).wait()
    assert len(peer.memory.messages) == before, "a message went to a peer that lacks the one before it"


def test_a_peer_of_an_earlier_version_does_not_tell_what_it_lacks(
    peer: ThriftPeer, settings: Settings, clock: NoWait
) -> None:
    session = opened(peer, settings, clock)
    session.ship(message(0, 5))
    assert session.missing_records(STREAM.file, message(0, 5)) is None
    assert session.missing_records("an earlier log", message(0, 5)) is None
    assert session.ship(message(5, 9)) == Acked(9, 4, 0), "the session is over"
    assert len(peer.memory.rows) == 9


def test_a_tserver_that_moved_the_table_away_is_left_for_another(
    peer: ThriftPeer, settings: Settings, clock: NoWait
) -> None:
    calls: list[ReplicateRequest] = []

    def once(request: ReplicateRequest) -> None:
        calls.append(request)
        if len(calls) == 1:
            raise NotServingError("moved")

    peer.before = once
    session = opened(peer, settings, clock)
    assert session.ship(message(0, 5)) == Acked(5, 5, 0)
    assert session.tserver == peer.tservers[1].address
    assert len(clock.waits_ms) == 1


@pytest.mark.parametrize("call", ["pick_tserver", "open_stream", "replicate"])
def test_a_table_that_is_gone_is_told_as_such_by_whichever_call_misses_it(
    peer: ThriftPeer, settings: Settings, clock: NoWait, call: str
) -> None:
    session = opened(peer, settings, clock)
    peer.missing = call
    with pytest.raises(TableGoneError, match="has no table r1: there is no table with id r1"):
        session.ship(message(0, 5))
    assert clock.waits_ms == [], "another try can't help"


def test_a_peer_whose_master_answers_without_a_tserver_is_told_from_one_that_does_not_answer(
    peer: ThriftPeer, settings: Settings, clock: NoWait
) -> None:
    peer.lacks_tserver = True
    with pytest.raises(NoTServerError) as raised:
        opened(peer, settings, clock).ship(message(0, 5))
    assert raised.value.message == (
        f"the master of east answers at {peer.master.address}, and no tablet server of east is alive"
    )
    peer.master.stop(grace_ms=0)
    with pytest.raises(UnavailableError, match="no master of east names a leader") as unreached:
        opened(peer, settings, clock).ship(message(0, 5))
    assert not isinstance(unreached.value, NoTServerError)


def test_a_tserver_that_died_is_left_for_another(peer: ThriftPeer, settings: Settings, clock: NoWait) -> None:
    session = opened(peer, settings, clock)
    session.ship(message(0, 5))
    peer.tservers[0].stop(grace_ms=0)
    assert session.ship(message(5, 9)) == Acked(9, 4, 0)
    assert session.tserver == peer.tservers[1].address


def test_a_message_counts_as_sent_when_there_was_a_connection_for_it(
    peer: ThriftPeer, settings: Settings, clock: NoWait, tmp_path: Path
) -> None:
    session = opened(peer, settings, clock)
    session.ship(message(0, 5))
    assert session.sends == 1
    peer.tservers[0].stop(grace_ms=0)
    session.pool.disconnect(session.tserver)  # the end of the old connection may be under way, and it counts as one
    session.ship(message(5, 9))
    assert session.sends == 2
    answers = [OverloadedError("full"), NotServingError("moved")]

    def declines(_request: ReplicateRequest) -> None:
        if answers:
            raise answers.pop()

    peer.before = declines
    session.ship(message(9, 12))
    assert session.sends == 5
    elsewhere = new_settings(tmp_path / "elsewhere", "west", instance_id=WEST)
    nobody = opened(peer, elsewhere, clock, quorum=closed_port())
    with pytest.raises(UnavailableError):
        nobody.ship(message(0, 5))
    assert nobody.sends == 0


def test_a_busy_tserver_is_kept(peer: ThriftPeer, settings: Settings, clock: NoWait) -> None:
    calls: list[ReplicateRequest] = []

    def once(request: ReplicateRequest) -> None:
        calls.append(request)
        if len(calls) == 1:
            raise OverloadedError("full")

    peer.before = once
    session = opened(peer, settings, clock)
    session.ship(message(0, 5))
    assert (len(peer.picked), peer.memory.opened) == (1, 1)


def test_tries_are_bounded_and_pauses_grow_with_jitter(peer: ThriftPeer, settings: Settings, clock: NoWait) -> None:
    def never(_request: ReplicateRequest) -> None:
        raise NotServingError("moving")

    peer.before = never
    with pytest.raises(NotServingError):
        opened(peer, settings, clock).ship(message(0, 5))
    replay = settings.replay
    assert len(clock.waits_ms) == replay.message_retries
    for number, waited_ms in enumerate(clock.waits_ms):
        ceiling_ms = min(replay.retry_max_ms, replay.retry_base_ms * 2**number)
        assert ceiling_ms / 2 <= waited_ms <= ceiling_ms


def test_no_new_try_begins_once_the_time_for_a_message_is_up(peer: ThriftPeer, settings: Settings) -> None:
    session = BookkeeperSystem(settings).open(Peer("east", peer.quorum, EAST), STREAM, retry_limits(settings))
    session.ship(message(0, 5))  # the stream is open, and its way needs none of the time
    session.limits = replace(session.limits, message_timeout_ms=50, message_retries=100)
    released = threading.Event()

    def hang(_request: ReplicateRequest) -> None:
        released.wait(60)

    peer.before = hang
    with pytest.raises(UnavailableError):
        session.ship(message(5, 9))
    released.set()
    assert (len(peer.picked), session.sends) == (1, 2)


def test_a_gap_is_the_senders_to_mend_and_is_not_tried_again(
    peer: ThriftPeer, settings: Settings, clock: NoWait
) -> None:
    calls: list[ReplicateRequest] = []

    def gap(request: ReplicateRequest) -> None:
        calls.append(request)
        raise GapError("lost some", {"high_water": "3"})

    peer.before = gap
    with pytest.raises(GapError) as caught:
        opened(peer, settings, clock).ship(message(5, 9))
    assert (caught.value.high_water, len(calls)) == (3, 1)


def test_a_message_of_very_many_blocks_arrives_whole(peer: ThriftPeer, settings: Settings, clock: NoWait) -> None:
    assert opened(peer, settings, clock).ship(message(0, 3000, blocks=3000)) == Acked(3000, 3000, 0)


@pytest.mark.parametrize(
    ("error", "again"),
    [
        (StreamExpiredError("x"), True),
        (UnavailableError("x"), True),
        (GapError("x", {"high_water": "1"}), False),
        (RefusedError("x"), False),
        (ValueError("x"), False),
    ],
)
def test_only_what_may_pass_is_tried_again(error: Exception, again: bool) -> None:
    assert may_retry(error) is again


def test_a_peer_without_segment_transfer_declines_it(
    peer: ThriftPeer, settings: Settings, clock: NoWait, tmp_path: Path
) -> None:
    given = given_files(tmp_path / "given", [batch_of([(b"a", b"1")], timestamp=5)])
    session = opened(peer, settings, clock)
    answer = session.transfer_segments(SegmentTransfer(MACHINE, (WEST,), given.whole), clock.boot_ns() + 60 * 10**9)
    assert "not part of this test peer" in (answer.declined or "")
    assert (answer.sent_bytes, session.sends, clock.waits_ms) == (0, 0, [])
    assert session.ship(message(0, 4)) == Acked(4, 4, 0)


def test_files_go_in_parts_from_where_the_peer_has_them(tmp_path: Path) -> None:
    given = given_files(tmp_path / "given", [batch_of([(b"a", b"1")], timestamp=5)])
    content = path_of(given.whole.segments[0].name).read_bytes()
    parts = list(missing_parts("t", STREAM, given.file, [100], 1000))
    assert [part.start for part in parts] == list(range(100, len(content), 1000))
    assert b"".join(part.content for part in parts) == content[100:]
    for strange in ([], [0, 0], [-1], [len(content) + 1], [1 << 62]):
        with pytest.raises(DeclinedError, match="fits none of the files"):
            next(missing_parts("t", STREAM, given.file, strange, 1000))
    path_of(given.whole.segments[0].name).unlink()
    with pytest.raises(DeclinedError, match="can't be read"):
        next(missing_parts("t", STREAM, given.file, [0], 1000))
