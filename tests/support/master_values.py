"""Values for tests of the master's pure functions: files, targets, tablets, in one line each."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import combiners
from bookkeeper.master.cycle.assigner import PlanInput, WorkLimits
from bookkeeper.master.index.barriers import FileBarrier
from bookkeeper.master.index.file_entry import FileEntry, Scopes, parse_cell
from bookkeeper.master.index.outstanding import Outstanding
from bookkeeper.master.index.shipments import Report, Shipments
from bookkeeper.master.index.snapshot import TabletView
from bookkeeper.master.index.target_progress import NO_AMOUNT, Amount, Progress
from bookkeeper.metadata import keys, values
from bookkeeper.metadata.metadata_table import Cell, Column, Row
from bookkeeper.model import Barrier, Extent, Target, TargetKey
from tests.support.master_world import open_status

EAST = TargetKey("east", "r1", "1", 1)
NORTH = TargetKey("north", "r1", "1", 2)


def target(key: TargetKey = EAST) -> Target:
    """A configured target of that key."""
    return Target(key, None, f"{key.cluster}-instance", "remote")


def scopes(*keys_: TargetKey) -> Scopes:
    """A configuration with these targets."""
    by_table: dict[str, list[Target]] = {}
    for key in keys_ or (EAST,):
        by_table.setdefault(key.source_table_id, []).append(target(key))
    return Scopes(by_table)


def name(session: str, number: int = 1) -> bytes:
    """A log's name."""
    return f"wal/{session}/{number:06d}.wal".encode()


def status_value(needed: int, closed: bool = False, barriers: Sequence[Barrier] = (), created: int = 1_000) -> bytes:
    """The value of a `repl:` cell."""
    status = open_status(needed, barriers, created)
    return values.encode_status(combiners.close(status) if closed else status)


def entry(
    file: bytes,
    needed: int,
    *,
    closed: bool = False,
    barriers: Sequence[tuple[int, bytes, int] | FileBarrier] = (),
    done: Mapping[TargetKey, int] | None = None,
    known: Scopes | None = None,
    safe: int | None = None,
    created: int = 1_000,
    amount: Amount | None = None,
) -> FileEntry:
    """A file as a cycle that knows it well has it; ``amount`` is for each target, None = all, 100 bytes a record."""
    scope, of_each = (known or scopes()).of(("1",)), Amount(needed, needed * 100) if amount is None else amount
    shares = tuple((target, of_each) for target in scope.index_by_qualifier if of_each != NO_AMOUNT)
    made = FileEntry(file, parse_cell(status_value(needed, closed, created=created))._replace(shares=shares), scope)
    made.wait_for(tuple(FileBarrier(*barrier) for barrier in barriers))
    if closed:
        made.note_closed(1)
    made.reach(needed if safe is None else safe)
    for key, offset in (done or {}).items():
        index = made.index_of(key)
        assert index is not None
        made.advance(index, Progress(offset, offset * 100, offset, offset * 100))
    return made


def by_name(*entries: FileEntry) -> Outstanding:
    """Files as a snapshot has them."""
    files = Outstanding()
    for made in entries:
        files.add(made)
    return files


def shipping(base_ms: int = 100, max_ms: int = 1_000) -> Shipments:
    """An empty table of shipments."""
    return Shipments(base_ms, max_ms, random.Random(1))


def plan_world(
    files: Outstanding,
    live: Sequence[str] = ("s1", "s2"),
    work: Shipments | None = None,
    *,
    now_ns: int = 0,
    peer_max: int = 100,
    lane_max: int = 100,
    chosen: Mapping[bytes, str] | None = None,
) -> PlanInput:
    """The input of a plan; the owner of a log is the directory of the log."""
    return PlanInput(
        files=files,
        live={session: f"{session}:1" for session in live},
        shipping=work or shipping(),
        owner_of=lambda file: file.decode().rsplit("/", 2)[1],
        chosen_for=(chosen or {}).get,
        limits=WorkLimits(peer_max, lane_max),
        now_ns=now_ns,
    )


def report(
    file: bytes,
    finished: int,
    *,
    session: str = "s1",
    key: TargetKey = EAST,
    error: str | None = None,
    transient: bool = True,
    txid: str = "",
) -> Report:
    """A worker's word."""
    return Report(
        session, txid, file, key, finished, finished, finished * 100, 0, error, error is not None and transient
    )


def tablet(end: bytes | None, prev: bytes | None = None, session: str | None = None, table_id: str = "1") -> TabletView:
    """A tablet, assigned or not."""
    row = keys.tablet_row(table_id, end)
    return TabletView(row, Extent(table_id, end, prev), "t-0", session, None if session is None else f"{session}:1")


def tablet_row(
    end: bytes | None,
    prev: bytes | None = None,
    repl: Mapping[bytes, bytes] | None = None,
    *,
    table_id: str = "1",
    session: str | None = None,
    rank: int = 5,
) -> Row:
    """A tablet's row as a scan gives it."""
    cells = {
        keys.DIR: Cell(1, b"t-0"),
        keys.PREV_ROW: Cell(1, values.encode_prev_row(prev)),
        **{Column("repl", file): Cell(7, value) for file, value in (repl or {}).items()},
    }
    if session is not None:
        cells[keys.LOCATION] = Cell(rank, values.Location(session, f"{session}:1").encode())
    return Row(keys.tablet_row(table_id, end), cells)


def books_row(
    file: bytes,
    needed: Mapping[TargetKey, bytes] | None = None,
    done: Mapping[TargetKey, int] | None = None,
    rank: int = 9,
) -> Row:
    """A `~repl_` row."""
    cells = {keys.needed_column(key): Cell(rank, value) for key, value in (needed or {}).items()}
    for key, offset in (done or {}).items():
        finished = combiners.ReplicationStatus(replication_finished_offset=offset, finished_bytes=offset * 100)
        cells[keys.done_column(key)] = Cell(keys.done_rank(offset), values.encode_status(finished))
    return Row(keys.REPL_PREFIX + file, cells)
