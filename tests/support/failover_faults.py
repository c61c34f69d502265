"""Fault switches of logs that are given up, and of their tails (see ``faults``)."""

from __future__ import annotations

from bookkeeper.master.index import shipments
from bookkeeper.master.replicas import failover_plan
from bookkeeper.metadata import lost_logs
from bookkeeper.tserver.leading.leader_chain import LeaderChain
from bookkeeper.tserver.origins import tail_plan
from bookkeeper.tserver.receive import receiver
from bookkeeper.tserver.tablets import load_plan
from bookkeeper.tserver.tablets.given_up import GivenUpLogs
from bookkeeper.tserver.tablets.tablet import ServedTablet
from bookkeeper.tserver.write import control_submissions
from tests.support.replacement import Binding, Fault

FAILOVER_FAULTS: dict[str, Fault] = {
    "late-losses-count": Fault(
        lost_logs.is_given_up,
        lambda cell, serial: True,  # noqa: ARG005
        "N6: a late word of a deposed master lets a log be replayed and merged",
    ),
    "hosts-are-given-up-at-once": Fault(
        failover_plan.is_overdue,
        lambda away_ms, failover_ms: failover_ms is not None,  # noqa: ARG005
        "records are missing although their host would have been back in time",
    ),
    "tails-are-merged-again": Fault(
        GivenUpLogs.tail_merged,
        lambda self, log: None,  # noqa: ARG005
        "N6: each look at a given-up log applies its tail once more",
    ),
    "states-forget-where-tails-begin": Fault(
        ServedTablet._logs_in_row,
        lambda self, needed: self._flushes.logs_in_row(needed),
        "N6: a tail is merged from the beginning of its log, though segments have a part of it",
    ),
    "tails-are-newer": Fault(
        load_plan.first_seq_without_tails,
        lambda serial: 1,  # noqa: ARG005
        "a record of a tail has the sequence number of one that was written later",
    ),
    "tails-are-waited-for": Fault(
        GivenUpLogs.in_order,
        lambda self, last_wals: last_wals,  # noqa: ARG005
        "R24: peers wait for the log of a host that was given up",
    ),
    "peers-wait-for-hosts": Fault(
        shipments.is_of_log,
        lambda error_code: False,  # noqa: ARG005
        "R24: a log whose host is away stops all work for a peer",
    ),
    "compactions-ignore-tails": Fault(
        LeaderChain.may_forget_deletes,
        lambda self: True,  # noqa: ARG005
        "P17: a compaction drops a delete, and the tail brings the deleted record back",
    ),
    "senders-are-believed": Fault(
        Binding(receiver, receiver.trusted_ack),
        lambda acked, awaits_tails: acked,  # noqa: ARG005
        "R18: a high-water passes records that only the tail has, and the merge leaves them out",
    ),
    "tails-are-all-new": Fault(
        tail_plan.is_known,
        lambda high_water, to_offset: False,  # noqa: ARG005
        "R18: records that their source has sent again come a second time with the tail",
    ),
    "tails-have-no-duplicates": Fault(
        Binding(control_submissions, control_submissions.may_forget),
        lambda tablets: tablets,
        "R18: a tablet forgets a stream, and does not find the duplicates in a tail",
    ),
}
