"""Segments come from other hosts: who may offer what, the limits, and which states a leader may confirm."""

from __future__ import annotations

import contextlib
import errno
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

from bookkeeper.errors import InvalidInputError, NoSpaceError, StreamExpiredError, UnavailableError
from bookkeeper.model import Extent
from bookkeeper.replicas.events import Restarted, Wrote
from bookkeeper.replicas.instructions import Name
from bookkeeper.replicas.messages import Reason
from bookkeeper.replicas.rules import MAX_SEGMENT_HISTORY
from bookkeeper.replicas.values import Stage, import_source
from bookkeeper.rpc.contract.messages import (
    TRANSIT_BYTES_MAX,
    FileNeed,
    LogPosition,
    ReplicaPlacement,
    SegmentOffer,
    SegmentRecord,
    StateConfirmation,
)
from bookkeeper.tserver.replicas.offer_checks import is_confirmation
from bookkeeper.tserver.replicas.replica_books import ReplicaBooks
from bookkeeper.tserver.replicas.replica_collector import ReplicaCollector
from bookkeeper.tserver.replicas.replica_receiver import PARTS_KEPT_S
from tests.support.faults import fault
from tests.support.replica_disks import EXTENT, KEY
from tests.support.replica_world import (
    DIE,
    FILE,
    LIMITS,
    ReplicaWorld,
    content_of,
    files_below,
    offered,
    replica_world,
    started,
    transit_of,
)

# ---- who may offer what


def test_p10_another_incarnation_is_invalid_and_says_which_one_is_here(world: ReplicaWorld) -> None:
    """The disk was wiped; its row still has the disk before."""
    offer = started(world)
    wiped = replace(offer, receiver=replace(offer.receiver, incarnation="before"))
    answer = world.host("host2").receiver.offer(wiped)
    assert (answer.state, answer.reason) == ("declined", "INVALID"), "an offer for a wiped disk counts for this one"
    assert answer.placement.incarnation == world.host("host2").disk.store.identity.incarnation


def test_p10_red_ignoring_the_incarnation(world: ReplicaWorld) -> None:
    with fault("incarnation-ignored"), pytest.raises(AssertionError, match="for a wiped disk counts for this one"):
        test_p10_another_incarnation_is_invalid_and_says_which_one_is_here(world)


def test_an_offer_is_believed_only_as_far_as_the_books_agree(world: ReplicaWorld) -> None:
    offer = offered(world)
    receiver = world.host("host2").receiver
    lies = {
        "another placement": replace(offer, receiver=replace(offer.receiver, placement="other")),
        "a sender without a placement": replace(offer, sender=ReplicaPlacement("host9", "p-host9", "x")),
        "a sender with another placement": replace(offer, sender=replace(offer.sender, placement="other")),
        "a term that nobody holds": replace(offer, term=9),
        "another directory": replace(offer, directory="t-0002"),
        "another tablet": replace(offer, extent=Extent("3a", b"m", None)),
        "this host": replace(offer, sender=offer.receiver),
    }
    for what, lie in lies.items():
        answer = receiver.offer(lie)
        assert (answer.state, answer.reason, answer.problem != "") == ("declined", "INVALID", True), what
    assert world.host("host2").disk.replicas.all() == []
    assert files_below(world.host("host2")) == set()
    world.unplace("host2")
    assert receiver.offer(offer).reason == "INVALID"


def test_an_older_term_is_invalid(world: ReplicaWorld) -> None:
    offer = started(world)
    world.put_row("host1", "host2", "host3", term=2)
    world.lead("host3", "host1", "host2", term=2)
    assert world.replicate("host3", "host2") == ["acked"]
    answer = world.host("host2").receiver.offer(offer)
    assert (answer.reason, answer.root) == ("INVALID", world.host("host3").held.replica.root)


def test_a_joining_host_does_not_lead(world: ReplicaWorld) -> None:
    offer = offered(world)
    world.put_row("host1", role="joining")
    assert "can't lead" in world.host("host2").receiver.offer(offer).problem


def test_a_role_in_the_row_is_the_stage(world: ReplicaWorld) -> None:
    world.put_row("host2", role="joining")
    assert world.replicate("host1", "host2") == ["acked"]
    assert world.host("host2").held.replica.stage is Stage.JOINING


