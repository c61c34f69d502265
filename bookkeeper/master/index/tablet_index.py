"""All tablets of a cluster in the master's memory, changed in place: one tablet's change costs that tablet only.

Arrives: views of tablets, one at a time or in key order. Leaves: the view of a row, the rows of a range of keys, the
tablets of a session, and how many tablets each session has. The first cycle of a reign reads the rows again. The
master's thread changes it; other threads read a list of its values.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import ItemsView, Iterable, Iterator, Mapping, ValuesView
from typing import TYPE_CHECKING

from msgspec import Struct, field

from bookkeeper.metadata import keys

if TYPE_CHECKING:
    from bookkeeper.master.index.snapshot import TabletView


class TabletCounts(Struct):
    """The number of tablets of each session, in all and of each table; 0 for others."""

    total: Counter[str] = field(default_factory=Counter)
    by_table: Counter[tuple[str, str]] = field(default_factory=Counter)

    def add(self, session: str, table_id: str, number: int = 1) -> None:
        """``number`` more (or fewer) tablets of a table; a session without any is forgotten."""
        self.total[session] += number
        self.by_table[session, table_id] += number
        if not self.total[session]:
            del self.total[session]
        if not self.by_table[session, table_id]:
            del self.by_table[session, table_id]


class TabletIndex(Mapping[bytes, "TabletView"]):
    """Tablets by row. ``counts`` are those of the sessions that tablets are assigned to."""

    def __init__(self, views: Iterable[TabletView] = ()) -> None:
        self._views: dict[bytes, TabletView] = {}
        self._ordered: dict[str, list[bytes]] = {}
        self._of_session: dict[str, dict[bytes, None]] = {}
        self.counts = TabletCounts()
        for view in views:
            self.put(view)

    def __getitem__(self, row: bytes) -> TabletView:
        return self._views[row]

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._views)

    def __len__(self) -> int:
        return len(self._views)

    def values(self) -> ValuesView[TabletView]:
        """See ``Mapping``; a list of them is of one moment, for other threads."""
        return self._views.values()

    def items(self) -> ItemsView[bytes, TabletView]:
        """See ``Mapping``."""
        return self._views.items()

    def put(self, view: TabletView) -> None:
        """Add a tablet, or replace its view."""
        known = self._views.get(view.row)
        if known is None:
            self._place(view)
        else:
            self._leave(known)
        self._views[view.row] = view
        self._join(view)

    def remove(self, row: bytes) -> None:
        """Remove a tablet; does nothing without one."""
        known = self._views.pop(row, None)
        if known is None:
            return
        self._leave(known)
        rows = self._ordered[known.extent.table_id]
        del rows[bisect_left(rows, row)]
        if not rows:
            del self._ordered[known.extent.table_id]

    def between(self, start: bytes, stop: bytes) -> list[bytes]:
        """The rows from ``start`` (included) to ``stop`` (excluded) of the table that ``start`` lies in, in order."""
        table_id, _ = keys.parse_tablet_row(start)
        rows = self._ordered.get(table_id, [])
        return rows[bisect_left(rows, start) : bisect_left(rows, stop)]

    def sessions(self) -> list[str]:
        """Every session that a tablet is assigned to, or was parked at."""
        return list(self._of_session)

    def rows_of(self, session: str) -> dict[bytes, None]:
        """The rows of a session's tablets, in the order in which it got them; those parked at it included."""
        return self._of_session.get(session, {})

    def _place(self, view: TabletView) -> None:
        rows = self._ordered.setdefault(view.extent.table_id, [])
        if rows and view.row < rows[-1]:
            insort(rows, view.row)
        else:
            rows.append(view.row)

    def _join(self, view: TabletView) -> None:
        session = view.session or view.parked_at
        if session is not None:
            self._of_session.setdefault(session, {})[view.row] = None
        if view.session is not None:
            self.counts.add(view.session, view.extent.table_id)

    def _leave(self, view: TabletView) -> None:
        session = view.session or view.parked_at
        if session is not None:
            rows = self._of_session[session]
            del rows[view.row]
            if not rows:
                del self._of_session[session]
        if view.session is not None:
            self.counts.add(view.session, view.extent.table_id, -1)
