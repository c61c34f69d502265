"""The cause of each wait: why a target lacks records of a file, where a person has to look, and since when. Pure.

Arrives: outstanding files, shipments, the health of peers, and what this cluster itself lacks (:class:`LocalFacts`).
Leaves: one :class:`Cause` for each file and target, also for those that wait for nothing.

A cause of this cluster comes before one of the peer: without a tserver nobody has tried the peer. A file behind a
barrier (R24) waits for another file, and that one perhaps for a third: the cause is that of the file at the root.
``cause_texts`` has the words and the next step of each kind.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from bookkeeper.errors import (
    AT_BOOKS,
    AT_LOG,
    AT_REPLAY,
    IncompatibleError,
    LogAwayError,
    NoAnswerError,
    NoSpaceError,
    NotAdmittedError,
    NotFoundError,
    NoTServerError,
    OtherInstanceError,
    OverloadedError,
    TableGoneError,
    UnauthorizedError,
    UnavailableError,
)
from bookkeeper.master.cycle.assigner import barrier_limit, finished_of, oldest_left
from bookkeeper.master.index.barriers import FileBarrier
from bookkeeper.master.index.file_entry import FileEntry
from bookkeeper.master.index.outstanding import Outstanding
from bookkeeper.master.index.shipments import Retry, Shipment, Shipments, WorkKey
from bookkeeper.master.quarantine.quarantined_ranges import RangeKey, is_blocking
from bookkeeper.model import TargetKey
from bookkeeper.storage.volume.names import session_of_numbered

NOT_READ = "not_read"
"""The master has not read the books up to these records yet."""
NO_BOOKS = "no_books"
"""The books can't be read or written."""
NO_TSERVER = "no_tserver"
NO_REPLAY = "no_replay"
"""No replay process works on this cluster."""
REPLAY_FAILS = "replay_fails"
"""A replay process answers, and its runs fail before they reach the peer."""
LOG_AWAY = "log_away"
"""The log lies on a host that is away."""
UNSEALED = "unsealed"
"""The end of a log is not known yet."""
DAMAGED = "damaged"
"""The log can't be read."""
QUARANTINED = "quarantined"
SLOTS_BUSY = "slots_busy"
"""The slots of the replay process are in use for other peers or runs."""
UNCOPIED = "uncopied"
"""Only one host of this cluster has the records (R15)."""
BEHIND = "behind"
"""The peer must have records of another file first (R24)."""
SHIPPING = "shipping"
WAITING = "waiting"
"""The master hands the records out when it is their turn."""
DONE = "done"

REFUSED_RECORD = "refused_record"
"""The peer refuses these records because of what they are."""
SECRET_REFUSED = "secret_refused"
TABLE_REFUSED = "table_refused"
"""The secret does not open the table."""
OTHER_INSTANCE = "other_instance"
"""Another cluster answers at the peer's address."""
OTHER_VERSION = "other_version"
TABLE_GONE = "table_gone"
"""The peer has no table with the id of the target: it was deleted there, or made anew."""
PEER_REFUSES = "peer_refuses"
"""For any other reason that a person has to remove."""
PEER_FULL = "peer_full"
PEER_UNREACHABLE = "peer_unreachable"
PEER_OLDER = "peer_older"
"""The peer came back from a backup: it lacks records that it acknowledged, and no target sends them again."""
PEER_BUSY = "peer_busy"
"""The peer answers, and can't take records for now."""

LOCAL_KINDS = frozenset(
    {
        *(NOT_READ, NO_BOOKS, NO_TSERVER, NO_REPLAY, REPLAY_FAILS, LOG_AWAY, UNSEALED, DAMAGED, QUARANTINED),
        *(SLOTS_BUSY, UNCOPIED),
    }
)
"""A person looks for these on this cluster."""

