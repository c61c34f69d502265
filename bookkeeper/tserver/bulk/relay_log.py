"""Relay logs: logs of this cluster for files of another cluster, which go on to the targets of their table.

Arrives: an order to take all files of a log, and the table's configuration. Leaves: a log with the same records at the
offsets that they have where they were first written, with the targets in force (R13), the instances that the records
have passed (R21) and their origins (R22); beside it the names of the files, for targets that take segments. So the
files are like an import of this cluster: their tablet's put brings the log's `repl:` cell, which is CLOSED from the
start.

Order of writes, and the state after a crash behind each:

1. the log, synced, in the directory of this session, and not sealed: the collector takes it for a new log (R17);
2. the log's holds of the files, and their manifest beside it: no cell names the log; recovery seals it, and it goes
   when the session is dead and no put can be in flight any more (R4); its holds end when it is gone;
3. the tablet's put (``bulk_loader``): the tablet has the files, and the log goes to the peers; recovery seals it;
4. the seal: from now on the log goes as soon as no target needs it.

The next server of the tablet, when it gets the same order, finds the files in the tablet or makes a log of its own.
Both logs are named when the put of a stopped server comes late; then peers find the duplicates by origin (R22).
Rules: R4, R13, R17, R21 and R22.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from bookkeeper.bulk.import_log import TAKEN_PREFIX, ImportLogs
from bookkeeper.bulk.log_segments import name_log_segments
from bookkeeper.bulk.replayed_records import in_written_order
from bookkeeper.clock import Clock
from bookkeeper.errors import DeclinedError, UnavailableError
from bookkeeper.model import Origin
from bookkeeper.origins import Part, Root, Runs, root_of
from bookkeeper.rpc.contract.messages import AdoptRequest, ImportedLog
from bookkeeper.storage.tablet.segments.segment_format import SegmentRef
from bookkeeper.storage.volume.names import log_directory
from bookkeeper.storage.volume.volume_protocol import Volume
from bookkeeper.storage.wal.blocks.block_messages import block_target_from_pb, origin_to_pb
from bookkeeper.storage.wal.blocks.block_origins import EVERY_ROW, BlockOrigins, Claim, block_origins_to_pb
from bookkeeper.storage.wal.blocks.block_pb2 import BlockHeader, FileHeader
from bookkeeper.storage.wal.reading.wal_recovery import delete_log
from bookkeeper.storage.wal.writing.seal import Seal, write_seal
from bookkeeper.tserver.bulk.segment_offers import first_root
from bookkeeper.tserver.bulk.session_holds import SessionHolds
from bookkeeper.tserver.tablets.block_targets import TableView

LOG = logging.getLogger(__name__)


class OwnLog:
    """The log of one order; None = there is none."""

    def __init__(self, log: ImportedLog | None) -> None:
        self.log = log
        self._is_named = False

    @property
    def is_named(self) -> bool:
        """Whether the books may name the log."""
        return self._is_named

    def may_be_named(self) -> None:
        """A put that names the log begins."""
        self._is_named = True


def describe(header: BlockHeader, request: AdoptRequest, root: Root) -> None:
    """Write the provenance and the origins of a block of such a log into its header (R21, R22)."""
    last = header.first_offset + header.record_count - 1
    runs = Runs.of((header.first_offset, last))
    block_origins = BlockOrigins(((root, runs),), (Claim(root, Part(EVERY_ROW, None, runs)),))
    header.provenance.extend(() if request.relay is None else request.relay.provenance)
    header.origin.CopyFrom(origin_to_pb(Origin(request.stream, header.first_offset - 1, last)))
    header.block_origins.CopyFrom(block_origins_to_pb(block_origins, root_of(request.stream)))


class RelayLogs:
    """Makes relay logs, among this session's logs. Thread-safe."""

    def __init__(self, volume: Volume, holds: SessionHolds, instance_id: str, session_id: str, clock: Clock) -> None:
        self._volume = volume
        self._holds = holds
        self._instance_id = instance_id
        self._session_id = session_id
        self._clock = clock
        self._writing = threading.Lock()
        """One log at a time, because a part of an import is in memory meanwhile."""

    @contextmanager
    def log_of(self, request: AdoptRequest, files: Sequence[SegmentRef], view: TableView | None) -> Iterator[OwnLog]:
        """The log for an order, removed again unless it was named. Raises DeclinedError, CorruptionError,
        TransientError.
        """
        # R13: the files go on to the targets of the table. No view: an import of this cluster, which has a log already.
        if view is None or not view.block_targets:
            yield OwnLog(request.log)
            return
        with self._writing:
            log = self._write(request, files, view)
        own = OwnLog(log)
        try:
            yield own
        finally:
            if not own.is_named:
                remove(self._volume, log.name)
        if own.is_named:
            seal(self._volume, log)

    def _write(self, request: AdoptRequest, files: Sequence[SegmentRef], view: TableView) -> ImportedLog:
        header = FileHeader(
            instance_id=self._instance_id, session_id=self._session_id, created_time_ms=int(self._clock.wall_ms())
        )
        name = f"{TAKEN_PREFIX}{uuid.uuid4().hex}"
        root = first_root(request.stream, request.relay)
        block_targets = [block_target_from_pb(block_target) for block_target in view.block_targets]
        set_origins = partial(describe, request=request, root=root)
        directory = log_directory(self._session_id)
        logs = ImportLogs(
            self._volume, directory, name, header, [request.extent], view.groups, block_targets, view.peers, set_origins
        )
        try:
            for records in in_written_order(self._volume, files):
                logs.add(records)
            (log,) = logs.finish().values()
            hold = self._holds.beside
            name_log_segments(self._volume, hold, log.name, log.offset, files, view.groups, logs.lengths)
        except BaseException as error:
            logs.abandon()
            for found in self._volume.list_names(f"{directory}/{name}"):
                if found.endswith(".wal"):
                    remove(self._volume, found)
            if isinstance(error, OSError):
                raise DeclinedError(f"its files can't be named for its targets: {error}") from error
            raise
        return log


def seal(volume: Volume, log: ImportedLog) -> None:
    """From now on the log goes as soon as no target needs it; without a seal it stays until its session is over."""
    try:
        write_seal(volume, log.name, Seal(log.offset, log.position))
    except OSError as error:
        LOG.warning("%s is not sealed (%s): it stays until this session is over", log.name, error)


def remove(volume: Volume, log: str) -> None:
    """Remove a log that no cell names."""
    try:
        delete_log(volume, log)
    except UnavailableError as error:
        LOG.warning("%s stays until this session is over: %s", log, error.message)
