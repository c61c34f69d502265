"""The master's calls of its tservers, and facts about them: live sessions, confirmations, sealed logs.

Arrives: sessions from the coordination store, directories of logs. Leaves: calls, and facts for decisions. Every call
may be repeated. Rules: R14, R15 and R17.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor

from msgspec import Struct, field

from bookkeeper.coordination.coordination_protocol import Coordination, SessionInfo
from bookkeeper.errors import TransientError, UnavailableError, is_away, unavailable
from bookkeeper.log_homes.home_books import HomeBooks
from bookkeeper.master.index.log_files import LogFile
from bookkeeper.model import Extent
from bookkeeper.rpc.contract.services import TServer
from bookkeeper.rpc.rpc_pool import RpcPool
from bookkeeper.storage.volume.names import LOG_SUFFIX, LOGS, log_directory
from bookkeeper.storage.volume.volume_protocol import Volume
from bookkeeper.storage.wal.writing.seal import SEAL_SUFFIX, log_exists

LOG = logging.getLogger(__name__)

TSERVER_KIND = "tserver"
OTHER_KINDS = ("master", "replay")

FLUSHES_AT_ONCE = 8

CALL_TIMEOUT_MS = 10_000
"""ms to wait for a tserver's answer to the master; flushing a tablet is the longest of these calls."""

LOG_TIMEOUT_MS = 5_000
"""ms to wait for a host that has a log; the longest of these calls seals a log, which reads all of it."""


