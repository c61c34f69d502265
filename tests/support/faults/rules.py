"""Fault switches of the rules of replicas: in the machine that every host runs, and of its disk."""

from __future__ import annotations

from tests.support.faults.switch import Switch

RULES: dict[str, Switch] = {
    "ack-at-accept": Switch(
        "bookkeeper.replicas.sending",
        "reply_arrived",
        old="if not rules.p5_ack_when_durable:",
        new="if True:",
        breaks="P5: the books name a state whose files other hosts have only promised to take",
    ),
    "term-without-major": Switch(
        "bookkeeper.replicas.machine",
        "_term_begun",
        old="return with_empty_major(replica, rules) if rules.n5_major_begins_term else replica",
        new="return replica",
        breaks="N5: followers with a segment of a deposed leader take nothing of the next one",
    ),
    "no-forced-major": Switch(
        "bookkeeper.replicas.sending",
        "_out_of_order",
        old="with_empty_major(replica, rules)",
        new="replica",
        breaks="P1: a target that declines out of order does so for ever",
    ),
    "wiped-disk-is-the-same": Switch(
        "bookkeeper.storage.replicas.host_store",
        "_incarnation",
        old="path = directory / INCARNATION",
        new="""
        return "disk"
        path = directory / INCARNATION
        """,
        breaks="P10: a leader takes a wiped replica for one that has what it acknowledged before",
    ),
    "start-from-own-root": Switch(
        "bookkeeper.replicas.placements",
        "start_of",
        old="if not rules.n6_named_start:",
        new="if True:",
        breaks="N6: a leader lists a segment and the records of its log, which it has replayed",
    ),
}
