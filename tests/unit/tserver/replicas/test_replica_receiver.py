"""Segments come from other hosts: what counts, and when, also after restarts and with damaged content."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from bookkeeper.errors import CorruptionError, StreamExpiredError
from bookkeeper.rpc.contract.messages import (
    FileNeed,
)
from tests.support.faults import fault
from tests.support.must_raise import must_raise
from tests.support.replica_disks import KEY, PowerLostError
from tests.support.replica_world import (
    CHUNK_BYTES,
    FILE,
    ReplicaWorld,
    content_of,
    files_below,
    offered,
    started,
)

# ---- the good way


def test_a_follower_gets_each_segment_and_has_the_same_files(world: ReplicaWorld) -> None:
    for number in range(3):
        world.flush("host1", f"{number}.parquet")
    for target in ("host2", "host3"):
        assert world.replicate("host1", target) == ["acked"] * 4
        assert world.host(target).held.root_files() == world.host("host1").held.root_files()
        assert world.host(target).held.manifest.states == world.host("host1").held.manifest.states
        for file in world.host("host1").held.root_files():
            assert content_of(world.host(target), file.name) == content_of(world.host("host1"), file.name)
        assert world.replicate("host1", target) == []
        assert files_below(world.host(target)) == {file.name for file in world.host("host1").held.root_files()}


def test_a_major_brings_only_the_files_that_are_not_here(world: ReplicaWorld) -> None:
    world.flush("host1", "1.parquet")
    world.replicate("host1", "host2")
    world.compact("host1", "2.parquet")
    offer = offered(world)
    answer = world.host("host2").receiver.offer(offer)
    assert [need.name for need in answer.need] == [KEY.prefix + "2.parquet"]
    assert world.send(offer).state == "acked"


def test_e48_a_late_follower_takes_the_major_with_all_files_of_its_list(world: ReplicaWorld) -> None:
    world.flush("host1", "1.parquet")
    world.compact("host1", "2.parquet")
    world.flush("host1", "3.parquet")
    assert world.replicate("host1", "host2") == ["acked", "acked"]
    assert {file.name for file in world.host("host2").held.root_files()} == {
        KEY.prefix + "2.parquet",
        KEY.prefix + "3.parquet",
    }


# ---- messages twice, late, in another order, in parts


def test_messages_twice_late_or_reordered_change_nothing(world: ReplicaWorld) -> None:
    offer = started(world)
    receiver = world.host("host2").receiver
    answer = receiver.offer(offer)
    assert receiver.offer(offer) == answer
    transits = world.transits(offer, answer)
    assert receiver.transit(transits[2]).held_bytes == 0, "content behind a gap was taken"
    assert receiver.transit(transits[0]).held_bytes == 40
    assert receiver.transit(transits[0]).held_bytes == 40
    assert receiver.offer(offer).need == (FileNeed(FILE, 40),)
    assert receiver.transit(transits[1]).held_bytes == 80
    assert receiver.transit(transits[0]).held_bytes == 80
    done = receiver.transit(transits[2])
    assert done.answer is not None
    assert done.answer.state == "acked"
    with pytest.raises(StreamExpiredError, match="offer it again"):
        receiver.transit(transits[2])
    again = receiver.offer(offer)
    assert (again.state, again.reason, again.root) == ("declined", "SEGMENT_EXISTS", offer.segment.segment_id)
    assert content_of(world.host("host2")) == content_of(world.host("host1"))


def test_content_is_used_up_when_the_answer_is_there(world: ReplicaWorld) -> None:
    """The memory of a message belongs to the next one then."""
    offer = started(world)
    receiver = world.host("host2").receiver
    frame = bytearray(CHUNK_BYTES)
    for transit in world.transits(offer, receiver.offer(offer)):
        content: Any = memoryview(frame)[: len(transit.content)]
        content[:] = transit.content
        ack = receiver.transit(replace(transit, content=content))
        frame[:] = bytes(CHUNK_BYTES)
    assert ack.answer is not None
    assert ack.answer.state == "acked"
    assert content_of(world.host("host2")) == content_of(world.host("host1")), "content is read after the answer"


def test_a_transfer_goes_on_from_a_byte_after_a_restart(world: ReplicaWorld) -> None:
    offer = started(world)
    receiver = world.host("host2").receiver
    for transit in world.transits(offer, receiver.offer(offer))[:2]:
        receiver.transit(transit)
    host = world.restart("host2")
    with pytest.raises(StreamExpiredError):
        host.receiver.transit(transit)
    answer = host.receiver.offer(offer)
    assert answer.need == (FileNeed(FILE, 80),)
    assert world.send(offer).state == "acked"
    assert content_of(host) == content_of(world.host("host1"))


def test_a_restart_behind_the_last_byte_needs_no_byte_again(world: ReplicaWorld) -> None:
    offer = started(world)
    receiver = world.host("host2").receiver
    transits = world.transits(offer, receiver.offer(offer))
    for transit in transits[:-1]:
        receiver.transit(transit)
    ops = world.host("host2").disk.ops
    ops.calls.clear()
    ops.cut_at, ops.is_behind = 1, True
    with pytest.raises(PowerLostError):
        receiver.transit(transits[-1])
    assert ops.calls == ["write", "sync"]
    answer = world.restart("host2").receiver.offer(offer)
    assert (answer.state, answer.need) == ("acked", ())


@pytest.mark.parametrize("is_behind", [False, True])
@pytest.mark.parametrize("cut_at", range(8))
def test_a_cut_at_any_write_of_the_last_message_loses_nothing(
    world: ReplicaWorld, cut_at: int, is_behind: bool
) -> None:
    offer = started(world)
    host = world.host("host2")
    transits = world.transits(offer, host.receiver.offer(offer))
    for transit in transits[:-1]:
        host.receiver.transit(transit)
    host.disk.ops.calls.clear()
    host.disk.ops.cut_at, host.disk.ops.is_behind = cut_at, is_behind
    with pytest.raises(PowerLostError):
        host.receiver.transit(transits[-1])
    host = world.restart("host2")
    assert world.send(offer).state in ("acked", "declined")
    assert host.held.replica.root == offer.segment.segment_id
    assert content_of(host) == content_of(world.host("host1"))
    assert host.held.manifest.check() == host.held.manifest


def test_p5_a_file_is_synced_then_named_then_listed_then_acknowledged(world: ReplicaWorld) -> None:
    """A power failure behind the acknowledgement must not take what was acknowledged."""
    offer = started(world)
    host = world.host("host2")
    transits = world.transits(offer, host.receiver.offer(offer))
    for transit in transits[:-1]:
        host.receiver.transit(transit)
    host.disk.ops.calls.clear()
    assert host.receiver.transit(transits[-1]).answer is not None
    made, calls = ["sync directory"] * 3, host.disk.ops.calls
    both = sorted([*made, "rename", "sync directory", "write", "sync"])  # the file's name, and the manifest's bytes
    expected = ["write", "sync", *both, "rename", "sync directory"]
    found = [*calls[:2], *sorted(calls[2:-2]), *calls[-2:]]
    assert found == expected, f"a segment is acknowledged before its file is durable: {calls}"


def test_p5_red_acknowledging_before_the_sync(world: ReplicaWorld) -> None:
    with fault("ack-before-sync"), pytest.raises(AssertionError, match="acknowledged before its file is durable"):
        test_p5_a_file_is_synced_then_named_then_listed_then_acknowledged(world)


def test_p5_a_segment_that_no_longer_fits_is_declined_after_its_last_byte(world: ReplicaWorld) -> None:
    offer = started(world)
    host = world.host("host2")
    transits = world.transits(offer, host.receiver.offer(offer))
    world.compact("host1", "2.parquet")
    held = world.host("host1").held
    newer = world.offer_of("host1", "host2", held.replica.root)
    assert world.send(newer).state == "acked"
    late = [host.receiver.transit(transit) for transit in transits][-1].answer
    assert late is not None
    assert late.state == "declined", "an older segment replaced a newer root"
    assert host.held.replica.root == newer.segment.segment_id
    assert {file.name for file in host.held.root_files()} == {KEY.prefix + "2.parquet"}


def test_p5_red_not_asking_again_at_commit(world: ReplicaWorld) -> None:
    with (
        fault("segment-not-asked-again"),
        pytest.raises(AssertionError, match="an older segment replaced a newer root"),
    ):
        test_p5_a_segment_that_no_longer_fits_is_declined_after_its_last_byte(world)


# ---- content that is not the sender's


def test_a_file_with_another_checksum_never_counts(world: ReplicaWorld) -> None:
    offer = started(world)
    host = world.host("host2")
    first, second, third = world.transits(offer, host.receiver.offer(offer))
    host.receiver.transit(replace(first, content=b"x" * 40))
    host.receiver.transit(second)
    with must_raise(CorruptionError, "a file counts whose bytes are not the sender's", match="their checksum differs"):
        host.receiver.transit(third)
    assert files_below(host) == set()
    assert world.send(offer).state == "acked"
    assert content_of(host) == content_of(world.host("host1"))


def test_red_counting_a_file_with_another_checksum(world: ReplicaWorld) -> None:
    with fault("file-checksum-ignored"), pytest.raises(AssertionError, match="whose bytes are not the sender's"):
        test_a_file_with_another_checksum_never_counts(world)


def test_bytes_of_an_earlier_process_are_checked_too(world: ReplicaWorld) -> None:
    offer = started(world)
    host = world.host("host2")
    host.receiver.transit(world.transits(offer, host.receiver.offer(offer))[0])
    host = world.restart("host2")
    (part,) = list(host.disk.store.incoming.iterdir())
    part.write_bytes(b"\0" * 40)
    with pytest.raises(CorruptionError, match="their checksum differs"):
        world.send(offer)
    assert world.send(offer).state == "acked"


def test_a_file_that_is_held_with_other_bytes_is_declined(world: ReplicaWorld) -> None:
    offer = started(world)
    assert world.send(offer).state == "acked"
    (file,) = offer.files
    later = replace(
        offer,
        segment=replace(
            offer.segment,
            segment_id=offer.segment.segment_id + 1,
            base=offer.segment.segment_id,
            files=(),
            retained=offer.segment.files,
        ),
        files=(replace(file, crc32c=file.crc32c ^ 1),),
    )
    answer = world.host("host2").receiver.offer(later)
    assert (answer.reason, answer.problem) == ("INVALID", f"{FILE} has other bytes here")
