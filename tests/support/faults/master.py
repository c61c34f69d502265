"""Fault switches of the master."""

from __future__ import annotations

from tests.support.faults.switch import Edit, Switch

MASTER: dict[str, Switch] = {
    "lag-restarts-when-complete": Switch(
        "bookkeeper.master.index.write_times",
        "with_growth",
        old="grown = (*steps, Step(records, look.at_ns, look.at_ns) if look.is_timely else Step(records, None))",
        new="grown = (steps[0]._replace(records=records),) if steps else (Step(records, look.at_ns, look.at_ns),)",
        breaks="under steady writes the shown lag grows without bound, although the peer gets each record at once",
    ),
    "older-peers-are-believed": Switch(
        "bookkeeper.master.cycle.check_ins",
        "CheckIns.check_in",
        old="if found < known:",
        new="if False:",
        breaks="a peer that came back from a backup lacks acknowledged records, and its source says done",
    ),
    "headers-are-not-read": Switch(
        "bookkeeper.master.cycle.header_times",
        "HeaderTimes.begin",
        old="if self._runs or not self._has_work():",
        new="if True:",
        breaks="after a new master the lag of what was missing before stays unknown",
    ),
    "hosted-files-unchecked": Switch(
        "bookkeeper.master.calls.hosted_files",
        "parts_on_host",
        old="or checksum != part.crc32c",
        new="",
        breaks="L7: a damaged file of a host becomes a part of an export",
    ),
    "a-question-makes-a-peer": Switch(
        "bookkeeper.peers.parquet.system",
        "ParquetSystem.identify",
        old='return Identity(read_identity(self.opener(quorum, self.roots), quorum).instance_id, "parquet")',
        new="""
        store = self.opener(quorum, self.roots)
        store.prepare()
        store.create(IDENTITY_FILE, DirectoryIdentity(str(uuid.uuid4()), one_block=False).encode())
        return Identity(read_identity(store, quorum).instance_id, "parquet")
        """,
        breaks="R23: a question makes an empty directory a peer",
    ),
    "unknown-is-nothing": Switch(
        "bookkeeper.master.cycle.knowledge",
        "expect_known",
        old="if knowledge.age_ms is None:",
        new="if False:",
        breaks="a master that has not read the books yet reports that no file waits",
    ),
    "barriers-beyond-a-few-are-dropped": Switch(
        "bookkeeper.master.index.barriers",
        "coarser_barriers",
        old="own = log_directory(file)",
        new="""
        return barriers[:BARRIERS_MAX]
        own = log_directory(file)
        """,
        breaks="R24: of a log with many tablets, some ship before the records that were written before theirs",
    ),
    "each-target-has-a-tserver": Switch(
        "bookkeeper.master.cycle.assigner",
        "flying_at",
        old="for target in entry.scope.targets:",
        new="for target in ():",
        breaks="one tserver ships a file to all targets (ACCUMULO-378, Choose local TabletServer)",
    ),
    "the-peer-is-blamed-first": Switch(
        "bookkeeper.master.queries.causes",
        "Causes.of_records",
        old="if lack is not None:",
        new="if False:",
        breaks="an operator looks for a fault at the peer, and no tserver of the own cluster lives",
    ),
    "unsealed-logs-are-done": Switch(
        "bookkeeper.master.queries.causes",
        "Causes.of_end",
        old="if self._now.has_lost_owner(entry.name()):",
        new="if False:",
        breaks="a log is done, and its dead tserver wrote records that nobody has counted yet",
    ),
    "older-logs-are-not-waited-for": Switch(
        "bookkeeper.master.cycle.assigner",
        "older_are_over",
        old="return oldest is None or oldest >= file",
        new="return True",
        breaks="R24: of many logs, some ship before the records that were written before theirs",
    ),
    "barriers-of-any-log-become-one": Switch(
        "bookkeeper.master.index.barriers",
        "coarser_barriers",
        old="[_one_barrier(rest)] if directory == own else _rising_barriers(rest)",
        new="[_one_barrier(rest)]",
        breaks="R24: two tservers' logs that exchanged tablets wait for each other, for ever",
    ),
    "queues-compare-ages-only": Switch(
        "bookkeeper.master.cycle.assigner",
        "may_go",
        old="return entry is not None and next_range(entry, key[2], files, shipping) is not None",
        new="return True",
        breaks="R24: a queue is full of logs that wait for one that does not fit, for ever",
    ),
    "imports-under-way-are-over": Switch(
        "bookkeeper.master.gc.gc_runner",
        "living",
        old="imports = any(running.op.type == IMPORT_KIND and not running.ended for running in operations)",
        new="imports = False",
        breaks="R17: the log of an import goes before the tablet that takes the import refers to it",
    ),
    "reports-count-for-ever": Switch(
        "bookkeeper.master.cycle.work_dispatch",
        "WorkDispatcher.absorb",
        old="if entry is not None and assigner.target_of(entry, report.target) is not None:",
        new="if True:",
        breaks="R11: a file that is gone is tried again and again, and holds back its peer's others",
    ),
    "needed-deleted-for-good": Switch(
        "bookkeeper.master.books.books_cycle",
        "Books._delete",
        old="self.stores.table.delete(batch, rank)",
        new="""
        from bookkeeper.metadata.metadata_table import MAX_RANK
        self.stores.table.delete(batch, MAX_RANK)
        """,
        breaks="R2: a later leader's write is hidden, and the file is stuck",
    ),
    "done-goes-with-needed": Switch(
        "bookkeeper.master.books.remover",
        "needed_cells",
        old=' if column.family == "repl"]',
        new="]",
        breaks="R3: the finished offset, written again at its rank, stays hidden: stuck",
    ),
    "books-of-missing-files-stay": Switch(
        "bookkeeper.master.books.remover",
        "is_void",
        old="return now_ns - missing.since_ns > flight_ns",
        new="return False",
        breaks="R4: a write that comes after the file was removed stays for ever",
    ),
    "marks-go-with-their-file": Switch(
        "bookkeeper.master.gc.orphan_files",
        "is_over",
        old="return now_ns - since_ns > flight_ns",
        new="return True",
        breaks="R4: a use that comes after its log was collected looks like a log that was lost",
    ),
    "missing-is-void-at-once": Switch(
        "bookkeeper.master.books.remover",
        "is_void",
        old="return now_ns - missing.since_ns > flight_ns",
        new="return True",
        breaks="R4: books of a file that was made after the listing are purged",
    ),
    "one-target-for-a-remote-table": Switch(
        "bookkeeper.master.index.file_entry",
        "configured_targets",
        old="return tuple(found[key] for key in sorted(found))",
        new="""
        of_remote = {(key.cluster, key.remote_table_id): found[key] for key in sorted(found, reverse=True)}
        return tuple(of_remote.values())
        """,
        breaks="R5: of two tables that map to one remote table, the second is lost",
    ),
    "incarnations-share-cells": Switch(
        "bookkeeper.metadata.keys",
        "_target",
        old="return target.encode()",
        new='return f"{target.cluster}:{target.remote_table_id}:{target.source_table_id}:1".encode()',
        breaks="R5: a target that is enabled again counts the records of its earlier incarnation as shipped",
    ),
    "configuration-is-remembered": Switch(
        "bookkeeper.master.reign.reign_stores",
        "ReignStores.config",
        old="return read_config(self.coordination)",
        new="""
        from tests.support.faults.memory import REMEMBERED
        return REMEMBERED.setdefault(f"config {id(self)}", read_config(self.coordination))
        """,
        breaks="R6: a target that was enabled meanwhile does not count, and its data goes",
    ),
    "one-reading-is-enough": Switch(
        "bookkeeper.master.books.remover",
        "is_removable",
        old="0 < entry.closed_in < cycle",
        new="entry.is_closed()",
        breaks="R7: a deposed leader deletes by a configuration older than the file",
    ),
    "no-reading-is-enough": Switch(
        "bookkeeper.master.books.remover",
        "is_orphan",
        old="return previous is not None and file not in previous",
        new="return True",
        breaks="R7: a row is taken for a leftover although its file was there a moment ago",
    ),
    "ranks-above-are-not-seen": Switch(
        "bookkeeper.master.reign.leader",
        "Reign.observe",
        old="if epoch < self._leader.epoch or (epoch == self._leader.epoch and number <= self._number):",
        new="if True:",
        breaks="R8: after the epoch counter began again, a leader's writes are hidden",
    ),
    "equal-epochs-are-own": Switch(
        "bookkeeper.master.reign.leader",
        "Reign.observe",
        old="(epoch == self._leader.epoch and number <= self._number):",
        new="epoch == self._leader.epoch:",
        breaks="R8: after the coordination store was restored, a leader's writes are hidden under another reign's",
    ),
    "every-target-ever-counts": Switch(
        "bookkeeper.master.index.file_entry",
        "configured_targets",
        old="return tuple(found[key] for key in sorted(found))",
        new="""
        from tests.support.faults.memory import REMEMBERED
        known = REMEMBERED.setdefault("targets", {})
        known.update(found)
        return tuple(known[key] for key in sorted(known))
        """,
        breaks="R9: a file waits for ever for a target that is no longer configured",
    ),
    "unconfigured-columns-stay": Switch(
        "bookkeeper.master.books.work_maker",
        "is_unconfigured",
        old="return keys.parse_target(column.qualifier) not in configured",
        new="return False",
        breaks="R9: columns of targets that are no longer configured stay",
    ),
    "logs-of-the-dead-stay-open": Switch(
        "bookkeeper.master.books.books_cycle",
        "Books._closed_cells",
        old="if not dead and read_seal(self.volume, name) is None:",
        new="if True:",
        breaks="R10: the file of a dead tserver stays OPEN, and is kept for ever",
    ),
    "all-are-confirmed": Switch(
        "bookkeeper.master.calls.tservers",
        "TServers.unconfirmed",
        old="""
        return [
            f"{info.session_id}: {reason}"
            for info in self.sessions()
            if (reason := self._why_unconfirmed(info, generation)) is not None
        ]
        """,
        new="return []",
        breaks="R14: enable returns while a tserver writes under the old configuration",
    ),
    "broken-chains-pass": Switch(
        "bookkeeper.master.index.snapshot",
        "verify_chain",
        old="old = None if before is None else before.extent",
        new="""
        return
        old = None if before is None else before.extent
        """,
        breaks="R16: a reference that a merge moved is missed, and its file goes early",
    ),
    "tables-without-rows-are-complete": Switch(
        "bookkeeper.master.index.snapshot",
        "missing_tables",
        old="return sorted(set(online) - set(seen))",
        new="return []",
        breaks="R16: emptied books name no file, and all files are deleted",
    ),
    "books-are-read-without-proof": Switch(
        "bookkeeper.master.reign.books_proof",
        "Rounds.read_with_proof",
        old="if after != number:",
        new="if False:",
        breaks="L2: a table that was replaced while it was read names no file, and all files are deleted",
    ),
    "waits-count-as-work": Switch(
        "bookkeeper.master.gc.gc_pace",
        "worked_ms",
        old="return min(took_ms, WORK_PER_CPU * computed_ms)",
        new="return took_ms",
        breaks="the collector rests nine times as long as an outage lasted",
    ),
    "newborns-go": Switch(
        "bookkeeper.master.gc.gc_rules",
        "is_collectable_log",
        old="return log.name not in referenced and (log.sealed or log.session not in writers)",
        new="return log.name not in referenced",
        breaks="R17: a log is deleted between its creation and its first reference",
    ),
    "one-table's-word-is-enough": Switch(
        "bookkeeper.master.books.books_cycle",
        "Books._refresh_row",
        old="entry is not None and table_id in entry.scope.table_ids",
        new="entry is not None",
        breaks="R24: a record overtakes one in a log that the scan knew of another table only",
    ),
    "replication-needs-no-log": Switch(
        "bookkeeper.master.gc.gc_rules",
        "references",
        old='("log", "segment", "repl") if keys.is_tablet(row) else ("repl",)',
        new='("log", "segment") if keys.is_tablet(row) else ()',
        breaks="R17: a log goes when no tablet needs it any more, though a peer lacks some of it",
        also=[
            Edit(
                "bookkeeper.master.gc.gc_rules",
                "references",
                old='if any(column.family == "repl" for column in row.cells):',
                new="if False:",
            )
        ],
    ),
    "unused-logs-are-not-recovered": Switch(
        "bookkeeper.master.books.tserver_recovery",
        "TServerRecovery._seal",
        old="        self.reign.check()\n        try:",
        new="""
        if not self.read_claim(log.name).is_used:
            return
        self.reign.check()
        try:
        """,
        breaks="R17: the log of a dead tserver whose table was deleted is kept for ever",
    ),
    "logs-of-the-dead-go-unsealed": Switch(
        "bookkeeper.master.gc.gc_runner",
        "GcRunner.observe",
        old="writers = living((info.session_id for info in sessions), pending)",
        new="writers = live",
        breaks="R17: a tserver on a machine that was paused acknowledges records in a log that the collector deletes",
    ),
    "quarantine-keeps-silently": Switch(
        "bookkeeper.master.gc.retention_reasons",
        "RetentionReasons.quarantined",
        old="ranges[holder] = ranges.get(holder, 0) + 1",
        new="pass",
        breaks="an operator asks why a file is retained, and quarantine is missing in the answer",
    ),
    "the-monitor-never-pauses": Switch(
        "bookkeeper.monitor.sampler",
        "pause_ms",
        old="return max(interval_ms, min(PAUSE_FACTOR * took_ms, PAUSE_MAX_MS))",
        new="return interval_ms",
        breaks="docs/monitor.md: the monitor takes the master's time",
    ),
    "a-cluster-is-its-own-peer": Switch(
        "bookkeeper.master.calls.peer_masters",
        "refuse_self",
        old="if found.instance_id == own_instance_id:",
        new="if False:",
        breaks="R23: a cluster replicates to itself",
    ),
    "barriers-do-not-hold": Switch(
        "bookkeeper.master.cycle.assigner",
        "is_passed",
        old="before = files.get(barrier.file)",
        new="""
        return True
        before = files.get(barrier.file)
        """,
        breaks="R24: a delete overtakes its put",
    ),
    "complete-files-wait": Switch(
        "bookkeeper.master.cycle.assigner",
        "barrier_limit",
        old="""
        if barrier.offset > entry.safe:
            break
        if not is_passed(barrier, target, files, shipping):
            return barrier.offset - 1, barrier
        """,
        new="""
        before = files.get(barrier.file)
        booked = 0 if before is None else before.progress_of(target).offset
        if before is not None and booked < before.needed:
            return 0, barrier
        """,
        breaks="R24: two tablets that swap servers wait for each other for ever",
    ),
    "unknown-logs-are-passed": Switch(
        "bookkeeper.master.books.books_cycle",
        "Books._fold_closed",
        old="all(log in files and table_id in files[log].scope.table_ids for log in waits_for)",
        new="True",
        breaks="R24: a log is shipped before another one that is younger than the scan, and that it has to wait for",
    ),
    "unsafe-offsets-travel": Switch(
        "bookkeeper.master.index.barriers",
        "barriers_are_complete_to",
        old="return min(known_before, needed)",
        new="return needed",
        breaks="R24: a record is shipped before the barrier in front of it was seen",
    ),
    "backing-off-is-optional": Switch(
        "bookkeeper.master.cycle.assigner",
        "peer_allowance",
        old="return PROBES - flying if world.now_ns >= retry.next_try_ns else 0",
        new="return world.limits.peer_max - flying",
        breaks="an offline peer is tried all the time",
    ),
    "every-change-needs-a-full-cycle": Switch(
        "bookkeeper.master.cycle.cycle",
        "concerns_tablets_only",
        old="return (",
        new="return False and (",
        breaks="a new table costs the master in proportion to all tablets",
    ),
    "passed-without-a-row": Switch(
        "bookkeeper.master.quarantine.quarantined_ranges",
        "write_rows",
        old="if puts:",
        new="if False:",
        breaks="a range with a permanent error is passed, and the books have no record of it",
    ),
    "a-try-under-way-counts": Switch(
        "bookkeeper.master.index.shipments",
        "Shipment.press",
        old="self.retry_requested = True",
        new="pass",
        breaks="a range that a person has seen to waits again, for a try that had begun before",
    ),
    "quarantine-keeps-nothing": Switch(
        "bookkeeper.master.gc.gc_rules",
        "references",
        old="in quarantine_rows:",
        new="in ():",
        breaks="R17: a file goes while a range of it waits to be shipped again",
    ),
    "the-age-of-logs-does-not-count": Switch(
        "bookkeeper.master.cycle.assigner",
        "queue_key",
        old="return (entry.created_ms() if sequential else 0, entry.file, target)",
        new="return (0, entry.file, target)",
        breaks="sequential hands out the logs of a target in order of creation",
    ),
}
