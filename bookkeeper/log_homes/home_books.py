"""The rows ``~home_<session>``: which session has its logs on the disk of a host, and on whose.

A session puts its row before it makes its first log (R12), so whoever has read the name of a log finds its home. A home
never changes. The row goes when the session is dead and has no log left. Thread-safe.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from bookkeeper.metadata import keys, values
from bookkeeper.metadata.metadata_table import CellKey, MetadataTable, RowPut
from bookkeeper.metadata.values import LogHome
from bookkeeper.storage.volume.names import session_of_numbered

FAMILIES = (keys.HOME.family,)


class Homes(Protocol):
    """The homes of sessions whose logs lie on hosts' disks. Raises TransientError, CorruptionError."""

    def of(self, session: str) -> LogHome | None:
        """The home of a session's logs; None = they lie on the cluster's Volume."""

    def all(self) -> Mapping[str, LogHome]:
        """Every session with a home, by its id."""


def home_of(homes: Homes, name: str) -> LogHome | None:
    """The disk of a host that has a file; None = it is on the cluster's Volume. Raises as :class:`Homes`."""
    session = session_of_numbered(name)
    return None if session is None else homes.of(session)


class HomeBooks:
    """The homes in the books. An answer is retained when it can't change any more."""

    def __init__(self, table: MetadataTable, has_shared_logs: Callable[[str], bool]) -> None:
        """``has_shared_logs``: whether the cluster's Volume has a file among the logs of a session."""
        self._table = table
        self._has_shared_logs = has_shared_logs
        self._known: dict[str, LogHome | None] = {}

    def of(self, session: str) -> LogHome | None:
        """See :class:`Homes`: one read of the books for each session, in all."""
        if session in self._known:
            return self._known[session]
        had_shared_logs = self._has_shared_logs(session)
        row = self._table.get(keys.home_row(session), FAMILIES)
        cell = None if row is None else row.cells.get(keys.HOME)
        home = None if cell is None else LogHome.decode(cell.value)
        # R12: a session without a row may put it later, unless it had logs on the cluster's Volume before the read: the
        # row comes before any log.
        if home is not None or had_shared_logs:
            self._known[session] = home
        return home

    def all(self) -> Mapping[str, LogHome]:
        """See :class:`Homes`: one scan, for listings."""
        found = {}
        for row in self._table.scan(*keys.section(keys.HOME_PREFIX), FAMILIES):
            if keys.HOME in row.cells:
                found[keys.parse_home_row(row.key)] = LogHome.decode(row.cells[keys.HOME].value)
        return found

    def put(self, session: str, home: LogHome) -> None:
        """Rule R12: the session's logs lie there; durable on return, before the first of them is made."""
        self._table.put([RowPut(keys.home_row(session), {keys.HOME: home.encode()})], keys.ONCE_RANK)
        self._known[session] = home

    def note_shared(self, session: str) -> None:
        """This process's own session makes its logs on the cluster's Volume: nobody has to ask the books."""
        self._known[session] = None

    def put_ended(self, session: str) -> None:
        """The session makes no more logs, and each of them is sealed."""
        self._table.put([RowPut(keys.home_row(session), {keys.HOME_ENDED: values.EMPTY})], keys.ONCE_RANK)

    def has_ended(self, session: str) -> bool:
        """Whether the session has put :meth:`put_ended`."""
        row = self._table.get(keys.home_row(session), FAMILIES)
        return row is not None and keys.HOME_ENDED in row.cells

    def remove(self, session: str) -> None:
        """The session is dead and has no log left: its row goes for ever, ids of sessions are not used again."""
        if self._known.pop(session, None) is not None or self.of(session) is not None:
            row = keys.home_row(session)
            self._table.purge([CellKey(row, keys.HOME), CellKey(row, keys.HOME_ENDED)])
            self._known.pop(session, None)
