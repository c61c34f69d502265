"""Fault switches: each replaces one small function by a variant that breaks a rule, and a test shows the failure.

A switch is a name in :data:`FAULTS`. ``with fault("late-renewal-counts"): ...`` runs with the broken variant.
:class:`tests.support.replacement.Fault` says how a switch names its function.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from bookkeeper import errors, strict_json
from bookkeeper.client import tablet_extents
from bookkeeper.coordination import config_tree, embedded, lease
from bookkeeper.coordination.config_tree import ClusterConfig
from bookkeeper.coordination.embedded import EmbeddedCoordination
from bookkeeper.metadata import keys
from bookkeeper.metadata.keys import log_column
from bookkeeper.metadata.sqlite import sqlite_store
from bookkeeper.metadata.values import LOG
from bookkeeper.runtime.session_retries import SessionRetries
from bookkeeper.standalone import durable_stores
from bookkeeper.storage.volume import local_volume
from bookkeeper.storage.wal.blocks.block import Block
from bookkeeper.storage.wal.reading import log_formats, seal_proof, wal_recovery
from bookkeeper.storage.wal.writing import block_merge, seal
from bookkeeper.storage.wal.writing.wal_writer import WalWriter
from bookkeeper.strict_json import read_object
from bookkeeper.tserver.books import wal_cells
from bookkeeper.tserver.books.wal_cells import Reach, WalBooks
from bookkeeper.tserver.commit import group_committer, submission_queue
from bookkeeper.tserver.commit.active_wal import ActiveWal
from bookkeeper.tserver.commit.group_committer import GroupCommitter
from bookkeeper.tserver.maintenance import flush_schedule, loader, tablet_opener
from bookkeeper.tserver.receive import (
    message_admission,
    message_decoding,
    message_order,
    receive_streams,
    receiver,
    slice_decision,
)
from bookkeeper.tserver.receive.message_order import MessageOrder
from bookkeeper.tserver.tablets import block_targets, load_plan, wal_order
from bookkeeper.tserver.tablets.received_state import ReceivedState
from bookkeeper.tserver.tablets.tablet_registry import Registry
from bookkeeper.tserver.write import request_dedup, write_guards
from bookkeeper.tserver.write.commit_path import CommitPath
from bookkeeper.tserver.write.configuration import Configuration
from tests.support.border_faults import BORDER_FAULTS
from tests.support.client_faults import CLIENT_FAULTS
from tests.support.entrance_faults import ENTRANCE_FAULTS
from tests.support.failover_faults import FAILOVER_FAULTS
from tests.support.hold_faults import HOLD_FAULTS
from tests.support.leading_faults import LEADING_FAULTS
from tests.support.log_home_faults import LOG_HOME_FAULTS
from tests.support.master_faults import MASTER_FAULTS
from tests.support.memory_faults import MEMORY_FAULTS
from tests.support.path_faults import PATH_FAULTS
from tests.support.replacement import Binding, Fault, replaced
from tests.support.replica_faults import REPLICA_FAULTS
from tests.support.rule_faults import RULE_FAULTS
from tests.support.shipping_faults import SHIPPING_FAULTS
from tests.support.simulation.wal import Watch
from tests.support.storage_faults import STORAGE_FAULTS

_SYNC, _APPENDED = WalWriter.sync, WalBooks.appended


def sync_counting_later_blocks(writer: WalWriter) -> None:
    """Blocks that were written during the sync count as synced, too."""
    _SYNC(writer)
    writer._synced = writer._written


def append_counting_as_synced(books: WalBooks, blocks: Sequence[Block]) -> None:
    """Blocks count as durable before they are synced."""
    _APPENDED(books, blocks)
    books.synced(Reach(books.written, 0))


def end_of(log: str) -> int:
    """The offset of a sealed log's last record, in a simulation."""
    return Watch.ledger.files[log].last()


@contextmanager
def fault(name: str) -> Iterator[None]:
    """Run with a broken variant, or with several, ``one and another``, if each of their rules alone keeps a law."""
    with ExitStack() as broken:
        for switch in map(FAULTS.__getitem__, name.split(" and ")):
            broken.enter_context(replaced(switch.target, switch.broken))
        yield


