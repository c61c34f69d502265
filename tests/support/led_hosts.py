"""Several hosts of one cluster inside the test: tablets with replicas, and a test that is their master.

Arrives: a directory. Leaves: :class:`Hosts`, with a tserver for each host that runs (:class:`LocalNode`), real disks,
real books and real calls between them.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from bookkeeper.config.sections import HostSettings, ReplicasSettings, Settings
from bookkeeper.master.splits import split_rules
from bookkeeper.master.splits.split_rules import Change
from bookkeeper.metadata import keys, values
from bookkeeper.metadata.metadata_table import CellKey, RowPut
from bookkeeper.metadata.values import ReplicaCell, ReplicaRole
from bookkeeper.model import Extent
from bookkeeper.storage.replicas.manifest import Manifest, ReplicaKey
from bookkeeper.tserver.leading.leader_chain import LeaderChain
from bookkeeper.tserver.replicas.held_replica import HeldReplica
from bookkeeper.tserver.replicas.held_replicas import HeldReplicas
from bookkeeper.tserver.replicas.offer_checks import ReplicaRow
from bookkeeper.tserver.replicas.replica_books import ReplicaBooks
from tests.support.tservers import Ground, LocalNode, flush_of, logs_in_row, wait_until

QUIET = {"table.compaction.segments_max": "1000", "table.compaction.ratio": "1000"}


class Hosts:
    """The hosts of a cluster, each with a tserver while it runs."""

    def __init__(self, ground: Ground, directory: Path, replicas: ReplicasSettings) -> None:
        self.ground = ground
        self._replica_settings = replicas
        self._directory = directory
        self._nodes: dict[str, LocalNode] = {}
        self._placements = itertools.count(1)
        self._ranks = itertools.count(1)

    # ---- hosts

    def settings(self, name: str) -> Settings:
        """The settings of a host."""
        own = replace(self.ground.settings, replicas=self._replica_settings)
        if name == own.host.name:
            return own
        home = self._directory / name
        (home / "logs").mkdir(parents=True, exist_ok=True)
        host = HostSettings(name=name, cluster=str(own.directory))
        return replace(own, directory=home, host=host)

    def start(self, *names: str) -> None:
        """Start the tservers of hosts."""
        for name in names:
            self._nodes[name] = self.ground.local(settings=self.settings(name))

    def node(self, name: str) -> LocalNode:
        """The tserver of a host."""
        return self._nodes[name]

    def stop(self, name: str) -> None:
        """End a host's tserver cleanly."""
        self._nodes.pop(name).stop()

    def kill(self, name: str) -> LocalNode:
        """End a host's tserver without an unload, and seal its logs, as a master does. Its disk stays."""
        node = self.lose(name)
        self.ground.recover_logs(node)
        return node

    def lose(self, name: str) -> LocalNode:
        """End a host's tserver without an unload; its logs have no seal until ``ground.recover_logs`` of the node."""
        node = self._nodes.pop(name)
        node.crash()
        return node

    def wipe(self, name: str) -> None:
        """Empty the disk of a host that does not run."""
        shutil.rmtree(self.settings(name).replicas_dir)

    def held(self, name: str, extent: Extent) -> HeldReplica:
        """The replica of a tablet on a host that runs."""
        found = self._replicas(name).find(self.key(extent))
        assert found is not None, f"{name} has no replica of {extent}"
        return found

    def _replicas(self, name: str) -> HeldReplicas:
        parts = self.node(name).process.parts.replicas
        assert parts is not None
        return parts.held

    def incarnation(self, name: str) -> str:
        """Of the disk of a host that runs."""
        return self._replicas(name).host.incarnation

    def manifest(self, name: str, extent: Extent) -> Manifest:
        """A tablet's replica on a host."""
        return self.held(name, extent).manifest

    def chain(self, name: str, extent: Extent) -> LeaderChain:
        """The chain of a tablet at its leader."""
        parts = self.node(name).process.parts.tablets
        chain = parts.leading.led.find(parts.registry.serving(extent))
        assert chain is not None
        return chain

    def files(self, name: str, extent: Extent) -> dict[str, bytes]:
        """The segment files in a tablet's directory on a host."""
        root = self.settings(name).replicas_dir
        found = (root / self.key(extent).prefix).glob("*.parquet")
        return {path.relative_to(root).as_posix(): path.read_bytes() for path in found}

    # ---- a master's part

    def table(self, *hosts: str, properties: Mapping[str, str] | None = None, table_id: str = "1") -> Extent:
        """A table of one tablet, with a replica on each of these hosts; nobody leads it yet."""
        (extent,) = self.ground.create_table(table_id)
        self.ground.set_properties(table_id, {**QUIET, "table.replicas": str(max(2, len(hosts))), **(properties or {})})
        for name in hosts:
            self.place(extent, name)
        return extent

    def key(self, extent: Extent) -> ReplicaKey:
        """The tablet, by the directory in its row."""
        row = self.ground.metadata.get(keys.tablet_row(extent.table_id, extent.end_row))
        assert row is not None
        return ReplicaKey(extent.table_id, values.decode_dir(row.cells[keys.DIR].value))

    def place(self, extent: Extent, name: str, role: ReplicaRole = "voter") -> None:
        """The tablet's row gives a host a new placement."""
        identity = self._replicas(name).host
        cell = ReplicaCell(f"p{next(self._placements)}", identity.incarnation, role)
        row = RowPut(keys.tablet_row(extent.table_id, extent.end_row), {keys.replica_column(name): cell.encode()})
        self.ground.metadata.put([row], keys.master_rank(1, next(self._ranks)))

    def unplace(self, extent: Extent, name: str) -> None:
        """The tablet's row names a host no longer."""
        cell = CellKey(keys.tablet_row(extent.table_id, extent.end_row), keys.replica_column(name))
        self.ground.metadata.delete([cell], keys.master_rank(1, next(self._ranks)))

    def lead(self, extent: Extent, name: str) -> None:
        """Assign a tablet to a host and let it load it."""
        self.ground.assign(self.node(name), extent)

    def unload(self, extent: Extent, name: str) -> None:
        """Take a tablet from a host."""
        self.ground.tserver(self.node(name)).unload_tablet(extent, 1, False)

    # ---- splits and merges

    def split(self, extent: Extent, at: bytes) -> tuple[Extent, Extent]:
        """Change the rows of a tablet that nobody serves, as a master does; both tablets, the lower one first."""
        row = self.ground.metadata.get(keys.tablet_row(extent.table_id, extent.end_row))
        assert row is not None
        name = f"s-{next(self._placements)}"
        change = split_rules.split_change(split_rules.facts_of(row), [at], split_rules.next_serial([row]), name)
        self.ground.metadata.put(change.replicas, keys.master_rank(1, next(self._ranks)))
        self._execute(change)
        return replace(extent, end_row=at), replace(extent, prev_row=at)

    def merge(self, *parts: Extent) -> Extent:
        """Change the rows of adjacent tablets that nobody serves, as a master does; the merged tablet, whose parts
        hosts may not delete yet.
        """
        rows = [self.ground.metadata.get(keys.tablet_row(part.table_id, part.end_row)) for part in parts]
        facts = [split_rules.facts_of(row) for row in rows if row is not None]
        change = split_rules.merge_on_hosts(facts, split_rules.next_serial(rows), f"m-{next(self._placements)}")
        self._execute(change)
        rows = [self.ground.metadata.get(keys.tablet_row(part.table_id, part.end_row)) for part in parts]
        gone = split_rules.replicas_of_remnants(row for row in rows if row is not None)
        self.ground.metadata.delete(gone, keys.master_rank(1, next(self._ranks)))
        return replace(parts[-1], prev_row=parts[0].prev_row)

    def linked(self, extent: Extent) -> None:
        """Enough hosts have the files of a merged tablet: its parts may go."""
        row = self.ground.metadata.get(keys.tablet_row(extent.table_id, extent.end_row))
        assert row is not None
        write = split_rules.parts_linked(row.key, split_rules.serial_of(row))
        self.ground.metadata.delete(write.deletes, write.rank)

    def _execute(self, change: Change) -> None:
        for write in split_rules.in_order(change):
            if write.puts:
                self.ground.metadata.put(write.puts, write.rank)
            if write.deletes:
                self.ground.metadata.delete(write.deletes, write.rank)

    def divide(self, name: str, source: ReplicaKey, *children: Extent) -> list[Extent]:
        """Order a host to link the files of a tablet for these ones; those of which it has all."""
        return [*self.ground.tserver(self.node(name)).divide_replica(source.directory, list(children))]

    def compact(self, extent: Extent, name: str) -> None:
        """Let a leader write all its segments into one."""
        self.node(name).process.parts.tablets.compactor.compact(self.chain(name, extent).tablet)

    def collect(self, name: str) -> None:
        """Let a host delete what nothing needs."""
        parts = self.node(name).process.parts.replicas
        assert parts is not None
        parts.collector.collect()

    # ---- waits

    def root(self, name: str, extent: Extent) -> int | None:
        """The newest state that a host has."""
        found = self._replicas(name).find(self.key(extent))
        return None if found is None else found.replica.root

    def wait_same(self, extent: Extent, leader: str, *followers: str) -> None:
        """Wait until followers have the leader's root."""
        for follower in followers:
            is_same = partial(self._is_same, extent, leader, follower)
            wait_until(is_same, f"{follower} has the root of {leader}")

    def _is_same(self, extent: Extent, leader: str, follower: str) -> bool:
        return self.root(follower, extent) == self.root(leader, extent)

    def wait_named(self, extent: Extent, leader: str) -> None:
        """Wait until the books name the leader's root, and no log waits."""
        wait_until(lambda: self.chain(leader, extent).is_named, f"a named root of {leader}")

    def name_now(self, name: str) -> None:
        """Let a host name all states that may be named now."""
        self.node(name).process.parts.tablets.leading.namer.run_once()

    def row(self, extent: Extent) -> ReplicaRow:
        """The facts of the books about the tablet's replicas."""
        found = ReplicaBooks(self.ground.metadata).row(extent)
        assert found is not None
        return found

    def named(self, extent: Extent) -> tuple[int, tuple[str, ...]]:
        """The state that the books name: its id and its files."""
        state = flush_of(self.ground, extent)
        return state.flush_id, state.segments

    def logs(self, extent: Extent) -> set[str]:
        """The logs that the tablet's row names."""
        return logs_in_row(self.ground, extent)


@contextmanager
def hosts(
    directory: Path,
    *names: str,
    settings: ReplicasSettings | None = None,
    overrides: Mapping[str, object] | None = None,
) -> Iterator[Hosts]:
    """A cluster whose hosts of these names run, ``host1`` with the directory of the cluster."""
    made = Ground(directory / "west", overrides=overrides)
    try:
        world = Hosts(made, directory, settings or ReplicasSettings())
        world.start(*names)
        yield world
    finally:
        made.close()
