"""Bulk import: an operation that turns a directory of Parquet and CSV files into segments of a table.

Each tablet adds its segments atomically and once (rule R18), because it stores a high-water of the import's stream. At
the end the stream's cell becomes the receipt for a client that repeats the request. Input that can't be imported
changes nothing; a tablet that refuses its segments ends an import that other tablets already have.

The locks of the operation prevent splits, merges, changes of locality groups and targets, and read-only settings.
Imports into several tables run at the same time, but few at once in the two expensive steps: conversion takes memory,
and the wait for tservers takes a thread.

For a replicated table the operation also writes each tablet's records into a log with the block targets (R13). Workers
ship this log, and the collector deletes it, like a tserver's. While an import runs, the collector spares these logs,
because no tablet refers to them yet. Beside each log are the names of the segments with its records, for peers that
accept segment files (:mod:`bookkeeper.bulk.log_segments`).

Tablets name the segments where they were made. The operation holds each file from before it exists, until it ends; then
the collector deletes those that no tablet and no log needs (:mod:`bookkeeper.bulk.file_holds`). Rules: R13, R17, R18
and R20.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path
from threading import Semaphore

from msgspec import Struct, field

from bookkeeper.bulk.adoption import import_directory
from bookkeeper.bulk.booked_segment import part_of_segment, segment_entry
from bookkeeper.bulk.import_log import ImportLogs
from bookkeeper.bulk.input_process import InputJob, read_apart
from bookkeeper.bulk.log_segments import name_log_segments
from bookkeeper.bulk.manifest import NAME, Imported
from bookkeeper.bulk.segment_conversion import SegmentDirectory, convert
from bookkeeper.config.table_properties import parse_properties
from bookkeeper.errors import PermanentError, TransientError, UnavailableError
from bookkeeper.master.fate.engine import Args, Call, Done, Failed, Next, Outcome, Step, Wait, shared
from bookkeeper.master.index.log_files import IMPORT_SESSION
from bookkeeper.master.index.snapshot import TabletView
from bookkeeper.master.operations.context import Context, drop_files, number, online_table, text
from bookkeeper.master.operations.holds import put_holds, put_log_holds, release_holds
from bookkeeper.master.operations.read_only import refuse_if_read_only
from bookkeeper.master.operations.requests import (
    check_request,
    close_request,
    find_receipt,
    open_request,
    write_receipt,
)
from bookkeeper.master.operations.table_lifecycle import chained_tablets
from bookkeeper.master.operations.volume_need import AS_RECORDS, refuse_without_volume
from bookkeeper.metadata.values import Json
from bookkeeper.model import StreamKey
from bookkeeper.rpc.contract.messages import AdoptRequest, ImportedSegment, ImportRequest
from bookkeeper.storage.tablet.segments.locality_groups import GroupMap
from bookkeeper.storage.tablet.segments.segment_format import SegmentRef
from bookkeeper.storage.tablet.tablet_settings import TabletSettings
from bookkeeper.storage.volume.names import log_directory
from bookkeeper.storage.wal.blocks.block_pb2 import FileHeader

ADOPT_AGAIN_MS = 200
CONVERT_AGAIN_MS = 200

CONVERSIONS_MAX = 1
ADOPTIONS_MAX = 2
"""Maximum numbers of imports in the steps ``convert`` and ``adopt`` at a time; each occupies a thread."""


def import_args(request: ImportRequest) -> Args:
    """Arguments of ``import_directory``. Raises InvalidInputError."""
    check_request(request.request_id, request.directory)
    return {
        "request_id": request.request_id,
        "name": request.table,
        "directory": request.directory,
        "time_ms": request.time_ms,
    }


class ImportDirectory(Struct, frozen=True):
    """See :class:`bookkeeper.master.fate.engine.Operation`. The result is the number of records."""

    context: Context
    first: str = "check"
    converting: Semaphore = field(default_factory=lambda: Semaphore(CONVERSIONS_MAX))
    adopting: Semaphore = field(default_factory=lambda: Semaphore(ADOPTIONS_MAX))

    def locks(self, args: Args) -> Collection[str]:
        """Other operations on the table, and changes to read-only, wait for this operation."""
        return (f"table {text(args, 'name')}", shared("read_only"))

    @property
    def steps(self) -> Mapping[str, Step]:
        """check, convert, announce, adopt, receipt, clear."""
        return {
            "check": self.check,
            "convert": in_turn(self.converting, self.convert, CONVERT_AGAIN_MS),
            "announce": self.announce,
            "adopt": in_turn(self.adopting, self.adopt, ADOPT_AGAIN_MS),
            "receipt": self.receipt,
            "clear": self.clear,
        }

    # ---- before anything changes

    def check(self, call: Call) -> Outcome:
        """Done if the request has a receipt. Raises NotFoundError, ReadOnlyError, RefusedError."""
        refuse_without_volume(self.context, "an import", AS_RECORDS)
        config = self.context.config()
        table = online_table(config, text(call.args, "name"))
        self.context.settings.files.resolve(Path(text(call.args, "directory")))
        receipt = find_receipt(self.context, self._stream(table.table_id, call))
        if receipt is not None:
            return Done(receipt)
        refuse_if_read_only(config, table, "importdirectory")
        time_ms = call.args["time_ms"]
        state: dict[str, Json] = {
            "table_id": table.table_id,
            "time_ms": self.context.clock.wall_ms() if time_ms is None else time_ms,
        }
        return Next("convert", state)

    def convert(self, call: Call) -> Outcome:
        """Write the segments into a directory of this attempt, so that a deposed master can't change another attempt.
        Input that can't be imported ends the operation; no tablet was told of these files.
        """
        attempt = uuid.uuid4().hex
        directory = f"{self._directory(text(call.state, 'table_id'), call)}/{attempt}"
        volume = self.context.tservers.volume
        try:
            hold = partial(put_holds, self.context.stores, call.txid)
            place = SegmentDirectory(volume, directory, self._settings(call), hold)
            imported = self._converted(call, place)
            hold([f"{directory}/{NAME}"])
            imported.write(volume, directory)
        except PermanentError:
            self._drop_attempt(directory)
            raise
        except OSError as error:
            raise UnavailableError(f"the import can't read or write a file: {error}") from error
        return Next("announce", {**call.state, "records": imported.records, "attempt": attempt})

    def _drop_attempt(self, directory: str) -> None:
        """Delete this attempt, and its parent unless another attempt is there: it may be that of a later master."""
        drop_files(self.context.tservers.volume, directory)
        with contextlib.suppress(OSError):  # an empty directory may stay
            self.context.tservers.volume.prune(directory.rpartition("/")[0])

    def _settings(self, call: Call) -> TabletSettings:
        table = self.context.config().table(text(call.state, "table_id"))
        return TabletSettings(compression=parse_properties(table.properties).compression)

    def _converted(self, call: Call, place: SegmentDirectory) -> Imported:
        """Write the segments and, for a replicated table, the logs."""
        config = self.context.config()
        table = config.table(text(call.state, "table_id"))
        extents = [tablet.extent for tablet in chained_tablets(self.context, table.table_id)]
        groups = GroupMap({group.name: group.families for group in table.groups})
        time_ms = number(call.state, "time_ms")
        limits = self.context.settings.batch_limits
        directory = Path(text(call.args, "directory"))
        roots = tuple(map(str, self.context.settings.files.directories))
        job = InputJob(str(directory), time_ms, limits, roots, limits.latest_ms(self._now_ms()))
        inputs = read_apart(job, lambda left: call.report(left, "bytes"))
        block_targets = config.block_targets_of(table.table_id)
        peers = [target.peer_instance_id for target in config.targets_of(table.table_id)]
        if not block_targets:
            return Imported(tuple(convert(inputs, extents, groups, place, self.context.stores.reign.check)))
        header = FileHeader(
            instance_id=self.context.settings.own_instance_id, session_id=IMPORT_SESSION, created_time_ms=self._now_ms()
        )
        logs_dir = log_directory(IMPORT_SESSION)
        logs = ImportLogs(place.volume, logs_dir, uuid.uuid4().hex, header, extents, groups, block_targets, peers)
        try:
            segments = convert(inputs, extents, groups, place, self.context.stores.reign.check, logs.add)
            by_extent = logs.finish()
        finally:
            logs.abandon()
        hold = partial(put_log_holds, self.context.stores)
        for extent, log in by_extent.items():
            within = [ref for ref in segments if extent.contains(ref.min_row)]
            name_log_segments(place.volume, hold, log.name, log.offset, within, groups, logs.lengths)
        return Imported(tuple(segments), {extent.rows: log for extent, log in by_extent.items()})

    def _now_ms(self) -> int:
        return int(self.context.clock.wall_ms())

    def announce(self, call: Call) -> Outcome:
        """See :func:`open_request`."""
        open_request(self.context, self._stream(text(call.state, "table_id"), call))
        return Next("adopt", call.state)

    # ---- the tablets

    def adopt(self, call: Call) -> Outcome:
        """Make each tablet add its part; a tablet that has its part confirms it again."""
        table_id = text(call.state, "table_id")
        imported = Imported.read(
            self.context.tservers.volume, f"{self._directory(table_id, call)}/{text(call.state, 'attempt')}"
        )
        stream = self._stream(table_id, call)
        tablets = chained_tablets(self.context, table_id)
        live = self.context.tservers.live()
        left: list[str] = []
        for done, tablet in enumerate(tablets):
            call.report(len(tablets) - done + len(left), "tablets")
            parts = parts_of(imported.segments, tablet)
            try:
                self.context.stores.reign.check()
                if parts:
                    log = imported.logs.get(tablet.extent.rows)
                    self._order(tablet, live, AdoptRequest(tablet.extent, stream, parts, log))
            except TransientError as error:
                left.append(error.message)
            except PermanentError as error:
                reason = f"{error.message}; tablet {tablet.extent} refused its segments, other tablets may have theirs"
                return Failed(type(error)(reason, error.details))
        if left:
            return Wait(f"{len(left)} of {len(tablets)} tablets lack their segments: {left[0]}", ADOPT_AGAIN_MS)
        if imported.logs:
            self.context.hooks.wake()  # no tserver owns these logs, so none nudges the master
        return Next("receipt", call.state)

    def _order(self, tablet: TabletView, live: Mapping[str, str], request: AdoptRequest) -> None:
        address = live.get(tablet.session or "")
        if address is None:
            raise UnavailableError(f"tablet {tablet.extent} has no tserver now")
        self.context.tservers.at(address).adopt_segments(request)

    def receipt(self, call: Call) -> Outcome:
        """Every tablet has its part: write the receipt."""
        write_receipt(self.context, self._stream(text(call.state, "table_id"), call), number(call.state, "records"))
        return Next("clear", call.state)

    def clear(self, call: Call) -> Outcome:
        """End the holds, so that tablets and logs alone decide about the files, and close the request."""
        release_holds(self.context.stores, call.txid)
        close_request(self.context, self._stream(text(call.state, "table_id"), call))
        return Done(number(call.state, "records"))

    # ---- inside

    def _directory(self, table_id: str, call: Call) -> str:
        return import_directory(table_id, text(call.args, "request_id"))

    def _stream(self, table_id: str, call: Call) -> StreamKey:
        """The import's stream; a tablet that stores a high-water of it has added its segments."""
        return StreamKey(self.context.settings.own_instance_id, self._directory(table_id, call), table_id, table_id, 0)


def in_turn(slots: Semaphore, step: Step, again_ms: int) -> Step:
    """The step, executed in one of the slots. Without a free slot the operation waits and occupies no thread."""

    def limited(call: Call) -> Outcome:
        if not slots.acquire(blocking=False):
            return Wait("other imports occupy this step", again_ms)
        try:
            return step(call)
        finally:
            slots.release()

    return limited


def parts_of(segments: Collection[SegmentRef], tablet: TabletView) -> tuple[ImportedSegment, ...]:
    """The parts of an import's segments that lie in a tablet. Each segment lies in one tablet, unless the table was
    split or merged since its conversion.
    """
    parts = ((ref.name, part_of_segment(segment_entry(ref), tablet.extent.rows)) for ref in segments)
    return tuple(ImportedSegment(name, entry.encode()) for name, entry in parts if entry is not None)