@pytest.mark.parametrize(
    "name",
    [
        "../../incarnation",
        "tables/3a/t-0001/../x",
        "/etc/passwd",
        "tables/3a/other/1.parquet",
        "tables/3a/t-0001/a/b",
        "",
    ],
)
def test_a_file_outside_the_tablet_is_refused(world: ReplicaWorld, name: str) -> None:
    offer = started(world)
    lie = replace(offer, segment=replace(offer.segment, files=(name,)), files=(replace(offer.files[0], name=name),))
    before = {path: path.read_bytes() for path in world.host("host2").disk.directory.rglob("*") if path.is_file()}
    with pytest.raises(InvalidInputError):
        world.host("host2").receiver.offer(lie)
    with pytest.raises((InvalidInputError, StreamExpiredError)):
        world.host("host2").receiver.transit(transit_of(lie, name, 0, b"x"))
    after = {path: path.read_bytes() for path in world.host("host2").disk.directory.rglob("*") if path.is_file()}
    assert after == before


@pytest.mark.parametrize("table", ["..", "a/b", ""])
def test_a_tablet_outside_the_tables_is_refused(world: ReplicaWorld, table: str) -> None:
    offer = offered(world)
    with pytest.raises(InvalidInputError):
        world.host("host2").receiver.offer(replace(offer, extent=replace(EXTENT, table_id=table)))
    with pytest.raises(InvalidInputError):
        world.host("host2").receiver.offer(replace(offer, directory=table))


def test_impossible_numbers_are_refused(world: ReplicaWorld) -> None:
    offer = started(world)
    (file,), segment = offer.files, offer.segment

    def other(**changes: object) -> SegmentRecord:
        return replace(segment, **changes)

    lies = [
        replace(offer, files=()),
        replace(offer, files=(file, file)),
        replace(offer, files=(replace(file, size_bytes=0),)),
        replace(offer, files=(replace(file, crc32c=-1),)),
        replace(offer, files=(replace(file, entry=b"x" * (2 << 20)),)),
        replace(offer, segment=other(segment_id=-1)),
        replace(offer, segment=other(segment_id=99 << 32)),
        replace(offer, segment=other(base=-1)),
        replace(offer, segment=other(included=tuple(range(5000)))),
        replace(offer, segment=other(retained=segment.files)),
        replace(offer, state=b"x" * (9 << 20)),
        replace(offer, term=-1),
    ]
    for lie in lies:
        with pytest.raises(InvalidInputError):
            world.host("host2").receiver.offer(lie)
    assert world.send(offer).state == "acked"


def test_content_that_was_not_announced_is_refused(world: ReplicaWorld) -> None:
    offer = started(world)
    receiver = world.host("host2").receiver
    first = world.transits(offer, receiver.offer(offer))[0]
    for lie in (
        replace(first, content=b"x" * 101),
        replace(first, start=-1),
        replace(first, start=90, content=b"x" * 20),
        replace(first, content=bytes(TRANSIT_BYTES_MAX + 1)),
        replace(first, file=KEY.prefix + "other"),
    ):
        with pytest.raises(InvalidInputError):
            receiver.transit(lie)
    for unknown in (
        replace(first, segment_id=7),
        replace(first, sender=replace(first.sender, placement="other")),
        replace(first, receiver=replace(first.receiver, incarnation="other")),
        replace(first, table_id="zz"),
    ):
        with pytest.raises(StreamExpiredError):
            receiver.transit(unknown)
    assert world.send(offer).state == "acked"


# ---- limits


def test_p16_exists_is_said_before_overloaded_and_a_place_is_free_again(tmp_path: Path) -> None:
    world = replica_world(tmp_path, "host1", "host2")
    host = world.host("host2")
    host.receiver = world.receiver(host.disk, replace(LIMITS, transfers_max=1))
    done = offered(world)
    assert world.replicate("host1", "host2") == ["acked"]
    world.flush("host1", "1.parquet")
    first = offered(world)
    assert host.receiver.offer(first).state == "accepted"
    world.compact("host1", "2.parquet")
    second = world.offer_of("host1", "host2", world.host("host1").held.replica.root)
    answer = host.receiver.offer(second)
    assert (answer.reason, "1 segments are on their way" in answer.problem) == ("OVERLOADED", True)
    assert host.receiver.offer(done).reason == "SEGMENT_EXISTS"
    assert world.send(first).state == "acked"
    assert world.send(second).state == "acked"
    world.close()


def test_e43_a_segment_under_way_from_another_sender_is_inflight(world: ReplicaWorld) -> None:
    offer = started(world)
    receiver = world.host("host2").receiver
    receiver.offer(offer)
    row_sender = world.host("host3").disk.store.identity
    other = replace(offer, sender=ReplicaPlacement("host3", "p-host3", row_sender.incarnation))
    assert receiver.offer(other).reason == "INFLIGHT"


