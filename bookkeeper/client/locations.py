"""Where the tablets of a table are, as the master said last.

Arrives: answers of ``locate``. Leaves: extents in row order, each with the address that serves it. What it says may be
old: tservers check, and whoever is sent away asks again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from bookkeeper.clock import Clock
from bookkeeper.errors import CorruptionError, NotServingError
from bookkeeper.model import Extent
from bookkeeper.rpc.messages import TabletLocation

Locate = Callable[[], Sequence[TabletLocation]]

HELPLESS_MS = 5_000
"""How long a tablet has to need a person's help until whoever waits for it gives up: a file may have been mended, and
the master not have tried yet.
"""


@dataclass(frozen=True, slots=True)
class TableMap:
    """The tablets of one table at one moment, in row order; ``addresses`` None for those that nobody serves, ``placed``
    see :class:`TabletLocation`; ``problems`` of those that nobody can serve until a person helps.
    """

    extents: tuple[Extent, ...]
    addresses: tuple[str | None, ...]
    placed: tuple[int | None, ...]
    problems: Mapping[Extent, str] = field(default_factory=dict)

    def address_of(self, extent: Extent) -> str | None:
        """Who serves the tablet; None also when there is no such tablet."""
        for known, address in zip(self.extents, self.addresses, strict=True):
            if known == extent:
                return address
        return None

    def index_of(self, row: bytes) -> int:
        """Position of the tablet that holds ``row``."""
        for index, extent in enumerate(self.extents):
            if extent.end_row is None or row <= extent.end_row:
                return index
        raise NotServingError(f"no tablet holds row {row!r}")


def table_map(locations: Iterable[TabletLocation]) -> TableMap:
    """Check that the tablets cover every row once; raises NotServingError when they do not (yet)."""
    ordered = sorted(locations, key=lambda found: (found.extent.prev_row is not None, found.extent.prev_row or b""))
    reached: bytes | None = None
    for position, found in enumerate(ordered):
        extent = found.extent
        if (extent.prev_row is None) != (position == 0) or extent.prev_row != reached:
            raise NotServingError(f"the tablets of table {extent.table_id} do not join after row {reached!r}")
        if extent.end_row is None and position != len(ordered) - 1:
            raise NotServingError(f"the tablets of table {extent.table_id} overlap")
        reached = extent.end_row
    if not ordered or reached is not None:
        raise NotServingError("the tablets of a table do not cover every row; it may be in the making")
    return TableMap(
        tuple(found.extent for found in ordered),
        tuple(found.address for found in ordered),
        tuple(found.placed for found in ordered),
        {found.extent: found.problem for found in ordered if found.problem},
    )


@dataclass(slots=True)
class Helpless:
    """The tablets that somebody waits for and that a person has to help, and since when (boot clock) they are said to
    need it. One wait of one thread, or under its lock.
    """

    clock: Clock
    _since_ns: dict[Extent, int] = field(default_factory=dict)

    def note(self, found: TableMap, wanted: Collection[Extent]) -> None:
        """The latest answer about the tablets that are waited for. Raises CorruptionError, with the reason, when one of
        them has needed help for :data:`HELPLESS_MS`.
        """
        now_ns = self.clock.boot_ns()
        self._since_ns = {extent: self._since_ns.get(extent, now_ns) for extent in wanted if extent in found.problems}
        for extent, since_ns in self._since_ns.items():
            if is_hopeless(since_ns, now_ns):
                raise CorruptionError(f"nobody can serve tablet {extent}: {found.problems[extent]}")


def is_hopeless(since_ns: int, now_ns: int) -> bool:
    """A tablet has needed a person's help for so long that nobody waits for it any more; boot clock."""
    return now_ns - since_ns >= HELPLESS_MS * 1_000_000
