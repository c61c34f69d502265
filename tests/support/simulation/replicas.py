"""Replicas of tablets in a simulated cluster, as the books and the disks of hosts have them, and the laws about them.

Arrives: rows of tablets as they are written, manifests as they are saved, files as hosts and the collector delete them.
Leaves: broken laws, in words. Independent of the product's decisions: a file is durable where the modelled disk has all
its bytes. A tablet comes from the Volume and goes back to it when its table changes; on the way the Volume has files of
a tablet with replicas.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from bookkeeper.bulk.adoption import IMPORT_PREFIX
from bookkeeper.bulk.booked_segment import segment_ref
from bookkeeper.config.table_properties import TableProperties, parse_properties
from bookkeeper.metadata import keys
from bookkeeper.metadata.lost_logs import lost_cells
from bookkeeper.metadata.metadata_table import Column, Row
from bookkeeper.metadata.values import VOTER, FlushState, ReplicaCell, SegmentEntry, decode_dir
from bookkeeper.replicas.values import Placement
from bookkeeper.storage.replicas.manifest import Manifest, ReplicaKey
from bookkeeper.storage.tablet.segments.segment_format import SegmentRef
from bookkeeper.storage.volume.local_volume import LocalVolume
from bookkeeper.storage.volume.names import TABLES
from tests.support.simulation.host_disk import HostDisks
from tests.support.simulation.hosts import read_manifest
from tests.support.simulation.ledger import LoggedBlock
from tests.support.simulation.tablets import Entry, entries_in
from tests.support.volumes import name_at

if TYPE_CHECKING:
    from tests.support.simulation.cluster import Cluster
    from tests.support.simulation.hosts import Host


@dataclass(frozen=True)
class ReplicatedTablet:
    """The row of a tablet with replicas on hosts."""

    table_id: str
    row: Row
    directory: str
    named: FlushState | None
    cells: Mapping[str, ReplicaCell]

    @property
    def named_id(self) -> int:
        """The named state; 0 when there is none."""
        return 0 if self.named is None else self.named.flush_id

    @property
    def files(self) -> tuple[str, ...]:
        """The files of the named state."""
        return () if self.named is None else self.named.segments

    @property
    def voters(self) -> dict[str, ReplicaCell]:
        """The replicas that count as copies."""
        return {host: cell for host, cell in self.cells.items() if cell.role == VOTER}

    def ref(self, name: str) -> SegmentRef:
        """A file of the named state."""
        return segment_ref(name, SegmentEntry.decode(self.row.cells[keys.segment_column(name)].value))

    def __str__(self) -> str:
        return f"tablet {self.row.key!r}"


def names_in(row: Row) -> set[str]:
    """The files that a row names."""
    return {keys.parse_file(qualifier) for qualifier in row.family("segment")}


def tablet_of(row: Row | None) -> ReplicatedTablet | None:
    """A tablet with replicas; None for any other row."""
    if row is None or not keys.is_tablet(row) or keys.DIR not in row.cells:
        return None
    cells = {
        keys.parse_replica(column.qualifier): ReplicaCell.decode(cell.value)
        for column, cell in row.cells.items()
        if column.family == keys.REPLICA_FAMILY
    }
    if not cells:
        return None
    named = row.cells.get(keys.FLUSH)
    return ReplicatedTablet(
        keys.parse_tablet_row(row.key)[0],
        row,
        decode_dir(row.cells[keys.DIR].value),
        None if named is None else FlushState.decode(named.value),
        cells,
    )


def last_part(name: str) -> str:
    """The part of a file's name that stays when the file gets the name of another tablet."""
    return name.rpartition("/")[2]


def entries_on(host: Host, ref: SegmentRef) -> list[Entry] | None:
    """The records of a file on a host's disk, under its name or under that of a tablet before; None = there is none."""
    names = [name for name in sorted(host.files()) if last_part(name) == last_part(ref.name)]
    return entries_in(LocalVolume(host.settings.replicas_dir), replace(ref, name=names[0])) if names else None


