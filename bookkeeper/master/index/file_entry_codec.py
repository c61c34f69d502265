"""Numbers and names of one outstanding file in one value, for a million of them.

Arrives: the content of a :class:`~bookkeeper.master.index.file_entry.FileEntry` beyond its name. Leaves: bytes, and the
same content again. An object for each number or barrier would cost more than its content, so there are none. Numbers
take four bytes, or eight where one of them needs it. The name of a log is stored as its difference from the name
before, the first from the file's own: logs of one tserver differ by a few digits. Pure; packed values lie in memory
only.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from itertools import zip_longest
from typing import Literal, NamedTuple

from msgspec import Struct

from bookkeeper.master.index import log_names as file_names
from bookkeeper.master.index.barriers import FileBarrier
from bookkeeper.master.index.target_progress import NO_AMOUNT, NO_PROGRESS, Amount, Progress


class _Layout(Struct, frozen=True):
    """``head``: which layout, length of the status, how many targets and barriers, the number in the file's name
    (``log_names``), the cycle that saw it CLOSED, needed offset. ``target``: its progress and its amount. ``barrier``:
    number of its file's name and whether all before, offset, until. ``cut``: how much of the name before is kept at the
    start and at the end, length of what stands between.
    """

    head: struct.Struct
    target: struct.Struct
    barrier: struct.Struct
    cut: struct.Struct


_NARROW = _Layout(struct.Struct("<BBBBIII"), struct.Struct("<IIIIII"), struct.Struct("<BII"), struct.Struct("<BBB"))
_WIDE = _Layout(struct.Struct("<BIIIIQQ"), struct.Struct("<QQQQQQ"), struct.Struct("<IQQ"), struct.Struct("<III"))
_LAYOUTS = (_NARROW, _WIDE)
_STATUS_LENGTH, _TARGETS, _BARRIERS, _NUMBER, _CLOSED, _NEEDED = range(1, 7)
_CLOSED_AT, _NEEDED_AT = 8, 12
"""Offsets in the narrow layout: most files are read there, once a cycle."""
_NO_CYCLE = bytes(4)
_REACH = struct.Struct("<II")
_AMOUNT_AT = len(Progress._fields)


class Parts(NamedTuple):
    """The content of a packed value: the needed offset, each target's progress, barriers in order, the needed side, the
    first cycle that saw the file CLOSED (0: none), and each target's amount. Empty progress or amounts mean that all
    are zero.
    """

    needed: int
    progress: tuple[Progress, ...]
    barriers: tuple[FileBarrier, ...]
    status: bytes
    closed_in: int = 0
    amounts: tuple[Amount, ...] = ()


def pack(own: bytes, parts: Parts) -> bytes:
    """``parts`` of the file ``own`` as bytes."""
    try:
        return _packed(0, own, parts)
    except struct.error:
        return _packed(1, own, parts)


def _packed(wide: int, own: bytes, parts: Parts) -> bytes:
    layout = _LAYOUTS[wide]
    needed, progress, barriers, status, closed, amounts = parts
    names = sorted({barrier.file for barrier in barriers})
    numbers = {name: number for number, name in enumerate(names)}
    packed_barriers = [
        layout.barrier.pack(numbers[b.file] << 1 | b.all_before, b.offset, b.until_offset) for b in barriers
    ]
    pairs = zip_longest(progress, amounts, fillvalue=None)
    done = [layout.target.pack(*(found or NO_PROGRESS), *(amount or NO_AMOUNT)) for found, amount in pairs]
    _, number = file_names.split(own)
    head = layout.head.pack(wide, len(status), len(done), len(packed_barriers), number, closed, needed)
    return b"".join((head, *done, *packed_barriers, *_cuts(layout.cut, own, names), status))


def unpack(own: bytes, packed: bytes) -> Parts:
    """The inverse of :func:`pack`."""
    layout = _LAYOUTS[packed[0]]
    _, status, targets, barrier_count, _, closed, needed = layout.head.unpack_from(packed)
    barriers_at = layout.head.size + targets * layout.target.size
    names_at, status_at = barriers_at + barrier_count * layout.barrier.size, len(packed) - status
    found = list(layout.target.iter_unpack(packed[layout.head.size : barriers_at]))
    progress = tuple([Progress(*numbers[:_AMOUNT_AT]) for numbers in found])
    amounts = tuple([Amount(*numbers[_AMOUNT_AT:]) for numbers in found])
    barriers: tuple[FileBarrier, ...] = ()
    if barrier_count:
        names = _names(layout.cut, own, packed[names_at:status_at])
        unpacked = layout.barrier.iter_unpack(packed[barriers_at:names_at])
        barriers = tuple([FileBarrier(at, names[which >> 1], until, bool(which & 1)) for which, at, until in unpacked])
    return Parts(needed, progress, barriers, packed[status_at:], closed, amounts)


def number_in(packed: bytes) -> int:
    """The number in the file's name, see ``log_names``."""
    number: int = _LAYOUTS[packed[0]].head.unpack_from(packed)[_NUMBER]
    return number


