"""Origins: the log and the offset at which a record was first written, by which a tablet finds a duplicate (R22).

A *root* is a log of the cluster that a user wrote to, and the table there; its root and its offset identify a record.
Offsets are stored as :class:`Runs`, which stay few, because a log's records come in order on every path. A tablet has a
:class:`Part` of a root for each path that brought other rows or other families of it.

Arithmetic on runs in NumPy, nothing for each record. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import quote, unquote

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import force_setattr, replace

from bookkeeper.model import RowRange, StreamKey

Offsets = npt.NDArray[np.int64]

OFFSET_MAX = 2**48
"""Above any offset that a log reaches; a message with a greater one is garbage."""


class RootLog(Struct, frozen=True, order=True):
    """A log as the cluster that wrote it calls it: all of its roots end together."""

    instance_id: str
    file: str

    def encode(self) -> str:
        """One string, parts percent-escaped and joined by ``|``."""
        return "|".join(quote(part, safe="") for part in (self.instance_id, self.file))

    @classmethod
    def decode(cls, raw: str) -> RootLog:
        """Parse :meth:`encode`; raises ValueError on anything else."""
        instance_id, file = map(unquote, raw.split("|"))
        return cls(instance_id, file)


class Root(Struct, frozen=True, order=True):
    """A log as the cluster that wrote it calls it, and the table there that the records were written to."""

    instance_id: str
    file: str
    table_id: str

    @property
    def log(self) -> RootLog:
        """The log without the table."""
        return RootLog(self.instance_id, self.file)

    def encode(self) -> str:
        """One string, parts percent-escaped and joined by ``|``."""
        return "|".join(quote(part, safe="") for part in (self.instance_id, self.file, self.table_id))

    @classmethod
    def decode(cls, raw: str) -> Root:
        """Parse :meth:`encode`; raises ValueError on anything else."""
        root = cls(*map(unquote, _three(raw.split("|"))))
        if root.encode() != raw:
            raise ValueError(f"{raw!r} would be written {root.encode()!r}")
        return root


def _three(parts: Sequence[str]) -> Sequence[str]:
    if len(parts) != 3:
        raise ValueError(f"{len(parts)} parts where a root has three")
    return parts


def root_of(stream: StreamKey) -> Root:
    """The root of the records that users wrote to the stream's own cluster."""
    return Root(stream.source_instance_id, stream.file, stream.source_table_id)