class TServers(Struct, frozen=True):
    """Calls to tservers of this cluster. Thread-safe. ``volume``: with the logs of all hosts; ``homes``: of sessions
    whose logs lie on hosts' disks, None = no session has one.
    """

    coordination: Coordination
    pool: RpcPool
    volume: Volume
    homes: HomeBooks | None = None
    _sealed_off: set[str] = field(default_factory=set)

    def sessions(self) -> list[SessionInfo]:
        """All recorded sessions, dead ones included."""
        return self.coordination.sessions(TSERVER_KIND)

    def sessions_of_all_kinds(self) -> list[SessionInfo]:
        """Those of masters and replay processes, too."""
        return self.coordination.sessions(TSERVER_KIND, *OTHER_KINDS)

    def live(self) -> dict[str, str]:
        """Live session to its address."""
        return {info.session_id: info.address for info in self.sessions() if info.alive}

    def at(self, address: str) -> TServer:
        """The tserver at an address."""
        return self.pool.tserver(address, CALL_TIMEOUT_MS)

    def session_of(self, file: str) -> str | None:
        """The session that writes or wrote a log, None for a file that is no log of this cluster."""
        return session_of_log(file)

    def logs(self) -> list[LogFile]:
        """Every log on disk, by its session's directory. Raises UnavailableError when they can't be listed."""
        return [log for session_id in self.directories() for log in self.logs_of(session_id)]

    def logs_in_reach(self) -> list[LogFile]:
        """The logs on disk without those of hosts that are away: for people, and for no decision. Raises
        UnavailableError when the others can't be listed.
        """
        found: list[LogFile] = []
        for session_id in self.directories():
            try:
                found += self.logs_of(session_id)
            except UnavailableError as error:
                if not is_away(error):
                    raise
        return found

    def directories(self) -> list[str]:
        """The names of the sessions' directories. Raises UnavailableError when they can't be listed."""
        try:
            return self.volume.list_directories(LOGS.rstrip("/"))
        except OSError as error:
            raise unavailable("the directories of logs can't be listed", error) from error

    def logs_of(self, session_id: str) -> list[LogFile]:
        """The logs of one session that are on disk. A seal appears on disk complete, so its name suffices.

        Raises UnavailableError when they can't be listed.
        """
        entries = set(self.entries_of(session_id))
        return [LogFile(log, session_id, (log, True) in entries) for log, is_seal in sorted(entries) if not is_seal]

    def entries_of(self, session_id: str) -> Iterator[tuple[str, bool]]:
        """The names of one session's logs, in the order of its directory: (log, False) for a log, (log, True) for its
        seal.

        Raises UnavailableError when they can't be listed.
        """
        directory = log_directory(session_id)
        try:
            for file in self.volume.entries(directory):
                name = file.removesuffix(SEAL_SUFFIX)
                if name.endswith(LOG_SUFFIX):
                    yield name, name != file
        except OSError as error:
            raise unavailable(f"{directory} can't be listed", error) from error

    def is_sealed_off(self, session_id: str) -> bool:
        """Rule R15, for a dead session: whether every log of it is sealed, so that no reader goes past its end.

        A positive answer is cached until :meth:`forget_sealed_sessions`: an offline peer may retain many logs of dead
        sessions.
        """
        if session_id not in self._sealed_off:
            if not self._has_sealed_all(session_id):
                return False
            self._sealed_off.add(session_id)
        return True

    def _has_sealed_all(self, session_id: str) -> bool:
        try:
            return all(log.sealed for log in self.logs_of(session_id))
        except UnavailableError as error:
            if not is_away(error):
                raise
            return self.homes is not None and self.homes.has_ended(session_id)

    def forget_sealed_sessions(self) -> None:
        """Drop the cached answers: a paused process of a session that counts as dead may have started another log."""
        self._sealed_off.clear()

    def has_log(self, name: str) -> bool:
        """Whether there is a log. Raises UnavailableError when that is unknown."""
        return log_exists(self.volume, name)

    def remove_directory(self, session_id: str) -> None:
        """Remove the directory of a dead session's logs, which has none, and the row of its home. Raises
        TransientError.
        """
        directory = log_directory(session_id)
        try:
            self.volume.prune(directory)
        except OSError as error:
            raise unavailable(f"{directory} can't be removed", error) from error
        self.forget_home(session_id)

    def forget_home(self, session_id: str) -> None:
        """Remove the row of a dead session's home. Raises TransientError."""
        if self.homes is not None:
            self.homes.remove(session_id)

    def unconfirmed(self, generation: int) -> list[str]:
        """Rule R14: sessions that may still write blocks for the targets of an older configuration, each with the
        reason.

        Every live tserver has to confirm the generation; every dead one's logs have to be sealed, because only a seal
        proves that none of its late writes counts.
        """
        return [
            f"{info.session_id}: {reason}"
            for info in self.sessions()
            if (reason := self._why_unconfirmed(info, generation)) is not None
        ]

    def _why_unconfirmed(self, info: SessionInfo, generation: int) -> str | None:
        if not info.alive:
            return None if self.is_sealed_off(info.session_id) else self._why_unsealed(info.session_id)
        try:
            confirmed = self.at(info.address).confirm_config(generation)
        except TransientError as error:
            return error.message
        return None if confirmed >= generation else f"still at generation {confirmed}"

    def _why_unsealed(self, session_id: str) -> str:
        home = None if self.homes is None else self.homes.of(session_id)
        reason = "dead, its logs are not sealed yet"
        if home is None:
            return reason
        return f"{reason}: they lie on host {home.host}; start it, or accept the loss of its disk (host forget)"

    def for_each_live(self, call: Callable[[TServer], object]) -> list[str]:
        """Call every live tserver; returns the transient errors, one line each."""
        problems = []
        for session, address in self.live().items():
            try:
                call(self.at(address))
            except TransientError as error:
                problems.append(f"{session}: {error.message}")
        return problems

    def flush(self, tablets: Collection[tuple[Extent, str]]) -> list[str]:
        """Flush these tablets at their sessions, several at once: a flush mostly waits for the disk.

        Returns the transient errors, one line each.
        """
        live = self.live()

        def flush_one(extent: Extent, session: str) -> str | None:
            if session not in live:
                return f"tablet {extent} has no tserver yet"
            try:
                self.at(live[session]).flush_tablet(extent)
            except TransientError as error:
                return f"{session}: {error.message}"
            return None

        flushes = ThreadPoolExecutor(FLUSHES_AT_ONCE, thread_name_prefix="flush")
        try:
            results = [flushes.submit(flush_one, extent, session) for extent, session in tablets]
            return [problem for result in results if (problem := result.result()) is not None]
        finally:
            flushes.shutdown()

    def unload_everywhere(self, extents: Collection[Extent], epoch: int) -> list[str]:
        """Make every live tserver drop these tablets without a flush; returns the transient errors, one line each."""

        def drop(tserver: TServer) -> None:
            there = set(tserver.tablets().extents) & set(extents)
            for extent in sorted(there, key=lambda one: (one.table_id, one.end_row is None, one.end_row or b"")):
                tserver.unload_tablet(extent, epoch, True)

        return self.for_each_live(drop)


def session_of_log(file: str) -> str | None:
    """The session that writes or wrote a log, None when the file is not below the directory of logs."""
    if not file.startswith(LOGS) or not file.endswith(LOG_SUFFIX):
        return None
    session, separator, _ = file[len(LOGS) :].partition("/")
    return session if separator else None
