"""A replica on this host: each decision is durable before it is known, and damage makes a replica absent."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from msgspec.structs import replace

from bookkeeper.errors import CorruptionError, NotServingError, UnavailableError
from bookkeeper.replicas.events import (
    Collect,
    Compacted,
    ContentArrived,
    Flushed,
    LeaderNamed,
    OfferArrived,
    ReplicateTo,
    TargetsChanged,
    Wrote,
)
from bookkeeper.replicas.instructions import Answer, Decision, Send
from bookkeeper.replicas.messages import Accept, Ack, Decline, Offer, Reason
from bookkeeper.replicas.values import ProtocolError, Stage, Target, state_id
from tests.support.faults import fault
from tests.support.replica_disks import EXTENT, KEY, Disk, PowerLostError, disk


@pytest.fixture
def leader(tmp_path: Path) -> Disk:
    """A host that leads the tablet in term 1."""
    found = disk(tmp_path, "host1")
    found.held().apply(LeaderNamed("host1", 1))
    return found


def reply_of(decision: Decision) -> object:
    """The answer to the sender."""
    return next(one.reply for one in decision if isinstance(one, Answer))


def flush(host: Disk, name: str) -> int:
    """The host writes a segment; its id."""
    held = host.held()
    file = host.file(name)
    segment_id = state_id(1, held.replica.made)
    held.apply(Flushed((file.name,), segment_id=segment_id), [file], {segment_id: b"state"})
    return segment_id


def offer_of(host: Disk, target: Disk) -> Offer:
    """The leader's next offer to another host."""
    held = host.held(targets=(Target(target.name, target.held().placement),))
    (send,) = (one for one in held.apply(ReplicateTo(target.name)) if isinstance(one, Send))
    return send.offer


def test_an_event_is_durable_before_its_decision_is_known(leader: Disk) -> None:
    written = flush(leader, "1.parquet")
    held = leader.held()
    assert [file.name for file in held.root_files()] == [KEY.prefix + "1.parquet"]
    before = held.manifest
    leader.reopen()
    again = leader.replicas.find(KEY)
    assert again is not None
    assert again.manifest.files == before.files
    assert again.manifest.states == {written: b"state"}
    assert again.replica.root == written
    assert not again.replica.is_leader, "a restarted process leads without an election"


def test_its_facts_are_made_anew_with_each_change(leader: Disk) -> None:
    held = leader.held()
    flush(leader, "1.parquet")
    first = held.info
    assert (first.root, first.files) == (held.replica.root, 1)
    assert held.info is first
    flush(leader, "2.parquet")
    assert (held.info.root, held.info.files) == (held.replica.root, 2)


def test_an_event_that_can_not_be_saved_has_not_happened(leader: Disk) -> None:
    flush(leader, "1.parquet")
    held = leader.held()
    before = held.manifest
    leader.ops.fail["sync"] = OSError(errno.EIO, "broken")
    with pytest.raises(UnavailableError, match="can't be written"):
        held.apply(LeaderNamed("host1", 2))
    assert held.manifest == before
    leader.ops.fail.clear()
    held.apply(LeaderNamed("host1", 2))
    assert held.replica.term == 2


def test_an_event_that_changes_nothing_durable_writes_nothing(leader: Disk) -> None:
    held = leader.held()
    leader.ops.calls.clear()
    held.apply(Wrote())
    held.apply(TargetsChanged(held.replica.targets))
    assert leader.ops.calls == []


@pytest.mark.parametrize("is_behind", [False, True])
@pytest.mark.parametrize("cut_at", range(4))
def test_a_cut_keeps_the_replica_before_the_event_or_after_it(leader: Disk, cut_at: int, is_behind: bool) -> None:
    first = flush(leader, "1.parquet")
    held, file = leader.held(), leader.file("2.parquet")
    leader.ops.calls.clear()
    leader.ops.cut_at, leader.ops.is_behind = cut_at, is_behind
    with pytest.raises(PowerLostError):
        held.apply(Flushed((file.name,)), [file])
    leader.reopen()
    assert leader.held().replica.root in (first, first + 1)
    assert len(leader.held().root_files()) == (1 if leader.held().replica.root == first else 2)


def test_p5_a_follower_takes_a_segment_when_its_files_have_their_names(leader: Disk, tmp_path: Path) -> None:
    follower = disk(tmp_path, "host2")
    flush(leader, "1.parquet")
    offer = offer_of(leader, follower)
    held = follower.held()
    accepted = reply_of(held.apply(OfferArrived(offer)))
    assert isinstance(accepted, Accept)
    assert held.replica.root is None
    file = leader.held().root_files()[0]
    events: list[str] = []

    def publish() -> None:
        assert held.replica.root is None, "a segment counts before its files are durable"
        manifest = follower.store.load(KEY)
        assert manifest is not None
        assert manifest.replica.root is None, "a manifest lists files that have no names yet"
        follower.file("1.parquet")
        events.append("published")

    files = [file] if offer.segment.files else []
    done = reply_of(held.commit(ContentArrived(offer.segment.id, "host1"), files, b"state", publish))
    assert isinstance(done, Ack)
    assert events == ["published"]
    assert held.manifest.states[offer.segment.id] == b"state"


def test_p5_red_listing_files_before_they_have_their_names(leader: Disk, tmp_path: Path) -> None:
    with fault("manifest-before-files"), pytest.raises(AssertionError, match="a manifest lists files that have no"):
        test_p5_a_follower_takes_a_segment_when_its_files_have_their_names(leader, tmp_path)


