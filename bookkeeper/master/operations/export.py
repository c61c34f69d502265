"""The operations that export a table into a directory, and create a table from an export.

An export is the table's segments and a manifest, which the operation writes last. It has every record that was
acknowledged before it began, because the operation flushes the tablets first. Then it *pins* the segments that the
books name, by rows in the books (``holds``), so that no collector deletes one that a compaction replaces meanwhile. The
segments of a table with replicas lie on hosts, which send them (``calls.hosted_files``); a segment that no live host
has any more makes the export begin again, and its end deletes the copies of the earlier attempts.

Each tablet is exported as of one moment, and a row lies in one tablet. Writes can change other tablets between these
moments; make the table read-only to prevent this. A client that repeats a request gets the receipt (``requests``).
"""

from __future__ import annotations

import logging
import re
import uuid
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from bookkeeper.bulk.booked_segment import segment_ref
from bookkeeper.bulk.exported_table import (
    Checksum,
    CopiedBytes,
    Exported,
    ExportedTablet,
    parts_of_file,
    read_sources,
    write_sources,
)
from bookkeeper.bulk.manifest import NAME, manifest_error
from bookkeeper.config.table_properties import parse_properties
from bookkeeper.coordination.config_changes import (
    create_table_record,
    new_table_id,
    refuse_system_table,
    set_table_state,
)
from bookkeeper.errors import (
    CorruptionError,
    ExistsError,
    InvalidInputError,
    NotFoundError,
    PermanentError,
    RefusedError,
    TransientError,
    UnavailableError,
    unavailable,
)
from bookkeeper.master.calls.hosted_files import from_any_host
from bookkeeper.master.fate.engine import Args, Call, Done, Next, Outcome, Step, Wait
from bookkeeper.master.index.snapshot import chained, tablet_view
from bookkeeper.master.operations.context import Context, drop_files, number, online_table, remove_files, text
from bookkeeper.master.operations.holds import hold_named, release_holds
from bookkeeper.master.operations.replica_hosts import REPLICA_PROPERTIES, newest_states, replicas_wanted, why_unnamed
from bookkeeper.master.operations.requests import (
    check_request,
    close_request,
    find_receipt,
    open_request,
    request_stream,
    write_receipt,
)
from bookkeeper.master.operations.table_lifecycle import chained_tablets, tablet_rows, wait_for_tservers
from bookkeeper.master.operations.volume_need import AS_RECORDS, FROM_A_PEER, refuse_without_volume
from bookkeeper.master.splits.split_rules import TabletFacts, facts_of
from bookkeeper.metadata import keys, values
from bookkeeper.metadata.metadata_table import RowPut
from bookkeeper.metadata.values import FlushState
from bookkeeper.model import StreamKey
from bookkeeper.rpc.contract.messages import CopyRequest
from bookkeeper.security.private_files import shared_mode
from bookkeeper.storage.tablet.batch_routing import is_too_late
from bookkeeper.storage.tablet.segments.segment_check import Bounds, check_segment
from bookkeeper.storage.tablet.segments.segment_format import ENDING
from bookkeeper.storage.volume.given_directory import read_parts, sync_names, write_file, write_once
from bookkeeper.storage.volume.names import TABLES, tablet_directory
from bookkeeper.storage.volume.volume_protocol import Volume

LOG = logging.getLogger(__name__)

AGAIN_MS = 200
TAIL_BYTES_MIN = 16 << 20
TAIL_PARTS = 8
"""Index, filter and footer of an exported file: at most this part of the file, or ``TAIL_BYTES_MIN``."""
CLAIM = "export.request"
"""The file with the id of the request that writes into a directory."""
_COPY = re.compile(rf"x[0-9a-f]{{8}}-[0-9]{{6,}}{re.escape(ENDING)}")
UNCOPIED_PROPERTIES = ("table.read_only", *REPLICA_PROPERTIES)
"""Properties that a copy of a table does not get. The segments of a copy lie on the Volume, so it has one replica."""


def copy_args(request: CopyRequest) -> Args:
    """Arguments of ``export_table`` and ``import_table``. Raises InvalidInputError, RefusedError (a system table)."""
    check_request(request.request_id, request.directory)
    refuse_system_table(request.table)
    return {"request_id": request.request_id, "name": request.table, "directory": request.directory}


@contextmanager
def refuse_unwritable(directory: Path) -> Iterator[None]:
    """Raises RefusedError if a write into the operator's directory fails: the operator can correct this."""
    try:
        yield
    except OSError as error:
        raise RefusedError(
            f"{directory} can't be written: {error.strerror or error}; correct this and repeat the export"
        ) from error