FAULTS: dict[str, Fault] = {
    "late-renewal-counts": Fault(
        lease.renewal_counts,
        lambda previous_until_ns, written_ns: True,  # noqa: ARG005
        "R15: a process that was stopped and resumed takes up a lease that others saw run out",
    ),
    "no-lease-margin": Fault(
        lease.is_dead,
        lambda state, boot_id, now_ns, margin_ns: now_ns > state.record.expires_ns - 10**9,  # noqa: ARG005
        "R15: a process is taken for dead while it may still acknowledge",
    ),
    "lease-not-read": Fault(
        lease.is_intact,
        lambda found, written: True,  # noqa: ARG005
        "R15: other processes can't tell when the lease of a live process ends",
    ),
    "retries-outlive-the-order-to-end": Fault(
        SessionRetries.stop,
        lambda self: None,  # noqa: ARG005
        "a tserver that is told to end waits for as long as the disk of its books is full",
    ),
    "damage-is-waited-for": Fault(
        tablet_extents.is_unservable,
        lambda since_ns, now_ns: False,  # noqa: ARG005
        "a client waits minutes for a tablet that can't be loaded because a file is damaged",
    ),
    "death-not-written-down": Fault(
        EmbeddedCoordination._write_dead,
        lambda self, session_id: None,  # noqa: ARG005
        "R15: a session seen dead comes back with a late renewal",
    ),
    "epoch-starts-again": Fault(
        embedded.next_epoch,
        lambda previous: 1,  # noqa: ARG005
        "R8: a new leader's writes are hidden under those of an older one",
    ),
    "unreadable-means-empty": Fault(
        config_tree.parse_config,
        lambda generation, entries: ClusterConfig(generation, None, {}, {}),  # noqa: ARG005
        "R6: a configuration that does not parse counts as an empty one",
    ),
    # ---- metadata table
    "newest-write-wins": Fault(
        Binding(sqlite_store, "PUT_SQL"),
        "INSERT OR REPLACE INTO cells VALUES (?, ?, ?, ?, ?, 0, ?, 0)",
        "a late writer turns a cell back, and deleted cells come back",
    ),
    "deletes-leave-no-tombstone": Fault(
        Binding(sqlite_store, "DELETE_SQL"),
        "DELETE FROM cells WHERE row = ? AND family = ? AND qualifier = ? AND rank <= ? AND ? IS NOT NULL",
        "R4: a write that was in flight brings a removed cell back",
    ),
    "closed-ranks-like-open": Fault(
        keys.closed_rank,
        lambda final: 2 * final,
        "R1: a late OPEN status hides CLOSED",
    ),
    # ---- log
    "answered-before-the-sync": Fault(
        group_committer.needs_sync,
        lambda asked: False,  # noqa: ARG005
        "L1: a write acknowledged at sync is lost with the machine",
    ),
    "sync-counts-what-came-meanwhile": Fault(
        WalWriter.sync,
        sync_counting_later_blocks,
        "L1: a block that is written during the sync of another group is acknowledged without a sync",
    ),
    "books-not-awaited": Fault(
        GroupCommitter._books_agree,
        lambda self, ready, blocks: True,  # noqa: ARG005
        "R12: a write is acknowledged before the books know its log: it is readable here and never shipped",
    ),
    "no-fence": Fault(
        ActiveWal.check_fence,
        lambda self: None,  # noqa: ARG005
        "R15: a process that others believe dead acknowledges",
    ),
    "seal-not-read": Fault(
        seal.is_fenced,
        lambda volume, name: False,  # noqa: ARG005
        "R15: an owner acknowledges records that it wrote behind the seal",
    ),
    "counted-without-fence": Fault(
        local_volume.raise_fence,
        lambda path: None,  # noqa: ARG005
        "R15: an owner that lives acknowledges between counting and sealing",
    ),
    "the-page-cache-is-believed": Fault(
        seal_proof.is_on_disk,
        lambda volume, name, count: True,  # noqa: ARG005
        "R15: after a failed sync a log is sealed with records that the disk does not have",
    ),
    "stores-are-believed": Fault(
        durable_stores.is_on_disk,
        lambda path, ops: True,  # noqa: ARG005
        "L1: after a failed sync, books that are committed behind it are lost with the machine's power",
    ),
    "damage-is-a-torn-tail": Fault(
        wal_recovery.refuse_blocks_behind,
        lambda name, source, position, salt, error, give_up_unproven: None,  # noqa: ARG005
        "L1: whole blocks behind a damaged one are cut off silently",
    ),
    "read-past-the-seal": Fault(
        log_formats.readable_bytes,
        lambda source, seal: source.size,  # noqa: ARG005
        "R15: records that a zombie wrote behind the seal are shipped",
    ),
    "none-is-never-logged": Fault(
        submission_queue.effective_durability,
        lambda asked, drafts: asked,  # noqa: ARG005
        "a replicated write that asks for no log never reaches the peer",
    ),
    "everything-merges": Fault(
        block_merge.mergeable,
        lambda unwritten, right: True,  # noqa: ARG005
        "R18: a block claims more, or less, of a stream than it holds",
    ),
    # ---- the tserver: writing, receiving, loading
    "conditions-see-the-past": Fault(
        submission_queue.has_to_begin,
        lambda entry: False,  # noqa: ARG005
        "a condition ignores a write just before it",
    ),
    "flushes-begin-anywhere": Fault(
        CommitPath.begin_flush,
        lambda self, submission: self.commit(submission),
        "R12, R15: a flush deletes the cell of a log whose last records were not applied when the flush began",
    ),
    "conditions-are-replicated": Fault(
        write_guards.refuse_conditional,
        lambda view: None,  # noqa: ARG005
        "a conditional write is taken by a table that is replicated",
    ),
    "read-only-is-a-word": Fault(
        write_guards.refuse_read_only,
        lambda view: None,  # noqa: ARG005
        "L6: a read-only peer takes a user's write",
    ),
    "marks-of-ended-streams-stay": Fault(
        load_plan.forgotten_streams,
        lambda high_water, indexed: [],  # noqa: ARG005
        "R20: the high-waters of ended streams stay and grow in number for ever",
    ),
    "high-water-does-not-count": Fault(
        slice_decision.known_through,
        lambda high_water, acked: acked,  # noqa: ARG005
        "R18: a range that comes twice is applied twice",
    ),
    "in-flight-is-not-known": Fault(
        ReceivedState.staged_high_water,
        lambda self, stream: self.high_water.get(stream, 0),
        "R18: a range that comes again while its first copy is synced is applied twice",
    ),
    "each-part-has-its-limits": Fault(
        message_decoding.limits_of_slices,
        lambda limits: limits,
        "R18: one tablet takes its half of a block, another one refuses it for good, a retry is applied twice",
    ),
    "gaps-are-swallowed": Fault(
        slice_decision.leaves_gap,
        lambda known, after: False,  # noqa: ARG005
        "R19: records that came too late are dropped as duplicates",
    ),
    "durable-for-unasked-tablets": Fault(
        message_order.durable_offset,
        lambda acked, after, to: to,  # noqa: ARG005
        "R19: an answer claims for all tablets the records that one of them has",
    ),
    "sent-counts-as-durable": Fault(
        MessageOrder._fact,
        lambda order, request, in_front: in_front.to_offset if in_front else request.acked_offset,  # noqa: ARG005
        "R19: a message in front, which failed elsewhere, counts as durable for a tablet that lacks its records",
    ),
    "memory-takes-all": Fault(
        flush_schedule.has_room,
        lambda memory_bytes, memtable_bytes: True,  # noqa: ARG005
        "a peer that sends faster than the tserver flushes fills the memory",
    ),
    "unknown-fields-are-passed-over": Fault(
        strict_json.read_fields,
        lambda raw, what, *names: {name: read_object(raw, what)[name] for name in names},
        "L7: a value of a newer version is rewritten without the fields that this version does not know",
    ),
    "own-data-is-welcome": Fault(
        message_admission.check_provenance,
        lambda provenance, stream, own_instance_id: None,  # noqa: ARG005
        "R21: data returns to a cluster that it has passed",
    ),
    "ended-streams-are-accepted": Fault(
        message_admission.refuse_ended,
        lambda stream, is_open: None,  # noqa: ARG005
        "R20: a message out of a process that was stopped for long is applied again",
    ),
    "forgotten-meanwhile-counts": Fault(
        receiver.may_be_forgotten,
        lambda has_stream, forgotten_before, forgotten_now: False,  # noqa: ARG005
        "R20: a message that saw its stream in the books is taken when the stream is forgotten",
    ),
    "tokens-live-for-ever": Fault(
        receive_streams.is_expired,
        lambda used_ns, now_ns, idle_timeout_ms: False,  # noqa: ARG005
        "R20: a message arrives after its stream was forgotten, and is applied again",
    ),
    "high-water-not-rebuilt": Fault(
        load_plan.raise_high_water,
        lambda high_water, stream, to_offset: None,  # noqa: ARG005
        "R18: a resend after a crash is applied again",
    ),
    "moves-leave-no-trace": Fault(
        wal_order.predecessors,
        lambda last, wal: [],  # noqa: ARG005
        "R24: a delete overtakes its put in another log",
    ),
    "no-barriers-in-the-books": Fault(
        wal_cells.barriers_of,
        lambda block: (),  # noqa: ARG005
        "R24: the master does not know that a log waits for another",
    ),
    "log-without-repl": Fault(
        wal_cells.first_use_values,
        lambda wal, use, replicated, status: {log_column(wal): LOG},  # noqa: ARG005
        "R12: readable here, never shipped",
    ),
    "refused-uses-stay-marked": Fault(
        WalBooks.give_up,
        lambda self: None,  # noqa: ARG005
        "R12: the first write after the books' disk has room again has no cell",
    ),
    "enabling-needs-no-cell": Fault(
        wal_cells.needs_first_use,
        lambda use, header: use is None or not use.logged,  # noqa: ARG005
        "R12: records that follow an enable in the same log have no cell",
    ),
    "written-counts-as-synced": Fault(
        WalBooks.appended,
        append_counting_as_synced,
        "R15: the peer gets records that the primary loses in a crash",
    ),
    "a-flush-keeps-the-log-cell": Fault(
        WalBooks.release,
        lambda self, tablet: None,  # noqa: ARG005
        "R12: the log of records that came during a flush is let go",
    ),
    "no-block-has-targets": Fault(
        block_targets.block_targets_in_force,
        lambda config, table_id: (),  # noqa: ARG005
        "R13: a block does not say for whom it is",
    ),
    "confirmed-unseen": Fault(
        Configuration.confirm,
        lambda self, generation: generation,  # noqa: ARG005
        "R14: a write after the confirmation is made under the old configuration",
    ),
    "unsealed-logs-are-read": Fault(
        tablet_opener.check_sealed,
        lambda volume, name: None,  # noqa: ARG005
        "R15: a tablet is served from a log that may still grow",
    ),
    "rows-are-checked-once": Fault(
        tablet_opener.is_same,
        lambda checked, now: True,  # noqa: ARG005
        "R1: a holder takes the serial that another one took while it checked the logs",
    ),
    "tablets-that-left-are-flushed": Fault(
        Registry.holds,
        lambda self, tablet: True,  # noqa: ARG005
        "a flush that begins when its table is deleted brings the tablet's row back, for ever",
    ),
    "uses-end-behind-the-seal": Fault(
        load_plan.all_uses,
        lambda logs: {log: 1 + end_of(log) for log in logs},
        "R12: a use that a power loss left behind the seal stays in the books, and its log for ever",
    ),
    "disk-is-not-reserved": Fault(
        WalWriter.reserve,
        lambda self, length: None,  # noqa: ARG005
        "a full disk is met in the middle of a block, and ends the server",
    ),
    "rolls-do-not-reserve": Fault(
        errors.is_full,
        lambda error: False,  # noqa: ARG005
        "a full disk ends the server because a log is due to end",
    ),
    "late-attempts-count": Fault(
        request_dedup.is_late,
        lambda number, latest: False,  # noqa: ARG005
        "L1: a request that its client has given up brings an old value back over an acknowledged one",
    ),
    "late-uses-are-needed": Fault(
        load_plan.is_void_use,
        lambda exists, is_marked: False,  # noqa: ARG005
        "R4: a tablet with a use that came after its log was collected can't be loaded",
    ),
    "flush-ids-begin-again": Fault(
        load_plan.first_flush_id,
        lambda serial: 1,  # noqa: ARG005
        "R1: two holders of a tablet write one rank with two values",
    ),
    "orders-of-the-deposed-count": Fault(
        loader.is_deposed,
        lambda epoch, known: False,  # noqa: ARG005
        "R7: a deposed master moves a tablet",
    ),
}
FAULTS |= (
    MASTER_FAULTS
    | STORAGE_FAULTS
    | LEADING_FAULTS
    | LOG_HOME_FAULTS
    | REPLICA_FAULTS
    | RULE_FAULTS
    | BORDER_FAULTS
    | SHIPPING_FAULTS
    | ENTRANCE_FAULTS
    | PATH_FAULTS
    | CLIENT_FAULTS
    | MEMORY_FAULTS
    | FAILOVER_FAULTS
    | HOLD_FAULTS
)
