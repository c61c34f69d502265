"""Logs of imports go as whole files where that gives the target the same, and as records everywhere else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from msgspec.structs import replace

from bookkeeper.bulk.log_segments import MANIFEST_SUFFIX, read_segmented_log
from bookkeeper.errors import NotFoundError, UnavailableError
from bookkeeper.model import StreamKey
from bookkeeper.peers.extensions import SegmentTransfer, TransferAnswer
from bookkeeper.peers.protocol import Acked, Message, Peer, RetryLimits
from bookkeeper.peers.registry import Registry
from bookkeeper.replay.ranges import Range
from bookkeeper.replay.stream import segment_transfer
from bookkeeper.replay.stream.range_shipping import Sessions, Shipper
from bookkeeper.replay.stream.segment_transfer import BY_SEGMENTS
from bookkeeper.storage.tablet.segments.locality_groups import GroupMap
from bookkeeper.storage.volume.file_ops import beside
from bookkeeper.storage.wal.reading.block_reader import read_headers
from tests.support.faults import fault
from tests.support.given_files import TARGET, Given, given_files
from tests.support.jumping_clock import TestClock
from tests.support.memory_peer import MemoryPeer, MemorySystem
from tests.support.ranges import a_range
from tests.support.ship_bench import Bench
from tests.support.tservers import records
from tests.support.volumes import MACHINE, path_of

BATCHES = [records([(b"a", b"1"), (b"b", b"2")], timestamp=5), records([(b"c", b"3")], timestamp=5)]


@pytest.fixture
def given(tmp_path: Path) -> Given:
    return given_files(tmp_path / "west", BATCHES, GroupMap({"geo": [b"g"]}))


def _range(given: Given, last: int = 3, **changes: object) -> Range:
    return replace(a_range(given.log, 1, last, target=TARGET), **changes)


@dataclass(slots=True)
class _TransferSession:
    peer: WholePeer
    stream: StreamKey
    sends: int = 0

    def ship(self, message: Message) -> Acked:
        self.sends += 1
        return self.peer.memory.apply(self.stream, message)

    def transfer_segments(self, whole: SegmentTransfer, give_up_ns: int) -> TransferAnswer:
        del give_up_ns
        self.peer.offers.append(whole)
        self.peer.takes()
        if self.peer.error is not None:
            raise self.peer.error
        return TransferAnswer(self.peer.declines, 0 if self.peer.declines else whole.log.size_bytes)

    def close(self) -> None:
        pass


@dataclass(slots=True)
class WholePeer:
    """A replica system that takes whole files, or declines them."""

    memory: MemoryPeer
    declines: str | None = None
    error: Exception | None = None
    takes: Callable[[], None] = lambda: None
    """How long an offer takes."""
    offers: list[SegmentTransfer] = field(default_factory=list)
    name: str = "memory"

    def open(self, peer: Peer, stream: StreamKey, limits: RetryLimits) -> _TransferSession:
        """See the protocol."""
        del peer, limits
        return _TransferSession(self, stream)


@pytest.fixture
def peer() -> WholePeer:
    return WholePeer(MemoryPeer("instance-east"))


def _shipper(tmp_path: Path, system: WholePeer | MemorySystem) -> Shipper:
    settings = Bench(tmp_path).settings
    return Shipper(Sessions(Registry({"memory": lambda: system}), settings), MACHINE, settings)


def test_a_file_that_is_taken_is_acknowledged_to_its_end(tmp_path: Path, given: Given, peer: WholePeer) -> None:
    (result,) = _shipper(tmp_path, peer).ship([_range(given)], 60_000)
    assert (result.acked_offset, result.records, result.error, result.way) == (3, 3, None, BY_SEGMENTS)
    assert result.bytes == result.sent_bytes == given.whole.size_bytes
    (offer,) = peer.offers
    assert offer.provenance == ("instance-west",)
    assert offer.log == read_segmented_log(MACHINE, given.log)
    assert peer.memory.messages == []


def _enabled_after_the_import(tmp_path: Path, given: Given, peer: WholePeer) -> None:
    later = replace(TARGET, incarnation=TARGET.incarnation + 1)
    (result,) = _shipper(tmp_path, peer).ship([_range(given, target=later)], 60_000)
    assert (result.acked_offset, result.records, result.filtered, result.error) == (3, 0, 3, None), (
        "R13: an import from before the target was enabled is shipped"
    )
    assert (peer.offers, peer.memory.messages) == ([], [])


def test_r13_schedule_13_an_import_from_before_enabling_is_not_shipped(
    tmp_path: Path, given: Given, peer: WholePeer
) -> None:
    _enabled_after_the_import(tmp_path, given, peer)


def test_r13_schedule_13_without_block_targets_it_is(tmp_path: Path, given: Given, peer: WholePeer) -> None:
    with (
        fault("today's-configuration-counts"),
        pytest.raises(AssertionError, match="an import from before the target was enabled is shipped"),
    ):
        _enabled_after_the_import(tmp_path, given, peer)


def test_a_file_that_is_declined_goes_as_records(tmp_path: Path, given: Given, peer: WholePeer) -> None:
    peer.declines = "its groups are others"
    (result,) = _shipper(tmp_path, peer).ship([_range(given)], 60_000)
    assert (result.acked_offset, result.way) == (3, "records: its groups are others")
    assert peer.memory.rows == [b"a", b"b", b"c"]


def test_a_peer_of_another_kind_gets_records(tmp_path: Path, given: Given) -> None:
    memory = MemoryPeer("instance-east")
    (result,) = _shipper(tmp_path, MemorySystem({"east": memory})).ship([_range(given)], 60_000)
    assert (result.acked_offset, result.way) == (3, "records: the peer takes nothing else")
    assert memory.rows == [b"a", b"b", b"c"]


@pytest.mark.parametrize("error", [UnavailableError("it is away"), NotFoundError("its table is gone")])
def test_an_error_of_the_peer_is_the_ranges(tmp_path: Path, given: Given, peer: WholePeer, error: Exception) -> None:
    peer.error = error
    (result,) = _shipper(tmp_path, peer).ship([_range(given)], 60_000)
    assert result.error is not None
    assert (result.acked_offset, result.error.message, result.error.transient) == (
        0,
        str(error),
        isinstance(error, UnavailableError),
    )
    assert peer.memory.messages == []


def test_what_is_shipped_on_purpose_or_goes_on_goes_as_records(tmp_path: Path, given: Given, peer: WholePeer) -> None:
    shipper = _shipper(tmp_path, peer)
    (again,) = shipper.ship([_range(given, run_id="again")], 60_000)
    (rest,) = shipper.ship([replace(_range(given), first=3, finished=2)], 60_000)
    (part,) = shipper.ship([_range(given, last=2)], 60_000)
    assert (again.acked_offset, rest.acked_offset, part.acked_offset) == (3, 3, 2)
    assert (again.way, rest.way, part.way) == ("", "", "records: only a part of it is due")
    assert peer.offers == []


def test_without_its_segments_a_log_goes_as_records(tmp_path: Path, given: Given, peer: WholePeer) -> None:
    manifest = beside(path_of(given.log), MANIFEST_SUFFIX)
    manifest.write_bytes(b"damaged")
    (damaged,) = _shipper(tmp_path, peer).ship([_range(given)], 60_000)
    assert "can't be read" in damaged.way
    manifest.unlink()
    (without,) = _shipper(tmp_path, peer).ship([_range(given)], 60_000)
    assert (without.acked_offset, without.way) == (3, "")
    assert peer.offers == []


def test_a_run_whose_time_is_up_before_it_begins_offers_and_sends_nothing(
    tmp_path: Path, given: Given, peer: WholePeer
) -> None:
    (early,) = _shipper(tmp_path, peer).ship([_range(given)], 0)
    assert (early.acked_offset, early.blocks, peer.offers) == (0, 0, [])


def test_what_was_declined_late_goes_as_records_though_the_time_is_up(
    tmp_path: Path, given: Given, peer: WholePeer
) -> None:
    """The offer took all of the run. Without a record each run would offer the file again, and get nowhere."""
    clock = TestClock()
    peer.declines, peer.takes = "it took too long", lambda: clock.jump(3_600_000)
    shipper = replace(_shipper(tmp_path, peer), clock=clock)
    (late,) = shipper.ship([_range(given)], 60_000)
    assert (late.acked_offset, len(peer.offers)) == (3, 1)


def test_r13_the_block_targets_say_which_files_are_for_the_target(tmp_path: Path) -> None:
    both = [records([(b"a", b"1")], timestamp=5), records([(b"b", b"2")], b"g", timestamp=5)]
    given = given_files(tmp_path / "both", both, GroupMap({"geo": [b"g"]}))
    header = next(read_headers(MACHINE, given.log)).header
    wanted = _range(given, last=2)

    def groups() -> list[str]:
        return [segment.entry.group for segment in segment_transfer.wanted_segments(wanted, given.whole, header)]

    assert groups() == ["default", "geo"]
    header.block_targets[0].all_groups = False
    header.block_targets[0].groups.append("geo")
    assert groups() == ["geo"], "R13: files go to a target whose stamp does not name them"
    assert segment_transfer.reason_for_records(wanted, given.whole, header) is None
    header.provenance.append(wanted.peer_instance_id)
    assert groups() == []
    assert "none of it" in (segment_transfer.reason_for_records(wanted, given.whole, header) or "")
    del header.provenance[:], header.block_targets[:]
    assert groups() == []


def test_of_a_file_with_some_groups_the_rest_counts_as_filtered(tmp_path: Path, peer: WholePeer) -> None:
    both = [records([(b"a", b"1")], timestamp=5), records([(b"b", b"2"), (b"c", b"3")], b"g", timestamp=5)]
    given = given_files(tmp_path / "both", both, GroupMap({"geo": [b"g"]}), ("geo",))
    (result,) = _shipper(tmp_path, peer).ship([_range(given)], 60_000)
    assert (result.acked_offset, result.records, result.filtered) == (3, 2, 1)
    assert [segment.entry.group for segment in peer.offers[0].log.segments] == ["geo"]
    assert peer.offers[0].log.records == 3
