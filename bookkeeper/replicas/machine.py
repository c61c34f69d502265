"""``decide``: one event happens to a replica, and the rules say what it then knows and has to do."""

from __future__ import annotations

from msgspec.structs import replace

from bookkeeper.replicas.collecting import collect, leader_run
from bookkeeper.replicas.damage import copy_damaged, damaged, mended
from bookkeeper.replicas.events import (
    Adopted,
    Collect,
    Compacted,
    ContentArrived,
    ContentFailed,
    CopyDamaged,
    Event,
    FilesDamaged,
    FilesMended,
    Flushed,
    FollowerRun,
    LeaderNamed,
    LeaderRun,
    NameDue,
    OfferArrived,
    OfferOne,
    ReplicateTo,
    ReplyArrived,
    Restarted,
    TargetsChanged,
    Wrote,
)
from bookkeeper.replicas.instructions import Decision, FlushMemory
from bookkeeper.replicas.making import adopted, compacted, flushed, with_empty_major
from bookkeeper.replicas.naming import name_due
from bookkeeper.replicas.placements import may_lead, start_of
from bookkeeper.replicas.receiving import content_arrived, content_failed, offer_arrived
from bookkeeper.replicas.rules import Rules
from bookkeeper.replicas.sending import follower_run, offer_one, replicate_to, reply_arrived
from bookkeeper.replicas.values import Entry, ProtocolError, Replica, Target, without_acks


def decide(replica: Replica, event: Event, rules: Rules) -> tuple[Replica, Decision]:
    """The replica after an event, and the instructions to its host. Pure.

    The host makes the new replica durable before it follows the instructions. Raises ProtocolError where the
    replica's state does not allow the event.
    """
    match event:
        case OfferArrived() | ContentArrived() | ContentFailed():
            return _decide_as_receiver(replica, event, rules)
        case ReplyArrived() | OfferOne() | ReplicateTo() | FollowerRun() | LeaderRun():
            return _decide_as_sender(replica, event, rules)
        case Collect():
            return collect(replica, event, rules)
        case NameDue():
            return name_due(replica, event, rules)
        case FilesDamaged():
            return damaged(replica, event), ()
        case FilesMended():
            return mended(replica, event), ()
        case CopyDamaged():
            return copy_damaged(replica, event), ()
        case _:
            return _decide_alone(replica, event, rules)


def _decide_as_receiver(
    replica: Replica, event: OfferArrived | ContentArrived | ContentFailed, rules: Rules
) -> tuple[Replica, Decision]:
    match event:
        case OfferArrived(offer=offer):
            return offer_arrived(replica, offer, rules)
        case ContentArrived():
            return content_arrived(replica, event, rules)
        case ContentFailed():
            return content_failed(replica, event), ()


def _decide_as_sender(
    replica: Replica,
    event: ReplyArrived | OfferOne | ReplicateTo | FollowerRun | LeaderRun,
    rules: Rules,
) -> tuple[Replica, Decision]:
    match event:
        case ReplyArrived():
            return reply_arrived(replica, event, rules)
        case OfferOne():
            return offer_one(replica, event)
        case ReplicateTo():
            return replicate_to(replica, event, rules)
        case FollowerRun():
            return follower_run(replica, rules)
        case LeaderRun():
            return leader_run(replica, rules)


def _decide_alone(
    replica: Replica,
    event: Wrote | Flushed | Compacted | Adopted | LeaderNamed | TargetsChanged | Restarted,
    rules: Rules,
) -> tuple[Replica, Decision]:
    match event:
        case Wrote():
            return (replica if replica.has_memory else replace(replica, has_memory=True)), ()
        case Flushed():
            return flushed(replica, event, rules), ()
        case Compacted():
            return compacted(replica, event, rules), ()
        case Adopted():
            return adopted(replica, event, rules), ()
        case LeaderNamed():
            return leader_named(replica, event, rules)
        case TargetsChanged(targets=targets):
            return targets_changed(replica, targets), ()
        case Restarted():
            return restarted(replica, rules), ()


def targets_changed(replica: Replica, targets: tuple[Target, ...]) -> Replica:
    """The replica with other targets. An acknowledgement of a child's leader counts for its term only: a new term
    begins from the child's named state, which may lack it.
    """
    before = {(target.host, target.placement): target.term for target in replica.targets}
    for target in targets:
        if target.key_range is not None and before.get((target.host, target.placement)) != target.term:
            replica = without_acks(replica, target.placement)
    return replace(replica, targets=targets)


def leader_named(replica: Replica, event: LeaderNamed, rules: Rules) -> tuple[Replica, Decision]:
    """The election has named a leader. A new leader begins its term from the named state (N6), with a major without
    files (N5); one that lost the leadership flushes its memory (P9).
    """
    if rules.terms and event.term < replica.term:
        return replica, ()
    if event.leader == replica.host:
        if not may_lead(replica):
            raise ProtocolError(f"{replica.host} is in {replica.stage.value} and can't lead: elect a LIVE replica")
        return _term_begun(replica, event, rules), ()
    lost = replica.is_leader and replica.has_memory
    replica = replace(replica, leader=event.leader, term=event.term, merged=(), declined=())
    return replica, (FlushMemory(),) if lost and rules.p9_flush_on_loss else ()


def _term_begun(replica: Replica, event: LeaderNamed, rules: Rules) -> Replica:
    if replica.is_leader and event.term == replica.led:
        return replica
    start = start_of(replica, event.named, rules)
    if start is not None and replica.entry(start.id) is None:
        replica = replace(replica, entries=(*replica.entries, Entry(start)))
    replica = replace(
        replica,
        leader=replica.host,
        root=None if start is None else start.id,
        term=event.term,
        led=event.term,
        made=0,
        merged=(),
        declined=(),
        replayed=event.replayed,
        given_up=event.given_up,
    )
    return with_empty_major(replica, rules) if rules.n5_major_begins_term else replica


def restarted(replica: Replica, rules: Rules) -> Replica:
    """The replica after its process died: memory and transfers are gone. By terms, a leader needs a new election,
    which replays its log.
    """
    leader = None if rules.terms and replica.leader == replica.host else replica.leader
    return replace(replica, has_memory=False, replayed=(), incoming=(), merged=(), declined=(), leader=leader)