class ExportTable(Struct, frozen=True):
    """Exports a table (:class:`bookkeeper.master.fate.engine.Operation`). The result is the number of records."""

    context: Context
    first: str = "check"

    def locks(self, args: Args) -> Collection[str]:
        """The table's tablets and settings do not change meanwhile."""
        return (f"table {text(args, 'name')}",)

    @property
    def steps(self) -> Mapping[str, Step]:
        """check, flush, pin, copy, end."""
        return {"check": self.check, "flush": self.flush, "pin": self.pin, "copy": self.copy, "end": self.end}

    def check(self, call: Call) -> Outcome:
        """Done if the request has a receipt. Raises NotFoundError, ExistsError, RefusedError."""
        refuse_without_volume(self.context, "an export", FROM_A_PEER)
        stream = self._stream(call)
        receipt = find_receipt(self.context, stream)
        if receipt is not None:
            return Done(receipt)
        table = online_table(self.context.config(), text(call.args, "name"))
        directory = Path(text(call.args, "directory"))
        with refuse_unwritable(directory):
            self.context.settings.files.resolve(directory).mkdir(parents=True, exist_ok=True)
            with self.context.settings.files.opened(directory) as opened:
                if not claim(opened, text(call.args, "request_id")):
                    raise ExistsError(f"{directory} {why_taken(opened)}; export into a directory of its own")
        open_request(self.context, stream)
        return Next("flush", {"table_id": table.table_id})

    def flush(self, call: Call) -> Outcome:
        """Flush every tablet, so that segments have all acknowledged records, and wait until the books name them."""
        tablets = chained_tablets(self.context, text(call.state, "table_id"))
        live = self.context.tservers.live()
        for done, tablet in enumerate(tablets):
            call.report(len(tablets) - done, "tablets")
            address = live.get(tablet.session or "")
            try:
                if address is None:
                    raise UnavailableError(f"tablet {tablet.extent} has no tserver now")
                self.context.tservers.at(address).flush_tablet(tablet.extent)
            except TransientError as error:
                return Wait(f"{done} of {len(tablets)} tablets are flushed: {error.message}", AGAIN_MS)
        problem = self._why_unnamed(text(call.state, "table_id"))
        return Wait(problem, AGAIN_MS) if problem else Next("pin", call.state)

    def pin(self, call: Call) -> Outcome:
        """Hold the segments that the books name now, and write a manifest of them. Directory and names belong to this
        attempt, so a deposed master that is late overwrites nothing.
        """
        table_id = text(call.state, "table_id")
        table = self.context.config().table(table_id)
        attempt = uuid.uuid4().hex
        pins = f"{self._pins(table_id, call)}/{attempt}"
        facts = hold_named(self.context.stores, call.txid, lambda: self._facts(table_id))
        if facts is None:
            return Wait("compactions replace segments; the export reads the tablets again", AGAIN_MS)
        names = {
            segment: copy_name(attempt, index)
            for index, segment in enumerate(sorted({name for found in facts for name in found.segments}))
        }
        try:
            write_sources(self._volume, pins, {name: segment for segment, name in names.items()})
            tablets = tuple(exported_tablet(found, names) for found in facts)
            checksums = dict.fromkeys(names.values(), "")
            Exported(table.name, table.groups, table.properties, tablets, checksums).write(self._volume, pins)
        except OSError as error:
            raise UnavailableError(f"the list of pinned segments can't be written: {error}") from error
        return Next("copy", {**call.state, "attempt": attempt, "is_on_hosts": bool(facts[-1].voters)})

    def copy(self, call: Call) -> Outcome:
        """Copy the pinned segments, then write the manifest. Back to flush when the hosts have lost one. Raises
        RefusedError if the directory can't be written.
        """
        try:
            return self._copy(call)
        except NotFoundError as error:
            LOG.warning("an export of table %s begins again: %s", text(call.args, "name"), error.message)
            return Next("flush", {"table_id": text(call.state, "table_id")})

    def _copy(self, call: Call) -> Outcome:
        all_pins = self._pins(text(call.state, "table_id"), call)
        pins = f"{all_pins}/{text(call.state, 'attempt')}"
        directory = Path(text(call.args, "directory"))
        pinned, sources = Exported.read(self._volume, pins), read_sources(self._volume, pins)
        is_on_hosts = bool(call.state["is_on_hosts"])
        checksums, passed = {}, CopiedBytes(sum(pinned.sizes.values()), call.report)
        try:
            with refuse_unwritable(directory), self.context.settings.files.opened(directory) as opened:
                for name in pinned.checksums:
                    self.context.stores.reign.check()
                    checksums[name] = self._copied(sources[name], opened / name, passed, is_on_hosts=is_on_hosts)
                sync_names(opened)
                exported = Exported(pinned.table, pinned.groups, pinned.properties, pinned.tablets, checksums)
                write_once(opened / NAME, exported.encode())
                for name in (NAME, *checksums):
                    (opened / name).chmod(shared_mode(opened))
        except NotFoundError:
            raise
        except PermanentError:
            drop_files(self._volume, all_pins)
            close_request(self.context, self._stream(call))
            raise
        write_receipt(self.context, self._stream(call), pinned.records)
        return Next("end", {**call.state, "records": pinned.records})

    def end(self, call: Call) -> Outcome:
        """Release the segments, delete their list and the copies of earlier attempts, and close the request."""
        release_holds(self.context.stores, call.txid)
        self._remove_other_copies(Path(text(call.args, "directory")))
        remove_files(self._volume, self._pins(text(call.state, "table_id"), call))
        close_request(self.context, self._stream(call))
        return Done(number(call.state, "records"))

    def _remove_other_copies(self, directory: Path) -> None:
        """Delete the claim, and the copies that the manifest does not name. A deposed master deletes the same ones,
        because nobody replaces a manifest. An error is logged: the export is complete.
        """
        try:
            with self.context.settings.files.opened(directory) as opened:
                exported = Exported.decode((opened / NAME).read_bytes())
                for path in opened.iterdir():
                    is_copy = _COPY.fullmatch(path.name) and path.name not in exported.checksums
                    if is_copy or path.name.startswith(CLAIM):
                        path.unlink(missing_ok=True)
        except (OSError, PermanentError) as error:
            LOG.warning("%s may have files that its manifest does not name: %s", directory, error)

    def _why_unnamed(self, table_id: str) -> str:
        if replicas_wanted(self.context.config().table(table_id).properties) == 1:
            return ""
        made = newest_states(self.context, table_id)
        rows = chained(tablet_rows(self.context, table_id, ("tablet", keys.REPLICA_FAMILY)), (table_id,))
        return why_unnamed([tablet_view(row) for row in rows if keys.is_tablet(row)], made)

    def _copied(self, segment: str, path: Path, passed: CopiedBytes, *, is_on_hosts: bool) -> str:
        """Copy a segment, from the Volume or from a host; its checksum. Raises NotFoundError when no host has it."""

        def write(parts: Iterator[bytes]) -> str:
            checksum = Checksum()
            write_file(path, checksum.of(passed.of(parts)))
            return checksum.hex()

        if is_on_hosts:
            return from_any_host(self.context.tservers, segment, write)
        return write(parts_of_file(self._volume, segment))

    def _facts(self, table_id: str) -> list[TabletFacts]:
        rows = chained(tablet_rows(self.context, table_id, ("tablet", "segment", keys.REPLICA_FAMILY)), (table_id,))
        return [facts_of(row) for row in rows if keys.is_tablet(row)]

    def _pins(self, table_id: str, call: Call) -> str:
        return tablet_directory(table_id, f"export-{text(call.args, 'request_id')}")

    @property
    def _volume(self) -> Volume:
        return self.context.tservers.volume

    def _stream(self, call: Call) -> StreamKey:
        return request_stream(self.context, "export", text(call.args, "request_id"))


