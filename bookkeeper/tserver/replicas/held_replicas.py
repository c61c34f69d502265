"""All replicas on this host.

A replica whose manifest is damaged counts as absent: it is not among the others, :meth:`HeldReplicas.find` says why,
and it can't be opened as an empty one. The master gives the host another one after it has taken this one away.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping

from msgspec.structs import replace

from bookkeeper.errors import CorruptionError, unavailable
from bookkeeper.model import Extent, HostIdentity
from bookkeeper.replicas.events import Restarted
from bookkeeper.replicas.rules import CORRECTED, Rules
from bookkeeper.replicas.values import INCOMING_MAX, Placement, Replica, Stage, Target
from bookkeeper.storage.replicas.host_store import HostStore
from bookkeeper.storage.replicas.manifest import HeldFile, Manifest, ReplicaKey
from bookkeeper.tserver.replicas.held_replica import HeldReplica

LOG = logging.getLogger(__name__)


class HeldReplicas:
    """Thread-safe."""

    def __init__(self, store: HostStore, rules: Rules = CORRECTED, incoming_max: int = INCOMING_MAX) -> None:
        """Read all manifests. Raises UnavailableError where one can't be read."""
        self._store = store
        self._rules = rules
        self._incoming_max = incoming_max
        self._lock = threading.Lock()
        self._held: dict[ReplicaKey, HeldReplica] = {}
        self._damaged: dict[ReplicaKey, CorruptionError] = {}
        for key in store.list():
            self._read(key)

    def _read(self, key: ReplicaKey) -> None:
        try:
            manifest = self._store.load(key)
            if manifest is None:
                return
            if manifest.replica.placement.incarnation != self.host.incarnation:
                raise CorruptionError(
                    f"the manifest of {key} is of another disk, {manifest.replica.placement.incarnation}: this host "
                    "does not count as having the replica until the master gives it a new one"
                )
        except CorruptionError as error:
            LOG.error("%s", error.message)
            self._damaged[key] = error
            return
        manifest = replace(manifest, replica=replace(manifest.replica, incoming_max=self._incoming_max))
        held = HeldReplica(self._store, manifest, self._rules)
        held.apply(Restarted())
        self._held[key] = held

    @property
    def host(self) -> HostIdentity:
        """This host."""
        return self._store.identity

    @property
    def store(self) -> HostStore:
        """Its disk."""
        return self._store

    def all(self) -> list[HeldReplica]:
        """Each replica that can be read."""
        with self._lock:
            return list(self._held.values())

    @property
    def damaged(self) -> Mapping[ReplicaKey, CorruptionError]:
        """The replicas that can't be read."""
        with self._lock:
            return dict(self._damaged)

    def find(self, key: ReplicaKey) -> HeldReplica | None:
        """The replica of a tablet, None when this host has none. Raises CorruptionError when it is damaged."""
        with self._lock:
            return self._find(key)

    def holder_of(self, name: str) -> HeldReplica | None:
        """The replica to which a file belongs by its name, None when this host has none that can be read."""
        return next((held for held in self.all() if name.startswith(held.key.prefix)), None)

    def open(
        self, key: ReplicaKey, extent: Extent, placement_id: str, stage: Stage, targets: tuple[Target, ...]
    ) -> HeldReplica:
        """The replica of this placement, as the tablet's row has it: extent, stage and targets are noted. It is new and
        empty when the host has none, or one of another placement, whose files then no longer count.

        Raises CorruptionError when it is damaged, InvalidInputError, UnavailableError.
        """
        placement = Placement(placement_id, self.host.incarnation)

        def noted(replica: Replica) -> Replica:
            return replace(replica, stage=stage, targets=targets)

        with self._lock:
            held = self._find(key)
            if held is not None and held.placement == placement:
                held.placed(extent, noted)
                return held
            if held is not None:
                held.remove()
                del self._held[key]
            replica = noted(Replica(self.host.name, placement, incoming_max=self._incoming_max))
            manifest = Manifest(key.check(), extent, replica, {}, {})
            self._store.save(manifest)
            found = self._held[key] = HeldReplica(self._store, manifest, self._rules)
            return found

    def link_known(self, key: ReplicaKey, files: Mapping[str, HeldFile]) -> list[str]:
        """Give files that this host has of other tablets of the table, with the same last part of their names, size and
        checksum, their names in this tablet. Returns these names, durable: a host that was away during a split has the
        files of the tablet that was split. Raises UnavailableError.
        """
        if not files:
            return []
        wanted = {name.rpartition("/")[2]: file for name, file in files.items()}
        known: dict[str, str] = {}
        for other in self.all():
            if other.key.table_id == key.table_id and other.key != key:
                for name, file in other.manifest.sound.items():
                    new = wanted.get(name.rpartition("/")[2])
                    if new is not None and (file.size_bytes, file.crc32c) == (new.size_bytes, new.crc32c):
                        known[new.name] = name
        try:
            self._store.link(known)
        except FileNotFoundError:
            return []  # the other tablet has deleted one: all of them come from the sender
        except OSError as error:
            raise unavailable(f"files of other tablets can't get their names in {key.prefix}", error) from error
        return sorted(known)

    def remove(self, key: ReplicaKey, placement: Placement | None) -> None:
        """Remove the replica of this placement from this host; None: a damaged one. Another one stays, and none is
        fine. Raises UnavailableError, OSError.
        """
        with self._lock:
            held = self._held.get(key)
            if held is not None and held.placement == placement:
                held.remove()
                del self._held[key]
            elif key in self._damaged and placement is None:
                self._store.remove(key)
                self._store.volume.delete(self._store.volume.list_names(key.prefix))
                del self._damaged[key]

    def delete_orphans(self) -> tuple[str, ...]:
        """Delete the files of tablets without a manifest: a crash left them when their replica was removed. Returns
        their names. Raises OSError.
        """
        with self._lock:
            known = tuple(key.prefix for key in (*self._held, *self._damaged))
            gone = tuple(name for name in self._store.volume.list_names("tables/") if not name.startswith(known))
            self._store.volume.delete(gone)
            return gone

    def _find(self, key: ReplicaKey) -> HeldReplica | None:
        if key in self._damaged:
            raise CorruptionError(self._damaged[key].message, self._damaged[key].details)
        return self._held.get(key)
