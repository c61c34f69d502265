"""Tables as files: an export to a directory, and a new table made of one.

Arrives: a table and a directory on the master's machine. Leaves: copies of the table's segments with a manifest that is
written last; or a table that consists of such copies. Cut after any step: what was copied is copied anew. A client that
asks again gets the receipt of what was done (``requests``).

An export holds everything that was acknowledged before it began: the tablets are flushed first. Then the segments that
the books name are *pinned*, by links in a directory of the export, so that a compaction beside it takes nothing away.
Each tablet is exported as it is at one moment, and all of a row lies in one; the table is not frozen between tablets:
make it read-only where that matters.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bookkeeper.bulk import segment_ref
from bookkeeper.bulk.exported_table import Exported, ExportedTablet, copy_file
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
    PermanentError,
    RefusedError,
    TransientError,
    UnavailableError,
)
from bookkeeper.master.fate.engine import Args, Call, Done, Next, Outcome, Step, Wait
from bookkeeper.master.index.snapshot import chained
from bookkeeper.master.operations.context import Context, number, online_table, text
from bookkeeper.master.operations.requests import (
    check_request,
    close_request,
    find_receipt,
    give_receipt,
    open_request,
    request_stream,
)
from bookkeeper.master.operations.table_lifecycle import chained_tablets, tablet_rows, wait_for_homes
from bookkeeper.master.splits.split_rules import TabletFacts, facts_of
from bookkeeper.metadata import keys, values
from bookkeeper.metadata.metadata_table import RowPut
from bookkeeper.metadata.values import FlushState, SegmentEntry
from bookkeeper.model import StreamKey
from bookkeeper.rpc.contract.messages import CopyRequest
from bookkeeper.security.private_files import shared_mode
from bookkeeper.storage.tablet import BatchLimits
from bookkeeper.storage.tablet.batch_routing import is_too_late
from bookkeeper.storage.tablet.segments.segment_check import Bounds, check_segment
from bookkeeper.storage.tablet.segments.segment_format import ENDING
from bookkeeper.storage.wal.wal_files import FileOps, make_directory, path_of, sync_directory, uri_of

AGAIN_MS = 200
TAIL_BYTES_MIN = 16 << 20
TAIL_PARTS = 8
"""Of an exported file at most this part, or so many bytes, are index, filter and footer."""
NOT_COPIED = ("table.read_only",)
"""Properties that a copy of a table does not get: whether users may write is not a matter of its data."""

OPS = FileOps()


def copy_args(request: CopyRequest) -> Args:
    """Arguments of ``export_table`` and ``import_table``. Raises InvalidInputError, RefusedError (a system table)."""
    check_request(request.request_id, request.directory)
    refuse_system_table(request.table)
    return {"request_id": request.request_id, "name": request.table, "directory": request.directory}


@contextmanager
def writing(directory: Path) -> Iterator[None]:
    """Into a directory of the operator's: what goes wrong there is the operator's to mend."""
    try:
        yield
    except OSError as error:
        raise RefusedError(f"{directory} can't be written: {error.strerror or error}; mend that, then again") from error


@dataclass(frozen=True, slots=True)
class ExportTable:
    """See :class:`bookkeeper.master.fate.engine.Operation`. The result is the number of records."""

    context: Context
    first: str = "check"

    def locks(self, args: Args) -> Collection[str]:
        """The table's tablets and settings stay as they are."""
        return (f"table {text(args, 'name')}",)

    @property
    def steps(self) -> Mapping[str, Step]:
        """check, flush, pin, copy, end."""
        return {"check": self.check, "flush": self.flush, "pin": self.pin, "copy": self.copy, "end": self.end}

    def check(self, call: Call) -> Outcome:
        """Raises NotFoundError, ExistsError, RefusedError; done when the receipt says so."""
        stream = self._stream(call)
        known = find_receipt(self.context, stream)
        if known is not None:
            return Done(known)
        table = online_table(self.context.config(), text(call.args, "name"))
        directory = Path(text(call.args, "directory"))
        with writing(directory):
            self.context.settings.files.resolve(directory).mkdir(parents=True, exist_ok=True)
            with self.context.settings.files.opened(directory) as opened:
                if any(opened.iterdir()):
                    raise ExistsError(f"{directory} is not empty; export into a directory of its own")
        open_request(self.context, stream)
        return Next("flush", {"table_id": table.table_id})

    def flush(self, call: Call) -> Outcome:
        """Everything that was acknowledged before is in segments."""
        tablets = chained_tablets(self.context, text(call.state, "table_id"))
        live = self.context.tservers.live()
        for done, tablet in enumerate(tablets):
            address = live.get(tablet.session or "")
            try:
                if address is None:
                    raise UnavailableError(f"tablet {tablet.extent} has no tserver now")
                self.context.tservers.at(address).flush_tablet(tablet.extent)
            except TransientError as error:
                return Wait(f"{done} of {len(tablets)} tablets are flushed: {error.message}", AGAIN_MS)
        return Next("pin", call.state)

    def pin(self, call: Call) -> Outcome:
        """Link what the books name now, and write down what that is. Directory and names are of this attempt, so that a
        deposed master, however late, writes over nothing.
        """
        table_id = text(call.state, "table_id")
        table = self.context.config().table(table_id)
        attempt = uuid.uuid4().hex
        pins = self._pins(table_id, call) / attempt
        rows = chained(tablet_rows(self.context, table_id, ("tablet", "segment")), (table_id,))
        facts = [facts_of(row) for row in rows if keys.is_tablet(row)]
        names = {
            uri: f"x{attempt[:8]}-{place:06d}{ENDING}"
            for place, uri in enumerate(sorted({u for f in facts for u in f.segments}))
        }
        try:
            make_directory(pins, OPS)
            for uri, name in names.items():
                OPS.link(path_of(uri), pins / name)
            tablets = tuple(exported_tablet(found, names) for found in facts)
            checksums = dict.fromkeys(names.values(), "")
            Exported(table.name, table.groups, table.properties, tablets, checksums).write(pins, OPS)
        except FileNotFoundError:
            return Wait("segments were compacted meanwhile: looking again", AGAIN_MS)
        except OSError as error:
            raise UnavailableError(f"segments can't be pinned: {error}") from error
        return Next("copy", {**call.state, "attempt": attempt})

    def copy(self, call: Call) -> Outcome:
        """Copy what is pinned, then write the manifest. Raises RefusedError when the directory can't be written."""
        pins = self._pins(text(call.state, "table_id"), call) / text(call.state, "attempt")
        directory = Path(text(call.args, "directory"))
        pinned = Exported.read(pins)
        checksums = {}
        try:
            with writing(directory), self.context.settings.files.opened(directory) as opened:
                for name in pinned.checksums:
                    self.context.stores.reign.check()
                    checksums[name] = copy_file(pins / name, opened / name, OPS)
                sync_directory(opened, OPS)
                exported = Exported(pinned.table, pinned.groups, pinned.properties, pinned.tablets, checksums)
                exported.write(opened, OPS)
                for name in (NAME, *checksums):
                    (opened / name).chmod(shared_mode(opened))
        except PermanentError:
            shutil.rmtree(pins.parent, ignore_errors=True)
            close_request(self.context, self._stream(call))
            raise
        give_receipt(self.context, self._stream(call), pinned.records)
        return Next("end", {**call.state, "records": pinned.records})

    def end(self, call: Call) -> Outcome:
        """Let go of the segments."""
        shutil.rmtree(self._pins(text(call.state, "table_id"), call), ignore_errors=True)
        close_request(self.context, self._stream(call))
        return Done(number(call.state, "records"))

    def _pins(self, table_id: str, call: Call) -> Path:
        return self.context.settings.tables_dir / table_id / f"export-{text(call.args, 'request_id')}"

    def _stream(self, call: Call) -> StreamKey:
        return request_stream(self.context, "export", text(call.args, "request_id"))


