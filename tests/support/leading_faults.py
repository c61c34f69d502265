"""Fault switches of the leader of a tablet with replicas (see ``faults``)."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext

from bookkeeper.config.table_properties import copies_needed
from bookkeeper.tserver.leading import confirmation, leader_chain, senders
from bookkeeper.tserver.leading.leader_chain import LeaderChain
from bookkeeper.tserver.leading.transfer import Transfer
from bookkeeper.tserver.tablets.tablet_flushes import TabletFlushes
from tests.support.replacement import Binding, Fault


def logs_due_at_once(chain: LeaderChain) -> list[tuple[int, Mapping[str, int]]]:
    """Logs go with the flush on the leader's own disk."""
    return list(chain._unnamed_logs)


LEADING_FAULTS: dict[str, Fault] = {
    "replay-is-not-remembered": Fault(
        leader_chain.positions_of,
        lambda serial, last_seq: (),  # noqa: ARG005
        "N1: a term names a state that lacks what it has replayed, while a late name lets the logs go",
    ),
    "one-copy-is-enough": Fault(
        Binding(leader_chain, copies_needed),
        lambda properties, voters: 1,  # noqa: ARG005
        "N3: the books name a state that only the leader has, and its disk is wiped",
    ),
    "lost-voters-need-no-copy": Fault(
        Binding(leader_chain, copies_needed),
        lambda properties, voters: properties.copies_min or voters // 2 + 1,
        "N3: a disk is wiped, the only voter that is left names a state, and its disk is wiped too",
    ),
    "logs-go-with-the-flush": Fault(
        LeaderChain.logs_due,
        logs_due_at_once,
        "N3: a leader dies, and no other host has the records that it flushed",
    ),
    "memory-is-forgotten-in-confirmations": Fault(
        LeaderChain.complete_state,
        lambda chain: chain.replica.root,
        "a follower claims writes that it lacks, because its leader has them in memory alone",
    ),
    "confirmations-without-lease": Fault(
        confirmation.may_confirm,
        lambda leads, has_lease: leads,  # noqa: ARG005
        "a follower claims writes that it lacks, because another host has led since",
    ),
    "copies-are-not-confirmed": Fault(
        Binding(senders, confirmation.next_to_confirm),
        lambda rows, confirmed_ns, now_ns: [],  # noqa: ARG005
        "a follower that lost what it had acknowledged is found only when the tablet gets a new state",
    ),
    "files-go-while-they-travel": Fault(
        Transfer._retained,
        lambda self, names: nullcontext(),  # noqa: ARG005
        "P15: the collector deletes a file that another host is getting",
    ),
    "retained-logs-have-no-offset": Fault(
        TabletFlushes.logs_in_row,
        lambda self, needed: needed,  # noqa: ARG005
        "R4: a log whose cell waits for a name is replayed from its beginning",
    ),
}
