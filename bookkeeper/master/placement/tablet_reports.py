"""The reports of live tservers about their tablets: those that they serve, and those with a problem.

The master asks each tserver for its tablets, one question at a time. The answer does not count for a tablet that the
tserver unloads, or that an operation claims, during the question.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping

from msgspec import Struct, field


class TabletReports(Struct):
    """The latest report of each live tserver. Thread-safe."""

    warnings: dict[bytes, str] = field(default_factory=dict)
    """Rows of served tablets with a problem, and the problem; read by any thread."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _served: dict[str, set[bytes]] = field(default_factory=dict)
    _since: dict[str, dict[bytes, bool]] = field(default_factory=dict)
    """Tservers with a question under way, and the tablets that they loaded (true) or unloaded since."""
    _warned: dict[str, frozenset[bytes]] = field(default_factory=dict)
    """Session to the tablets of its latest warnings."""
    _without_room: dict[str, frozenset[bytes]] = field(default_factory=dict)
    """Session to the tablets for whose next segment its host has no room."""

    def clear(self) -> None:
        """Forget which tablets are served; warnings stay."""
        with self._lock:
            self._served.clear()

    def is_served(self, session: str, row: bytes) -> bool | None:
        """Whether a tserver serves a tablet, by its latest report; None when there is none yet."""
        with self._lock:
            served = self._served.get(session)
            return None if served is None else row in served

    def served(self, live: Collection[str]) -> dict[str, frozenset[bytes]]:
        """Each live tserver that has reported, with the rows of its tablets."""
        with self._lock:
            return {session: frozenset(rows) for session, rows in self._served.items() if session in live}

    def served_among(self, rows: Collection[bytes], live: Collection[str]) -> dict[str, set[bytes]]:
        """:meth:`served`, for these rows alone."""
        with self._lock:
            return {s: served.intersection(rows) for s, served in self._served.items() if s in live}

    def loaded(self, session: str, row: bytes) -> None:
        """A tserver has loaded a tablet."""
        with self._lock:
            self._served.setdefault(session, set()).add(row)
            self._changed(session, row, is_served=True)

    def unloaded(self, session: str, row: bytes) -> None:
        """A tserver has unloaded a tablet."""
        with self._lock:
            self._served.setdefault(session, set()).discard(row)
            self._changed(session, row, is_served=False)

    def let_go(self, rows: Collection[bytes]) -> None:
        """Drop the reports of these tablets: an operation has claimed them."""
        with self._lock:
            for served in self._served.values():
                served.difference_update(rows)
            for since in self._since.values():
                since.update(dict.fromkeys(rows, False))

    def begin_questions(self, live: Collection[str]) -> list[str]:
        """Drop dead tservers; returns the live ones without an open question, which the caller asks now."""
        with self._lock:
            for session in [session for session in self._served if session not in live]:
                del self._served[session]
                self._without_room.pop(session, None)
                self._warn(session, {})
            silent = [session for session in live if session not in self._since]
            self._since.update((session, {}) for session in silent)
        return silent

    def end_question(self, session: str) -> None:
        """A question is over, with or without an answer."""
        with self._lock:
            self._since.pop(session, None)

    def without_room(self) -> list[tuple[str, bytes]]:
        """Tservers and the tablets for whose next segment their hosts have no room."""
        with self._lock:
            return [(session, row) for session, rows in self._without_room.items() for row in rows]

    def answer(
        self, session: str, rows: set[bytes], problems: Mapping[bytes, str], without_room: Collection[bytes] = ()
    ) -> bool:
        """A tserver reports its tablets and their problems; returns whether it is its first report. Loads and unloads
        run beside the question, so what is known of them is newer than the report.
        """
        with self._lock:
            is_first = session not in self._served
            since = self._since.get(session, {})
            self._served[session] = (rows - since.keys()) | {row for row, is_served in since.items() if is_served}
            self._without_room[session] = frozenset(without_room)
            self._warn(session, problems)
        return is_first

    def _changed(self, session: str, row: bytes, *, is_served: bool) -> None:
        """Remember it until the question under way is over. The caller has the lock."""
        if session in self._since:
            self._since[session][row] = is_served

    def _warn(self, session: str, problems: Mapping[bytes, str]) -> None:
        """Replace the warnings of a tserver. The caller has the lock."""
        for row in self._warned.pop(session, frozenset()) - problems.keys():
            self.warnings.pop(row, None)
        self.warnings.update(problems)
        if problems:
            self._warned[session] = frozenset(problems)
