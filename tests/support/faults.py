"""Fault switches: each replaces one small function by a variant that breaks a rule: a test then shows its law at work.

A switch is a name in :data:`FAULTS`. ``with fault("late-renewal-counts"): ...`` runs with the broken variant.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from bookkeeper.coordination.config_tree import ClusterConfig
from bookkeeper.metadata.keys import log_column
from bookkeeper.metadata.strict_json import read_object
from bookkeeper.metadata.values import LOG
from bookkeeper.storage.wal import Block, WalWriter, read_seal
from bookkeeper.tserver.books.wal_cells import Reach, WalBooks
from tests.support.border_faults import BORDER_FAULTS
from tests.support.client_faults import CLIENT_FAULTS
from tests.support.entrance_faults import ENTRANCE_FAULTS
from tests.support.master_faults import MASTER_FAULTS
from tests.support.memory_faults import MEMORY_FAULTS
from tests.support.path_faults import PATH_FAULTS
from tests.support.shipping_faults import SHIPPING_FAULTS
from tests.support.storage_faults import STORAGE_FAULTS


@dataclass(frozen=True, slots=True)
class Fault:
    """``attribute`` of ``module`` (dots reach into a class) is replaced; ``breaks`` names the rule."""

    module: str
    attribute: str
    broken: Callable[..., Any] | str
    breaks: str

    def holder(self) -> tuple[Any, str]:
        """The module or class that has the function, and the function's name there. Raises AttributeError or
        ImportError when the module or the class does not exist.
        """
        *holders, name = self.attribute.split(".")
        holder: Any = importlib.import_module(self.module)
        for part in holders:
            holder = getattr(holder, part)
        return holder, name


_SYNC, _APPENDED = WalWriter.sync, WalBooks.appended


def sync_counting_later_blocks(writer: WalWriter) -> None:
    """Blocks that were written during the sync count as synced, too."""
    _SYNC(writer)
    writer._synced = writer._written


def append_counting_as_synced(books: WalBooks, blocks: Sequence[Block]) -> None:
    """Blocks count as durable before they are synced."""
    _APPENDED(books, blocks)
    books.synced(Reach(books.written, 0))


def end_of(uri: str) -> int:
    """The offset of a sealed log's last record."""
    seal = read_seal(uri)
    assert seal is not None
    return seal.offset


@contextmanager
def fault(name: str) -> Iterator[None]:
    """Run with the broken variant, or with several, ``one and another``: of rules that each keep a law alone."""
    with ExitStack() as broken:
        for switch in map(FAULTS.__getitem__, name.split(" and ")):
            broken.enter_context(patch.object(*switch.holder(), switch.broken))
        yield