class Runs:
    """A set of offsets, as the least and the greatest of each run: ascending, apart. Immutable."""

    __slots__ = ("pairs",)

    def __init__(self, pairs: Offsets) -> None:
        """``pairs``: shape (n, 2), ascending and apart; see :meth:`of` for others."""
        self.pairs = pairs

    @classmethod
    def of(cls, *pairs: tuple[int, int]) -> Runs:
        """Any runs, each from its least to its greatest offset."""
        return cls(_joined(np.array(pairs, np.int64).reshape(-1, 2)))

    @classmethod
    def covering(cls, offsets: Offsets) -> Runs:
        """Exactly these offsets, which ascend."""
        if not len(offsets):
            return NO_RUNS
        breaks = np.flatnonzero(offsets[1:] - offsets[:-1] != 1)
        pairs = np.empty((len(breaks) + 1, 2), np.int64)
        pairs[0, 0], pairs[-1, 1] = offsets[0], offsets[-1]
        pairs[1:, 0], pairs[:-1, 1] = offsets[breaks + 1], offsets[breaks]
        return cls(pairs)

    @classmethod
    def from_flat(cls, flat: Sequence[int]) -> Runs:
        """Inverse of :meth:`flat`; raises ValueError for numbers that are no runs."""
        if len(flat) == 2 and flat[0] >= 0 and 0 < flat[1] < OFFSET_MAX > sum(flat):  # nearly always
            return cls(np.array([(flat[0] + 1, flat[0] + flat[1])], np.int64))
        numbers = np.array(flat, np.float64)
        if len(flat) % 2 or (len(flat) and (numbers[1::2].min() < 1 or numbers[::2].min() < 0)):
            raise ValueError(f"{len(flat)} numbers are no gaps and lengths")
        if numbers.sum() >= OFFSET_MAX or (numbers[2::2] < 1).any():
            raise ValueError("gaps and lengths lead nowhere")
        ends = np.cumsum(np.array(flat, np.int64)).reshape(-1, 2)
        return cls(np.column_stack((ends[:, 0] + 1, ends[:, 1])))

    def flat(self) -> list[int]:
        """The gap before each run and its length, alternately: small numbers."""
        if len(self) == 1:
            return [self.first - 1, self.last - self.first + 1]
        numbers: list[int] = self.gaps().reshape(-1).tolist()
        return numbers

    def gaps(self) -> Offsets:
        """The gap before each run, and its length; shape (n, 2)."""
        found = np.empty_like(self.pairs)
        firsts, lasts = self.pairs[:, 0], self.pairs[:, 1]
        found[:, 0] = firsts - 1
        found[1:, 0] -= lasts[:-1]
        found[:, 1] = lasts - firsts + 1
        return found

    def __len__(self) -> int:
        """The number of runs."""
        return len(self.pairs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Runs) and np.array_equal(self.pairs, other.pairs)

    def __hash__(self) -> int:
        return hash(self.pairs.tobytes())

    def __repr__(self) -> str:
        return f"Runs{[tuple(pair) for pair in self.pairs.tolist()]}"

    @property
    def first(self) -> int:
        """The least offset; there must be one."""
        return int(self.pairs[0, 0])

    @property
    def last(self) -> int:
        """The greatest offset; there must be one."""
        return int(self.pairs[-1, 1])

    @property
    def total(self) -> int:
        """The number of offsets."""
        if len(self) == 1:
            return self.last - self.first + 1
        return int((self.pairs[:, 1] - self.pairs[:, 0] + 1).sum())

    def offsets(self) -> Offsets:
        """All of them, ascending."""
        lengths = self.pairs[:, 1] - self.pairs[:, 0] + 1
        starts = np.repeat(self.pairs[:, 0] - np.concatenate(([0], np.cumsum(lengths)[:-1])), lengths)
        found: Offsets = starts + np.arange(len(starts), dtype=np.int64)
        return found

    def at(self, indices: Offsets) -> Offsets:
        """The offsets at these indices among all of them, from 0."""
        return self.first + indices if len(self) == 1 else self.offsets()[indices]

    def holds(self, offsets: Offsets) -> npt.NDArray[np.bool_]:
        """For each of these offsets whether it is in the set."""
        if not len(self):
            return np.zeros(len(offsets), np.bool_)
        index = np.searchsorted(self.pairs[:, 0], offsets, side="right") - 1
        found: npt.NDArray[np.bool_] = (index >= 0) & (offsets <= self.pairs[np.maximum(index, 0), 1])
        return found

    def meets(self, other: Runs) -> bool:
        """Whether an offset is in both."""
        if not len(self) or not len(other) or self.last < other.first or other.last < self.first:
            return False
        return len(self & other) > 0

    def start_of(self, offset: int) -> int:
        """The first offset of the run that has this offset."""
        return int(self.pairs[int(np.searchsorted(self.pairs[:, 0], offset, side="right")) - 1, 0])

    def last_below(self, offset: int) -> int:
        """The greatest offset of the runs that begin below this one; 0 when there is none."""
        index = int(np.searchsorted(self.pairs[:, 0], offset)) - 1
        return int(self.pairs[index, 1]) if index >= 0 else 0

    def __or__(self, other: Runs) -> Runs:
        if not len(self) or not len(other):
            return self if len(self) else other
        if other.first > self.last + 1:
            return Runs(np.concatenate((self.pairs, other.pairs)))
        if len(other) == 1 and other.first >= self.pairs[-1, 0]:
            pairs = self.pairs.copy()
            pairs[-1, 1] = max(self.last, other.last)
            return Runs(pairs)
        return Runs(_joined(np.concatenate((self.pairs, other.pairs))))

    def __and__(self, other: Runs) -> Runs:
        return self._where(other, keep=True)

    def __sub__(self, other: Runs) -> Runs:
        if not len(self) or not len(other) or self.last < other.first or other.last < self.first:
            return self
        return self._where(other, keep=False)

    def _where(self, other: Runs, keep: bool) -> Runs:
        """The offsets that are in the other set, or are not, decided between all ends of both."""
        if not len(self) or not len(other):
            return NO_RUNS if keep else self
        ends = np.unique(np.concatenate((self.pairs, other.pairs)) + _BEHIND)
        starts, stops = ends[:-1], ends[1:] - 1
        wanted = self.holds(starts) & (other.holds(starts) == keep)
        return Runs(_joined(np.column_stack((starts[wanted], stops[wanted]))))