def exported_tablet(facts: TabletFacts, names: Mapping[str, str]) -> ExportedTablet:
    """A tablet as a manifest has it; ``names`` of its segments' files."""
    flush = facts.flush
    return ExportedTablet(
        facts.extent.rows,
        0 if flush is None else flush.last_seq,
        0 if flush is None else flush.last_time_ms,
        {names[uri]: entry for uri, entry in facts.segments.items()},
    )


@dataclass(frozen=True, slots=True)
class ImportTable:
    """See :class:`bookkeeper.master.fate.engine.Operation`. The result is the number of records."""

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
        """Read the manifest. Raises ExistsError, InvalidInputError, CorruptionError; done when the receipt says so."""
        stream = self._stream(call)
        known = find_receipt(self.context, stream)
        if known is not None:
            return Done(known)
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
        """Copy the files, compare their checksums and decode them. Each gets its name when it is whole, so a deposed
        master, however late, only puts the same in its place. What is damaged ends the operation, and nothing is left.
        """
        directory, target = Path(text(call.args, "directory")), self._directory(call)
        try:
            exported = self._exported(directory)
            make_directory(target, OPS)
            for name, checksum in exported.checksums.items():
                self.context.stores.reign.check()
                copied = target / f"{name}.{uuid.uuid4().hex}.tmp"
                with self.context.settings.files.opened(directory / name) as opened:
                    found = copy_file(opened, copied, OPS)
                if is_damaged(found, checksum):
                    raise CorruptionError(f"{directory / name} is damaged: its checksum is not that of its export")
                copied.rename(target / name)
            sync_directory(target, OPS)
            limits = self.context.settings.batch_limits
            latest_ms = limits.latest_ms(self.context.clock.wall_ms())
            for entries in (tablet.segments for tablet in exported.tablets):
                for name, entry in entries.items():
                    bounds = exported_bounds(limits, entry.size_bytes, latest_ms)
                    check_segment(segment_ref(uri_of(target / name), entry), bounds, self.context.stores.reign.check)
            exported.write(target, OPS)
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
        return Next("claim", call.state)

    def claim(self, call: Call) -> Outcome:
        """Claim the name and write the record. Raises ExistsError."""
        exported = Exported.read(self._directory(call))
        properties = {key: value for key, value in exported.properties.items() if key not in NOT_COPIED}
        name, table_id = text(call.args, "name"), text(call.state, "table_id")
        try:
            create_table_record(self.context.stores.coordination, table_id, name, exported.groups, properties)
        except PermanentError:
            self._give_up(call)
            raise
        return Next("tablets", call.state)

    def tablets(self, call: Call) -> Outcome:
        """Write one row a tablet, each whole in one put."""
        target = self._directory(call)
        rows = imported_rows(text(call.state, "table_id"), Exported.read(target), target)
        for row in rows:
            self.context.stores.reign.check()
            self.context.stores.table.put([row], keys.ONCE_RANK)
        return Next("online", call.state)

    def online(self, call: Call) -> Outcome:
        """Let the table be used."""
        table_id = text(call.state, "table_id")
        set_table_state(self.context.stores.coordination, table_id, "online")
        self.context.hooks.tablets_changed(*keys.table_section(table_id))
        return Next("place", call.state)

    def place(self, call: Call) -> Outcome:
        """Wait until every tablet has a tserver, if there is any tserver."""
        waiting = wait_for_homes(self.context, [keys.table_section(text(call.state, "table_id"))])
        if waiting is not None:
            return waiting
        give_receipt(self.context, self._stream(call), number(call.state, "records"))
        return Next("end", call.state)

    def end(self, call: Call) -> Outcome:
        """What a cut has left goes; so does the receipt, after its grace."""
        for path in self._directory(call).glob("*.tmp"):
            path.unlink(missing_ok=True)
        close_request(self.context, self._stream(call))
        return Done(number(call.state, "records"))

    def _exported(self, directory: Path) -> Exported:
        """The manifest. Raises RefusedError where it is below none of the roots, InvalidInputError, CorruptionError."""
        self.context.settings.files.resolve(directory)
        try:
            with self.context.settings.files.opened(directory / NAME) as opened:
                return Exported.decode(opened.read_bytes())
        except OSError as error:
            raise manifest_error(directory, error) from error

    def _give_up(self, call: Call) -> None:
        self.context.stores.reign.check()
        if text(call.state, "table_id") not in self.context.config().tables:
            shutil.rmtree(self._directory(call).parent, ignore_errors=True)
        close_request(self.context, self._stream(call))

    def _directory(self, call: Call) -> Path:
        return self.context.settings.tables_dir / text(call.state, "table_id") / "imported"

    def _stream(self, call: Call) -> StreamKey:
        return request_stream(self.context, "importtable", text(call.args, "request_id"))