PEER_KINDS = frozenset(
    {
        *(REFUSED_RECORD, SECRET_REFUSED, TABLE_REFUSED, OTHER_INSTANCE, OTHER_VERSION, TABLE_GONE, PEER_REFUSES),
        *(PEER_FULL, PEER_UNREACHABLE, PEER_BUSY, PEER_OLDER),
    }
)
"""A person looks for these at the peer, or on the way to it."""

ROUTINE_KINDS = frozenset({BEHIND, SHIPPING, WAITING, DONE})
"""Nobody looks for these; a file that is behind has the file at the root."""

KINDS = LOCAL_KINDS | PEER_KINDS | ROUTINE_KINDS

FAULTS = (LOCAL_KINDS | PEER_KINDS) - {NOT_READ, UNSEALED, UNCOPIED, SLOTS_BUSY, PEER_BUSY}
"""The kinds that are a problem of the cluster from their first moment on."""

WITHOUT_FAULT = KINDS - FAULTS - {PEER_BUSY}
"""The kinds that no failure began: such a wait lasts for as long as its first record does."""

CYCLES_MAX = 3
"""From so many failed cycles in a row on, the books are the cause."""


class Lack(Struct, frozen=True):
    """Something that this cluster lacks, since when (boot clock, None = not known), and the last words about it."""

    since_ns: int | None
    words: str = ""


class Away(Struct, frozen=True):
    """A host that is away, and since when this master knows it (boot clock)."""

    host: str
    since_ns: int | None = None


class LocalFacts(Struct, frozen=True):
    """The parts of this cluster that do not work. ``away``: the dead sessions whose logs lie on a host that is away.
    ``unrecoverable``: logs of dead sessions that can't be sealed, with the reason. ``homes``: the hosts whose own disk
    has the logs of a session. ``supervised``: while something is missing, the directories of hosts whose supervisor
    runs; ``apart``: directories, each with a kind of process that `standalone` does not start there.
    """

    no_books: Lack | None = None
    no_tserver: Lack | None = None
    no_replay: Lack | None = None
    away: Mapping[str, Away] = field(default_factory=dict)
    unrecoverable: Mapping[str, str] = field(default_factory=dict)
    homes: Mapping[str, str] = field(default_factory=dict)
    supervised: Collection[str] = ()
    apart: Collection[tuple[str, str]] = ()


class Now(Struct, frozen=True):
    """The moment of an answer: boot clock for retries, wall clock for ages; whether a log's tserver is dead; the logs
    that tablets hold back (R15); and what this cluster lacks.
    """

    boot_ns: int
    wall_ms: int
    has_lost_owner: Callable[[str], bool] = lambda _uri: False
    held_back: Collection[bytes] = ()
    local: LocalFacts = LocalFacts()


class Cause(Struct, frozen=True):
    """Why a target lacks records of a file.

    ``since_ns`` (boot clock) is the time of the first failure in a row, None where nobody has noted one; of a wait
    without a failure that of its first lacking record, see :func:`since_writing`. ``tries``: failed ones in a row;
    ``next_try_ns`` 0 = none is planned. ``root``: the file that others wait for, with its cause. ``is_final``: the same
    try would fail again, or has failed so often that the queue stands.
    """

    kind: str
    since_ns: int | None = None
    error: str = ""
    code: str = ""
    tries: int = 0
    next_try_ns: int = 0
    is_final: bool = False
    range_id: str = ""
    host: str = ""
    root: bytes = b""
    at_root: Cause | None = None

    @property
    def bottom(self) -> Cause:
        """The cause at the root."""
        return self if self.at_root is None else self.at_root

    @property
    def lasts_since_ns(self) -> int | None:
        """Since when the wait lasts (boot clock): the fault at the root, else the first lacking record; None = not
        known.
        """
        return self.since_ns if self.bottom.since_ns is None else self.bottom.since_ns


def since_writing(cause: Cause, written_ns: int | None) -> Cause:
    """The cause of records that were written from this time on; None: it is not known. A wait that no failure began
    lasts since then.
    """
    if written_ns is None or cause.lasts_since_ns is not None or cause.bottom.kind not in WITHOUT_FAULT:
        return cause
    return replace(cause, since_ns=written_ns)