def test_another_offer_of_the_same_segment_takes_the_place_of_the_first(world: ReplicaWorld) -> None:
    offer = started(world)
    receiver = world.host("host2").receiver
    receiver.offer(offer)
    other = replace(offer, state=b"other")
    assert receiver.offer(other).state == "accepted"
    assert world.send(other).state == "acked"
    assert world.host("host2").held.manifest.states[offer.segment.segment_id] == b"other"


def test_an_idle_transfer_ends_and_its_bytes_are_kept_for_a_while(world: ReplicaWorld) -> None:
    offer = started(world)
    host = world.host("host2")
    first, second, _ = world.transits(offer, host.receiver.offer(offer))
    host.receiver.transit(first)
    host.receiver.expire()
    host.receiver.transit(second)
    world.clock.jump(LIMITS.idle_timeout_ms + 1)
    host.receiver.expire()
    with pytest.raises(StreamExpiredError):
        host.receiver.transit(second)
    assert host.held.replica.incoming == ()
    assert host.receiver.offer(offer).need == (FileNeed(FILE, 80),)
    world.clock.jump(LIMITS.idle_timeout_ms + 1)
    world.clock.set_by_ms = int(PARTS_KEPT_S * 1000) + 60_000
    host.receiver.expire()
    host.receiver.expire()
    assert files_below(host) == set()
    assert world.send(offer).state == "acked"


def test_a_disk_without_room_declines_before_any_byte(tmp_path: Path) -> None:
    world = replica_world(tmp_path, "host1", "host2")
    offer = started(world)
    host = world.host("host2")
    host.receiver = world.receiver(host.disk, reserve_bytes=1 << 60)
    answer = host.receiver.offer(offer)
    assert (answer.reason, "make room" in answer.problem) == ("OVERLOADED", True)
    assert host.held.replica.incoming == ()
    world.close()


def test_a_disk_that_gets_full_is_transient_and_leaves_nothing_behind(world: ReplicaWorld) -> None:
    offer = started(world)
    host = world.host("host2")
    first, second, _ = world.transits(offer, host.receiver.offer(offer))
    host.receiver.transit(first)
    host.disk.ops.fail["write"] = OSError(errno.ENOSPC, "full")
    with pytest.raises(NoSpaceError, match="make room"):
        host.receiver.transit(second)
    assert files_below(host) == set()
    assert host.held.replica.incoming == ()
    host.disk.ops.fail.clear()
    assert world.send(offer).state == "acked"


def test_a_disk_that_is_full_at_the_end_of_a_segment_leaves_no_transfer(world: ReplicaWorld) -> None:
    """The files of a segment under way stay, so a transfer that nobody ends would keep them for ever."""
    offer = started(world)
    host = world.host("host2")
    *before, last = world.transits(offer, host.receiver.offer(offer))
    for transit in before:
        host.receiver.transit(transit)
    host.disk.ops.fail["rename"] = OSError(errno.ENOSPC, "full")
    with pytest.raises(UnavailableError, match="no space is left"):
        host.receiver.transit(last)
    assert host.held.replica.incoming == (), "a segment is under way that nobody sends"
    assert host.receiver.offer(offer).state == "accepted"
    host.disk.ops.fail.clear()
    assert world.send(offer).state == "acked"


def test_red_a_transfer_that_ends_on_a_full_disk_stays(world: ReplicaWorld) -> None:
    with fault("transfers-end-on-the-disk"), pytest.raises(AssertionError, match="a segment is under way that nobody"):
        test_a_disk_that_is_full_at_the_end_of_a_segment_leaves_no_transfer(world)


def test_a_leader_takes_no_segment_of_others(world: ReplicaWorld) -> None:
    """A segment of its own term that it does not know, as a confused sender offers it."""
    assert world.replicate("host1", "host2") == ["acked"]
    offer = offered(world, "host3")
    leader = world.host("host1").disk.store.identity
    back = replace(
        offer,
        sender=ReplicaPlacement("host2", "p-host2", world.host("host2").disk.store.identity.incarnation),
        receiver=ReplicaPlacement("host1", "p-host1", leader.incarnation),
        segment=replace(offer.segment, segment_id=offer.segment.segment_id + 77),
    )
    answer = world.host("host1").receiver.offer(back)
    assert answer.reason == "OVERLOADED"
    assert "merges no segment" in answer.problem
    assert world.host("host1").held.replica.incoming == ()


