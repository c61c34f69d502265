"""The tablets of a table in row order with their tservers' addresses, from the master's answers to ``locate``.

An answer may be old: tservers check the tablet of each call, and a refused caller locates it again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from msgspec import Struct, field

from bookkeeper.clock import Clock
from bookkeeper.errors import CorruptionError, NotServingError
from bookkeeper.model import Extent, chain_break
from bookkeeper.rpc.contract.messages import TabletLocation

Locate = Callable[[], Sequence[TabletLocation]]

UNSERVABLE_MS = 5_000
"""A caller waits this long for a tablet that needs an operator's help, ms: the operator may have repaired a file that
the master has not tried yet.
"""


class TableMap(Struct, frozen=True):
    """The tablets of one table at one moment, in row order. ``addresses`` has None for tablets without a tserver;
    ``placed`` as in :class:`TabletLocation`; ``problems`` are of tablets that need an operator's help; ``replicas`` are
    the addresses of hosts with a replica, of tablets that have several.
    """

    extents: tuple[Extent, ...]
    addresses: tuple[str | None, ...]
    placed: tuple[int | None, ...]
    problems: Mapping[Extent, str] = field(default_factory=dict)
    replicas: Mapping[Extent, tuple[str, ...]] = field(default_factory=dict)

    def index_of(self, row: bytes) -> int:
        """Position of the tablet that holds ``row``."""
        last = len(self.extents) - 1
        if last < 0 or (not self.extents[last].contains(row) and self.extents[last].end_row is not None):
            raise NotServingError(f"no tablet holds row {row!r}")
        return bisect_left(self.extents, row, hi=last, key=lambda extent: extent.end_row or b"")

    def with_tablet(self, found: TabletLocation) -> TableMap | None:
        """This map with a newer location of one tablet; None when its extent has changed."""
        extent, end_row = found.extent, found.extent.end_row
        index = len(self.extents) - 1 if end_row is None else self.index_of(end_row)
        if self.extents[index] != extent:
            return None
        problems = {other: problem for other, problem in self.problems.items() if other != extent}
        if found.problem:
            problems[extent] = found.problem
        addresses = (*self.addresses[:index], found.address, *self.addresses[index + 1 :])
        placed = (*self.placed[:index], found.placed, *self.placed[index + 1 :])
        replicas = {other: hosts for other, hosts in self.replicas.items() if other != extent}
        if found.replicas:
            replicas[extent] = found.replicas
        return TableMap(self.extents, addresses, placed, problems, replicas)


def table_map(locations: Iterable[TabletLocation]) -> TableMap:
    """The map of tablets that cover every row once; raises NotServingError when they do not (yet)."""
    ordered = sorted(locations, key=lambda found: (found.extent.prev_row is not None, found.extent.prev_row or b""))
    extents = tuple(found.extent for found in ordered)
    at = chain_break(extents)
    if at == len(extents):
        raise NotServingError("the tablets of a table do not cover every row; the master may be creating it")
    if at is not None:
        table_id, reached = extents[at].table_id, extents[at - 1].end_row if at else None
        if at and reached is None:
            raise NotServingError(f"the tablets of table {table_id} overlap")
        raise NotServingError(f"the tablets of table {table_id} do not join after row {reached!r}")
    return TableMap(
        extents,
        tuple(found.address for found in ordered),
        tuple(found.placed for found in ordered),
        {found.extent: found.problem for found in ordered if found.problem},
        {found.extent: found.replicas for found in ordered if found.replicas},
    )


class UnservableTracker(Struct):
    """Since when (boot clock) the tablets that a caller waits for need an operator's help. For one wait of one thread,
    or under the caller's lock.
    """

    clock: Clock
    _since_ns: dict[Extent, int] = field(default_factory=dict)

    def check(self, found: TableMap, awaited: Collection[Extent]) -> None:
        """Take the latest answer about the awaited tablets. Raises CorruptionError, with the reason, when one of them
        has needed help for :data:`UNSERVABLE_MS`.
        """
        now_ns = self.clock.boot_ns()
        self._since_ns = {extent: self._since_ns.get(extent, now_ns) for extent in awaited if extent in found.problems}
        for extent, since_ns in self._since_ns.items():
            if now_ns - since_ns >= UNSERVABLE_MS * 1_000_000:
                raise CorruptionError(f"no tserver can serve tablet {extent}: {found.problems[extent]}")