def exported_bounds(limits: BatchLimits, size_bytes: int, latest_ms: int | None = None) -> Bounds:
    """What an exported file of this size may hold, with no timestamp above ``latest_ms``. Its groups may be those that
    its table had when it was written.
    """
    return Bounds(limits, max(TAIL_BYTES_MIN, size_bytes // TAIL_PARTS), timestamp_max=latest_ms)


def check_server_times(exported: Exported, latest_ms: int | None) -> None:
    """Raise InvalidInputError when a tablet of an export has given a time above this one to its records; None = any.
    The new tablet goes on from there: whatever users write without a timestamp would lie ahead, too.
    """
    newest = max(tablet.last_time_ms for tablet in exported.tablets)
    if latest_ms is not None and is_too_late(newest, latest_ms):
        raise InvalidInputError(
            f"a tablet of the export was at {newest} ms, more than tserver.future_timestamp_max_ms ahead of this "
            f"cluster's clock: at most {latest_ms} is taken now"
        )


def is_damaged(found: str, wanted: str) -> bool:
    """Whether a file is not what was exported."""
    return found != wanted


def imported_rows(table_id: str, exported: Exported, directory: Path) -> list[RowPut]:
    """The rows of a new table that consists of the files in ``directory``. Sequence numbers and server times go on
    above those of the exported tablets; nothing is known of logs and streams, which were another table's.
    """
    rows = []
    for place, tablet in enumerate(exported.tablets):
        segments = {uri_of(directory / name): entry for name, entry in tablet.segments.items()}
        rows.append(
            RowPut(
                keys.tablet_row(table_id, tablet.rows.end_row),
                {
                    keys.PREV_ROW: values.encode_prev_row(tablet.rows.prev_row),
                    keys.DIR: values.encode_dir(f"t-{place:05d}"),
                    keys.FLUSH: imported_state(tablet, segments).encode(),
                }
                | {keys.segment_column(uri): entry.encode() for uri, entry in segments.items()},
            )
        )
    return rows


def imported_state(tablet: ExportedTablet, segments: Mapping[str, SegmentEntry]) -> FlushState:
    """What a tablet knows that begins with exported segments."""
    return FlushState(1, {}, tablet.last_seq, tablet.last_time_ms, {}, (), tuple(segments))
