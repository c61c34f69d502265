"""Segment files on the disks of hosts, compared with each other and with the state that the books name.

Arrives: the rows of the books and the directories of the hosts, read from outside while they run. Leaves: lines of
text. A file that a voter lacks, or that differs between two hosts, is a *problem*; one that nothing names is a
*surplus*, which the hosts' collectors delete within a few minutes. A part of a file under way stays for longer, because
its sender may go on with it.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bookkeeper.clock import SystemClock
from bookkeeper.metadata import keys, values
from bookkeeper.metadata.metadata_table import Row
from bookkeeper.storage.volume.names import TABLES
from bookkeeper.tserver.replicas.replica_receiver import PARTS_KEPT_S
from tests.support.hosted_cluster import REPLICAS


@dataclass(frozen=True, slots=True)
class NamedTablet:
    """A tablet with replicas: the files that the books name, the hosts that vote, and the hosts and placements of those
    that join or leave.
    """

    row: bytes
    files: frozenset[str]
    voters: frozenset[str]
    others: frozenset[tuple[str, str]]


def named_tablets(rows: Iterable[Row]) -> list[NamedTablet]:
    """The tablets that lie on hosts."""
    found = []
    for row in rows:
        cells = {
            column.qualifier.decode(): values.ReplicaCell.decode(cell.value)
            for column, cell in row.cells.items()
            if column.family == keys.REPLICA_FAMILY
        }
        if not cells or not keys.is_tablet(row):
            continue
        flush = row.cells.get(keys.FLUSH)
        files = values.FlushState.decode(flush.value).segments if flush is not None else ()
        voters = frozenset(host for host, cell in cells.items() if cell.role == "voter")
        others = frozenset((host, cell.placement) for host, cell in cells.items() if host not in voters)
        found.append(NamedTablet(row.key, frozenset(files), voters, others))
    return found


def lost_files(tablets: Iterable[NamedTablet], roots: Sequence[Path]) -> list[str]:
    """Named files that are in none of these directories, also not under a name of the tablet's parts, or of the whole:
    hosts link files for divided and merged tablets when the books name them already.
    """
    return [
        f"{tablet.row!r}: named file {name} lies nowhere"
        for tablet in tablets
        for name in sorted(tablet.files)
        if not any((root / name).exists() for root in roots) and not _is_elsewhere(Path(name), roots)
    ]


def _is_elsewhere(name: Path, roots: Sequence[Path]) -> bool:
    """Whether a file of the same, unique, last name is in the directory of another tablet of the table."""
    return any((tablet / name.name).exists() for root in roots for tablet in _directories(root / name.parent.parent))


def _directories(table: Path) -> list[Path]:
    try:
        return list(table.iterdir())
    except FileNotFoundError:
        return []


@dataclass(slots=True)
class HostFiles:
    """One look at all disks."""

    problems: list[str] = field(default_factory=list)
    surplus: list[str] = field(default_factory=list)


def compare(tablets: Iterable[NamedTablet], homes: Mapping[str, Path]) -> HostFiles:
    """Look at each voter's files, byte by byte, and at what else lies there."""
    looked = HostFiles()
    wanted: dict[str, set[str]] = {host: set() for host in homes}
    for tablet in tablets:
        looked.surplus += [f"{host} is not to keep {tablet.row!r} as {name}" for host, name in sorted(tablet.others)]
        for name in sorted(tablet.files):
            found = {host: _digest(homes[host] / REPLICAS / name) for host in sorted(tablet.voters)}
            looked.problems += [f"{host} lacks {name}" for host, digest in found.items() if digest is None]
            if len(set(found.values()) - {None}) > 1:
                looked.problems.append(f"{name} differs between {', '.join(found)}")
        for host in (*tablet.voters, *(host for host, _ in tablet.others)):
            wanted[host] |= tablet.files
    for host, home in homes.items():
        there = {path.relative_to(home / REPLICAS).as_posix() for path in (home / REPLICAS / TABLES).rglob("*.parquet")}
        looked.surplus += [f"{host} has {name}, which no state names" for name in sorted(there - wanted[host])]
        incoming = (home / REPLICAS / "incoming").rglob("*")
        looked.surplus += [f"{host} has a part of {path.name}" for path in sorted(incoming) if _is_forgotten(path)]
    return looked


def _is_forgotten(path: Path) -> bool:
    try:
        age_s = SystemClock().wall_ms() / 1000 - path.stat().st_mtime
    except FileNotFoundError:
        return False
    return path.is_file() and age_s > PARTS_KEPT_S


def flip(path: Path, rng: random.Random) -> bytes | None:
    """Flip one byte of a file; returns its content before, None when there is no such file."""
    try:
        with path.open("r+b") as file:
            content = file.read()
            at = rng.randrange(len(content))
            file.seek(at)
            file.write(bytes([content[at] ^ 1 << rng.randrange(8)]))
    except (FileNotFoundError, IsADirectoryError):
        return None
    return content


def still_damaged(sound: Mapping[Path, bytes]) -> list[Path]:
    """Files that are there and have other bytes."""
    return [path for path, content in sound.items() if _content(path) not in (None, content)]


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _digest(path: Path) -> bytes | None:
    content = _content(path)
    return None if content is None else hashlib.sha256(content).digest()
