"""The geometry of the monitor's pictures: lag over time, what hosts hold, and the way of a file. Pure.

The template ``pictures.html`` draws them as inline SVG, so they need no script and follow the colour scheme of the
page. Each picture has a text that says the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from bookkeeper.model import BlockRange

STEPS_MAX = 120
"""Most points of a line: a window of half an hour has one for each 15 s, the greatest value of that time."""

WINDOWS_MS = (120_000, 300_000, 600_000, 1_800_000)
"""Lengths of the time that a picture shows: the shortest one that has all points."""

HEIGHT = 100
"""Units of a picture's height; its width has one for each step."""

LINES_MAX = 8
"""Most peers in the pictures of the overview, those with the greatest lag; the page Peers has all."""

WIDTH_MIN = 0.5
"""The least width of a part of a bar in percent, so that one record of a million is seen."""


class Line(Struct, frozen=True):
    """One number over time: ``top`` is the value at the upper edge, ``line`` and ``area`` are SVG paths."""

    name: str
    latest: float | None
    greatest: float
    top: float
    points: int
    line: str
    area: str


class PeerLines(Struct, frozen=True):
    """The lag of one peer over the last ``window_ms``."""

    cluster: str
    window_ms: int
    lines: tuple[Line, ...]


class Part(Struct, frozen=True):
    """A part of a bar, in percent of its width."""

    kind: str
    start: float
    width: float


def peer_lines(history: Mapping[str, Any], most: int) -> tuple[PeerLines, ...]:
    """The pictures of the ``most`` clusters with the greatest lag now in a history's columns, by name.

    Points from the future, before the wall clock was set back, are left out, and so are clusters that are not defined
    any more.
    """
    at_ms: Sequence[int] = history["at_ms"]
    if not at_ms:
        return ()
    now_ms = at_ms[-1]
    window_ms = next((one for one in WINDOWS_MS if now_ms - min(at_ms) <= one), WINDOWS_MS[-1])
    steps = [STEPS_MAX - (now_ms - one) * STEPS_MAX // window_ms for one in at_ms]
    found = []
    for series in history["series"]:
        if series["lag_records"][-1] is not None:
            lines = (line_of(name, steps, values) for name, values in series.items() if name != "cluster")
            found.append(PeerLines(series["cluster"], window_ms, tuple(lines)))
    urgent = sorted(found, key=urgency)[:most]
    return tuple(sorted(urgent, key=lambda peer: peer.cluster))


def urgency(peer: PeerLines) -> tuple[list[float], str]:
    """The sort key of peers: the greatest age first, an unknown one before all."""
    values = [-1e18 if line.latest is None else -line.latest for line in peer.lines]
    return values[::-1], peer.cluster


def line_of(name: str, steps: Sequence[int], values: Sequence[float | None]) -> Line:
    """The line through the greatest value of each step; it has a gap where a value is unknown."""
    by_step: dict[int, float | None] = {}
    for step, value in zip(steps, values, strict=True):
        if 0 <= step <= STEPS_MAX:
            before = by_step.get(step)
            by_step[step] = value if before is None else max(before, value or 0.0)
    known = [value for value in by_step.values() if value is not None]
    top = round_top(max(known, default=0.0), 1024 if name.endswith("bytes") else 1000)
    runs: list[list[tuple[int, float]]] = [[]]
    for step in sorted(by_step):
        value = by_step[step]
        if value is not None:
            runs[-1].append((step, round(HEIGHT - HEIGHT * value / top, 1)))
        elif runs[-1]:
            runs.append([])
    drawn = [run for run in runs if run]
    return Line(
        name=name,
        latest=values[-1],
        greatest=max(known, default=0.0),
        top=top,
        points=len(known),
        line=" ".join(f"M{path_of(run)}" for run in drawn),
        area=" ".join(f"M{run[0][0]} {HEIGHT}L{path_of(run)}L{run[-1][0]} {HEIGHT}Z" for run in drawn),
    )


def path_of(run: Sequence[tuple[int, float]]) -> str:
    """The points of a line; one point alone is a dash of no length, which round ends make visible."""
    whole = run if len(run) > 1 else [*run, *run]
    return "L".join(f"{step} {height:g}" for step, height in whole)


def round_top(value: float, base: int) -> float:
    """The least of 1, 2, 5, 10, ... times a power of ``base`` that is not below a value."""
    unit = 1.0
    while value > unit * base:
        unit *= base
    steps = (digit * power for power in (1, 10, 100) for digit in (1, 2, 5))
    return next((unit * one for one in steps if unit * one >= value), unit * base)


def bar(shares: Iterable[tuple[str, float]], whole: float) -> tuple[Part, ...]:
    """Parts side by side: each kind with its share of ``whole``; a share of nothing has no part."""
    parts: list[Part] = []
    start = 0.0
    for kind, share in shares:
        if share > 0 and whole > 0:
            width = 100 * share / whole
            parts.append(Part(kind, round(start, 3), round(width, 3)))
            start += width
    return tuple(parts)


# ---- the way of a file

FINISHED, UNDER_WAY, HELD, NOT_SENT = "finished", "under_way", "held", "not_sent"


def spans(needed: int, finished: int, under_way: int | None, held: Iterable[BlockRange]) -> list[tuple[str, int, int]]:
    """The offsets from 1 to ``needed`` as spans of one kind, in order. Ranges in quarantine are ``held``, whatever the
    offsets around them are.
    """
    through = max(finished, under_way or 0)
    limits = [(FINISHED, 1, min(finished, needed)), (UNDER_WAY, finished + 1, min(through, needed))]
    limits.append((NOT_SENT, through + 1, needed))
    kept = sorted((max(1, one.first), min(one.last, needed)) for one in held)
    found: list[tuple[str, int, int]] = []
    for kind, first, last in limits:
        for held_first, held_last in kept:
            if first <= last and held_first <= last and held_last >= first:
                if held_first > first:
                    found.append((kind, first, held_first - 1))
                first = held_last + 1
        if first <= last:
            found.append((kind, first, last))
    found += [(HELD, first, last) for first, last in kept if first <= last]
    return sorted(found, key=lambda span: span[1])


def way_bar(found: Sequence[tuple[str, int, int]]) -> tuple[Part, ...]:
    """The bar of spans. The smallest parts are drawn wider than they are, over their neighbours."""
    whole = max((last for _, _, last in found), default=0)
    parts = []
    for kind, first, last in found:
        width = max(WIDTH_MIN, 100 * (last - first + 1) / whole)
        parts.append(Part(kind, round(min(100 * (first - 1) / whole, 100 - width), 3), round(width, 3)))
    return tuple(sorted(parts, key=lambda part: (part.kind == HELD, -part.width)))
