"""Fault switches of segments, scans, compactions, imports and stores (see ``faults``)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from bookkeeper import sqlite_file
from bookkeeper.bulk import import_log
from bookkeeper.clock import SteadyWall
from bookkeeper.coordination import embedded_store
from bookkeeper.master.placement import placement
from bookkeeper.metadata import keys, owner
from bookkeeper.metadata.hbase import hbase_pool, hbase_store
from bookkeeper.metadata.metadata_table import MAX_RANK, CellKey, Row
from bookkeeper.metadata.sqlite import sqlite_cells
from bookkeeper.metadata.values import FlushState
from bookkeeper.rpc.contract.offer_messages import AdoptRequest
from bookkeeper.standalone import books
from bookkeeper.storage.tablet import batch_routing, compaction, tablet_data
from bookkeeper.storage.tablet.scans import scan, visibility
from bookkeeper.storage.tablet.scans.scan_position import Resume
from bookkeeper.storage.tablet.scans.visibility import Authorizations
from bookkeeper.storage.tablet.segments import segment_check, segment_reader
from bookkeeper.storage.tablet.segments.segment_format import SegmentRef
from bookkeeper.storage.tablet.sorting import entries
from bookkeeper.storage.tablet.sorting.entries import RowWords
from bookkeeper.storage.tablet.tablet_data import TabletData
from bookkeeper.storage.wal.blocks.block import Block
from bookkeeper.storage.wal.blocks.target_shares import LogShares
from bookkeeper.storage.wal.reading import log_formats, wal_recovery
from bookkeeper.tserver import authorizations
from bookkeeper.tserver.books.received_index import ReceivedIndex
from bookkeeper.tserver.bulk import bulk_loader, relay_log, segment_offers, segment_receiver, segment_uploads
from bookkeeper.tserver.bulk.bulk_loader import with_log as _with_log
from bookkeeper.tserver.bulk.relay_log import RelayLogs, seal
from bookkeeper.tserver.bulk.segment_offers import Standing
from bookkeeper.tserver.maintenance import containment
from bookkeeper.tserver.maintenance.tablet_states import NamedStates
from bookkeeper.tserver.tablets import load_plan, tablet_segments
from bookkeeper.tserver.tablets.block_targets import TableView
from bookkeeper.tserver.tablets.tablet import ServedTablet
from bookkeeper.tserver.tablets.tablet_segments import merged_state, named_state
from bookkeeper.tserver.write import write_guards
from bookkeeper.tserver.write.config_barrier import ConfigBarrier
from tests.support.replacement import Fault

_merged = NamedStates.merged
_read_parts = sqlite_cells.read_parts
_between = RowWords.between


def _inside(words: RowWords, low: bytes, high: bytes) -> npt.NDArray[np.int64]:
    first, last = words._word_of(low), words._word_of(high)
    return np.array([place for place in _between(words, low, high) if first < int(words._words[place]) < last], int)


def _first_of(parts: list[tuple[list[Row], bytes | None]]) -> Iterator[tuple[list[Row], bytes | None]]:
    (rows, _), (_, going_on) = parts[0], parts[-1]
    yield rows, going_on


def _delete_first(
    self: NamedStates, tablet: ServedTablet, inputs: set[str], written: Sequence[SegmentRef], compacted: int
) -> None:
    cells = [CellKey(tablet.row, keys.segment_column(name)) for name in sorted(inputs)]
    self._books.delete(cells, MAX_RANK)
    _merged(self, tablet, inputs, written, compacted)


def _begin_anew(before: FlushState | None, flush_id: int, segments: Sequence[SegmentRef], compacted: int) -> FlushState:
    empty = FlushState(1, {}, 0 if before is None else before.last_seq, 0, {}, ())
    return named_state(empty, flush_id, segments, compacted)


_write = RelayLogs._write


def _sealed_at_once(logs: RelayLogs, request: AdoptRequest, files: Sequence[SegmentRef], view: TableView) -> object:
    log = _write(logs, request, files, view)
    seal(logs._volume, log)
    return log


def _counting_all_records(shares: LogShares, blocks: Iterable[Block]) -> LogShares:
    log = ("", "", "", 0)
    records, size = shares.totals.get(log, (0, 0))
    for block in blocks:
        records, size = records + block.header.record_count, size + block.payload.size
        block.header.target_records[:] = [records] * len(block.header.block_targets)
        block.header.target_bytes[:] = [size] * len(block.header.block_targets)
    return LogShares({log: (records, size)})


STORAGE_FAULTS: dict[str, Fault] = {
    "any-time-will-do": Fault(
        batch_routing.is_too_late,
        lambda newest_ms, latest_ms: False,  # noqa: ARG005
        "a delete with a time in the far future hides a cell for ever",
    ),
    "imports-are-applied-again": Fault(
        bulk_loader.is_taken,
        lambda tablet, key: False,  # noqa: ARG005
        "R18: cells that were deleted since an import come back when its order is repeated",
    ),
    "mixtures-are-accepted": Fault(
        bulk_loader.refuse_mixture,
        lambda tablet, request: None,  # noqa: ARG005
        "R18: cells that came as records and were deleted since come back with the file",
    ),
    "targets-of-relays-are-ignored": Fault(
        relay_log.needs_log,
        lambda view: False,  # noqa: ARG005
        "R13: a file that a table takes never reaches the table's own peers",
    ),
    "relay-logs-are-sealed-at-once": Fault(
        RelayLogs._write,
        _sealed_at_once,
        "R17: the log of files that go on is collected before their tablet's put names it",
    ),
    "parts-are-relayed-as-files": Fault(
        bulk_loader.refuse_parts,
        lambda view, request, wanted: None,  # noqa: ARG005
        "R13: the records of a file that can't be relayed as a file never come",
    ),
    "files-have-no-provenance": Fault(
        relay_log.describe,
        lambda header, request, root: None,  # noqa: ARG005
        "R21: a file comes back to the cluster that it began at",
    ),
    "relay-logs-go-at-once": Fault(
        import_log.is_relay_log,
        lambda name: False,  # noqa: ARG005
        "R4: a put that comes late names a log that was collected, and its files never reach the peers",
    ),
    "no-write-waits-for-the-barrier": Fault(
        ConfigBarrier.settle,
        lambda self, timeout_ms: None,  # noqa: ARG005
        "R14: a file that is taken after its table's replication was enabled reaches no peer",
    ),
    "some-is-nothing": Fault(
        segment_offers.standing_of,
        lambda high_water, has_partial, through: Standing.ALL if high_water >= through else Standing.NOTHING,  # noqa: ARG005
        "R18: entries that came as records come again with the file",
    ),
    "damage-on-the-way-counts": Fault(
        segment_uploads.is_intact,
        lambda digest, offered: True,  # noqa: ARG005
        "L7: a file that was damaged on its way is taken",
    ),
    "imports-are-never-over": Fault(
        ReceivedIndex.is_open,
        lambda self, stream: True,  # noqa: ARG005
        "R20: an order that comes when its import is over is taken again",
    ),
    "imports-are-not-remembered": Fault(
        bulk_loader.adopted_state,
        lambda before, flush_id, segments, last_seq, request: merged_state(before, flush_id, segments, 0),  # noqa: ARG005
        "R18: a tablet that moves forgets that it has taken an import",
    ),
    "imports-have-no-place": Fault(
        bulk_loader.shifted,
        lambda segments, next_seq, flush_id: [replace(ref, flush_id=flush_id) for ref in segments],  # noqa: ARG005
        "an older write hides an imported cell of the same timestamp",
    ),
    "a-log-is-one-targets": Fault(
        LogShares.counting,
        _counting_all_records,
        "the lag of a table counts the records of others in the same log",
    ),
    "imports-show-before-they-travel": Fault(
        bulk_loader.with_log,
        lambda put, log, after, shares: put,  # noqa: ARG005
        "an import is visible here, its log is not in the books, and the peers never get it",
    ),
    "imports-wait-for-nothing": Fault(
        bulk_loader.with_log,
        lambda put, log, after, shares: _with_log(put, log, (), shares),  # noqa: ARG005
        "R24: an import overtakes older writes",
    ),
    "damaged-logs-have-no-records": Fault(
        placement.uses_any,
        lambda row, logs: False,  # noqa: ARG005
        "R15: a tablet is given to another tserver while a log that has records of it is not sealed",
    ),
    "cut-logs-are-short-logs": Fault(
        wal_recovery.refuse_less,
        lambda name, end, promised: None,  # noqa: ARG005
        "L1: acknowledged records are lost silently with the end of a log",
    ),
    "lost-stores-are-new": Fault(
        books.check_books,
        lambda settings, coordination, *, thoroughly: None,  # noqa: ARG005
        "L1: a cluster whose books or configuration are lost starts as a new one, and collects its own files",
    ),
    "owners-are-not-compared": Fault(
        owner.is_owned_by,
        lambda owner, instance_id: True,  # noqa: ARG005
        "L2: a cluster takes another one's books for its own, and deletes the files that they do not name",
    ),
    "older-books-are-believed": Fault(
        owner.is_older,
        lambda round_number, latest_round: False,  # noqa: ARG005
        "L2: books that were put back from a copy do not name the logs since, which go",
    ),
    "older-coordination-is-believed": Fault(
        owner.is_ahead,
        lambda round_number, stored_round: False,  # noqa: ARG005
        "R9: tables that an older copy of the configuration does not know count as complete",
    ),
    "proofs-last-for-ever": Fault(
        hbase_pool.is_check_valid,
        lambda checked_ns, now_ns: checked_ns is not None,  # noqa: ARG005
        "L2: a table is dropped and created again behind an open connection, unnoticed",
    ),
    "cells-are-believed": Fault(
        sqlite_cells.is_sound,
        lambda record: True,  # noqa: ARG005
        "L7: a flipped bit in the books passes silently, and a file is deleted that no peer has",
    ),
    "long-rows-end-with-their-first-part": Fault(
        sqlite_cells.read_parts,
        lambda *read: _first_of(list(_read_parts(*read))),
        "R9: files that the rest of a row names are not outstanding, and go before they were shipped",
    ),
    "long-rows-of-hbase-end-with-their-first-part": Fault(
        hbase_store.may_continue,
        lambda part: False,  # noqa: ARG005
        "R9: files that the rest of a row names are not outstanding, and go before they were shipped",
    ),
    "any-content-will-do": Fault(
        embedded_store.is_whole,
        lambda connection, stored: True,  # noqa: ARG005
        "L7: a flipped bit in the configuration passes silently",
    ),
    "journals-end-where-they-are-bad": Fault(
        sqlite_file.first_bad_frame,
        lambda raw: None,  # noqa: ARG005
        "L1: commits behind a bad frame are skipped silently",
    ),
    "any-log-will-do": Fault(
        log_formats.check_own,
        lambda name, file_header: None,  # noqa: ARG005
        "L7: a whole log of another session passes as this one's records",
    ),
    "an-index-may-lead-anywhere": Fault(
        segment_reader.lies_within,
        lambda index, size: True,  # noqa: ARG005
        "L7: a file of some kilobytes asks for any amount of memory",
    ),
    "one-tablet-is-all": Fault(
        containment.undeclared,
        lambda extent, what, error: error,  # noqa: ARG005
        "an unexpected error in one tablet ends the tserver of all",
    ),
    "files-are-not-decoded": Fault(
        segment_receiver.check_received,
        lambda volume, path, offered, bounds: None,  # noqa: ARG005
        "L7: a peer's statements about a file are in the books, unchecked",
    ),
    "segments-take-any-number": Fault(
        segment_offers.leaves_numbers,
        lambda last_seq: True,  # noqa: ARG005
        "a file takes the sequence numbers that records need",
    ),
    "numbers-never-end": Fault(
        write_guards.refuse_exhausted,
        lambda extent, next_seq: None,  # noqa: ARG005
        "a tablet at its last sequence number ends its tserver",
    ),
    "numbers-of-files-are-believed": Fault(
        segment_check.equals_stated,
        lambda found, said: True,  # noqa: ARG005
        "R18: a peer's file uses up the sequence numbers of a tablet, which then refuses all writes",
    ),
    "any-size-is-decoded": Fault(
        segment_check.is_too_large,
        lambda size, most: False,  # noqa: ARG005
        "L7: a file of some kilobytes takes gigabytes when it is read",
    ),
    "the-wall-clock-is-believed": Fault(
        SteadyWall.wall_ms,
        lambda self: self._clock.wall_ms(),
        "young data is lost when the clock jumps ahead and back",
    ),
    "checksums-not-compared": Fault(
        segment_reader.matches,
        lambda content, check: True,  # noqa: ARG005
        "L7: garbage in a segment passes silently",
    ),
    "freezing-hides-memory": Fault(
        tablet_data.frozen_state,
        lambda state, fresh: replace(state, active=fresh),
        "a reader misses acknowledged records while they are flushed",
    ),
    "flushed-before-segments": Fault(
        tablet_data.flushed_state,
        lambda state, opened: replace(state, frozen=None),  # noqa: ARG005
        "a reader misses acknowledged records after they were flushed",
    ),
    "a-page-forgets-its-cell": Fault(
        Resume.partial_cell,
        lambda self: None,  # noqa: ARG005
        "versions are counted anew in each page: a scan shows some that do not count",
    ),
    "a-part-forgets-deletes": Fault(
        compaction.families_outside,
        lambda families: frozenset(),  # noqa: ARG005
        "L1: deleted cells come back from an older segment",
    ),
    "deletes-hide-nothing": Fault(
        scan.are_deletes,
        lambda entries: ~entries.column("timestamp").is_valid().to_numpy(zero_copy_only=False),
        "a delete hides the entries of its cell that are not newer",
    ),
    "words-are-rows": Fault(
        RowWords.between,
        _inside,
        "a small range lacks rows that are in it",
    ),
    "page-begins-at-its-row": Fault(
        entries.after_cell,
        lambda cell: cell[:1],
        "a scan gives each cell once, however it is cut into pages",
    ),
    "every-segment-cell-counts": Fault(
        load_plan.is_live,
        lambda name, state: True,  # noqa: ARG005
        "R1: a late flush of an earlier holder, or a segment that a compaction replaced, is read again",
    ),
    "late-states-decide": Fault(
        tablet_segments.is_own,
        lambda flush_id, serial: True,  # noqa: ARG005
        "L2: the state that an earlier holder wrote late has the present one's files deleted",
    ),
    "replaced-before-the-books-say-so": Fault(
        NamedStates.merged,
        _delete_first,
        "L8: a cut between the delete and the state leaves a tablet without segments that it names",
    ),
    "compactions-forget-streams": Fault(
        tablet_segments.merged_state,
        _begin_anew,
        "R18: a put that is sent again after its delete and a compaction comes back from the dead",
    ),
    "labels-are-for-show": Fault(
        Authorizations.mask,
        lambda self, entries: None,  # noqa: ARG005
        "a cell is shown to a user who may not see it",
    ),
    "labels-are-not-read": Fault(
        visibility.check_labels,
        lambda batch: None,  # noqa: ARG005
        "L7: a label that does not parse is taken silently",
    ),
    "authorizations-for-the-asking": Fault(
        authorizations.lacking,
        lambda requested, granted: [],  # noqa: ARG005
        "a scan sees with authorizations that its user does not have",
    ),
    "files-go-while-they-are-read": Fault(
        TabletData.is_read,
        lambda self, names: False,  # noqa: ARG005
        "a scan loses the file under it",
    ),
}