def _joined(pairs: Offsets) -> Offsets:
    """Any runs as ascending runs that are apart."""
    if len(pairs) < 2:
        return pairs
    pairs = pairs[np.argsort(pairs[:, 0], kind="stable")]
    reach = np.maximum.accumulate(pairs[:, 1])
    begins = np.concatenate(([True], pairs[1:, 0] > reach[:-1] + 1))
    ends = np.concatenate((begins[1:], [True]))
    return np.column_stack((pairs[begins, 0], reach[ends]))


def union(some: Sequence[Runs]) -> Runs:
    """All offsets of at least one set."""
    return some[0] if len(some) == 1 else Runs(_joined(np.concatenate([runs.pairs for runs in some])))


_BEHIND = np.array((0, 1), np.int64)
"""Turns a run into its first offset and the offset behind it."""

NO_RUNS = Runs(np.empty((0, 2), np.int64))


class Part(Struct, frozen=True):
    """Every record of a root in these rows and, unless ``family`` is None, this family, with these offsets."""

    rows: RowRange
    family: bytes | None
    runs: Runs

    def crosses(self, other: Part) -> bool:
        """Whether a record may be in both parts, although they have different rows or families."""
        if (self.rows, self.family) == (other.rows, other.family):
            return False
        if None not in (self.family, other.family) and self.family != other.family:
            return False
        return self.rows.part_in(other.rows) is not None and self.runs.meets(other.runs)


class RootIntervals(Struct, frozen=True):
    """The records of one root that a tablet has: one part for the same rows and family, as parts of the same rows and
    family are joined. ``last_ms``: the tablet's server time when it last took records of the root.
    """

    parts: tuple[Part, ...] = ()
    last_ms: int = 0

    def __post_init__(self) -> None:
        """Join parts of the same rows and family."""
        if len(self.parts) > 1:
            force_setattr(self, "parts", joined_parts(self.parts))

    @property
    def size(self) -> int:
        """Runs in all parts."""
        return sum(len(part.runs) for part in self.parts)

    def runs_of(self, rows: RowRange, family: bytes | None) -> Runs:
        """The offsets whose records are here, of all these rows and this family (None: of all families)."""
        for part in self.parts:
            if (part.rows, part.family) == (rows, family):
                return part.runs
        return NO_RUNS

    def taking(self, part: Part, now_ms: int) -> RootIntervals:
        """With this part, too."""
        others = tuple(other for other in self.parts if (other.rows, other.family) != (part.rows, part.family))
        joined = replace(part, runs=self.runs_of(part.rows, part.family) | part.runs)
        return RootIntervals((*others, joined), max(self.last_ms, now_ms))

    def inside(self, rows: RowRange) -> RootIntervals:
        """The intervals within these rows, for a part of a tablet that is split. Parts of different rows may have the
        same rows in common with these.
        """
        found = ((part, part.rows.part_in(rows)) for part in self.parts)
        return RootIntervals(
            tuple(replace(part, rows=common) for part, common in found if common is not None), self.last_ms
        )


def joined_parts(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    """The same records in one part for the same rows and family, with the offsets of all (R22)."""
    joined: dict[tuple[RowRange, bytes | None], Part] = {}
    for part in parts:
        key = part.rows, part.family
        before = joined.get(key)
        joined[key] = part if before is None else replace(part, runs=before.runs | part.runs)
    return parts if len(joined) == len(parts) else tuple(joined.values())


def joined_roots(tablets: Iterable[Mapping[Root, RootIntervals]]) -> dict[Root, RootIntervals]:
    """The intervals of a merged tablet: each part is of its own rows, so none claims rows of another tablet (R22)."""
    found: dict[Root, list[RootIntervals]] = {}
    for tablet in tablets:
        for root, intervals in tablet.items():
            if intervals.parts:
                found.setdefault(root, []).append(intervals)
    return {
        root: RootIntervals(tuple(part for one in several for part in one.parts), max(one.last_ms for one in several))
        for root, several in found.items()
    }