def test_a_segment_whose_acceptance_was_forgotten_is_offered_again(world: ReplicaWorld) -> None:
    """The host led meanwhile and has ended its term: transfers of before do not count."""
    offer = started(world)
    host = world.host("host2")
    transits = world.transits(offer, host.receiver.offer(offer))
    for transit in transits[:-1]:
        host.receiver.transit(transit)
    host.held.apply(Restarted())
    with pytest.raises(StreamExpiredError, match="offer it again"):
        host.receiver.transit(transits[-1])
    assert world.send(offer).state == "acked"


def test_e16_a_term_forgets_the_oldest_folded_segments_and_others_take_its_states(world: ReplicaWorld) -> None:
    """A state with a longer history than others take would stop the tablet's copies for ever."""
    offer = started(world)
    longest = tuple(range(MAX_SEGMENT_HISTORY, 0, -1))
    offer = replace(offer, segment=replace(offer.segment, included=longest))
    assert world.send(offer).state == "acked"
    world.put_row("host1", "host2", "host3", term=2)
    named = Name(offer.segment.segment_id, offer.segment.files, (), 1)
    world.lead("host2", "host1", "host3", term=2, named=named)
    begin = world.host("host2").held.replica.entries[-1].segment
    assert begin.included[0] == offer.segment.segment_id
    assert len(begin.included) == MAX_SEGMENT_HISTORY
    assert begin.included[-1] > 1, "the newest are forgotten"
    assert world.replicate("host2", "host3")[-1] == "acked", "a state is refused that lists too many segments"


def test_p9_a_host_that_led_takes_segments_of_the_next_term_without_a_flush(world: ReplicaWorld) -> None:
    world.flush("host1", "1.parquet")
    world.host("host1").held.apply(Wrote())
    world.put_row("host1", "host2", "host3", term=2)
    world.lead("host2", "host1", "host3", term=2)
    assert world.replicate("host2", "host1") == ["acked"]
    replica = world.host("host1").held.replica
    assert (replica.leader, replica.has_memory) == ("host2", False)


def send_all(world: ReplicaWorld, offers: list[SegmentOffer]) -> None:
    """Send segments in order, each until the receiver has it."""
    for offer in offers:
        is_here = False
        while not is_here:
            with contextlib.suppress(StreamExpiredError):
                answer = world.send(offer)
                is_here = answer.state == "acked" or answer.reason == "SEGMENT_EXISTS"


