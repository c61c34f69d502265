"""UNLOAD, by the letter of the document: a replica of a tablet that has split hands its data to the children (E-65).

Only the schedules have it. A tserver splits in place, and no tablet is left over that has to be handed on.
"""

from __future__ import annotations

from dataclasses import dataclass

from msgspec.structs import replace

from bookkeeper.replicas.chain import entries_to_send
from bookkeeper.replicas.events import ReplyArrived
from bookkeeper.replicas.instructions import Decision, Name, Send
from bookkeeper.replicas.messages import Ack, Decline, Purpose, Reason
from bookkeeper.replicas.rules import Rules
from bookkeeper.replicas.sending import offer_of
from bookkeeper.replicas.values import ProtocolError, Replica, Stage, is_acked


@dataclass(frozen=True, slots=True)
class Unloading:
    """The turn of a replica. ``final``: the last named state of its tablet; None: all that it has is handed on."""

    final: int | None


def begun(replica: Replica, named: Name | None, rules: Rules) -> Unloading:
    """The turn of a replica in UNLOAD. With the last named state of the tablet (P7), only the chain of that state is
    offered: the books cover the rest.
    """
    if replica.stage not in (Stage.UNLOAD, Stage.UNLOAD_FINAL):
        raise ProtocolError(f"{replica.host} is in {replica.stage.value}: only a replica in UNLOAD hands its data on")
    return Unloading(named.state_id if named is not None and rules.p7_unload_to_leader else None)


def unload_on(replica: Replica, turn: Unloading, rules: Rules) -> tuple[Replica, Decision]:
    """Offer the next segment that a target lacks; without one, the replica is unloaded (E-65, E-66). If a child has a
    new leader, that leader is served, too.
    """
    entries = replica.entries if turn.final is None else entries_to_send(replace(replica, root=turn.final), rules)
    for entry in entries:
        for target in replica.targets:
            if not is_acked(entry, target.placement, rules.p10_incarnation):
                offer = Send(target.host, offer_of(replica, entry.segment, target), Purpose.ONE)
                return replace(replica, stage=Stage.UNLOAD), (offer,)
    return replace(replica, stage=Stage.UNLOAD_FINAL), ()


def may_go_on(replica: Replica, event: ReplyArrived, rules: Rules) -> bool:
    """Whether an answer lets the turn go on: the target has the segment under its placement of today."""
    reply = event.reply
    has_it = isinstance(reply, Ack) or (isinstance(reply, Decline) and reply.reason is Reason.SEGMENT_EXISTS)
    entry = replica.entry(reply.segment_id)
    if not has_it or entry is None or replica.stage is not Stage.UNLOAD:
        return False
    return is_acked(entry, replica.target(event.target).placement, rules.p10_incarnation)
