"""Sends files of replicas to hosts whose copies are damaged. A damaged file does not leave this host.

The whole file is compared with its checksum before its first byte goes. A host that leads the tablet takes back what
the asking placement has acknowledged of states with this file: they wait for their name until it holds the file again.
"""

from __future__ import annotations

from collections.abc import Callable

from bookkeeper.errors import InvalidInputError, NotServingError, unavailable
from bookkeeper.replicas.events import CopyDamaged
from bookkeeper.rpc.contract.messages import CONTENT_BYTES_MAX, FileRequest
from bookkeeper.storage.replicas.manifest import ReplicaKey
from bookkeeper.tserver.replicas.held_replicas import HeldReplicas
from bookkeeper.tserver.replicas.wire_forms import placement_of

Suspect = Callable[[str], bool]
"""Compares a file with its checksum; returns whether it is damaged."""


class FileSource:
    """Thread-safe. A call takes memory for one message."""

    def __init__(self, replicas: HeldReplicas, suspect: Suspect) -> None:
        self._replicas = replicas
        self._suspect = suspect

    def content(self, request: FileRequest) -> bytes:
        """At most a mebibyte of a file from a position on. Raises NotServingError when this host does not hold the file
        with this size and checksum, CorruptionError for a damaged replica, InvalidInputError, UnavailableError.
        """
        key = ReplicaKey(request.table_id, request.directory)
        key.check_file(request.file)
        if request.start < 0:
            raise InvalidInputError(f"no file has a position {request.start}: want 0 or more")
        held = self._replicas.find(key.check())
        if held is not None and held.replica.is_leader:
            held.apply(CopyDamaged(placement_of(request.receiver), request.file))
        file = None if held is None else held.manifest.sound.get(request.file)
        if file is None or (file.size_bytes, file.crc32c) != (request.size_bytes, request.crc32c):
            raise NotServingError(f"this host does not hold {request.file} with that checksum: ask another one")
        if request.start == 0 and self._suspect(request.file):
            raise NotServingError(f"{request.file} of this host is damaged, too: ask another one")
        try:
            return self._replicas.store.volume.read_range(request.file, request.start, CONTENT_BYTES_MAX)
        except OSError as error:
            raise unavailable(f"{request.file} of this host can't be read", error) from error