def test_two_senders_at_once_and_a_collector_leave_one_good_replica(world: ReplicaWorld) -> None:
    """The same segments, offered by two threads of the leader, while files are collected and transfers expire."""
    host = world.host("host2")
    offers = [offered(world)]
    for number in range(6):
        segment_id = world.flush("host1", f"{number}.parquet") if number != 3 else world.compact("host1", "3.parquet")
        offers.append(world.offer_of("host1", "host2", segment_id))
    collector = ReplicaCollector(host.disk.replicas, ReplicaBooks(world.books), world.clock, DIE)
    failures: list[BaseException] = []
    is_over = threading.Event()

    def disturb() -> None:
        while not is_over.is_set():
            collector.collect()
            world.clock.jump(LIMITS.idle_timeout_ms + 1)
            host.receiver.expire()
            host.held.manifest.check()

    def noted(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001
            failures.append(error)

    assert world.send(offers[0]).state == "acked"
    send = partial(send_all, world, offers)
    threads = [threading.Thread(target=noted, args=(work,)) for work in (send, send, disturb)]
    for thread in threads:
        thread.start()
    for thread in threads[:2]:
        thread.join()
    is_over.set()
    threads[2].join()
    assert not failures
    assert host.held.root_files() == world.host("host1").held.root_files()
    for file in host.held.root_files():
        assert content_of(host, file.name) == content_of(world.host("host1"), file.name)
    assert host.held.replica.incoming == ()
    host.held.manifest.check()


def test_a_state_that_has_an_import_names_it_by_a_negative_number(world: ReplicaWorld) -> None:
    offer = started(world)
    position = LogPosition(import_source(5), 1)
    with_import = replace(offer, segment=replace(offer.segment, logs=(position, LogPosition(1, 9))))
    assert world.send(with_import).state == "acked"
    world.restart("host2")
    entry = world.host("host2").held.replica.entry(offer.segment.segment_id)
    assert entry is not None
    assert entry.segment.logs == ((-5, 1), (1, 9))


@pytest.mark.parametrize(
    ("term", "leader", "root", "reason", "counts"),
    [
        (4, "host1", 7, Reason.SEGMENT_EXISTS, True),
        (5, "host1", 7, Reason.SEGMENT_EXISTS, False),
        (4, "host3", 7, Reason.SEGMENT_EXISTS, False),
        (4, "host1", 8, Reason.SEGMENT_EXISTS, False),
        (4, "host1", 7, Reason.INVALID, False),
    ],
)
def test_only_the_leader_of_the_newest_term_confirms_and_only_the_newest_state(
    world: ReplicaWorld, term: int, leader: str, root: int, reason: Reason, counts: bool
) -> None:
    offer = started(world)
    offer = replace(offer, term=4, sender=replace(offer.sender, host="host1"))
    offer = replace(offer, segment=replace(offer.segment, segment_id=7))
    replica = replace(world.host("host2").held.replica, term=term, leader=leader, root=root)
    assert is_confirmation(replica, offer, reason) == counts


def test_a_confirmation_of_one_state_says_nothing_about_the_next(world: ReplicaWorld) -> None:
    started(world)
    held = world.host("host2").held
    held.confirm(7, 100)
    held.confirm(7, 90)
    assert (held.confirmed_ms(7), held.confirmed_ms(8)) == (100, 0)
    held.confirm(8, 50)
    assert (held.confirmed_ms(7), held.confirmed_ms(8)) == (0, 50)


def test_an_offer_of_a_held_state_confirms_it(world: ReplicaWorld) -> None:
    offer = started(world)
    assert world.send(offer).state == "acked"
    host = world.host("host2")
    answer = host.receiver.offer(replace(offer, as_of_ms=123))
    assert answer.reason == Reason.SEGMENT_EXISTS.value
    assert host.held.confirmed_ms(offer.segment.segment_id) == 123


@pytest.mark.parametrize("change", ["term", "leader", "placement", "incarnation", "state", "tablet", "nothing"])
def test_many_states_are_confirmed_with_one_call_and_only_those_that_are_the_newest_here(
    world: ReplicaWorld, change: str
) -> None:
    offer = started(world)
    assert world.send(offer).state == "acked"
    state, receiver = offer.segment.segment_id, offer.receiver
    good = StateConfirmation(KEY.table_id, KEY.directory, receiver, offer.term, state, 123)
    changed = {
        "term": replace(good, term=good.term + 1),
        "placement": replace(good, receiver=replace(receiver, placement="p-other")),
        "incarnation": replace(good, receiver=replace(receiver, incarnation="wiped")),
        "state": replace(good, state_id=state + 1),
        "tablet": replace(good, directory="t-other"),
    }.get(change, good)
    leader = "host3" if change == "leader" else "host1"
    host = world.host("host2")
    assert host.receiver.confirm(leader, [changed]) == [change == "nothing"], f"another {change} is confirmed"
    assert host.held.confirmed_ms(state) == (123 if change == "nothing" else 0)
    assert host.receiver.confirm("host1", [good, replace(good, state_id=1)]) == [True, False]


def test_a_damaged_replica_confirms_nothing(world: ReplicaWorld) -> None:
    offer = started(world)
    assert world.send(offer).state == "acked"
    good = StateConfirmation(KEY.table_id, KEY.directory, offer.receiver, offer.term, offer.segment.segment_id, 1)
    (world.host("host2").disk.directory / "manifests" / KEY.table_id / KEY.directory).write_bytes(b"damaged")
    assert world.restart("host2").receiver.confirm("host1", [good]) == [False]


def _a_time_to_come_confirms_nothing(world: ReplicaWorld) -> None:
    offer = started(world)
    assert world.send(offer).state == "acked"
    host, state, now_ms = world.host("host2"), offer.segment.segment_id, world.clock.wall_ms()
    good = StateConfirmation(KEY.table_id, KEY.directory, offer.receiver, offer.term, state, now_ms)
    later = now_ms + 3_600_000
    assert host.receiver.confirm("host1", [replace(good, as_of_ms=later)]) == [False], (
        "a state is confirmed up to a time that has not come"
    )
    host.receiver.offer(replace(offer, as_of_ms=later))
    assert host.held.confirmed_ms(state) == 0
    assert host.receiver.confirm("host1", [good]) == [True]
    assert host.held.confirmed_ms(state) == now_ms


def test_a_time_that_has_not_come_confirms_nothing(world: ReplicaWorld) -> None:
    _a_time_to_come_confirms_nothing(world)


def test_without_its_rule_old_cells_look_fresh(world: ReplicaWorld) -> None:
    with (
        fault("times-to-come-are-believed"),
        pytest.raises(AssertionError, match="is confirmed up to a time that has not come"),
    ):
        _a_time_to_come_confirms_nothing(world)