NO_WAIT, IN_FLIGHT, IN_TURN = Cause(DONE), Cause(SHIPPING), Cause(WAITING)


def kind_of_error(code: str | None, failed_at: str) -> str:
    """The kind of a worker's error. An error without a place is from a worker of an earlier version."""
    if code == LogAwayError.code:
        return LOG_AWAY
    if failed_at == AT_BOOKS:
        return NO_BOOKS
    if failed_at == AT_LOG:
        return DAMAGED
    if failed_at == AT_REPLAY:
        return SLOTS_BUSY if code == OverloadedError.code else REPLAY_FAILS
    return PEER_ERRORS.get(code or "", PEER_REFUSES)


PEER_ERRORS = {
    NotAdmittedError.code: SECRET_REFUSED,
    UnauthorizedError.code: TABLE_REFUSED,
    OtherInstanceError.code: OTHER_INSTANCE,
    IncompatibleError.code: OTHER_VERSION,
    TableGoneError.code: TABLE_GONE,
    NotFoundError.code: TABLE_GONE,
    NoSpaceError.code: PEER_FULL,
    UnavailableError.code: PEER_UNREACHABLE,
    NoTServerError.code: PEER_UNREACHABLE,
    NoAnswerError.code: PEER_UNREACHABLE,
}
"""The kinds of a peer's errors by their codes; of any other permanent one :data:`PEER_REFUSES`."""


