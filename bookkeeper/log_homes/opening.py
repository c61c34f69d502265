"""Opens the logs of a cluster for one process."""

from __future__ import annotations

from collections.abc import Callable, Collection

from msgspec import Struct

from bookkeeper.clock import Clock
from bookkeeper.coordination.coordination_protocol import Coordination
from bookkeeper.log_homes.home_books import HomeBooks
from bookkeeper.log_homes.host_logs import Hosts, by_sessions
from bookkeeper.log_homes.log_volume import LogVolume, OwnLogs
from bookkeeper.metadata.metadata_table import MetadataTable
from bookkeeper.metadata.values import LogHome
from bookkeeper.rpc.contract.services import TServer
from bookkeeper.storage.volume.names import LOG_SUFFIX, log_directory
from bookkeeper.storage.volume.volume_protocol import Volume
from bookkeeper.storage.wal.writing.seal import SEAL_SUFFIX


def open_homes(table: MetadataTable, shared: Volume) -> HomeBooks:
    """The homes in the books of a cluster with this Volume."""

    def has_shared_logs(session: str) -> bool:
        return next(iter(shared.entries(log_directory(session))), None) is not None

    return HomeBooks(table, has_shared_logs)


def open_logs(
    shared: Volume,
    homes: HomeBooks,
    coordination: Coordination,
    tserver: Callable[[str], TServer],
    clock: Clock,
    own: OwnLogs | None = None,
) -> LogVolume:
    """The Volume with all logs of a cluster. ``tserver``: calls to the process at an address."""
    return LogVolume(shared, homes, Hosts(by_sessions(coordination), tserver, clock), own)


class SessionLogs(Struct, frozen=True):
    """Where one session makes its logs: on the cluster's Volume, or on the disk of its host (``home``)."""

    session: str
    volume: Volume
    home: LogHome | None = None

    def begin(self, homes: HomeBooks) -> None:
        """Rule R12: the books name the home before there is a log. Raises TransientError."""
        if self.home is not None:
            homes.put(self.session, self.home)
        else:
            homes.note_shared(self.session)

    def end(self, homes: HomeBooks) -> None:
        """The session makes no more logs. If each of its logs is sealed, the books say so: then no tablet waits for the
        host, when it goes away. Raises OSError, TransientError.
        """
        if self.home is None:
            return
        if are_sealed(self.volume.list_names(f"{log_directory(self.session)}/")):
            homes.put_ended(self.session)


def are_sealed(names: Collection[str]) -> bool:
    """Rule R15: whether each log among these files has its seal beside it."""
    files = set(names)
    return all(name + SEAL_SUFFIX in files for name in files if name.endswith(LOG_SUFFIX))