@dataclass(eq=False)
class ReplicaLaws:
    """Watches the replicas of one cluster. ``had``: (host, incarnation) to the files that were durable there."""

    cluster: Cluster
    had: dict[tuple[str, str], set[str]] = field(default_factory=dict)
    _named: dict[bytes, int] = field(default_factory=dict)

    def _break(self, law: str) -> None:
        self.cluster.world.ledger.break_law(law)

    # ---- what there is

    def tablets(self) -> Iterator[ReplicatedTablet]:
        """All tablets with replicas."""
        for row in self.cluster.table.rows():
            if row.key < keys.TABLETS_STOP and (tablet := tablet_of(row)) is not None:
                yield tablet

    def held(self, tablet: ReplicatedTablet) -> dict[str, Manifest]:
        """The replicas on hosts under the tablet's placements of today."""
        return {
            host.name: manifest
            for host in self.cluster.hosts
            if (cell := tablet.cells.get(host.name)) is not None
            and (manifest := host.manifest(tablet.table_id, tablet.directory)) is not None
            and manifest.replica.placement == Placement(cell.placement, cell.incarnation)
        }

    def may_lead(self, name: str, tablet: ReplicatedTablet) -> bool:
        """Whether a host has the disk in a tablet's row, with each file of the named state if it has any."""
        if not tablet.files:
            return self.host(name).incarnation == tablet.cells[name].incarnation
        manifest = self.held(tablet).get(name)
        if manifest is None or manifest.replica.entry(tablet.named_id) is None:
            return False
        return all(self.host(name).has(manifest, file) for file in tablet.files)

    def is_on_volume(self, tablet: ReplicatedTablet) -> bool:
        """Whether the Volume has each file of a tablet's named state, under a name in its row."""
        return all(self._on_volume(tablet, name) for name in tablet.files)

    def host(self, name: str) -> Host:
        """A host by its name."""
        return next(host for host in self.cluster.hosts if host.name == name)

    def _properties(self, tablet: ReplicatedTablet) -> TableProperties:
        return parse_properties(self.cluster.config().table(tablet.table_id).properties)

    # ---- at the books

    def row_put(self, key: bytes, columns: Collection[Column]) -> None:
        """A row of the books was written."""
        if keys.FLUSH not in columns:
            return
        tablet = tablet_of(self.cluster.table.row(key))
        if tablet is None:
            return
        if tablet.named_id < self._named.get(key, 0):
            self._break(f"named back: {tablet} is named state {tablet.named_id} after state {self._named[key]}")
        if tablet.named_id == self._named.get(key):
            return
        self._named[key] = tablet.named_id
        wanted = self._properties(tablet).copies_needed
        for name in tablet.files:
            copies = self._copies(tablet, name)
            if len(copies) < wanted and not self._on_volume(tablet, name):
                self._break(
                    f"N3: {tablet} is named state {tablet.named_id}, and {name} is durable on {copies} "
                    f"of {sorted(tablet.voters)}: want {wanted}"
                )

    def _copies(self, tablet: ReplicatedTablet, name: str) -> list[str]:
        """The voters on whose disks a file was durable."""
        return [host for host, cell in tablet.voters.items() if self._had(host, cell.incarnation, tablet, name)]

    def _on_volume(self, tablet: ReplicatedTablet, name: str) -> str:
        """The name of a file on the Volume, for a tablet on its way from there or to there; empty = none."""
        names = sorted(other for other in names_in(tablet.row) if last_part(other) == last_part(name))
        return next(filter(self.cluster.volume.exists, names), "")

    def _had(self, host: str, incarnation: str, tablet: ReplicatedTablet, name: str) -> bool:
        """Whether a file was durable on a disk. A split names files of its tablets that hosts link later, from those of
        the tablet that was split, which end alike.
        """
        had = self.had.get((host, incarnation), set())
        beginning, ending = f"tables/{tablet.table_id}/", name[name.rindex("/") :]
        return name in had or any(one.startswith(beginning) and one.endswith(ending) for one in had)

    # ---- at the disks

    def saved(self, host: Host, path: Path) -> None:
        """A host has another manifest, which may not be durable yet."""
        manifest = read_manifest(path)
        had = self.had.setdefault((host.name, manifest.replica.placement.incarnation), set())
        for name in manifest.files:
            if host.has(manifest, name) and HostDisks.is_durable(host.settings.replicas_dir / name):
                had.add(name)
            else:
                self._break(f"not durable: the manifest of {host.name} has {name}, and its disk may lose it")

    def deleting(self, host: Host, names: Collection[str]) -> None:
        """A host deletes files."""
        for row in self._rows_on_volume():
            for name in sorted(set(names) & names_in(row)):
                if not self.cluster.volume.exists(name):
                    self._break(f"deleted early: {host.name} deletes {name} of tablet {row.key!r}, the Volume lacks it")
        for tablet in self.tablets():
            held = self.held(tablet).get(host.name)
            if held is None:
                continue
            for name in sorted(set(names) & set(tablet.files)):
                self._break(f"N4: {host.name} deletes {name}, which state {tablet.named_id} of {tablet} names")
            for name in sorted(set(names) & root_files(held)):
                self._break(f"N4: {host.name} deletes {name}, which its root {held.replica.root} of {tablet} lists")

    def removing(self, host: Host, key: ReplicaKey) -> None:
        """A host removes a replica."""
        for tablet in self.tablets():
            if (tablet.table_id, tablet.directory) == (key.table_id, key.directory) and host.name in self.held(tablet):
                self._break(f"removed: {host.name} removes its replica of {tablet}, which the books have")

    # ---- at the Volume

    def published(self, path: Path) -> None:
        """A segment has its name on the Volume: it has the bytes that a host has under this name."""
        name = name_at(path, self.cluster.settings.directory)
        for copy in (host.settings.replicas_dir / name for host in self.cluster.hosts):
            if copy.exists() and copy.read_bytes() != path.read_bytes():
                self._break(f"L7: {name} is published on the Volume, and {copy.parents[4].name} has other bytes of it")

    def shared_file_goes(self, file: str) -> None:
        """A segment goes from the Volume: no tablet there names it, and enough hosts have it for other tablets (N3)."""
        for row in self._rows_on_volume():
            if file in names_in(row):
                self._break(f"deleted early: {file} goes and is of tablet {row.key!r}")
        for tablet in self.tablets():
            for name in (name for name in tablet.files if last_part(name) == last_part(file)):
                copies, wanted = self._copies(tablet, name), self._properties(tablet).copies_needed
                if file.startswith(f"tables/{tablet.table_id}/") and len(copies) < wanted:
                    self._break(f"N3: {file} goes and {tablet} has it on {copies}: want {wanted}")

    def unnamed_files(self) -> list[str]:
        """Segments on the Volume that no tablet names, but for those of imports."""
        if not self.cluster.hosts:
            return []
        named = {name for row in self.cluster.table.rows(b"", ("segment",)) for name in names_in(row)}
        found = self.cluster.volume.list_names(TABLES)
        return [name for name in found if name not in named and f"/{IMPORT_PREFIX}" not in name]

    def _rows_on_volume(self) -> list[Row]:
        rows = self.cluster.table.rows(b"", ("segment", keys.REPLICA_FAMILY))
        return [row for row in rows if not row.family(keys.REPLICA_FAMILY)]

    # ---- at the logs

    def log_goes(self, name: str, blocks: Sequence[LoggedBlock], lies_in: Callable[[LoggedBlock, Entry], bool]) -> None:
        """A log is deleted: each of its records is in the named state of its tablet."""
        for tablet in self.tablets():
            stored = self.stored(tablet)
            lost = [
                entry.value
                for block in blocks
                if keys.tablet_row(*block.tablet) == tablet.row.key
                for entry in block.entries
                if entry.value not in stored and lies_in(block, entry)
            ]
            if lost:
                self._break(f"deleted early: {name} goes, and state {tablet.named_id} of {tablet} lacks {lost}")

    def stored(self, tablet: ReplicatedTablet) -> set[bytes]:
        """The values of :meth:`named_entries`."""
        return {entry.value for entry in self.named_entries(tablet)}

    def named_entries(self, tablet: ReplicatedTablet) -> list[Entry]:
        """The records of the named state, from the disks of the voters, or from the Volume while the tablet moves."""
        found: list[Entry] = []
        for ref in map(tablet.ref, tablet.files):
            here = (some for host in self._voting(tablet) if (some := entries_on(host, ref)) is not None)
            entries = next(here, None)
            if entries is None and (name := self._on_volume(tablet, ref.name)):
                entries = entries_in(self.cluster.volume, replace(ref, name=name))
            found += entries or []
        return found

    def _voting(self, tablet: ReplicatedTablet) -> list[Host]:
        return [
            host
            for host in self.cluster.hosts
            if (cell := tablet.voters.get(host.name)) is not None and (host.name, cell.incarnation) in self.had
        ]

    # ---- at rest

    def unrest(self) -> list[str]:
        """Outstanding things that must go before the replicas are at rest: each tablet is where its table has it; each
        voter has the named state as its root, each disk has the files of its roots and no others.
        """
        left, listed = self._to_hosts(), {host.name: set[str]() for host in self.cluster.hosts}
        replicas = {host.name: 0 for host in self.cluster.hosts}
        for tablet in self.tablets():
            held = self.held(tablet)
            left += [f"{tablet} goes on without {log}" for log in lost_cells(tablet.row)]
            wanted = self._properties(tablet).replicas
            if wanted == 1:
                left.append(f"{tablet} has replicas {tablet.cells}: its table has one")
            elif len(tablet.cells) != wanted or len(tablet.voters) != wanted:
                left.append(f"{tablet} has replicas {tablet.cells}: want {wanted} voters")
            for name, cell in tablet.cells.items():
                manifest = held.get(name)
                if manifest is None:
                    left.append(f"{name} has no replica of {tablet} as {cell}")
                    continue
                replicas[name] += 1
                listed[name] |= root_files(manifest)
                if manifest.replica.root != tablet.named_id:
                    left.append(f"{name} has root {manifest.replica.root} of {tablet}, named is {tablet.named_id}")
                elif root_files(manifest) != set(tablet.files):
                    other = sorted(root_files(manifest) ^ set(tablet.files))
                    left.append(f"{name} has another list of state {tablet.named_id} of {tablet}: {other} differ")
        for host in self.cluster.hosts:
            left += [f"{host.name} has {name}" for name in sorted(host.files() - listed[host.name])]
            left += [f"{host.name} lacks {name}" for name in sorted(listed[host.name] - host.files())]
            left += [f"{host.name} has incoming {name}" for name in sorted(host.incoming())]
            if len(host.manifests()) != replicas[host.name]:
                left.append(f"{host.name} has {len(host.manifests())} replicas: want {replicas[host.name]}")
        return left

    def _to_hosts(self) -> list[str]:
        """Tablets on the Volume whose tables have replicas."""
        tables = self.cluster.config().tables if self.cluster.hosts else {}
        several = {id_ for id_, table in tables.items() if parse_properties(table.properties).replicas > 1}
        rows = self.cluster.table.rows() if several else []
        return [
            f"tablet {row.key!r} is on the Volume: its table has replicas"
            for row in rows
            if row.key < keys.TABLETS_STOP and keys.is_tablet(row) and not row.family(keys.REPLICA_FAMILY)
            if keys.parse_tablet_row(row.key)[0] in several
        ]


def root_files(manifest: Manifest) -> set[str]:
    """The files of a replica's root."""
    root = manifest.replica.entry(manifest.replica.root)
    return set() if root is None else set(root.segment.list)
