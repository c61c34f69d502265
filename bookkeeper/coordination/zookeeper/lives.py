"""Which sessions are dead: an observer saw a lease unchanged for lease and margin on its own clock. Pure.

ZooKeeper's own time-outs decide nothing: it grants others than asked for, and counts from the last ping. Each renewal
writes a new version of the session's node. An owner counts on its lease from before it sent the renewal; an observer
saw that version only after it was written, and deletes the node at this version. So the owner's lease is over when the
node goes, whichever of them stood still, and a renewal that came in between makes the deletion fail. Rule: R15.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct, field


class Seen(Struct, frozen=True):
    """A version of a session's node, when this observer saw it first, and when it looked last (boot clock)."""

    version: int
    since_ns: int
    looked_ns: int


class Lives(Struct):
    """What one observer knows. Used by one thread at a time."""

    lease_ms: int
    margin_ms: int
    renew_ms: int
    _seen: dict[str, Seen] = field(default_factory=dict)

    def note(self, session_id: str, version: int, now_ns: int) -> None:
        """A look at a session's node."""
        seen = self._seen.get(session_id)
        is_unchanged = seen is not None and seen.version == version
        self._seen[session_id] = Seen(version, seen.since_ns if seen and is_unchanged else now_ns, now_ns)

    def due(self, session_ids: Iterable[str], now_ns: int) -> list[str]:
        """The sessions that may have been renewed since the last look at their nodes."""
        return [id_ for id_ in session_ids if now_ns - self._looked_ns(id_) >= self.renew_ms * 1_000_000]

    def over_at(self, session_id: str, now_ns: int) -> int | None:
        """The version at which a session's node may be deleted, because its lease is over for everybody; else None."""
        seen = self._seen.get(session_id)
        over_ns = (self.lease_ms + self.margin_ms) * 1_000_000
        return seen.version if seen is not None and now_ns - seen.since_ns > over_ns else None

    def silent_ms(self, session_id: str) -> int:
        """See :attr:`SessionInfo.silent_ms`."""
        seen = self._seen.get(session_id)
        unchanged_ms = 0 if seen is None else (seen.looked_ns - seen.since_ns) // 1_000_000
        return unchanged_ms if 2 * unchanged_ms >= self.lease_ms else 0

    def _looked_ns(self, session_id: str) -> int:
        seen = self._seen.get(session_id)
        return -self.renew_ms * 1_000_000 if seen is None else seen.looked_ns

    def keep(self, session_ids: Iterable[str]) -> None:
        """Forget all others."""
        self._seen = {session_id: self._seen[session_id] for session_id in session_ids if session_id in self._seen}
