"""Fault switches of the master (see ``faults``)."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from bookkeeper.coordination.config_tree import ClusterConfig, read_config
from bookkeeper.errors import RefusedError
from bookkeeper.master.books import books_cycle, remover, wal_closer, work_maker
from bookkeeper.master.books.books_cycle import Books
from bookkeeper.master.calls import hosted_files, peer_masters
from bookkeeper.master.calls.tservers import TServers
from bookkeeper.master.cycle import assigner, cycle, knowledge
from bookkeeper.master.cycle.work_dispatch import WorkDispatcher
from bookkeeper.master.fate import engine, fate_store
from bookkeeper.master.gc import gc_pace, gc_rules, gc_runner, orphan_files
from bookkeeper.master.gc.retention_reasons import RetentionReasons
from bookkeeper.master.index import barriers, file_entry, snapshot
from bookkeeper.master.index.barriers import BARRIERS_MAX, FileBarrier, coarser_barriers
from bookkeeper.master.index.file_entry import FileEntry
from bookkeeper.master.index.log_files import LogFile
from bookkeeper.master.index.outstanding import Outstanding
from bookkeeper.master.index.shipments import Report, Shipment, Shipments
from bookkeeper.master.operations import clusters, export, split_merge, streams, table_lifecycle
from bookkeeper.master.operations.hosts import change_store
from bookkeeper.master.operations.replica_hosts import destroyed
from bookkeeper.master.placement import placement, tablet_balance
from bookkeeper.master.placement.load_retries import LoadRetries
from bookkeeper.master.placement.placement import Placement
from bookkeeper.master.quarantine import quarantined_ranges
from bookkeeper.master.reign import books_proof, leader
from bookkeeper.master.reign.reign_stores import ReignStores
from bookkeeper.master.replicas import balance_plan, election, leader_balance, repair_plan
from bookkeeper.metadata import keys
from bookkeeper.metadata.keys import _utf8
from bookkeeper.metadata.metadata_table import MAX_RANK, CellKey, Row
from bookkeeper.model import Target, TargetKey
from bookkeeper.monitor import sampler
from bookkeeper.peers.parquet.layout import IDENTITY_FILE
from bookkeeper.peers.parquet.system import DirectoryIdentity, ParquetSystem, read_identity
from bookkeeper.peers.protocol import Identity
from tests.support.replacement import Fault

_remembered: dict[str, Any] = {}


def forget_everything() -> None:
    """Clear the memory of the variants that wrongly remember earlier calls."""
    _remembered.clear()


def _identify_with_a_new_identity(system: ParquetSystem, quorum: str) -> Identity:
    system.opener(quorum, system.roots).prepare()
    system.opener(quorum, system.roots).create(
        IDENTITY_FILE, DirectoryIdentity(str(uuid.uuid4()), one_block=False).encode()
    )
    return Identity(read_identity(system.opener(quorum, system.roots), quorum).instance_id, "parquet")


def _remembered_config(self: ReignStores) -> ClusterConfig:
    found: ClusterConfig = _remembered.setdefault(f"config {id(self)}", read_config(self.coordination))
    return found


def _delete_for_good(self: Books, cells: Iterable[CellKey], _rank: int) -> None:
    self.stores.table.delete(list(cells), MAX_RANK)


def _every_target_ever(
    table_ids: Iterable[str], targets_by_table: Mapping[str, Sequence[Target]]
) -> tuple[Target, ...]:
    known: dict[TargetKey, Target] = _remembered.setdefault("targets", {})
    known.update({target.key: target for table_id in table_ids for target in targets_by_table.get(table_id, ())})
    return tuple(known[key] for key in sorted(known))


def _one_for_each_remote_table(
    table_ids: Iterable[str], targets_by_table: Mapping[str, Sequence[Target]]
) -> tuple[Target, ...]:
    found: dict[tuple[str, str], Target] = {}
    for table_id in table_ids:
        for target in targets_by_table.get(table_id, ()):
            found.setdefault((target.key.cluster, target.key.remote_table_id), target)
    return tuple(found.values())


def _needed_by_tablets(rows: Iterable[Row], *others: Iterable[Row]) -> Iterator[bytes]:
    for row in rows:
        yield from (c.qualifier for c in row.cells if c.family in ("log", "segment") and keys.is_tablet(row))
    for other in others:
        list(other)


def _cells_of_both_sides(row: Row) -> list[CellKey]:
    return [CellKey(row.key, column) for column in row.cells]


def _whole_files_wait(
    entry: FileEntry, target: TargetKey, files: Outstanding, _shipping: Shipments
) -> tuple[int, FileBarrier | None]:
    for barrier in entry.barriers:
        before = files.get(barrier.file)
        booked = 0 if before is None else before.progress_of(target).offset
        if before is not None and booked < before.needed:
            return 0, barrier
    return entry.safe, None


def _without_incarnation(target: TargetKey) -> bytes:
    return _utf8(f"{target.cluster}:{target.remote_table_id}:{target.source_table_id}:1", "a target")


def _only_sealed(log: LogFile, referenced: Collection[str], _live: Collection[str]) -> bool:
    return log.name not in referenced and log.sealed


def _only_the_first(_file: bytes, barriers: tuple[FileBarrier, ...]) -> tuple[FileBarrier, ...]:
    return barriers[:BARRIERS_MAX]


def _joined_over_all_logs(_file: bytes, barriers: tuple[FileBarrier, ...]) -> tuple[FileBarrier, ...]:
    written_by_all = {barrier.file: coarser_barriers(barrier.file, barriers) for barrier in barriers}
    return tuple(sorted(b for file, kept in written_by_all.items() for b in kept if b.file == file))


def _believe_all_reports(
    self: WorkDispatcher, reports: Iterable[Report], _returned: Iterable[object], _files: Outstanding
) -> None:
    for report in reports:
        self.shipping.report(report, self.clock.boot_ns())


MASTER_FAULTS: dict[str, Fault] = {
    "hosted-files-unchecked": Fault(
        hosted_files.is_complete,
        lambda checksum, expected: True,  # noqa: ARG005
        "L7: a damaged file of a host becomes a part of an export",
    ),
    "joiner-votes-without-data": Fault(
        repair_plan.has_newest,
        lambda replica, tablet, hosts: True,  # noqa: ARG005
        "E-54: a joiner votes although it does not hold the leader's newest state",
    ),
    "voter-leaves-too-early": Fault(
        repair_plan.others_suffice,
        lambda replica, tablet, hosts: True,  # noqa: ARG005
        "N3: a voter leaves although too few others hold the named state",
    ),
    "demoted-replica-leaves-at-once": Fault(
        repair_plan.has_settled,
        lambda replica, tablet, limits: True,  # noqa: ARG005
        "R4: a replica leaves while a state that counts on it may still arrive in the books",
    ),
    "balance-takes-zones-away": Fault(
        balance_plan.keeps_zones,
        lambda tablet, source, target, hosts: True,  # noqa: ARG005
        "the balance puts two replicas of a tablet into one zone",
    ),
    "moves-end-anywhere": Fault(
        repair_plan.replaced,
        lambda replicas: set(),  # noqa: ARG005
        "the balance chooses anew what leaves, by loads of half-done moves, and never ends",
    ),
    "leaves-count-for-nothing": Fault(
        repair_plan.without_given_away,
        lambda loads, tablet, keep: loads,  # noqa: ARG005
        "tablets that lose a replica at once all take it from the same hosts",
    ),
    "choices-ignore-zones": Fault(
        repair_plan.zones_first,
        lambda names, hosts: [*names],  # noqa: ARG005
        "tablets that merge meet on hosts of one zone, although another zone has a host for them",
    ),
    "a-move-needs-no-copies": Fault(
        change_store.may_switch,
        lambda problems: True,  # noqa: ARG005
        "N3: a tablet moves between the Volume and hosts although its files are not there",
    ),
    "moves-never-turn-back": Fault(
        change_store.turns_back,
        lambda waited_ms, limit_ms: False,  # noqa: ARG005
        "a tablet on its way to hosts is served by nobody as long as a chosen host is away",
    ),
    "names-go-before-copies": Fault(
        change_store.before_copies,
        lambda change: change,
        "N3: a file on the Volume goes before hosts have copied it",
    ),
    "destroyed-disks-stay-placed": Fault(
        change_store.replaceable,
        lambda replicas, sessions: [],  # noqa: ARG005
        "a tablet on its way to hosts waits for ever for a copy on a disk that is gone",
    ),
    "destroyed-disks-are-waited-for": Fault(
        split_merge.within_reach,
        lambda needed, copies, silent: needed,  # noqa: ARG005
        "a tablet that is split is served by nobody as long as a disk is gone",
    ),
    "splits-begin-without-hosts": Fault(
        split_merge.why_few,
        lambda context, groups: ["" for _ in groups],  # noqa: ARG005
        "a tablet that is split is served by nobody, because one of its hosts was dead before",
    ),
    "absent-hosts-are-waited-for": Fault(
        split_merge.without_hope,
        lambda replicas, sessions, is_late: destroyed(replicas, sessions),  # noqa: ARG005
        "a tablet that is split is served by nobody as long as a host is away",
    ),
    "one-link-is-enough": Fault(
        split_merge.within_reach,
        lambda needed, copies, silent: min(needed, 1),  # noqa: ARG005
        "N3: the only host that has linked the files of a new tablet is lost, and its rows with it",
    ),
    "moving-tablets-merge": Fault(
        split_merge.tablets_to_move,
        lambda tablets, replicas: [],  # noqa: ARG005
        "a merge waits for a repair that leaves its tablets to a move, and the move waits for the merge",
    ),
    "leaders-move-at-any-time": Fault(
        leader_balance.may_move,
        lambda tablet, limits: True,  # noqa: ARG005
        "a tablet whose new host refuses it moves again in each cycle",
    ),
    "joiner-votes-before-the-name": Fault(
        repair_plan.waits_for_name,
        lambda replica, tablet, hosts: False,  # noqa: ARG005
        "E-22: a joiner votes that lacks the named state, from which it would have to lead",
    ),
    "any-replica-leads": Fault(
        election.may_lead,
        lambda replica, host, held, named: True,  # noqa: ARG005
        "E-23: a replica leads that joins, was wiped, or does not hold the named state",
    ),
    "a-defined-place-begins-anew": Fault(
        clusters.may_prepare,
        lambda config, alias: True,  # noqa: ARG005
        "R23: a directory that replaced the peer's gets an identity of its own",
    ),
    "a-question-makes-a-peer": Fault(
        ParquetSystem.identify,
        _identify_with_a_new_identity,
        "R23: a question makes an empty directory a peer",
    ),
    "unknown-is-nothing": Fault(
        knowledge.expect_known,
        lambda knowledge: knowledge,
        "a master that has not read the books yet reports that no file waits",
    ),
    "loads-do-not-pause": Fault(
        LoadRetries.may_try,
        lambda self, row: True,  # noqa: ARG005
        "a tablet that can't be loaded has its logs read again in each cycle",
    ),
    "full-hosts-keep-their-tablets": Fault(
        Placement._leave_full_hosts,
        lambda self, tablets, may_move: None,  # noqa: ARG005
        "a tablet refuses writes because one host has no room, although others could lead it",
    ),
    "barriers-beyond-a-few-are-dropped": Fault(
        barriers.coarser_barriers,
        _only_the_first,
        "R24: of a log with many tablets, some ship before the records that were written before theirs",
    ),
    "each-target-has-a-tserver": Fault(
        assigner.flying_at,
        lambda world, entry: (),  # noqa: ARG005
        "one tserver ships a file to all targets (ACCUMULO-378, Choose local TabletServer)",
    ),
    "older-logs-are-not-waited-for": Fault(
        assigner.older_are_over,
        lambda file, target, files, shipping: True,  # noqa: ARG005
        "R24: of many logs, some ship before the records that were written before theirs",
    ),
    "barriers-of-any-log-become-one": Fault(
        barriers.coarser_barriers,
        _joined_over_all_logs,
        "R24: two tservers' logs that exchanged tablets wait for each other, for ever",
    ),
    "queues-compare-ages-only": Fault(
        assigner.may_go,
        lambda key, files, shipping: True,  # noqa: ARG005
        "R24: a queue is full of logs that wait for one that does not fit, for ever",
    ),
    "exports-are-believed": Fault(
        export.is_damaged,
        lambda found, wanted: False,  # noqa: ARG005
        "L7: a damaged file of an export becomes part of a table",
    ),
    "exports-share-a-directory": Fault(
        export.claim,
        lambda directory, request_id: True,  # noqa: ARG005
        "L1: two exports report success, and the directory has the manifest of one",
    ),
    "imports-under-way-are-over": Fault(
        gc_runner.living,
        lambda sessions, operations: frozenset(sessions),  # noqa: ARG005
        "R17: the log of an import goes before the tablet that takes the import refers to it",
    ),
    "reports-count-for-ever": Fault(
        WorkDispatcher.absorb,
        _believe_all_reports,
        "R11: a file that is gone is tried again and again, and holds back its peer's others",
    ),
    "needed-deleted-for-good": Fault(
        Books._delete,
        _delete_for_good,
        "R2: a later leader's write is hidden, and the file is stuck",
    ),
    "done-goes-with-needed": Fault(
        remover.needed_cells,
        _cells_of_both_sides,
        "R3: the finished offset, written again at its rank, stays hidden: stuck",
    ),
    "books-of-missing-files-stay": Fault(
        remover.is_void,
        lambda missing, now_ns, flight_ns: False,  # noqa: ARG005
        "R4: a write that comes after the file was removed stays for ever",
    ),
    "marks-go-with-their-file": Fault(
        orphan_files.is_over,
        lambda since_ns, now_ns, flight_ns: True,  # noqa: ARG005
        "R4: a use that comes after its log was collected looks like a log that was lost",
    ),
    "missing-is-void-at-once": Fault(
        remover.is_void,
        lambda missing, now_ns, flight_ns: True,  # noqa: ARG005
        "R4: books of a file that was made after the listing are purged",
    ),
    "one-target-for-a-remote-table": Fault(
        file_entry.configured_targets,
        _one_for_each_remote_table,
        "R5: of two tables that map to one remote table, the second is lost",
    ),
    "incarnations-share-cells": Fault(
        keys._target,
        _without_incarnation,
        "R5: a target that is enabled again counts the records of its earlier incarnation as shipped",
    ),
    "configuration-is-remembered": Fault(
        ReignStores.config,
        _remembered_config,
        "R6: a target that was enabled meanwhile does not count, and its data goes",
    ),
    "one-reading-is-enough": Fault(
        remover.saw_closed_before,
        lambda entry, cycle: entry.is_closed(),  # noqa: ARG005
        "R7: a deposed leader deletes by a configuration older than the file",
    ),
    "no-reading-is-enough": Fault(
        remover.is_orphan,
        lambda file, previous: True,  # noqa: ARG005
        "R7: a row is taken for a leftover although its file was there a moment ago",
    ),
    "ranks-above-are-not-seen": Fault(
        leader.is_foreign,
        lambda epoch, own_epoch: False,  # noqa: ARG005
        "R8: after the epoch counter began again, a leader's writes are hidden",
    ),
    "every-target-ever-counts": Fault(
        file_entry.configured_targets,
        _every_target_ever,
        "R9: a file waits for ever for a target that is no longer configured",
    ),
    "unconfigured-columns-stay": Fault(
        work_maker.is_unconfigured,
        lambda column, configured: False,  # noqa: ARG005
        "R9: columns of targets that are no longer configured stay",
    ),
    "logs-of-the-dead-stay-open": Fault(
        wal_closer.needs_closing,
        lambda is_sealed, owner_is_dead: False,  # noqa: ARG005
        "R10: the file of a dead tserver stays OPEN, and is kept for ever",
    ),
    "all-are-confirmed": Fault(
        TServers.unconfirmed,
        lambda self, generation: [],  # noqa: ARG005
        "R14: enable returns while a tserver writes under the old configuration",
    ),
    "broken-chains-pass": Fault(
        snapshot.verify_chain,
        lambda before, after, online: None,  # noqa: ARG005
        "R16: a reference that a merge moved is missed, and its file goes early",
    ),
    "tables-without-rows-are-complete": Fault(
        snapshot.missing_tables,
        lambda online, seen: [],  # noqa: ARG005
        "R16: emptied books name no file, and all files are deleted",
    ),
    "books-are-read-without-proof": Fault(
        books_proof.is_proof,
        lambda held, number: True,  # noqa: ARG005
        "L2: a table that was replaced while it was read names no file, and all files are deleted",
    ),
    "waits-count-as-work": Fault(
        gc_pace.worked_ms,
        lambda took_ms, computed_ms: took_ms,  # noqa: ARG005
        "the collector rests nine times as long as an outage lasted",
    ),
    "newborns-go": Fault(
        gc_rules.is_collectable_log,
        lambda log, referenced, live: log.name not in referenced,  # noqa: ARG005
        "R17: a log is deleted between its creation and its first reference",
    ),
    "one-table's-word-is-enough": Fault(
        file_entry.is_known_of,
        lambda entry, table_id: entry is not None,  # noqa: ARG005
        "R24: a record overtakes one in a log that the scan knew of another table only",
    ),
    "replication-needs-no-log": Fault(
        gc_rules.references,
        _needed_by_tablets,
        "R17: a log goes when no tablet needs it any more, though a peer lacks some of it",
    ),
    "only-sealed-logs-go": Fault(
        gc_rules.is_collectable_log,
        _only_sealed,
        "R17: the log of a dead tserver whose table was deleted is kept for ever",
    ),
    "quarantine-keeps-silently": Fault(
        RetentionReasons.quarantined,
        lambda keeper, key: None,  # noqa: ARG005
        "an operator asks why a file is retained, and quarantine is missing in the answer",
    ),
    "the-monitor-never-pauses": Fault(
        sampler.pause_ms,
        lambda interval_ms, took_ms: interval_ms,  # noqa: ARG005
        "docs/monitor.md: the monitor takes the master's time",
    ),
    "streams-are-forgotten-at-once": Fault(
        streams.grace_left_ms,
        lambda since_ns, now_ns, grace_ms: 0,  # noqa: ARG005
        "R20: a message that was on its way is applied again",
    ),
    "a-cluster-is-its-own-peer": Fault(
        peer_masters.refuse_self,
        lambda found, own_instance_id: found,  # noqa: ARG005
        "R23: a cluster replicates to itself",
    ),
    "splits-of-any-length": Fault(
        table_lifecycle.check_splits,
        lambda rows: None,  # noqa: ARG005
        "a table is left half made when its split rows turn out to be too long for the books",
    ),
    "namesakes-are-welcome": Fault(
        clusters.refuse_namesake,
        lambda config, found: None,  # noqa: ARG005
        "R23: two clusters of one name meet, and no log or page tells them apart",
    ),
    "barriers-do-not-hold": Fault(
        assigner.is_passed,
        lambda barrier, target, files, shipping: True,  # noqa: ARG005
        "R24: a delete overtakes its put",
    ),
    "complete-files-wait": Fault(
        assigner.barrier_limit,
        _whole_files_wait,
        "R24: two tablets that swap servers wait for each other for ever",
    ),
    "unknown-logs-are-passed": Fault(
        books_cycle.found_outstanding,
        lambda logs, table_id, files: True,  # noqa: ARG005
        "R24: a log is shipped before another one that is younger than the scan, and that it has to wait for",
    ),
    "unsafe-offsets-travel": Fault(
        barriers.barriers_are_complete_to,
        lambda known_before, needed: needed,  # noqa: ARG005
        "R24: a record is shipped before the barrier in front of it was seen",
    ),
    "backing-off-is-optional": Fault(
        assigner.peer_allowance,
        lambda world, cluster: world.limits.peer_max,  # noqa: ARG005
        "an offline peer is tried all the time",
    ),
    "unsealed-tablets-move": Fault(
        tablet_balance.is_free,
        lambda tablet, live, unsealed: tablet.session not in live,  # noqa: ARG005
        "R15: a tablet is loaded before its last log is sealed, without its last writes",
    ),
    "every-change-needs-a-full-cycle": Fault(
        cycle.concerns_tablets_only,
        lambda before, after: False,  # noqa: ARG005
        "a new table costs the master in proportion to all tablets",
    ),
    "everybody-gets-everything": Fault(
        tablet_balance.missing_sessions,
        lambda tablets, live: 0,  # noqa: ARG005
        "the first tserver that is back after an outage of all gets all tablets",
    ),
    "nothing-is-uneven": Fault(
        tablet_balance.is_uneven,
        lambda tablets, live: False,  # noqa: ARG005
        "tablets stay where an outage has put them",
    ),
    "two-homes-in-a-put": Fault(
        placement.one_for_each_tablet,
        list,
        "R1: the books and the order name two tservers",
    ),
    "loads-before-answers": Fault(
        placement.may_load,
        lambda live, held: True,  # noqa: ARG005
        "R7: two tservers hold a tablet, one by order of a deposed master",
    ),
    "passed-without-a-row": Fault(
        quarantined_ranges.write_rows,
        lambda table, reign, ranges: None,  # noqa: ARG005
        "a range with a permanent error is passed, and the books have no record of it",
    ),
    "a-try-under-way-counts": Fault(
        Shipment.press,
        Shipment.clear_error,
        "a range that a person has seen to waits again, for a try that had begun before",
    ),
    "quarantine-keeps-nothing": Fault(
        gc_rules.quarantined_files,
        lambda rows: set(),  # noqa: ARG005
        "R17: a file goes while a range of it waits to be shipped again",
    ),
    "failures-are-kept-for-ever": Fault(
        engine.excess_failures,
        lambda kept, most: 0,  # noqa: ARG005
        "failed operations pile up in the books",
    ),
    "the-age-of-logs-does-not-count": Fault(
        assigner.queue_key,
        lambda entry, target, sequential: (0, entry.file, target),  # noqa: ARG005
        "sequential hands out the logs of a target in order of creation",
    ),
    "nothing-is-shared": Fault(
        engine.is_blocked,
        lambda lock, held: lock.removeprefix("shared ") in {known.removeprefix("shared ") for known in held},
        "an import that waits for a tablet keeps imports into all other tables waiting",
    ),
    "late-operations-count": Fault(
        fate_store.came_late,
        lambda record, taken_over: False,  # noqa: ARG005
        "an operation that was asked for again is executed a second time when the master changes, days later",
    ),
    "a-doubt-is-a-failure": Fault(
        engine.doubt_error,
        lambda running: RefusedError(f"{running.op.type} has failed"),
        "the caller is told that an operation failed, and finds it done",
    ),
    "locks-do-not-exclude": Fault(
        engine.first_of_each_lock,
        lambda ordered: ordered,
        "two operations change one table at a time",
    ),
}