def status_in(packed: bytes) -> bytes:
    """The needed side, encoded."""
    return packed[len(packed) - _LAYOUTS[packed[0]].head.unpack_from(packed)[_STATUS_LENGTH] :]


def is_status_in(packed: bytes, status: bytes) -> bool:
    """Whether this is the needed side."""
    if packed[0]:
        return status_in(packed) == status
    return len(status) == packed[_STATUS_LENGTH] and packed.endswith(status)


def needed_in(packed: bytes) -> int:
    """The needed offset."""
    needed: int = _LAYOUTS[packed[0]].head.unpack_from(packed)[_NEEDED]
    return needed


def closed_in(packed: bytes) -> int:
    """The first cycle that saw the file CLOSED, 0 for none."""
    closed: int = _LAYOUTS[packed[0]].head.unpack_from(packed)[_CLOSED]
    return closed


def is_closed_in(packed: bytes) -> bool:
    """Whether a cycle saw the file CLOSED."""
    return closed_in(packed) > 0 if packed[0] else packed[_CLOSED_AT:_NEEDED_AT] != _NO_CYCLE


def with_closed_in(packed: bytes, cycle: int) -> bytes:
    """The same with another cycle."""
    head = _LAYOUTS[packed[0]].head
    *numbers, _, needed = head.unpack_from(packed)
    return head.pack(*numbers, cycle, needed) + packed[head.size :]


def barriers_in(packed: bytes) -> int:
    """The number of barriers."""
    barriers: int = _LAYOUTS[packed[0]].head.unpack_from(packed)[_BARRIERS]
    return barriers


def progress_in(packed: bytes, index: int) -> Progress | None:
    """Progress of the target at ``index``, None when nothing is known of any."""
    layout = _LAYOUTS[packed[0]]
    if index >= layout.head.unpack_from(packed)[_TARGETS]:
        return None
    return Progress(*_target(layout, packed, index)[:_AMOUNT_AT])


def amount_in(packed: bytes, index: int) -> Amount:
    """The amount of the target at ``index``."""
    layout = _LAYOUTS[packed[0]]
    if index >= layout.head.unpack_from(packed)[_TARGETS]:
        return NO_AMOUNT
    return Amount(*_target(layout, packed, index)[_AMOUNT_AT:])


def _target(layout: _Layout, packed: bytes, index: int) -> tuple[int, ...]:
    return layout.target.unpack_from(packed, layout.head.size + index * layout.target.size)


def finished_in(packed: bytes, index: int) -> int:
    """The finished offset of the target at ``index``."""
    layout = _LAYOUTS[packed[0]]
    targets = layout.head.unpack_from(packed)[_TARGETS] if packed[0] else packed[_TARGETS]
    if index >= targets:
        return 0
    return _target(layout, packed, index)[0]


def reach_in(packed: bytes) -> tuple[int, int | None]:
    """The needed offset and the least finished one of any target, None when no target has anything."""
    if not packed[0] and packed[_TARGETS] == 1:
        return _REACH.unpack_from(packed, _NEEDED_AT)  # the needed offset stands before the only finished one
    layout = _LAYOUTS[packed[0]]
    _, _, targets, _, _, _, needed = layout.head.unpack_from(packed)
    if not targets:
        return needed, None
    end = layout.head.size + targets * layout.target.size
    return needed, min(layout.target.iter_unpack(packed[layout.head.size : end]))[0]


def _cuts(cut: struct.Struct, own: bytes, names: Iterable[bytes]) -> Iterator[bytes]:
    before = own
    for name in names:
        length = min(len(before), len(name))
        start = _in_common(before[:length], name[:length], "big")
        rest = length - start
        end = _in_common(before[len(before) - rest :], name[len(name) - rest :], "little")
        middle = name[start : len(name) - end]
        yield cut.pack(start, end, len(middle))
        yield middle
        before = name


def _names(cut: struct.Struct, own: bytes, packed_names: bytes) -> list[bytes]:
    names: list[bytes] = []
    before, at = own, 0
    while at < len(packed_names):
        start, end, middle = cut.unpack_from(packed_names, at)
        at += cut.size
        before = before[:start] + packed_names[at : at + middle] + before[len(before) - end :]
        at += middle
        names.append(before)
    return names


def _in_common(one: bytes, other: bytes, first: Literal["big", "little"]) -> int:
    """The number of bytes that two equally long names have in common at the start ("big") or at the end ("little")."""
    differ = int.from_bytes(one, first) ^ int.from_bytes(other, first)
    return len(one) - (differ.bit_length() + 7) // 8