class Causes:
    """The causes at one moment. Barriers are followed once for each file and target."""

    def __init__(self, files: Outstanding, shipping: Shipments, now: Now, tries: int) -> None:
        """``tries``: see :func:`is_blocking`."""
        self._files = files
        self._shipping = shipping
        self._now = now
        self._tries = tries
        self._behind: dict[WorkKey, Cause] = {}

    def of(self, entry: FileEntry, target: TargetKey) -> Cause:
        """The cause of a file and target."""
        finished = finished_of(entry, target, self._shipping)
        if finished >= entry.needed:
            return self.of_end(entry)
        limit, barrier = barrier_limit(entry, target, self._files, self._shipping)
        return self.of_records(entry, target, finished, limit, barrier)

    def of_end(self, entry: FileEntry) -> Cause:
        """The cause of a file of which the target has all that is known."""
        if entry.is_closed():
            return NO_WAIT
        if self._now.has_lost_owner(entry.name()):
            return self._of_lost_log(entry.name()) or Cause(UNSEALED)
        unread = self._now.local.no_books  # then records may have been written that are not known yet
        return NO_WAIT if unread is None else Cause(NO_BOOKS, unread.since_ns, unread.words)

    def _of_lost_log(self, name: str) -> Cause | None:
        """The cause of a log of a dead session that nobody can read to its end."""
        local = self._now.local
        problem = local.unrecoverable.get(name)
        if problem is not None:
            host = local.homes.get(session_of_numbered(name) or "", "")
            return Cause(DAMAGED, error=problem, is_final=True, host=host)
        session = session_of_numbered(name) if local.away else None
        found = None if session is None else local.away.get(session)
        return None if found is None else Cause(LOG_AWAY, found.since_ns, host=found.host)

    def of_records(
        self, entry: FileEntry, target: TargetKey, finished: int, limit: int, barrier: FileBarrier | None
    ) -> Cause:
        """The cause of a file of which the target lacks known records."""
        local = self._now.local
        for kind, lack in ((NO_BOOKS, local.no_books), (NO_TSERVER, local.no_tserver), (NO_REPLAY, local.no_replay)):
            if lack is not None:
                return Cause(kind, lack.since_ns, lack.words)
        lost = self._of_lost_log(entry.name())
        if lost is not None:
            return lost
        if barrier is not None and finished >= limit:
            return self._behind_of(entry, target, barrier)
        if finished >= entry.safe:
            return Cause(UNCOPIED if entry.file in self._now.held_back else NOT_READ)
        return self._of_tries((entry.file, target))

    def _of_tries(self, key: WorkKey) -> Cause:
        """The cause of a file whose next records may be shipped."""
        shipment = self._shipping.shipments.get(key) or Shipment()
        retry = self._shipping.peers.get(key[1].cluster) or Retry()
        if shipment.failures and shipment.error is not None:
            return cause_of_shipment(key, shipment, self._tries)
        if retry.failures:
            kind = kind_of_error(retry.error_code, retry.failed_at)
            if kind == PEER_REFUSES:  # a transient error: the same try may succeed
                kind = PEER_BUSY
            code = retry.error_code or ""
            return Cause(kind, retry.since_ns, retry.last_error or "", code, retry.failures, retry.next_try_ns)
        return IN_TURN if shipment.flight is None else IN_FLIGHT

    def _behind_of(self, entry: FileEntry, target: TargetKey, barrier: FileBarrier) -> Cause:
        """The cause of a file behind a barrier: that of the file at the root. A record waits only for older ones, so no
        file waits for itself; but an answer must end where this rule (R24) is broken, too.
        """
        followed: set[bytes] = set()
        here: FileEntry | None = entry
        found = Cause(BEHIND)
        while here is not None:
            known = self._behind.get((here.file, target))
            if known is not None:
                found = known
                break
            followed.add(here.file)
            before = self._file_before(barrier, target)
            if before is None or before.file in followed:  # it was finished meanwhile
                found = Cause(BEHIND, root=barrier.file, at_root=IN_TURN)
                break
            finished = finished_of(before, target, self._shipping)
            limit, further = barrier_limit(before, target, self._files, self._shipping)
            if finished >= before.needed:
                at_end = self.of_end(before)
                at_end = end_of(before, barrier) if at_end.kind == DONE else at_end
                found = Cause(BEHIND, root=before.file, at_root=at_end)
                break
            if further is None or finished < limit or self._is_stopped(before):
                at_root = self.of_records(before, target, finished, limit, None)
                found = Cause(BEHIND, root=before.file, at_root=at_root)
                break
            here, barrier = before, further
        for file in followed:
            self._behind[file, target] = found
        return found

    def _is_stopped(self, entry: FileEntry) -> bool:
        """Whether a cause of this cluster stops a file, whatever its barriers."""
        return self._of_lost_log(entry.name()) is not None

    def _file_before(self, barrier: FileBarrier, target: TargetKey) -> FileEntry | None:
        """The file that a barrier waits for now: its own, or the oldest log before it."""
        before = self._files.get(barrier.file)
        if before is not None and before.index_of(target) is not None:
            until = min(barrier.until_offset, before.needed) if before.is_closed() else barrier.until_offset
            if finished_of(before, target, self._shipping) < until:
                return before
        oldest = oldest_left(barrier.file, target, self._files, self._shipping) if barrier.all_before else None
        return self._files.get(oldest) if oldest is not None and oldest < barrier.file else None


def end_of(before: FileEntry, barrier: FileBarrier) -> Cause:
    """The cause of a file of which the target has all known records, while others wait for more of it: the books have
    further records that this master has not read, or the log may get some until it ends.
    """
    return Cause(NOT_READ if before.needed < barrier.until_offset else UNSEALED)


def cause_of_shipment(key: WorkKey, shipment: Shipment, tries: int) -> Cause:
    """The cause of a file whose last try failed with a permanent error."""
    kind = kind_of_error(shipment.error_code, shipment.failed_at)
    range_id = ""
    if shipment.failed is not None:
        range_id = RangeKey(key[0].decode(), key[1], shipment.failed.first).range_id
        if kind == PEER_REFUSES:
            kind = REFUSED_RECORD
    return Cause(
        kind,
        shipment.error_since_ns,
        shipment.error or "",
        shipment.error_code or "",
        shipment.failures,
        shipment.next_try_ns,
        is_final=shipment.failed is None or is_blocking(shipment, tries),
        range_id=range_id,
    )
