"""The stores of one cluster with a table of two tablets, and the laws about its files.

A file that a tablet, a log or a running export needs is never deleted, and in the end every other file is gone.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pyarrow as pa

from bookkeeper.config.file import new_settings
from bookkeeper.config.sections import Settings
from bookkeeper.coordination.config_changes import create_table_record, set_table_state
from bookkeeper.coordination.config_tree import ClusterConfig, read_config
from bookkeeper.master.operations.table_lifecycle import new_tablet_rows
from bookkeeper.metadata import keys
from bookkeeper.metadata.metadata_table import Column
from bookkeeper.metadata.values import FlushState, SegmentEntry
from bookkeeper.storage.volume.file_ops import FileOps
from bookkeeper.storage.volume.local_volume import LocalAppender, LocalVolume
from tests.support.simulation.cells import SimTable, short
from tests.support.simulation.kernel import Kernel
from tests.support.simulation.primitives import SimClock
from tests.support.simulation.tree import SimCoordination

TABLE = "1"
FLIGHT_MS = 15_000
"""How long a write to the books may be in flight (R4): longer than a process is suspended, or outlives its session."""


class QuickOps(FileOps):
    """System calls without syncs: no schedule loses power."""

    def fsync(self, fd: int) -> None:
        del fd

    def fdatasync(self, fd: int) -> None:
        del fd


class JudgedVolume(LocalVolume):
    """The cluster's files: each look and each change is a step, and the laws judge each deletion."""

    def __init__(self, root: Path, cluster: Cluster) -> None:
        super().__init__(root, QuickOps())
        self._cluster = cluster

    def create(self, name: str, parts: Iterable[bytes | pa.Buffer]) -> LocalAppender:
        self._cluster.kernel.pause(f"create {short(name)}")
        return super().create(name, parts)

    def exists(self, name: str) -> bool:
        self._cluster.kernel.pause(f"look for {short(name)}")
        return super().exists(name)

    def entries(self, directory: str) -> Iterator[str]:
        self._cluster.kernel.pause(f"list {directory}")
        return iter(list(super().entries(directory)))

    def list_directories(self, directory: str) -> list[str]:
        self._cluster.kernel.pause(f"list {directory}")
        return super().list_directories(directory)

    def delete(self, names: Sequence[str]) -> None:
        for name in names:
            self._remove(name)

    def discard(self, names: Sequence[str]) -> None:
        self.delete(names)

    def _remove(self, name: str) -> None:
        self._cluster.kernel.pause(f"delete {short(name)}")
        if (self._root / name).exists():
            self._cluster.judge_deletion(name)
            super().delete([name])

    def is_there(self, name: str) -> bool:
        """As :meth:`exists`, without a step."""
        return (self._root / name).exists()


@dataclass(eq=False)
class Cluster:
    """One cluster. ``has_targets``: its table goes on to peers, so imports and transfers have logs."""

    kernel: Kernel
    directory: Path
    has_targets: bool
    broken: list[str] = field(default_factory=list)
    copying: dict[str, Collection[str]] = field(default_factory=dict)
    """The files that each export copies, by its id."""
    beside: dict[str, Collection[str]] = field(default_factory=dict)
    """The files that the manifest beside each log names."""
    taken: set[str] = field(default_factory=set)
    """Contents of which somebody was told that every tablet has them."""
    counts: Counter[str] = field(default_factory=Counter)
    """How often things happened."""

    def __post_init__(self) -> None:
        self.settings: Settings = new_settings(
            self.directory, "west", instance_id="id-west", master_port=10_000, overrides={}
        )
        self.clock = SimClock()
        self.table = SimTable(self.kernel)
        self.table.owned_by(self.settings.instance.instance_id)
        self.table.on_row = self._judge_row
        self.coordination = cast("Any", SimCoordination(self.kernel, "west"))
        self.volume = JudgedVolume(self.directory, self)
        create_table_record(self.coordination, TABLE, "table-1", (), {})
        rows = new_tablet_rows(TABLE, [b"m"])
        self.rows = [row.key for row in rows]
        self.table.put(rows, keys.ONCE_RANK)
        set_table_state(self.coordination, TABLE, "online")

    def config(self) -> ClusterConfig:
        """The configuration now."""
        return read_config(self.coordination)

    # ---- contents of files

    def content(self, names: Collection[str]) -> Counter[str]:
        """The content of files. A missing one breaks a law."""
        found = Counter[str]()
        for name in names:
            raw = self.volume.read(name, 1 << 20)
            if raw is None:
                self.broken.append(f"a tablet reads {short(name)}, which is deleted")
            else:
                found.update(json.loads(raw))
        return found

    # ---- laws

    def named(self) -> dict[bytes, tuple[str, ...]]:
        """The files that each tablet's newest state names, now."""
        found = {}
        for key in self.rows:
            row = self.table.row(key, ("tablet",))
            cell = None if row is None else row.cells.get(keys.FLUSH)
            found[key] = () if cell is None else FlushState.decode(cell.value).segments
        return found

    def _judge_row(self, key: bytes, columns: Collection[Column]) -> None:
        if key in self.rows and keys.FLUSH in columns:
            self.broken += [
                f"a tablet names {short(name)}, which is deleted"
                for name in self.named()[key]
                if not self.volume.is_there(name)
            ]

    def judge_deletion(self, name: str) -> None:
        """A file goes now."""
        self.beside.pop(name, None)
        for key, names in self.named().items():
            if name in names:
                self.broken.append(f"{short(name)} goes, and tablet {key!r} names it")
        self.broken += [f"{short(name)} goes, and an export copies it" for c in self.copying.values() if name in c]
        self.broken += [
            f"{short(name)} goes, and {short(log)} names it for peers" for log, c in self.beside.items() if name in c
        ]

    def left_over(self) -> list[str]:
        """Files and rows that are there in the end and needed by nothing."""
        needed = {name for names in self.named().values() for name in names}
        needed |= {name for names in self.beside.values() for name in names}
        files = [file for file in self.volume.list_names("tables/") if file not in needed]
        rows = self.table.rows(keys.HOLD_PREFIX)
        kept = [keys.parse_hold_row(row.key) for row in rows if not set(row.cells) <= self._holds_of_logs()]
        marks = [row.key for row in self.table.rows(keys.DEL_PREFIX)]
        return [
            *(f"{short(file)} stays on disk" for file in files),
            *(f"{short(file)} is held" for file in kept),
            *(f"{mark!r} stays" for mark in marks if keys.parse_del_row(mark) not in needed),
        ]

    def _holds_of_logs(self) -> set[Column]:
        return {keys.log_hold_column(log) for log in self.beside}

    def wrong_content(self) -> list[str]:
        """Imports and transfers that a tablet lacks or has twice, in the end."""
        found = []
        for key, names in self.named().items():
            content = self.content(names)
            found += [f"tablet {key!r} has {label} {count} times" for label, count in content.items() if count > 1]
            found += [f"tablet {key!r} lacks {label}" for label in self.taken if label not in content]
        return found


def content_of(label: str) -> bytes:
    """A file with the records of one file of an import or transfer."""
    return json.dumps([label]).encode()


def entry_of(content: bytes) -> SegmentEntry:
    """The description of such a file."""
    return SegmentEntry("default", 1, len(content), b"a", b"z", 1, 1, 0)
