"""Which sessions are dead: no transaction renewed a lease for lease and margin, on the observer's own clock. Pure.

ZooKeeper's own time-outs decide nothing: it grants others than asked for, and counts from the last ping. Each renewal
writes a new version of the session's node. ZooKeeper commits all transactions in one order, and each answer names the
newest one that its server knows. So an observer knows of any transaction a moment by which it was committed, without a
look at what it wrote: the first answer that named this one or a later one. The other way round, a look at a node tells
how long it has not been written, even if it is the first look. An owner counts on its lease from before it sent the
renewal, so from before that moment; an observer deletes the node at the version whose lease is over. So the owner's
lease is over when the node goes, whichever of them stood still, and a renewal that came in between makes the deletion
fail. Rule: R15.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from operator import attrgetter

from msgspec import Struct, field, structs

MOMENTS_PER_RENEWAL = 4
"""A moment is kept this often in the time of a renewal: a death is known later by up to the time between two."""


class Seen(Struct, frozen=True):
    """A version of a session's node, a moment by which it was written, and the last look (boot clock)."""

    version: int
    since_ns: int
    looked_ns: int

    @property
    def unchanged_ns(self) -> int:
        """How long it had not been written at the last look, at least."""
        return self.looked_ns - self.since_ns


class Moment(Struct, frozen=True):
    """By then (boot clock), this transaction and all before it were committed."""

    zxid: int
    ns: int


class Lives(Struct):
    """What one observer knows. Used by one thread at a time."""

    lease_ms: int
    margin_ms: int
    renew_ms: int
    _seen: dict[str, Seen] = field(default_factory=dict)
    _moments: list[Moment] = field(default_factory=list)
    """In their order; those before the last one that is older than lease and margin are forgotten."""

    def note_order(self, zxid: int, now_ns: int) -> None:
        """An answer has named this transaction."""
        moments = self._moments
        if moments and (zxid <= moments[-1].zxid or now_ns - moments[-1].ns < self._apart_ns):
            return
        moments.append(Moment(zxid, now_ns))
        while len(moments) > 1 and now_ns - moments[1].ns > self._over_ns:
            del moments[0]

    def note(self, session_id: str, version: int, zxid: int, now_ns: int) -> None:
        """A look at a session's node: its version, and the transaction that wrote it."""
        seen = self._seen.get(session_id)
        is_unchanged = seen is not None and seen.version == version
        if seen is not None and is_unchanged:
            self._seen[session_id] = structs.replace(seen, version=version, looked_ns=now_ns)
            return
        self._seen[session_id] = Seen(version, self._committed_by(zxid, now_ns), now_ns)

    def due(self, session_ids: Iterable[str], now_ns: int) -> list[str]:
        """The sessions to look at: those of which a renewal would tell something new."""
        return [id_ for id_ in session_ids if self._is_due(id_, now_ns)]

    def over_at(self, session_id: str, now_ns: int) -> int | None:
        """The version at which a session's node may be deleted, because its lease is over for everybody; else None."""
        seen = self._seen.get(session_id)
        return seen.version if seen is not None and now_ns - seen.since_ns > self._over_ns else None

    def is_any_over(self, now_ns: int) -> bool:
        """Whether a lease is over for everybody by now, unless it was renewed since the last look, which found the
        session silent. A session that nobody looks at any more tells nothing.
        """
        return any(self.silent_ms(id_) and self.over_at(id_, now_ns) is not None for id_ in self._seen)

    def silent_ms(self, session_id: str) -> int:
        """See :attr:`SessionInfo.silent_ms`."""
        seen = self._seen.get(session_id)
        return seen.unchanged_ns // 1_000_000 if seen is not None and seen.unchanged_ns >= self._silent_ns else 0

    def _is_due(self, session_id: str, now_ns: int) -> bool:
        """Half a lease after the last renewal that is known, and then once in the time of a renewal."""
        seen = self._seen.get(session_id)
        if seen is None or self.over_at(session_id, now_ns) is not None:
            return True
        if seen.unchanged_ns < self._silent_ns:
            return now_ns - seen.since_ns >= self._silent_ns
        return now_ns - seen.looked_ns >= self.renew_ms * 1_000_000

    def _committed_by(self, zxid: int, now_ns: int) -> int:
        """A moment by which a transaction was committed that an observer sees now."""
        first = bisect_left(self._moments, zxid, key=attrgetter("zxid"))
        return self._moments[first].ns if first < len(self._moments) else now_ns

    @property
    def _over_ns(self) -> int:
        return (self.lease_ms + self.margin_ms) * 1_000_000

    @property
    def _silent_ns(self) -> int:
        return self.lease_ms * 500_000

    @property
    def _apart_ns(self) -> int:
        return self.renew_ms * 1_000_000 // MOMENTS_PER_RENEWAL

    def keep(self, session_ids: Iterable[str]) -> None:
        """Forget all others."""
        self._seen = {session_id: self._seen[session_id] for session_id in session_ids if session_id in self._seen}
