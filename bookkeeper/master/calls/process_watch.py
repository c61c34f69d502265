"""Which processes of this cluster work: their sessions, and the last words of replay processes that do not.

Arrives: sessions from the coordination store, reports of replay processes. Leaves: :class:`Processes`, also with the
time since which no tserver and no replay process works. A new leader measures anew, and replay processes report to it
again. Thread-safe.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from bookkeeper.clock import Clock
from bookkeeper.coordination.coordination_protocol import SessionInfo
from bookkeeper.master.calls.tservers import TSERVER_KIND
from bookkeeper.model import HostIdentity

REPLAY_KIND = "replay"


class Processes(Struct, frozen=True):
    """The processes at one moment. Times are of the boot clock, None = one works. ``replay_words``: the last words of a
    replay process whose successor has not got as far yet, or "".
    """

    sessions: tuple[SessionInfo, ...]
    """Of tservers, dead ones included."""
    live_replays: tuple[SessionInfo, ...]
    """Of replay processes."""
    warm: frozenset[str]
    """Sessions of replay processes that have reported to this leader that they work."""
    no_tserver_since_ns: int | None
    """A tserver that is silent does not work, see :attr:`SessionInfo.silent_ms`."""
    no_replay_since_ns: int | None
    replay_words: str

    @property
    def replays(self) -> frozenset[str]:
        """Live sessions of replay processes."""
        return frozenset(info.session_id for info in self.live_replays)

    @property
    def tservers(self) -> Mapping[str, str]:
        """Live sessions of tservers, and their addresses."""
        return {info.session_id: info.address for info in self.sessions if info.alive}

    @property
    def silent_words(self) -> str:
        """Which tservers live and are silent; "" = none."""
        silent = (info for info in self.sessions if info.alive and info.silent_ms)
        return ", ".join(f"{info.session_id} at {info.address} is silent" for info in silent)

    @property
    def hosts(self) -> frozenset[HostIdentity]:
        """The hosts whose disks a live tserver holds."""
        return frozenset(info.host for info in self.sessions if info.alive and info.host is not None)


class ProcessWatch:
    """The watch of one reign."""

    def __init__(self, sessions: Callable[[str, str], Sequence[SessionInfo]], clock: Clock) -> None:
        """``sessions``: those of two kinds, see :meth:`Coordination.sessions`."""
        self._sessions = sessions
        self._clock = clock
        self._lock = threading.Lock()
        self._no_tserver_ns: int | None = None
        self._no_replay_ns: int | None = None
        self._warm: set[str] = set()
        self._words = ""
        self._words_ns = 0

    def look(self) -> Processes:
        """The processes now. Raises TransientError."""
        found = self._sessions(TSERVER_KIND, REPLAY_KIND)
        sessions = tuple(info for info in found if info.kind == TSERVER_KIND)
        live = tuple(info for info in found if info.kind == REPLAY_KIND and info.alive)
        replays = frozenset(info.session_id for info in live)
        now_ns = self._clock.boot_ns()
        with self._lock:
            self._no_tserver_ns = since(self._no_tserver_ns, any(map(works, sessions)), now_ns)
            self._no_replay_ns = since(self._no_replay_ns, bool(replays), now_ns)
            self._warm &= replays
            no_replay_ns = self._no_replay_ns
            if self._words and not self._warm:
                no_replay_ns = self._words_ns if no_replay_ns is None else min(no_replay_ns, self._words_ns)
            words = "" if no_replay_ns is None else self._words
            return Processes(sessions, live, frozenset(self._warm), self._no_tserver_ns, no_replay_ns, words)

    def note_replay(self, session: str, problem: str) -> None:
        """A replay process says what keeps it from its work, before it ends; "" = it works."""
        with self._lock:
            if not problem:
                self._warm.add(session)
                self._words = ""
                return
            self._warm.discard(session)
            if not self._words:
                self._words_ns = self._clock.boot_ns()
            self._words = problem


def works(tserver: SessionInfo) -> bool:
    """Whether a tserver lives and renews its lease."""
    return tserver.alive and not tserver.silent_ms


def since(before_ns: int | None, is_there: bool, now_ns: int) -> int | None:
    """Since when something is missing; None while it is there."""
    if is_there:
        return None
    return now_ns if before_ns is None else before_ns
