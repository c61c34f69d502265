"""The logs on this host's disk, for the other processes of the cluster: those of this session and of earlier ones.

A caller says which disk it means: another incarnation is refused. Only numbered logs and the files beside them are
reached, by names that lead nowhere else. Rules: R15 and R17.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import islice

from bookkeeper.errors import InvalidInputError, RefusedError, unavailable
from bookkeeper.model import HostIdentity
from bookkeeper.rpc.contract.log_messages import LOG_CONTENT_BYTES_MAX, LOG_NAMES_MAX, LogPart, LogSeal
from bookkeeper.storage.replicas import HostStore
from bookkeeper.storage.volume.names import LOGS, check_name, log_directory, session_of_numbered
from bookkeeper.storage.wal import BooksClaim, recover

LOG = logging.getLogger(__name__)


class ServedLogs:
    """Thread-safe. Each call takes memory for one part or one page of names."""

    def __init__(self, store: HostStore) -> None:
        self._store = store
        self._volume = store.volume

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
        """Fence and seal the log of a dead session; returns the seal that holds. Raises RefusedError,
        InvalidInputError, and the errors of :func:`bookkeeper.storage.wal.recover`.
        """
        self._check(incarnation, (name,))
        end = recover(self._volume, name, books_claim=lambda: claim)
        return LogSeal(end.offset, end.position)

    def drop(self, incarnation: str, names: Sequence[str]) -> None:
        """Delete files, in this order; durable on return. Raises RefusedError, InvalidInputError, UnavailableError."""
        self._check(incarnation, names)
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
        if not is_meant(incarnation, own):
            raise RefusedError(f"the disk of host {own.name} is {own.incarnation}, and {incarnation} was meant")
        for name in names:
            if session_of_numbered(check_name(name)) is None:
                raise InvalidInputError(f"{name} is neither a numbered log nor a file beside one")


def is_meant(incarnation: str, own: HostIdentity) -> bool:
    """Whether a caller means this disk: another one had other logs under the same name of the host."""
    return incarnation == own.incarnation