def claim(directory: Path, request_id: str) -> bool:
    """Claim an empty directory for an export, so that no other one writes there; whether this request has it now. The
    claim of one that fails for good stays, beside its copies. A crash may leave the beginning of a claim. Raises
    OSError.
    """
    path = directory / CLAIM
    if not path.exists() and any(not found.name.startswith(CLAIM) for found in directory.iterdir()):
        return False
    write_once(path, request_id.encode())
    return path.read_bytes() == request_id.encode()


def why_taken(directory: Path) -> str:
    """Why a directory can't be claimed, in words."""
    if (directory / CLAIM).exists():
        return "is taken: another export writes there, or has failed"
    return "is not empty"


def copy_name(attempt: str, index: int) -> str:
    """The name of an exported file: no other attempt has it."""
    return f"x{attempt[:8]}-{index:06d}{ENDING}"


def exported_tablet(facts: TabletFacts, names: Mapping[str, str]) -> ExportedTablet:
    """The manifest's entry for a tablet. ``names``: a segment to the file's name in the export."""
    flush = facts.flush
    return ExportedTablet(
        facts.extent.rows,
        0 if flush is None else flush.last_seq,
        0 if flush is None else flush.last_time_ms,
        {names[segment]: entry for segment, entry in facts.segments.items()},
    )


