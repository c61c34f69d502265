"""Fault switches of replication by several paths."""

from __future__ import annotations

from tests.support.faults.switch import Switch

PATHS: dict[str, Switch] = {
    "paths-are-not-compared": Switch(
        "bookkeeper.tserver.origins.origin_dedup",
        "known_records",
        old="return known",
        new="return None",
        breaks="R22: a record that comes by two paths is applied twice",
    ),
    "high-water-for-all-paths": Switch(
        "bookkeeper.tserver.origins.origin_dedup",
        "closed_gaps",
        old="part = claim.part",
        new="""
        return Part(claim.part.rows, None, Runs.of((1, claim.part.runs.last)))
        part = claim.part
        """,
        breaks="R22: records that one path left out and another one brings are lost",
    ),
    "files-begin-where-they-were-relayed": Switch(
        "bookkeeper.replay.stream.segment_transfer",
        "root_in",
        old='if not header.HasField("origin"):',
        new="if True:",
        breaks="R22: a relayed file counts as another file than the one that its origin sends",
    ),
    "enabled-since-ever": Switch(
        "bookkeeper.replay.stream.message_origins",
        "taken_since",
        old="return max(since, current.passed_to + 1) if since and not current.run_id else 0",
        new="return 1",
        breaks="R22: records that were written while a path was disabled count as brought by it",
    ),
    "path-passes-what-is-set-aside": Switch(
        "bookkeeper.replay.stream.message_origins",
        "taken_since",
        old="return max(since, current.passed_to + 1) if since and not current.run_id else 0",
        new="return since",
        breaks="R22: a quarantined range of one path counts as brought by it",
    ),
    "crash-forgets-the-paths": Switch(
        "bookkeeper.tserver.tablets.load_plan",
        "add_claims",
        old="in block_origins_from_pb(header.block_origins, own).claims:",
        new="in ():",
        breaks="R22: after a crash, a tablet takes the records of one path again from another",
    ),
    "flushes-forget-the-paths": Switch(
        "bookkeeper.tserver.tablets.origin_intervals",
        "OriginIntervals.applied",
        old="return dict(self._applied)",
        new="return {}",
        breaks="R22: a tablet that was flushed and loaded takes records again that came by another path",
    ),
    "merged-rows-hold-the-same": Switch(
        "bookkeeper.origins",
        "joined_roots",
        old="found: dict[Root, list[RootIntervals]] = {}",
        new="""
        joined = {}
        for root, intervals in (item for tablet in tablets for item in tablet.items()):
            for part in intervals.parts:
                whole = Part(RowRange(None, None), part.family, part.runs)
                joined[root] = joined.get(root, RootIntervals()).taking(whole, intervals.last_ms)
        return joined
        found: dict[Root, list[RootIntervals]] = {}
        """,
        breaks="R22: the records that one of the merged tablets has from a path count for all of them",
    ),
    "parts-of-the-same-rows-stay-apart": Switch(
        "bookkeeper.origins",
        "joined_parts",
        old="return parts if len(joined) == len(parts) else tuple(joined.values())",
        new="return parts",
        breaks="R22: of two parts that a split left with the same rows, the next one that is taken drops one",
    ),
    "blocks-hold-all-they-claim": Switch(
        "bookkeeper.tserver.origins.origin_dedup",
        "origins_of_header",
        old="new.claims, new.partial",
        new="new.claims, False",
        breaks="R22: a cluster behind this one counts records as brought that came here in other blocks",
    ),
    "files-say-nothing-to-other-paths": Switch(
        "bookkeeper.tserver.bulk.bulk_loader",
        "with_origins",
        old="if request.through is None:",
        new="if True:",
        breaks="R22: a tablet that took a file takes its records again from a relaying cluster",
    ),
    "paths-are-forgotten-at-once": Switch(
        "bookkeeper.master.origins.origin_termination",
        "is_over",
        old="if log in said.owed or log in said.silent:",
        new="""
        return True
        if log in said.owed or log in said.silent:
        """,
        breaks="R22: records of a slow path are applied again when the fast path has ended",
    ),
    "clusters-are-read-once": Switch(
        "bookkeeper.master.origins.origin_termination",
        "_Walk.is_asked",
        old="and self.streams[place] <= about",
        new="",
        breaks="R22: a record that moves on while clusters are asked one after another is missed",
    ),
    "senders-are-not-remembered": Switch(
        "bookkeeper.tserver.origins.origin_marks",
        "marks_of",
        old=", keys.sender_column(sender): values.EMPTY",
        new="",
        breaks="R22: a cluster does not answer the relays that brought it records, and remembers the log for ever",
    ),
    "relays-end-any-log": Switch(
        "bookkeeper.master.origins.origin_books",
        "may_end",
        old="return asking == log.instance_id or (has_brought(row, asking) and not has_brought(row, log.instance_id))",
        new="return True",
        breaks="R22: a relay ends a log that its own cluster's slow path still brings: records are taken twice",
    ),
    "purges-of-roots-name-no-writer": Switch(
        "bookkeeper.master.origins.origin_books",
        "cells_to_purge",
        old="keys.sender_column(log.instance_id), *",
        new="*",
        breaks="R22: a late put of a receiver brings back who sent a log that is over, and its row stays",
    ),
    "any-cluster-ends-a-log": Switch(
        "bookkeeper.master.origins.origin_books",
        "may_ask_about",
        old="if own_instance_id in (log.instance_id, asking):",
        new="""
        return True
        if own_instance_id in (log.instance_id, asking):
        """,
        breaks="R22: a peer ends a log that another peer's slow path still brings: records are taken twice",
    ),
    "a-cluster-with-records-may-be-over": Switch(
        "bookkeeper.master.origins.origin_termination",
        "is_over",
        old="log in said.owed or ",
        new="",
        breaks="R22: a log is called over while a cluster still hands records of it on",
    ),
    "a-receiving-cluster-may-be-over": Switch(
        "bookkeeper.master.origins.origin_termination",
        "is_over",
        old="or log in said.under_way",
        new="",
        breaks="R22: a log is called over while a message of it waits in a process that was stopped",
    ),
    "received-records-are-not-owed": Switch(
        "bookkeeper.master.origins.origin_index",
        "handed_on",
        old='if not header.HasField("origin") or not header.block_targets:',
        new="if True:",
        breaks="R22: a relaying cluster says that it owes no record while its log waits for the next cluster",
    ),
    "recipients-are-not-recorded": Switch(
        "bookkeeper.master.origins.origin_books",
        "recipient_puts",
        old="(own, *sorted(set(origin_index) & set(rows)))",
        new="(own,)",
        breaks="R22: a cluster that got records only through others is never told that their log is over",
    ),
    "logs-are-not-announced": Switch(
        "bookkeeper.tserver.origins.origin_marks",
        "OriginMarks.announce",
        old="if not fresh:",
        new="if True:",
        breaks="R22: a tablet that is loaded again counts a log as over whose records it remembers",
    ),
    "asking-is-not-heard": Switch(
        "bookkeeper.master.origins.origin_service",
        "OriginService._record_question",
        old="if due:",
        new="if False:",
        breaks="R22: a log that clusters still ask about is forgotten by time",
    ),
    "loading-keeps-what-is-over": Switch(
        "bookkeeper.tserver.maintenance.tablet_opener",
        "TabletOpener._forget_what_ended",
        old="forget_roots(root_logs - announced)",
        new="forget_roots(set())",
        breaks="R22: a log that ended while its tablet was not served is remembered for ever",
    ),
}
