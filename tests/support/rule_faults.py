"""Fault switches of the rules of replicas: in the machine that every host runs, and of its disk (see ``faults``)."""

from __future__ import annotations

from msgspec.structs import replace

from bookkeeper.replicas import machine, making, placements, sending
from bookkeeper.replicas.events import ReplyArrived
from bookkeeper.replicas.instructions import Decision, Name
from bookkeeper.replicas.rules import Rules
from bookkeeper.replicas.values import Replica, Segment
from bookkeeper.storage.replicas import host_store
from tests.support.replacement import Binding, Fault

_reply_arrived, _start_of = sending.reply_arrived, placements.start_of


def reply_counted_at_accept(replica: Replica, event: ReplyArrived, rules: Rules) -> tuple[Replica, Decision]:
    """An accepted segment counts as a copy before its content has come."""
    return _reply_arrived(replica, event, replace(rules, p5_ack_when_durable=False))


def start_from_own_root(replica: Replica, named: Name | None, rules: Rules) -> Segment | None:
    """A leader begins from all that it holds, whatever the books name."""
    return _start_of(replica, named, replace(rules, n6_named_start=False))


RULE_FAULTS: dict[str, Fault] = {
    "ack-at-accept": Fault(
        sending.reply_arrived,
        reply_counted_at_accept,
        "P5: the books name a state whose files other hosts have only promised to take",
    ),
    "term-without-major": Fault(
        Binding(machine, making.with_empty_major),
        lambda replica, rules: replica,  # noqa: ARG005
        "N5: followers with a segment of a deposed leader take nothing of the next one",
    ),
    "no-forced-major": Fault(
        Binding(sending, making.with_empty_major),
        lambda replica, rules: replica,  # noqa: ARG005
        "P1: a target that declines out of order does so for ever",
    ),
    "wiped-disk-is-the-same": Fault(
        host_store._incarnation,
        lambda directory: "disk",  # noqa: ARG005
        "P10: a leader takes a wiped replica for one that has what it acknowledged before",
    ),
    "start-from-own-root": Fault(
        placements.start_of,
        start_from_own_root,
        "N6: a leader lists a segment and the records of its log, which it has replayed",
    ),
}
