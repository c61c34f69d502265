"""Every error of the project. Each is a :class:`TransientError` or a :class:`PermanentError`.

A message names the thing, the reason and the next step. Callers retry only a :class:`TransientError`. Each class has a
stable ``code``, so an error has the same class in the calling process as in the process that raised it.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Mapping
from contextlib import contextmanager


class BookkeeperError(Exception):
    """Base of all errors; ``details`` are short machine-readable values beside the message."""

    code = "error"

    def __init__(self, message: str, details: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.details: dict[str, str] = dict(details or {})

    def reword(self, message: str, details: Mapping[str, str]) -> None:
        """Replace the message and the details, which another process chose."""
        self.args, self.message, self.details = (message,), message, dict(details)


class TransientError(BookkeeperError):
    """The same call may succeed later."""

    code = "transient"


class PermanentError(BookkeeperError):
    """The same call can't succeed."""

    code = "permanent"


class UnavailableError(TransientError):
    """A process or store is out of reach, or does not answer in time."""

    code = "unavailable"


class NoSpaceError(UnavailableError):
    """A disk is full: the call changed nothing, and the same call succeeds once there is space."""

    code = "no_space"


class NoAnswerError(UnavailableError):
    """A process of a peer did not answer in time: another try at once may take as long."""

    code = "no_answer"


class NoTServerError(UnavailableError):
    """The master of a peer answers, and no tablet server of it lives."""

    code = "no_tserver"


class LostBooksError(TransientError):
    """The metadata table was dropped, emptied or replaced. The call wrote nothing, and the same call succeeds once the
    right table is back.
    """

    code = "lost_books"


class NotLeaderError(TransientError):
    """The called master does not lead."""

    code = "not_leader"


class NotReadyError(TransientError):
    """The leader has not yet read the data for an answer; an empty answer would be wrong."""

    code = "not_ready"


class NotServingError(TransientError):
    """The called tserver does not serve the tablet (moved, loading, or not assigned yet)."""

    code = "not_serving"


class LogAwayError(UnavailableError):
    """A log lies on a host that is away: work on this log waits, and no other."""

    code = "log_away"


class LeaseLostError(TransientError):
    """The process lost its session: it must not acknowledge or decide anything."""

    code = "lease_lost"


class OverloadedError(TransientError):
    """A bounded queue is full; back off."""

    code = "overloaded"


class ConflictError(TransientError):
    """Another process changed a versioned value meanwhile; read it again."""

    code = "conflict"


class GapError(TransientError):
    """A replicated range starts above the receiver's high-water (rule R19), which is ``details["high_water"]``."""

    code = "gap"

    @property
    def high_water(self) -> int:
        """Highest source offset that is durable at the receiver without a gap."""
        return int(self.details["high_water"])


class PeerOlderError(PermanentError):
    """A peer lacks records that it acknowledged: it came back in an older state."""

    code = "peer_older"


class StreamExpiredError(TransientError):
    """The receiving session of a stream is unknown or idle for too long; open a new one (rule R20)."""

    code = "stream_expired"


class NotFoundError(PermanentError):
    """A named table, tablet, group, cluster or file does not exist."""

    code = "not_found"


class TableGoneError(NotFoundError):
    """A peer has no table with the id of a target: the table was deleted, or created again with another id."""

    code = "table_gone"


class ExistsError(PermanentError):
    """An object of that name exists already."""

    code = "exists"


class InvalidInputError(PermanentError):
    """An argument, setting or message is malformed; the call changed nothing."""

    code = "invalid_input"


class CorruptionError(PermanentError):
    """Bytes do not parse, or do not match their checksum."""

    code = "corruption"


class RefusedError(PermanentError):
    """The request is well-formed and forbidden here (read-only, system table, loop, own name)."""

    code = "refused"


class StreamOverError(RefusedError):
    """A peer was asked for records of a stream that it does not know (any more)."""

    code = "stream_over"


class OtherInstanceError(RefusedError):
    """Another cluster answers than the one that was called (rule R23). A server on the wire says ``refused``."""

    code = "other_instance"


class ReadOnlyError(RefusedError):
    """A user's write to a table or cluster that is read-only (law L6)."""

    code = "read_only"


class ConditionalRefusedError(RefusedError):
    """A conditional write to a table that is replicated."""

    code = "conditional_refused"


class NotAdmittedError(PermanentError):
    """A server refused a caller, or a server did not prove its identity: a secret is missing, unknown or wrong."""

    code = "not_admitted"


class UnauthorizedError(PermanentError):
    """The secret of the caller does not allow the call."""

    code = "unauthorized"


class IncompatibleError(PermanentError):
    """The other side uses a protocol or format version that this side does not support."""

    code = "incompatible"


OLDER_SIDE = "upgrade this side"
"""Part of the message of an IncompatibleError whose reader is the older side."""


NO_JAVA = "there is no Java"
"""Part of the last words of a replay process that finds no Java."""

NO_TSERVER = "no_tserver"
"""Detail of a master's UnavailableError: no tablet server of its cluster lives. The code stays, because a caller of an
earlier version knows no other one.
"""


class DeclinedError(PermanentError):
    """The receiver declines an offer in this form; the same data may come in another form (records, not segments)."""

    code = "declined"


AWAY_HOST = "away_host"
"""Detail of an error: the host that did not answer, so that files on its disk could not be reached."""


class HostAwayError(OSError):
    """A file lies on the disk of a host that does not answer; the same call may succeed when the host is back."""

    def __init__(self, host: str, reason: str) -> None:
        super().__init__(errno.EHOSTDOWN, reason)
        self.host = host
        self.reason = reason


FAILED_AT = "failed_at"
"""Detail of an error of a range on its way to a peer: the place that failed, one of the next constants."""

AT_LOG, AT_REPLAY, AT_BOOKS, AT_PEER = "log", "replay", "books", "peer"
"""The log that is read, the replay process, this cluster's books, the peer with the way to it. Only a failure at the
peer is a reason to look there.
"""


@contextmanager
def failing_at(place: str) -> Iterator[None]:
    """Errors of the block failed at this place."""
    try:
        yield
    except BookkeeperError as error:
        error.details[FAILED_AT] = place
        raise


def is_away(error: BookkeeperError) -> bool:
    """Whether the call failed because a host did not answer whose disk has the file: only work on that file waits."""
    return AWAY_HOST in error.details


def is_full(error: OSError) -> bool:
    """Whether the system reports a full disk or an exhausted quota."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def unavailable(action: str, error: OSError) -> UnavailableError:
    """The error to raise when the system refuses an action that changed nothing; NoSpaceError when a disk is full."""
    if is_full(error):
        return NoSpaceError(f"{action}: no space is left on that disk; make room there, and it continues by itself")
    if isinstance(error, HostAwayError):  # its reason names the file and the next step
        return UnavailableError(error.reason, {AWAY_HOST: error.host})
    return UnavailableError(f"{action}: {error}")
