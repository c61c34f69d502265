"""A replica offers segments: the leader to its targets, a follower to its leader."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from bookkeeper.replicas.chain import entries_to_send, is_reference_weak, is_referenced
from bookkeeper.replicas.events import OfferOne, ReplicateTo, ReplyArrived
from bookkeeper.replicas.instructions import Abandon, Decision, Delete, Restart, Send, Transit
from bookkeeper.replicas.making import with_empty_major
from bookkeeper.replicas.messages import Accept, Ack, Decline, Failed, Offer, Purpose, Reason
from bookkeeper.replicas.rules import Rules
from bookkeeper.replicas.values import (
    Entry,
    ProtocolError,
    Replica,
    Segment,
    Stage,
    Target,
    is_acked,
    with_ack,
    without_acks,
    without_entry,
)

FORCED_AT = 2
"""The OUT_OF_ORDER without progress at which a leader sends a major without files (P1)."""


def offer_of(replica: Replica, segment: Segment, target: Target | None) -> Offer:
    """The offer of a segment. A target with a range is a child of a split, which has terms of its own."""
    if replica.stage is Stage.UNLOAD or (target is not None and target.key_range is not None):
        return Offer(replica.host, replica.placement, segment, None)
    return Offer(replica.host, replica.placement, segment, replica.term, replica.leader)


def offer_one(replica: Replica, event: OfferOne) -> tuple[Replica, Decision]:
    """Offer one segment, whatever the target has acknowledged."""
    entry = replica.held(event.segment_id)
    target = next((one for one in replica.targets if one.host == event.target), None)
    return replica, (Send(event.target, offer_of(replica, entry.segment, target), Purpose.ONE),)


def _entries_after(entries: tuple[Entry, ...], segment_id: int | None) -> tuple[Entry, ...]:
    """The entries behind the one that was just answered; all of them at the beginning of a turn."""
    if segment_id is None:
        return entries
    index = next((i for i, entry in enumerate(entries) if entry.segment.id == segment_id), -1)
    return entries[index + 1 :]


def _named_entries(replica: Replica, entries: tuple[Entry, ...]) -> tuple[Entry, ...]:
    """The entries up to the named state; none if that state is on another chain."""
    index = next((i for i, entry in enumerate(entries) if entry.segment.id == replica.named), -1)
    return entries[: index + 1]


def replicate_to(
    replica: Replica, event: ReplicateTo, rules: Rules, after: int | None = None
) -> tuple[Replica, Decision]:
    """Offer the oldest segment that the target has not acknowledged (E-29, E-34). Only a leader serves targets."""
    if not replica.is_leader:
        raise ProtocolError(f"{replica.host} does not lead: only the leader replicates to others")
    target = replica.target(event.target)
    replica = replica if event.named_id is None else replace(replica, named=event.named_id)
    entries = entries_to_send(replica, rules)
    if target.key_range is not None and rules.n3_children_get_named:
        entries = _named_entries(replica, entries)
    for entry in _entries_after(entries, after):
        if not is_acked(entry, target.placement, rules.p10_incarnation):
            return replica, (Send(target.host, offer_of(replica, entry.segment, target), Purpose.REPLICATE),)
    return replica, ()


def follower_run(replica: Replica, rules: Rules, after: int | None = None) -> tuple[Replica, Decision]:
    """Delete what the leader has and the root needs no more (E-40), push the rest to the leader (E-41)."""
    if replica.is_leader or replica.leader is None:
        raise ProtocolError(f"{replica.host} follows no leader: name the leader first")
    leader = replica.target(replica.leader)
    deleted: list[str] = []
    for entry in _entries_after(replica.entries, after):
        segment = entry.segment
        if not is_acked(entry, leader.placement, rules.p10_incarnation):
            push = Send(leader.host, offer_of(replica, segment, leader), Purpose.PUSH)
            return replica, (*_deletion(deleted), push)
        is_weak = is_referenced(replica, segment.id, rules) and is_reference_weak(replica, segment.id, rules)
        if is_weak and not rules.n4_books_release:
            before = replica.files
            replica = without_entry(replica, segment.id)
            deleted += sorted(before - replica.files)
    return replica, _deletion(deleted)


def _deletion(files: Iterable[str]) -> Decision:
    named = tuple(files)
    return (Delete(named),) if named else ()


def reply_arrived(replica: Replica, event: ReplyArrived, rules: Rules) -> tuple[Replica, Decision]:
    """Note an answer, and go on with the procedure in which the segment was offered (E-35 to E-39)."""
    reply = event.reply
    entry = replica.entry(reply.segment_id)
    if entry is None:
        return replica, (Abandon(event.target, reply.segment_id),) if isinstance(reply, Accept) else ()
    match reply:
        case Accept(placement=placement, need=need):
            if not rules.p5_ack_when_durable:
                replica = with_ack(replica, reply.segment_id, placement)
            return replica, (Transit(event.target, entry.segment, need, event.purpose),)
        case Ack(placement=placement):
            replica = _progressed(with_ack(replica, reply.segment_id, placement), event.target)
            return _next(replica, event, rules)
        case Decline(reason=Reason.SEGMENT_EXISTS, placement=placement):
            return _next(with_ack(replica, reply.segment_id, placement), event, rules)
        case Decline(reason=Reason.OUT_OF_ORDER) if event.purpose is Purpose.REPLICATE and replica.is_leader:
            return _out_of_order(replica, event, rules)
        case Decline() | Failed():
            return replica, ()


def _next(replica: Replica, event: ReplyArrived, rules: Rules) -> tuple[Replica, Decision]:
    """The next step of a procedure, behind the segment that was answered."""
    if event.purpose is Purpose.REPLICATE and replica.is_leader:
        return replicate_to(replica, ReplicateTo(event.target), rules, event.reply.segment_id)
    if event.purpose is Purpose.PUSH and not replica.is_leader and replica.leader is not None:
        return follower_run(replica, rules, event.reply.segment_id)
    return replica, ()


def _progressed(replica: Replica, target: str) -> Replica:
    return replace(replica, declined=tuple(one for one in replica.declined if one[0] != target))


def _out_of_order(replica: Replica, event: ReplyArrived, rules: Rules) -> tuple[Replica, Decision]:
    """Forget the target's acknowledgements and begin again (E-37, E-51). The second time without progress, a major
    without files ends the circle (P1): the target takes it whatever its root is.
    """
    times = dict(replica.declined).get(event.target, 0) + 1
    others = tuple(one for one in replica.declined if one[0] != event.target)
    replica = without_acks(replica, replica.target(event.target).placement)
    replica = replace(replica, declined=(*others, (event.target, times)))
    if rules.p1_force_major and times >= FORCED_AT:
        replica = _progressed(with_empty_major(replica, rules), event.target)
    replica, then = replicate_to(replica, ReplicateTo(event.target), rules)
    return replica, (Restart(event.target, times), *then)