def test_p5_files_that_get_no_names_are_not_listed(leader: Disk, tmp_path: Path) -> None:
    follower = disk(tmp_path, "host2")
    flush(leader, "1.parquet")
    offer = offer_of(leader, follower)
    held = follower.held()
    held.apply(OfferArrived(offer))
    before, file = follower.store.load(KEY), leader.held().root_files()[0]

    def publish() -> None:
        raise UnavailableError("the disk is away")

    event = ContentArrived(offer.segment.id, "host1")
    with pytest.raises(UnavailableError, match="the disk is away"):
        held.commit(event, [file] if offer.segment.files else [], b"state", publish)
    assert (follower.store.load(KEY), held.replica.root) == (before, None)
    held.apply(LeaderNamed("host1", 9))
    found = follower.store.load(KEY)
    assert found is not None
    assert (found.replica.root, found.replica.term) == (None, 9)


def test_p5_a_segment_that_no_longer_fits_publishes_nothing(leader: Disk, tmp_path: Path) -> None:
    follower = disk(tmp_path, "host2")
    offer = offer_of(leader, follower)
    held = follower.held()
    held.apply(OfferArrived(offer))
    other = replace(offer, segment=replace(offer.segment, id=offer.segment.id + 5, base=None))
    held.apply(OfferArrived(other))
    minor = replace(offer, segment=replace(offer.segment, id=offer.segment.id + 6, base=None, is_major=False))
    held.apply(OfferArrived(minor))
    held.commit(ContentArrived(other.segment.id, "host1"), [], b"", lambda: None)

    def publish() -> None:
        raise AssertionError("files of a segment that no longer fits get their names")

    late = reply_of(held.commit(ContentArrived(minor.segment.id, "host1"), [], b"", publish))
    assert isinstance(late, Decline)
    assert late.reason is Reason.OUT_OF_ORDER
    assert held.replica.root == other.segment.id


def test_an_event_against_the_rules_is_an_error_and_changes_nothing(leader: Disk) -> None:
    joiner = leader.held(stage=Stage.JOINING)
    before = joiner.manifest
    with pytest.raises(ProtocolError, match="can't lead"):
        joiner.apply(LeaderNamed("host1", 9))
    assert joiner.manifest == before


def test_n4_a_file_goes_after_a_named_state_and_stays_while_a_page_reads_it(leader: Disk) -> None:
    flush(leader, "1.parquet")
    held = leader.held()
    extra = leader.file("2.parquet")
    major = state_id(1, held.replica.made)
    inputs = tuple(entry.segment.id for entry in held.replica.entries)
    held.apply(Compacted(inputs, (extra.name,), major), [extra], {major: b""})
    old = KEY.prefix + "1.parquet"
    assert held.collect(Collect(None)) == ()
    reading = [old]
    held.add_reader(lambda: reading)
    assert held.collect(Collect(major, (extra.name,))) == (), "a file that a page reads is deleted"
    reading.clear()
    leader.ops.calls.clear()
    assert held.collect(Collect(major, (extra.name,))) == (old,)
    assert not leader.store.volume.exists(old)
    assert held.manifest.files.keys() == {extra.name}
    leader.file("stray.parquet")
    assert held.delete_unlisted() == (), "a leader's new file is deleted before it is listed"
    held.apply(LeaderNamed("host2", 2))
    assert held.delete_unlisted() == (KEY.prefix + "stray.parquet",)
    assert leader.store.volume.exists(extra.name)


def test_a_damaged_manifest_makes_a_replica_absent_and_never_empty(leader: Disk) -> None:
    flush(leader, "1.parquet")
    before = leader.held().placement
    path = leader.directory / "manifests" / KEY.table_id / KEY.directory
    path.write_bytes(path.read_bytes()[:-9])
    leader.reopen()
    assert leader.replicas.all() == []
    assert list(leader.replicas.damaged) == [KEY]
    with pytest.raises(CorruptionError, match="does not count as having the replica"):
        leader.replicas.find(KEY)
    with pytest.raises(CorruptionError, match="does not count as having the replica"):
        leader.held("p-new")
    leader.replicas.remove(KEY, before)
    assert list(leader.replicas.damaged) == [KEY]
    leader.replicas.remove(KEY, None)
    assert (leader.replicas.damaged, leader.store.volume.list_names(KEY.prefix)) == ({}, [])
    assert leader.held("p-new").replica.root is None


def test_a_manifest_of_another_disk_is_no_replica(leader: Disk) -> None:
    flush(leader, "1.parquet")
    (leader.directory / "incarnation").write_bytes(b"other")
    leader.reopen()
    with pytest.raises(CorruptionError, match="of another disk"):
        leader.replicas.find(KEY)


def test_another_placement_begins_empty_and_the_one_before_takes_no_event(leader: Disk) -> None:
    flush(leader, "1.parquet")
    before = leader.held()
    after = leader.held("p-2")
    assert (after.replica.root, after.replica.files, after.extent) == (None, frozenset(), EXTENT)
    with pytest.raises(NotServingError, match="was removed from this host"):
        before.apply(Wrote())
    assert leader.store.volume.list_names(KEY.prefix) == []
    leader.replicas.remove(KEY, before.placement)
    assert leader.replicas.find(KEY) is after, "the removal of a placement takes the next one"
    leader.replicas.remove(KEY, after.placement)
    leader.replicas.remove(KEY, after.placement)
    assert leader.replicas.find(KEY) is None
    assert leader.replicas.all() == []
