"""Every error of the project. Each is a :class:`TransientError` or a :class:`PermanentError`.

A message names the thing, the reason and the next step. Only a :class:`TransientError` is ever retried. Each class has
a stable ``code``, so an error has the same class in the process that called as in the process that raised it.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping


class BookkeeperError(Exception):
    """Base of all errors; ``details`` are short machine-readable facts that travel with the message."""

    code = "error"

    def __init__(self, message: str, details: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.details: dict[str, str] = dict(details or {})


class TransientError(BookkeeperError):
    """Trying again later, unchanged, may succeed."""

    code = "transient"


class PermanentError(BookkeeperError):
    """Trying again unchanged can't succeed."""

    code = "permanent"


class UnavailableError(TransientError):
    """A process or store could not be reached, or did not answer in time."""

    code = "unavailable"


class NoSpaceError(UnavailableError):
    """A disk is full: nothing was written, nothing is half done, and it succeeds unchanged once there is room."""

    code = "no_space"


class LostBooksError(TransientError):
    """The metadata table is not that of this cluster any more: it was dropped, emptied or replaced. Nothing was written
    there, and the call succeeds unchanged once the right table is back.
    """

    code = "lost_books"


class NotLeaderError(TransientError):
    """The master that was asked does not lead."""

    code = "not_leader"


class NotReadyError(TransientError):
    """The process leads and has not yet read what it needs for an answer; an empty answer would not be true."""

    code = "not_ready"


class NotServingError(TransientError):
    """The tserver that was asked does not hold the tablet (moved, loading, or not assigned yet)."""

    code = "not_serving"


class LeaseLostError(TransientError):
    """The process lost its session: it must not acknowledge or decide anything any more."""

    code = "lease_lost"


class OverloadedError(TransientError):
    """A bounded queue is full; back off."""

    code = "overloaded"


class ConflictError(TransientError):
    """A versioned value was changed by somebody else in between; read it again."""

    code = "conflict"


class GapError(TransientError):
    """A replicated range starts above what is here (rule R19); ``details["high_water"]`` says what is."""

    code = "gap"

    @property
    def high_water(self) -> int:
        """Highest source offset that is durable here without a gap."""
        return int(self.details["high_water"])


class StreamExpiredError(TransientError):
    """The receiving session of a stream is unknown or idle for too long; open a new one (rule R20)."""

    code = "stream_expired"


class NotFoundError(PermanentError):
    """A named table, tablet, group, cluster or file does not exist."""

    code = "not_found"


class TableGoneError(NotFoundError):
    """A peer has no table of the id to which a target goes: it was deleted there, or made anew under another id."""

    code = "table_gone"


class ExistsError(PermanentError):
    """A thing of that name exists already."""

    code = "exists"


class InvalidInputError(PermanentError):
    """An argument, setting or message is malformed; nothing was changed."""

    code = "invalid_input"


class CorruptionError(PermanentError):
    """Bytes that must parse do not."""

    code = "corruption"


class RefusedError(PermanentError):
    """The request is well-formed and forbidden here (read-only, system table, loop, own name)."""

    code = "refused"


class ReadOnlyError(RefusedError):
    """A user's write to a table or cluster that is read-only (law L6)."""

    code = "read_only"


class ConditionalRefusedError(RefusedError):
    """A conditional write to a table that is replicated."""

    code = "conditional_refused"


class NotAdmittedError(PermanentError):
    """Who came was not let in, or who answered did not prove who it is: a secret is missing, unknown or wrong."""

    code = "not_admitted"


class UnauthorizedError(PermanentError):
    """Who asks was let in, and may not ask for this."""

    code = "unauthorized"


class IncompatibleError(PermanentError):
    """The other side speaks a protocol or format version that this one does not know."""

    code = "incompatible"


class DeclinedError(PermanentError):
    """What was offered is not taken in this form; the same may come in another one (segments as records)."""

    code = "declined"


def is_full(error: OSError) -> bool:
    """Whether the system refused because a disk is full, or a quota of it."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def unavailable(what: str, error: OSError) -> UnavailableError:
    """What to raise when the system refuses something that changed nothing; a full disk is told as one."""
    if is_full(error):
        return NoSpaceError(f"{what}: no space is left on that disk; make room there, and it goes on by itself")
    return UnavailableError(f"{what}: {error}")