class ImportTable(Struct, frozen=True):
    """Creates a table from an export (:class:`bookkeeper.master.fate.engine.Operation`). The result is the number of
    records.
    """

    context: Context
    first: str = "check"

    def locks(self, args: Args) -> Collection[str]:
        """One change of a table name at a time."""
        return (f"table {text(args, 'name')}",)

    @property
    def steps(self) -> Mapping[str, Step]:
        """check, copy, claim, tablets, online, place, end."""
        return {
            "check": self.check,
            "copy": self.copy,
            "claim": self.claim,
            "tablets": self.tablets,
            "online": self.online,
            "place": self.place,
            "end": self.end,
        }

    def check(self, call: Call) -> Outcome:
        """Read the manifest. Done if the request has a receipt. Raises ExistsError, InvalidInputError,
        CorruptionError, RefusedError.
        """
        refuse_without_volume(self.context, "an import", AS_RECORDS)
        stream = self._stream(call)
        receipt = find_receipt(self.context, stream)
        if receipt is not None:
            return Done(receipt)
        name = text(call.args, "name")
        if any(table.name == name for table in self.context.config().tables.values()):
            raise ExistsError(f"there is a table {name} already; an import makes a new one")
        exported = self._exported(Path(text(call.args, "directory")))
        parse_properties(exported.properties)
        latest_ms = self.context.settings.batch_limits.latest_ms(self.context.clock.wall_ms())
        check_server_times(exported, latest_ms)
        open_request(self.context, stream)
        table_id = new_table_id(self.context.stores.coordination)
        return Next("copy", {"table_id": table_id, "records": exported.records})

    def copy(self, call: Call) -> Outcome:
        """Copy the files, compare their checksums and decode them. Directory and names belong to this attempt, so a
        deposed master that is late changes nothing. A damaged file ends the operation, which deletes all copies.
        """
        directory, attempt = Path(text(call.args, "directory")), uuid.uuid4().hex
        target = self._directory(call, attempt)
        try:
            exported = self._exported(directory)
            passed = CopiedBytes(sum(exported.sizes.values()), call.report)
            for name, wanted in exported.checksums.items():
                self.context.stores.reign.check()
                checksum = Checksum()
                with self.context.settings.files.opened(directory / name) as opened:
                    self._volume.create(f"{target}/{name}", checksum.of(passed.of(read_parts(opened)))).close()
                if checksum.hex() != wanted:
                    raise CorruptionError(f"{directory / name} is damaged: its checksum is not that of its export")
            limits = self.context.settings.batch_limits
            latest_ms = limits.latest_ms(self.context.clock.wall_ms())
            left = sum(len(tablet.segments) for tablet in exported.tablets)
            for entries in (tablet.segments for tablet in exported.tablets):
                for name, entry in entries.items():
                    call.report(left, "files")
                    left -= 1
                    # Any groups are valid: a file may have groups that its table had earlier.
                    tail_bytes_max = max(TAIL_BYTES_MIN, entry.size_bytes // TAIL_PARTS)
                    bounds = Bounds(limits, tail_bytes_max, timestamp_max=latest_ms)
                    ref = segment_ref(f"{target}/{name}", entry)
                    check_segment(self._volume, ref, bounds, self.context.stores.reign.check)
            exported.write(self._volume, target)
        except PermanentError:
            self._give_up(call)
            raise
        except (FileNotFoundError, PermissionError, IsADirectoryError) as error:
            self._give_up(call)
            raise CorruptionError(
                f"{error.filename} can't be read ({error.strerror}): the export is damaged"
            ) from error
        except OSError as error:
            raise UnavailableError(f"the files of {directory} can't be copied: {error}") from error
        return Next("claim", {**call.state, "attempt": attempt})

    def claim(self, call: Call) -> Outcome:
        """Claim the name and write the record. Raises ExistsError."""
        exported = Exported.read(self._volume, self._copied(call))
        properties = {key: value for key, value in exported.properties.items() if key not in UNCOPIED_PROPERTIES}
        name, table_id = text(call.args, "name"), text(call.state, "table_id")
        try:
            create_table_record(self.context.stores.coordination, table_id, name, exported.groups, properties)
        except PermanentError:
            self._give_up(call)
            raise
        return Next("tablets", call.state)

    def tablets(self, call: Call) -> Outcome:
        """Write the row of each tablet in one put."""
        target = self._copied(call)
        rows = imported_rows(text(call.state, "table_id"), Exported.read(self._volume, target), target)
        for row in rows:
            self.context.stores.reign.check()
            self.context.stores.table.put([row], keys.ONCE_RANK)
        return Next("online", call.state)

    def online(self, call: Call) -> Outcome:
        """Set the table online."""
        table_id = text(call.state, "table_id")
        set_table_state(self.context.stores.coordination, table_id, "online")
        self.context.hooks.tablets_changed(*keys.table_section(table_id))
        return Next("place", call.state)

    def place(self, call: Call) -> Outcome:
        """Wait until every tablet has a tserver, if there is any tserver."""
        waiting = wait_for_tservers(self.context, [keys.table_section(text(call.state, "table_id"))])
        if waiting is not None:
            return waiting
        write_receipt(self.context, self._stream(call), number(call.state, "records"))
        return Next("end", call.state)

    def end(self, call: Call) -> Outcome:
        """Delete the copies of interrupted attempts, and the receipt after its grace."""
        remove_other_attempts(self._volume, self._copied(call))
        close_request(self.context, self._stream(call))
        return Done(number(call.state, "records"))

    def _exported(self, directory: Path) -> Exported:
        """The manifest. Raises RefusedError if it is outside the allowed directories, InvalidInputError,
        CorruptionError.
        """
        self.context.settings.files.resolve(directory)
        try:
            with self.context.settings.files.opened(directory / NAME) as opened:
                return Exported.decode(opened.read_bytes())
        except OSError as error:
            raise manifest_error(directory, error) from error

    def _give_up(self, call: Call) -> None:
        self.context.stores.reign.check()
        if text(call.state, "table_id") not in self.context.config().tables:
            drop_files(self._volume, f"{TABLES}{text(call.state, 'table_id')}")
        close_request(self.context, self._stream(call))

    def _directory(self, call: Call, attempt: str) -> str:
        return tablet_directory(text(call.state, "table_id"), f"imported-{attempt}")

    def _copied(self, call: Call) -> str:
        """The directory of the attempt that copied every file."""
        return self._directory(call, text(call.state, "attempt"))

    @property
    def _volume(self) -> Volume:
        return self.context.tservers.volume

    def _stream(self, call: Call) -> StreamKey:
        return request_stream(self.context, "importtable", text(call.args, "request_id"))


def remove_other_attempts(volume: Volume, directory: str) -> None:
    """Delete the directories beside ``directory`` whose names differ in the attempt only. Raises UnavailableError."""
    parent, _, name = directory.rpartition("/")
    kind, _, _ = name.partition("-")
    try:
        found = volume.list_directories(parent)
    except OSError as error:
        raise unavailable(f"{parent} can't be listed", error) from error
    for other in found:
        if other.startswith(f"{kind}-") and other != name:
            remove_files(volume, f"{parent}/{other}")


def check_server_times(exported: Exported, latest_ms: int | None) -> None:
    """Raises InvalidInputError if the last server time of an exported tablet is above ``latest_ms`` (None = no limit).
    The new tablet's server times continue from there, so its next records would lie ahead of the clock, too.
    """
    newest = max(tablet.last_time_ms for tablet in exported.tablets)
    if latest_ms is not None and is_too_late(newest, latest_ms):
        raise InvalidInputError(
            f"a tablet of the export was at {newest} ms, more than tserver.future_timestamp_max_ms ahead of this "
            f"cluster's clock; the highest accepted time is {latest_ms} ms now"
        )


def imported_rows(table_id: str, exported: Exported, directory: str) -> list[RowPut]:
    """The rows of a new table that consists of the files in ``directory``. Sequence numbers and server times continue
    above those of the exported tablets. The rows have no logs or streams of the exported table.
    """
    rows = []
    for index, tablet in enumerate(exported.tablets):
        segments = {f"{directory}/{name}": entry for name, entry in tablet.segments.items()}
        state = FlushState(1, {}, tablet.last_seq, tablet.last_time_ms, {}, (), tuple(segments))
        rows.append(
            RowPut(
                keys.tablet_row(table_id, tablet.rows.end_row),
                {
                    keys.PREV_ROW: values.encode_prev_row(tablet.rows.prev_row),
                    keys.DIR: values.encode_dir(f"t-{index:05d}"),
                    keys.FLUSH: state.encode(),
                }
                | {keys.segment_column(segment): entry.encode() for segment, entry in segments.items()},
            )
        )
    return rows
