"""What one outstanding file costs the master in memory, up to a million files, whatever the number of tablets.

Arrives: nothing. Leaves: bytes a file of a snapshot that was taken twice, as each cycle takes it anew: the sizes of all
objects that it holds for files; what tablets cost is apart. Logs of one tserver follow each other, all CLOSED and none
finished. Each was used by as many as four tablets, which had used the log before it, at offsets of their own: so each
has as many barriers there (R24).
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator

import combiners
from bookkeeper.master.files import Progress, Scopes
from bookkeeper.master.snapshot import Snapshot, take_snapshot
from bookkeeper.metadata import keys, values
from bookkeeper.metadata.table import Cell, Column, Row
from bookkeeper.model import Target, TargetKey
from tests.benchmarks.figure import Figure

FILES = (100_000, 1_000_000)
TABLETS = (1, 100, 10_000)
TABLETS_OF_FILE = 4
NEEDED = 5_000
DIRECTORY = "file:///var/lib/bookkeeper/west/wal/tserver-1-0badcafe"
TARGET = Target(TargetKey("east", "1", "1", 1), None, "east-instance", "remote")
FILE_BYTES_MAX = 400.0


def run() -> list[Figure]:
    """Takes two minutes, most of them to make rows."""
    fewest, most = FILES
    by_tablets = {tablets: _file_bytes(fewest, tablets) for tablets in TABLETS}
    by_files = {fewest: by_tablets[TABLETS[1]], most: _file_bytes(most, TABLETS[1])}
    return [
        *(
            _figure(f"master memory of one file beside {tablets:,} tablets", tablets, by_tablets[tablets])
            for tablets in TABLETS
        ),
        *(_figure(f"master memory of one of {files:,} outstanding files", files, by_files[files]) for files in FILES),
    ]


def _file_bytes(files: int, tablets: int) -> float:
    return snapshot_bytes(take_twice(files, tablets)) / files


def _figure(name: str, size: int, value: float) -> Figure:
    return Figure(
        name=name,
        value=value,
        unit="bytes",
        reference=FILE_BYTES_MAX,
        reference_name="aim",
        reference_unit="bytes",
        ratio=value / FILE_BYTES_MAX,
        target=FILE_BYTES_MAX,
        lower_is_better=True,
        size=size,
    )


def take_twice(files: int, tablets: int) -> Snapshot:
    """What a reign's second cycle keeps; half of the files are shipped in part."""
    scopes = Scopes({"1": [TARGET]})
    first = take_snapshot(_rows(files, tablets), 1, scopes, ["1"], {})
    for number, entry in enumerate(first.files.values()):
        entry.reach(entry.needed)
        if number % 2:
            entry.advance(0, Progress(100, 12_000))
    return take_snapshot(_rows(files, tablets), 2, scopes, ["1"], first.files)


def _rows(files: int, tablets: int) -> Iterator[Row]:
    """Tablet rows as a store gives them, every value an object of its own."""
    ends = [b"%05d" % number for number in range(1, tablets)]
    each = min(TABLETS_OF_FILE, tablets)
    for place, (prev, end) in enumerate(zip([None, *ends], [*ends, None], strict=True)):
        cells = {keys.PREV_ROW: Cell(1, values.encode_prev_row(prev)), keys.DIR: Cell(1, b"t-%d" % place)}
        for turn in range(each):
            for number in range(1 + (place - turn) % tablets, files + 1, tablets):
                cells[Column("repl", _uri(number).encode())] = Cell(2**62 + NEEDED, _status(number, turn))
        yield Row(keys.tablet_row("1", end), cells)


def _uri(number: int) -> str:
    return f"{DIRECTORY}/{number:06d}.wal"


def _status(number: int, turn: int) -> bytes:
    status = combiners.ReplicationStatus(
        state=combiners.CLOSED,
        created_time=1_700_000_000_000 + number,
        replication_needed_offset=NEEDED + number,
        needed_bytes=NEEDED * 120,
    )
    if number > 1:
        status.barriers.add(offset=3 + turn * 10, file=_uri(number - 1), until_offset=NEEDED + turn)
    return values.encode_status(status)


def snapshot_bytes(snapshot: Snapshot) -> int:
    """The sizes of all that a snapshot knows of files, each object once; scopes are shared by all files."""
    seen: set[int] = set()
    total = sys.getsizeof(snapshot.fresh)
    left: list[object] = [snapshot.files, snapshot.open_cells]
    scopes = {id(entry.scope) for entry in snapshot.files.values()}
    while left:
        found = left.pop()
        if id(found) in seen or id(found) in scopes or isinstance(found, type):
            continue
        seen.add(id(found))
        total += sys.getsizeof(found)
        left += gc.get_referents(found)
    return total
