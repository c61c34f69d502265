"""Fault switches of the leader of a tablet with replicas."""

from __future__ import annotations

from tests.support.faults.switch import Switch

LEADING: dict[str, Switch] = {
    "replay-is-not-remembered": Switch(
        "bookkeeper.tserver.leading.leader_chain",
        "positions_of",
        old="return ((serial, last_seq),)",
        new="return ()",
        breaks="N1: a term names a state that lacks what it has replayed, while a late name lets the logs go",
    ),
    "one-copy-is-enough": Switch(
        "bookkeeper.tserver.leading.leader_chain",
        "LeaderChain.due_name",
        old="copies_needed(properties, len(voters))",
        new="1",
        breaks="N3: the books name a state that only the leader has, and its disk is wiped",
    ),
    "lost-voters-need-no-copy": Switch(
        "bookkeeper.tserver.leading.leader_chain",
        "LeaderChain.due_name",
        old="copies_needed(properties, len(voters))",
        new="properties.copies_min or len(voters) // 2 + 1",
        breaks="N3: a disk is wiped, the only voter that is left names a state, and its disk is wiped too",
    ),
    "logs-go-with-the-flush": Switch(
        "bookkeeper.tserver.leading.leader_chain",
        "LeaderChain.logs_due",
        old=" if named is not None and one[0] <= named]",
        new="]",
        breaks="N3: a leader dies, and no other host has the records that it flushed",
    ),
    "memory-is-forgotten-in-confirmations": Switch(
        "bookkeeper.tserver.leading.leader_chain",
        "LeaderChain.complete_state",
        old="return root if raw is not None and self._last_seq_of(raw) >= last_seq else None",
        new="return root",
        breaks="a follower claims writes that it lacks, because its leader has them in memory alone",
    ),
    "times-to-come-are-believed": Switch(
        "bookkeeper.tserver.replicas.offer_checks",
        "is_ahead",
        old="return as_of_ms > now_ms + CLOCKS_APART_MS",
        new="return False",
        breaks="a host answers with old cells as if they were fresh, because of a time that has not come",
    ),
    "any-replica-of-the-rows-answers": Switch(
        "bookkeeper.tserver.maintenance.stale_reads",
        "StaleReads._named_replica",
        old="row = self._row(extent)",
        new="""
        return next((held for held in self._replicas.all() if held.extent == extent), None)
        row = self._row(extent)
        """,
        breaks="after a merge and a split with the same borders a host answers with the files of the tablet before",
    ),
    "confirmations-without-lease": Switch(
        "bookkeeper.tserver.leading.confirmation",
        "confirmation_of",
        old="chain.leads and has_lease()",
        new="chain.leads",
        breaks="a follower claims writes that it lacks, because another host has led since",
    ),
    "copies-are-not-confirmed": Switch(
        "bookkeeper.tserver.leading.confirmation",
        "next_to_confirm",
        old="return sorted(waiting, key=lambda row: confirmed_ns.get(row, -math.inf))[:CONFIRMATIONS_AT_ONCE]",
        new="return []",
        breaks="a follower that lost what it had acknowledged is found only when the tablet gets a new state",
    ),
    "files-go-while-they-travel": Switch(
        "bookkeeper.tserver.leading.transfer",
        "Transfer._retained",
        old="return names",
        new="return frozenset()",
        breaks="P15: the collector deletes a file that another host is getting",
    ),
    "retained-logs-have-no-offset": Switch(
        "bookkeeper.tserver.tablets.tablet_flushes",
        "TabletFlushes.logs_in_row",
        old="if self._retained_logs else",
        new="if False else",
        breaks="R4: a log whose cell waits for a name is replayed from its beginning",
    ),
}