FAULTS: dict[str, Fault] = {
    "late-renewal-counts": Fault(
        "bookkeeper.coordination.embedded_session",
        "renewal_counts",
        lambda previous_until_ns, written_ns: True,  # noqa: ARG005
        "R15: a process that was stopped and resumed takes up a lease that others saw run out",
    ),
    "no-lease-margin": Fault(
        "bookkeeper.coordination.embedded",
        "is_dead",
        lambda state, boot_id, now_ns, margin_ns: now_ns > state.record.expires_ns - 10**9,  # noqa: ARG005
        "R15: a process is taken for dead while it may still acknowledge",
    ),
    "lease-not-looked-at": Fault(
        "bookkeeper.coordination.embedded_session",
        "is_intact",
        lambda found, written: True,  # noqa: ARG005
        "R15: nobody can tell when the lease of a process ends, for as long as that process lives",
    ),
    "retries-outlive-the-order-to-end": Fault(
        "bookkeeper.runtime.session_retries",
        "SessionRetries.stop",
        lambda self: None,  # noqa: ARG005
        "a tserver that is told to end waits for as long as the disk of its books is full",
    ),
    "damage-is-waited-for": Fault(
        "bookkeeper.client.tablet_extents",
        "is_unservable",
        lambda since_ns, now_ns: False,  # noqa: ARG005
        "whoever needs a tablet that a damaged file keeps away hears nothing of it for minutes",
    ),
    "death-not-written-down": Fault(
        "bookkeeper.coordination.embedded",
        "EmbeddedCoordination._write_dead",
        lambda self, session_id: None,  # noqa: ARG005
        "R15: a session seen dead comes back with a late renewal",
    ),
    "epoch-starts-again": Fault(
        "bookkeeper.coordination.embedded",
        "next_epoch",
        lambda previous: 1,  # noqa: ARG005
        "R8: a new leader's writes are hidden under those of an older one",
    ),
    "unreadable-means-empty": Fault(
        "bookkeeper.coordination.config_tree",
        "parse_config",
        lambda generation, entries: ClusterConfig(generation, None, {}, {}),  # noqa: ARG005
        "R6: a configuration that does not parse counts as nothing configured",
    ),
    # ---- metadata table
    "newest-write-wins": Fault(
        "bookkeeper.metadata.sqlite.sqlite_store",
        "PUT_SQL",
        "INSERT OR REPLACE INTO cells VALUES (?, ?, ?, ?, ?, 0, ?, 0)",
        "a late writer turns a cell back, and shows what was deleted",
    ),
    "deletes-leave-no-tombstone": Fault(
        "bookkeeper.metadata.sqlite.sqlite_store",
        "DELETE_SQL",
        "DELETE FROM cells WHERE row = ? AND family = ? AND qualifier = ? AND rank <= ? AND ? IS NOT NULL",
        "R4: a write that was in flight brings back what was removed",
    ),
    "closed-ranks-like-open": Fault(
        "bookkeeper.metadata.keys",
        "closed_rank",
        lambda final: 2 * final,
        "R1: a late OPEN status hides CLOSED",
    ),
    # ---- log
    "answered-before-the-sync": Fault(
        "bookkeeper.tserver.commit.group_committer",
        "needs_sync",
        lambda asked: False,  # noqa: ARG005
        "L1: a write acknowledged at sync is lost with the machine",
    ),
    "sync-counts-what-came-meanwhile": Fault(
        "bookkeeper.storage.wal.writing.wal_writer",
        "WalWriter.sync",
        sync_counting_later_blocks,
        "L1: what was written while another group was synced is acknowledged without a sync",
    ),
    "books-not-asked": Fault(
        "bookkeeper.tserver.commit.group_committer",
        "GroupCommitter._books_agree",
        lambda self, ready, blocks: True,  # noqa: ARG005
        "R12: a write is acknowledged that the books do not know: readable here, never shipped",
    ),
    "no-fence": Fault(
        "bookkeeper.tserver.commit.active_wal",
        "ActiveWal.check_fence",
        lambda self: None,  # noqa: ARG005
        "R15: a process that others believe dead acknowledges",
    ),
    "seal-not-looked-at": Fault(
        "bookkeeper.tserver.commit.active_wal",
        "is_fenced",
        lambda path: False,  # noqa: ARG005
        "R15: an owner acknowledges what it wrote behind the seal",
    ),
    "counted-without-fence": Fault(
        "bookkeeper.storage.wal.reading.wal_recovery",
        "raise_fence",
        lambda path: None,  # noqa: ARG005
        "R15: an owner that lives acknowledges between counting and sealing",
    ),
    "the-page-cache-is-believed": Fault(
        "bookkeeper.storage.wal.reading.seal_proof",
        "is_on_disk",
        lambda path, count, ops: True,  # noqa: ARG005
        "R15: after a failed sync a log is sealed with records that the disk does not have",
    ),
    "stores-are-believed": Fault(
        "bookkeeper.standalone.durable_stores",
        "is_on_disk",
        lambda path, ops: True,  # noqa: ARG005
        "L1: after a failed sync, books that are committed behind it are lost with the machine's power",
    ),
    "damage-is-a-torn-tail": Fault(
        "bookkeeper.storage.wal.reading.wal_recovery",
        "refuse_blocks_behind",
        lambda uri, source, position, salt, error, give_up_unproven: None,  # noqa: ARG005
        "L1: whole blocks behind a damaged one are cut off silently",
    ),
    "read-past-the-seal": Fault(
        "bookkeeper.storage.wal.reading.log_formats",
        "readable_bytes",
        lambda source, seal: source.size,  # noqa: ARG005
        "R15: what a zombie wrote behind the seal is shipped",
    ),
    "none-is-never-logged": Fault(
        "bookkeeper.tserver.commit.submission_queue",
        "effective_durability",
        lambda asked, drafts: asked,  # noqa: ARG005
        "a peer would get what the primary never logged, or nothing at all",
    ),
    "everything-merges": Fault(
        "bookkeeper.storage.wal.writing.block_merge",
        "mergeable",
        lambda unwritten, right: True,  # noqa: ARG005
        "R18: a block claims more, or less, of a stream than it holds",
    ),
    # ---- the tserver: writing, receiving, loading
    "conditions-see-the-past": Fault(
        "bookkeeper.tserver.commit.submission_queue",
        "has_to_begin",
        lambda entry: False,  # noqa: ARG005
        "a condition is judged without what was written just before it",
    ),
    "flushes-begin-anywhere": Fault(
        "bookkeeper.tserver.write.commit_path",
        "CommitPath.begin_flush",
        lambda self, barrier: self.cross(barrier),
        "R12, R15: a flush deletes the cell of a log that holds what was written and not applied when it began",
    ),
    "conditions-are-replicated": Fault(
        "bookkeeper.tserver.write.write_guards",
        "refuse_conditional",
        lambda view: None,  # noqa: ARG005
        "a conditional write is taken by a table that is replicated",
    ),
    "read-only-is-a-word": Fault(
        "bookkeeper.tserver.write.write_guards",
        "refuse_read_only",
        lambda view: None,  # noqa: ARG005
        "L6: a read-only peer takes a user's write",
    ),
    "marks-of-ended-streams-stay": Fault(
        "bookkeeper.tserver.maintenance.tablet_opener",
        "forgotten_streams",
        lambda high_water, indexed: [],  # noqa: ARG005
        "R20: what is remembered of streams that are over grows for ever",
    ),
    "high-water-does-not-count": Fault(
        "bookkeeper.tserver.receive.slice_decision",
        "known_through",
        lambda high_water, acked: acked,  # noqa: ARG005
        "R18: a range that comes twice is applied twice",
    ),
    "in-flight-is-not-known": Fault(
        "bookkeeper.tserver.tablets.received_state",
        "ReceivedState.staged_high_water",
        lambda self, stream: self.high_water.get(stream, 0),
        "R18: a range that comes again while its first copy is synced is applied twice",
    ),
    "each-part-has-its-limits": Fault(
        "bookkeeper.tserver.receive.receiver",
        "limits_of_slices",
        lambda limits: limits,
        "R18: one tablet takes its half of a block, another one refuses it for good, a retry is applied twice",
    ),
    "gaps-are-swallowed": Fault(
        "bookkeeper.tserver.receive.slice_decision",
        "leaves_gap",
        lambda known, after: False,  # noqa: ARG005
        "R19: records that came too late are dropped as duplicates",
    ),
    "proven-for-those-not-asked": Fault(
        "bookkeeper.tserver.receive.message_order",
        "durable_offset",
        lambda acked, after, to: to,  # noqa: ARG005
        "R19: an answer claims for all tablets what one of them has",
    ),
    "handed-over-counts-as-proven": Fault(
        "bookkeeper.tserver.receive.message_order",
        "MessageOrder._fact",
        lambda order, request, in_front: in_front.to_offset if in_front else request.acked_offset,  # noqa: ARG005
        "R19: a message in front, which failed elsewhere, counts as durable for a tablet that lacks its records",
    ),
    "memory-takes-all": Fault(
        "bookkeeper.tserver.maintenance.flusher",
        "has_room",
        lambda memory_bytes, memtable_bytes: True,  # noqa: ARG005
        "what a peer sends faster than it can be flushed fills the memory",
    ),
    "unknown-fields-are-passed-over": Fault(
        "bookkeeper.metadata.values",
        "read_fields",
        lambda raw, what, *names: {name: read_object(raw, what)[name] for name in names},
        "L7: a value that a newer version wrote is rewritten without what this one does not know",
    ),
    "own-data-is-welcome": Fault(
        "bookkeeper.tserver.receive.admission",
        "check_provenance",
        lambda provenance, stream, own_instance_id: None,  # noqa: ARG005
        "R21: data returns to a cluster that it has passed",
    ),
    "ended-streams-are-taken": Fault(
        "bookkeeper.tserver.receive.admission",
        "refuse_ended",
        lambda stream, is_open: None,  # noqa: ARG005
        "R20: a message out of a process that was stopped for long is applied again",
    ),
    "forgotten-meanwhile-counts": Fault(
        "bookkeeper.tserver.receive.receiver",
        "was_forgotten",
        lambda has_stream, forgotten_before, forgotten_now: False,  # noqa: ARG005
        "R20: a message that saw its stream in the books is taken when the stream is forgotten",
    ),
    "tokens-live-for-ever": Fault(
        "bookkeeper.tserver.receive.receive_streams",
        "is_expired",
        lambda used_ns, now_ns, idle_timeout_ms: False,  # noqa: ARG005
        "R20: a message arrives after its stream was forgotten, and is applied again",
    ),
    "high-water-not-rebuilt": Fault(
        "bookkeeper.tserver.tablets.load_plan",
        "raise_high_water",
        lambda high_water, stream, to_offset: None,  # noqa: ARG005
        "R18: a resend after a crash is applied again",
    ),
    "moves-leave-no-trace": Fault(
        "bookkeeper.tserver.tablets.write_state",
        "predecessors",
        lambda last, wal: [],  # noqa: ARG005
        "R24: a delete overtakes its put in another log",
    ),
    "no-barriers-in-the-books": Fault(
        "bookkeeper.tserver.books.wal_cells",
        "barriers_of",
        lambda block: (),  # noqa: ARG005
        "R24: the master does not know that a log waits for another",
    ),
    "log-without-repl": Fault(
        "bookkeeper.tserver.books.wal_cells",
        "first_use_values",
        lambda wal, use, replicated, status: {log_column(wal): LOG},  # noqa: ARG005
        "R12: readable here, never shipped",
    ),
    "refused-uses-stay-marked": Fault(
        "bookkeeper.tserver.books.wal_cells",
        "WalBooks.give_up",
        lambda self: None,  # noqa: ARG005
        "R12: what is written when the books' disk has room again has no cell",
    ),
    "enabling-needs-no-cell": Fault(
        "bookkeeper.tserver.books.wal_cells",
        "needs_first_use",
        lambda use, header: use is None or not use.logged,  # noqa: ARG005
        "R12: what follows an enable in one log has no cell",
    ),
    "written-counts-as-synced": Fault(
        "bookkeeper.tserver.books.wal_cells",
        "WalBooks.appended",
        append_counting_as_synced,
        "R15: the peer gets what the primary loses in a crash",
    ),
    "a-flush-keeps-the-log-cell": Fault(
        "bookkeeper.tserver.books.wal_cells",
        "WalBooks.release",
        lambda self, tablet: None,  # noqa: ARG005
        "R12: the log of records that came during a flush is let go",
    ),
    "nobody-is-stamped": Fault(
        "bookkeeper.tserver.tablets.block_targets",
        "block_targets_in_force",
        lambda config, table_id: (),  # noqa: ARG005
        "R13: a block does not say for whom it is",
    ),
    "confirmed-unseen": Fault(
        "bookkeeper.tserver.write.configuration",
        "Configuration.confirm",
        lambda self, generation: generation,  # noqa: ARG005
        "R14: a write after the confirmation is made under the old configuration",
    ),
    "unsealed-logs-are-read": Fault(
        "bookkeeper.tserver.maintenance.tablet_opener",
        "check_sealed",
        lambda uri: None,  # noqa: ARG005
        "R15: a tablet is served from a log that may still grow",
    ),
    "tablets-that-left-are-flushed": Fault(
        "bookkeeper.tserver.tablets.tablet_registry",
        "Registry.holds",
        lambda self, tablet: True,  # noqa: ARG005
        "a flush that begins when its table is deleted brings the tablet's row back, for ever",
    ),
    "uses-end-behind-the-seal": Fault(
        "bookkeeper.tserver.tablets.load_plan",
        "all_uses",
        lambda logs: {uri: 1 + end_of(uri) for uri in logs},
        "R12: a use that a power loss left behind the seal stays in the books, and its log for ever",
    ),
    "disk-is-not-reserved": Fault(
        "bookkeeper.storage.wal.writing.wal_writer",
        "WalWriter.reserve",
        lambda self, length: None,  # noqa: ARG005
        "a full disk is met in the middle of a block, and ends the server",
    ),
    "rolls-do-not-look-ahead": Fault(
        "bookkeeper.storage.wal.writing.wal_writer",
        "is_full",
        lambda error: False,  # noqa: ARG005
        "a full disk ends the server because a log is due to end",
    ),
    "late-attempts-count": Fault(
        "bookkeeper.tserver.write.request_dedup",
        "is_late",
        lambda number, latest: False,  # noqa: ARG005
        "L1: a request that its client has given up brings an old value back over an acknowledged one",
    ),
    "late-uses-are-needed": Fault(
        "bookkeeper.tserver.tablets.load_plan",
        "is_void_use",
        lambda exists, is_marked: False,  # noqa: ARG005
        "R4: a tablet with a use that came after its log was collected can't be loaded",
    ),
    "flush-ids-begin-again": Fault(
        "bookkeeper.tserver.tablets.tablet_flushes",
        "first_flush_id",
        lambda serial: 1,  # noqa: ARG005
        "R1: two holders of a tablet write one rank with two values",
    ),
    "orders-of-the-deposed-count": Fault(
        "bookkeeper.tserver.maintenance.loader",
        "is_deposed",
        lambda epoch, known: False,  # noqa: ARG005
        "R7: a deposed master moves a tablet",
    ),
}
FAULTS |= {
    name: Fault(*parts)
    for name, parts in (
        MASTER_FAULTS
        | STORAGE_FAULTS
        | BORDER_FAULTS
        | SHIPPING_FAULTS
        | ENTRANCE_FAULTS
        | PATH_FAULTS
        | CLIENT_FAULTS
        | MEMORY_FAULTS
    ).items()
}
