"""The content of segment files on this host, in parts, for an export of their table.

A hold in the books keeps the files meanwhile: the collector of each host spares them (``replica_collector``).
"""

from __future__ import annotations

from bookkeeper.errors import InvalidInputError, NotFoundError, unavailable
from bookkeeper.rpc.contract.messages import CONTENT_BYTES_MAX, ReplicaContent
from bookkeeper.storage.replicas.manifest import ReplicaKey
from bookkeeper.tserver.replicas.held_replicas import HeldReplicas


class ReplicaContents:
    """Thread-safe."""

    def __init__(self, replicas: HeldReplicas) -> None:
        self._replicas = replicas

    def read(self, table_id: str, directory: str, file: str, start: int) -> ReplicaContent:
        """The content of a file from position ``start`` on, at most 1 MiB, with its size and checksum. Raises
        NotFoundError when this host does not hold the file, InvalidInputError, CorruptionError for a damaged manifest,
        UnavailableError.
        """
        key = ReplicaKey(table_id, directory).check()
        name = key.check_file(file)
        if start < 0:
            raise InvalidInputError(f"no file has a position {start}: want 0 or more")
        replica = self._replicas.find(key)
        held = None if replica is None else replica.manifest.sound.get(name)
        if held is None:
            raise NotFoundError(f"host {self._replicas.host.name} does not hold {name}: ask another one")
        try:
            content = self._replicas.store.volume.read_range(name, start, CONTENT_BYTES_MAX)
        except FileNotFoundError as error:
            raise NotFoundError(f"{name} is gone from host {self._replicas.host.name}: ask another one") from error
        except OSError as error:
            raise unavailable(f"{name} of host {self._replicas.host.name} can't be read", error) from error
        return ReplicaContent(held.size_bytes, held.crc32c, bytes(content))
