"""Copies the files of a tablet from the cluster's Volume to this host, and back, when ``table.replicas`` leaves 1 or
becomes 1.

The order comes from the master while no process serves the tablet, after the books name its state, and may come again.
A host believes the books alone: that the row names its disk, and which files the named state lists. An order says
where each file lies on the Volume: in its table, or where files from elsewhere came in, with the same last part of the
name. So no other file of the Volume gets its name. Each copied file is durable and in the manifest before the next one
begins, so an order that is repeated goes on.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Mapping

from bookkeeper.bulk.adoption import INCOMING
from bookkeeper.errors import CorruptionError, InvalidInputError, UnavailableError, unavailable
from bookkeeper.model import Extent
from bookkeeper.storage.replicas.incoming_files import copy_durable
from bookkeeper.storage.replicas.manifest import HeldFile
from bookkeeper.storage.volume.names import TABLES, check_name
from bookkeeper.storage.volume.volume_protocol import Volume
from bookkeeper.tserver.replicas.held_replica import HeldReplica
from bookkeeper.tserver.replicas.held_replicas import HeldReplicas
from bookkeeper.tserver.replicas.replica_books import NamedState
from bookkeeper.tserver.replicas.replica_divider import ReadNamed, first_state

LOG = logging.getLogger(__name__)

TAKEN_MAX = 65_536
"""Most files in one order: more than a whole import has."""


class ReplicaStores:
    """Thread-safe; one copy at a time, because an order that comes again would write the same files."""

    def __init__(self, replicas: HeldReplicas, read_named: ReadNamed, volume: Volume) -> None:
        self._replicas = replicas
        self._read_named = read_named
        self._volume = volume
        self._lock = threading.Lock()

    def take(self, extent: Extent, files: Mapping[str, str]) -> bool:
        """Copy the files of the named state from the Volume; ``files``: each file's name here to its name there.
        Returns whether this host has all of them. Raises InvalidInputError for too many files and for another file of
        the Volume, CorruptionError for a damaged replica, UnavailableError.
        """
        if len(files) > TAKEN_MAX:
            raise InvalidInputError(f"{len(files)} files of tablet {extent} to take: at most {TAKEN_MAX} in one call")
        for name, source in files.items():
            check_source(extent.table_id, name, source)
        with self._lock:
            named, held = self._own(extent)
            if named is None or held is None:
                return False
            state = first_state(named)
            held.divide(state, named.raw, (), lambda: None)
            for name in named.row.named_files:
                if name in files and name not in held.replica.files:
                    self._take_file(held, named, name, files[name])
            return held.replica.files.issuperset(named.row.named_files)

    def _take_file(self, held: HeldReplica, named: NamedState, name: str, source: str) -> None:
        store = self._replicas.store
        part = store.incoming / f"{hashlib.blake2b(name.encode(), digest_size=16).hexdigest()}-volume.part"
        try:
            size_bytes, crc32c = copy_durable(self._volume, source, part, store.ops)
        except FileNotFoundError as error:
            raise UnavailableError(f"{source} of tablet {named.row.extent} is not on the Volume") from error
        except OSError as error:
            raise unavailable(f"{source} of tablet {named.row.extent} can't be copied to this host", error) from error
        file = HeldFile(held.key.check_file(name), size_bytes, crc32c, named.entries[name])
        held.divide(first_state(named), named.raw, [file], lambda: store.publish({part: name}))
        LOG.info("tablet %s: %s is copied from the Volume, %d bytes", named.row.extent, name, size_bytes)

    def publish(self, extent: Extent) -> bool:
        """Copy the files of the named state to the Volume, under the same names. Returns False when this host lacks
        one of them. Raises CorruptionError for a file that is damaged here, UnavailableError.
        """
        with self._lock:
            named, held = self._own(extent)
            if named is None or held is None or not held.replica.files.issuperset(named.row.named_files):
                return False
            files = held.manifest.files
            for name in named.row.named_files:
                self._publish_file(files[name])
            return True

    def _publish_file(self, file: HeldFile) -> None:
        try:
            if self._volume.exists(file.name) and self._volume.size(file.name) == file.size_bytes:
                return  # the name of a segment file is unique for ever: it was published before
            # A master whose call takes too long asks the next host: both copy the file, each under a name of its own.
            writer = self._replicas.host.name
            scratch = self._volume.scratch(file.name, writer)
            size_bytes, crc32c = copy_durable(self._replicas.store.volume, file.name, scratch.path, scratch.ops)
            if (size_bytes, crc32c) != (file.size_bytes, file.crc32c):
                raise CorruptionError(
                    f"{file.name} on this host has not the bytes that it got: its checksum differs; another host of "
                    "the tablet may have it whole",
                    {"file": file.name},
                )
            self._volume.publish([file.name], writer)
        except OSError as error:
            raise unavailable(f"{file.name} can't be copied to the Volume", error) from error

    def _own(self, extent: Extent) -> tuple[NamedState | None, HeldReplica | None]:
        """The named state of a tablet, and its replica here; None, None when its row does not name this disk."""
        named, host = self._read_named(extent), self._replicas.host
        own = None if named is None else named.row.replicas.get(host.name)
        if named is None or own is None or own.placement.incarnation != host.incarnation:
            return None, None
        row = named.row
        return named, self._replicas.open(row.key, extent, own.placement.id, own.stage, row.targets_of(host.name))


def check_source(table_id: str, name: str, source: str) -> None:
    """Raise InvalidInputError unless a file of the Volume may be the one that has this name on a host: the last part of
    a name is unique in its table. Otherwise a caller could make a host take, and then send, any file of the cluster.
    """
    places = (f"{TABLES}{table_id}/", f"{INCOMING}/")
    if not check_name(source).startswith(places) or source.rpartition("/")[2] != name.rpartition("/")[2]:
        raise InvalidInputError(f"{source!r} is not the file {name!r} of table {table_id}: name the same file")
