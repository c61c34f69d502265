"""The logs on this host's disk, for the other processes of the cluster: those of this session and of earlier ones.

A caller says which disk it means: another incarnation is refused. Only numbered logs and the files beside them are
reached, by names that lead nowhere else.

Any process with the cluster's secret may call, so no record is lost because one asks for it. No log of the session that
writes here is sealed; the processes of earlier sessions have ended, because each had the lock of the disk. No log is
deleted before the collector has marked it in the books. Rules: R15 and R17.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from itertools import islice

from bookkeeper.errors import InvalidInputError, NotFoundError, RefusedError, unavailable
from bookkeeper.rpc.contract.messages import (
    LOG_CONTENT_BYTES_MAX,
    LOG_DROPS_MAX,
    LOG_NAMES_MAX,
    LogPart,
    LogSeal,
)
from bookkeeper.storage.replicas.host_store import HostStore
from bookkeeper.storage.volume.names import LOGS, check_name, log_directory, numbered_log, session_of_numbered
from bookkeeper.storage.wal.reading.wal_recovery import BooksClaim, recover
from bookkeeper.storage.wal.writing.seal import log_exists

LOG = logging.getLogger(__name__)

ReadMarked = Callable[[Collection[str]], Collection[str]]
"""Reads which of these logs the collector has marked. Raises TransientError."""


class ServedLogs:
    """Thread-safe. Each call takes memory for one part or one page of names."""

    def __init__(self, store: HostStore, session_id: str, read_marked: ReadMarked) -> None:
        """``session_id``: of this process."""
        self._store = store
        self._volume = store.volume
        self._session_id = session_id
        self._read_marked = read_marked

    def read(self, incarnation: str, name: str, position: int, length: int) -> LogPart:
        """A range of a log, or of a file beside one; fewer bytes at its end. Raises RefusedError, InvalidInputError,
        UnavailableError.
        """
        self._check(incarnation, (name,))
        if position < 0 or not 0 <= length <= LOG_CONTENT_BYTES_MAX:
            raise InvalidInputError(f"{length} bytes of {name} at {position}: ask for up to {LOG_CONTENT_BYTES_MAX}")
        try:
            content = self._volume.read_range(name, position, length) if length else b""
            return LogPart(self._volume.size(name), content)
        except FileNotFoundError:
            return LogPart(None, b"")
        except OSError as error:
            raise unavailable(f"{name} can't be read", error) from error

    def names(self, incarnation: str, prefix: str, after: str) -> list[str]:
        """Names of logs and of files beside them that begin so, in order, behind ``after``; at most
        :data:`LOG_NAMES_MAX`, [] = there are no more. Raises RefusedError, InvalidInputError, UnavailableError.
        """
        self._check(incarnation, ())
        if not (prefix.startswith(LOGS) or LOGS.startswith(prefix)):
            raise InvalidInputError(f"{prefix!r} is not the beginning of the name of a log")
        beginning = prefix if prefix.startswith(LOGS) else LOGS
        check_name(beginning.removesuffix("/"))  # a `..` would lead out of the logs
        try:
            found = self._volume.list_names(beginning)
        except OSError as error:
            raise unavailable(f"the logs of host {self._store.identity.name} can't be listed", error) from error
        return list(islice((name for name in found if name > after), LOG_NAMES_MAX))

    def seal(self, incarnation: str, name: str, claim: BooksClaim) -> LogSeal:
        """Fence and seal the log of a dead session; returns the seal that holds. Raises RefusedError for a log of the
        session that runs here, NotFoundError, InvalidInputError, and the errors of
        :func:`bookkeeper.storage.wal.recover`.
        """
        self._check(incarnation, (name,))
        if name != numbered_log(name):
            raise InvalidInputError(f"{name} is no log, it lies beside one: name the log")
        if session_of_numbered(name) == self._session_id:  # R15: the session that runs here may still write it
            raise RefusedError(f"session {self._session_id} is alive and writes its logs itself: {name} gets no seal")
        self._check_exists(name)
        end = recover(self._volume, name, books_claim=lambda: claim)
        return LogSeal(end.offset, end.position)

    def _check_exists(self, name: str) -> None:
        """A fence is made first, so a name of no log would leave one."""
        if not log_exists(self._volume, name):
            raise NotFoundError(f"there is no log {name}")

    def drop(self, incarnation: str, names: Sequence[str]) -> None:
        """Delete files, in this order; durable on return. Raises RefusedError unless the books mark each log,
        InvalidInputError, TransientError.
        """
        if len(names) > LOG_DROPS_MAX:
            raise InvalidInputError(f"{len(names)} files to delete: at most {LOG_DROPS_MAX} in one call")
        self._check(incarnation, names)
        logs = {log for name in names if (log := numbered_log(name)) is not None}
        unmarked = needed(logs, self._read_marked(logs))
        if unmarked:
            raise RefusedError(f"{unmarked[0]} stays: the books have no mark that nothing needs it any more")
        try:
            self._volume.delete(names)
        except OSError as error:
            raise unavailable(f"logs of host {self._store.identity.name} can't be deleted", error) from error

    def prune(self) -> None:
        """Free the directories of sessions without files, at the start of a process."""
        try:
            for session in self._volume.list_directories(LOGS.rstrip("/")):
                self._volume.prune(log_directory(session))
        except OSError as error:
            LOG.warning("empty directories of logs stay: %s", error)

    def _check(self, incarnation: str, names: Sequence[str]) -> None:
        own = self._store.identity
        if incarnation != own.incarnation:  # P10: another disk had other logs under the same name of the host
            raise RefusedError(f"the disk of host {own.name} is {own.incarnation}, and {incarnation} was meant")
        for name in names:
            if session_of_numbered(check_name(name)) is None:
                raise InvalidInputError(f"{name} is neither a numbered log nor a file beside one")


def needed(logs: Collection[str], marked: Collection[str]) -> list[str]:
    """Rule R17: the logs that something may still need; the collector has marked the others."""
    return sorted(set(logs).difference(marked))
