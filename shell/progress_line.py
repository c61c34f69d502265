"""One line on a terminal about long work: what is left, the rate, and the time left. Nothing of it in a pipe."""

from __future__ import annotations

import sys
from typing import TextIO

from bookkeeper.clock import Clock, SystemClock

CLEAR = "\r\x1b[K"
"""To the beginning of the line, and delete it."""

REDRAW_MS = 200

BYTES = "bytes"
"""The noun of amounts that have units."""


class ProgressLine:
    """The line of one command, on standard error. Use it as a context: its end deletes the line."""

    def __init__(self, noun: str = "", stream: TextIO | None = None, clock: Clock | None = None) -> None:
        """``noun``: of what is counted, ``bytes`` or a plural; it may come later."""
        self._noun = noun
        self._stream = sys.stderr if stream is None else stream
        self._clock = clock or SystemClock()
        self._is_shown = self._stream.isatty()
        self._first: tuple[int, int] | None = None
        self._drawn_ns = 0

    def __enter__(self) -> ProgressLine:
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_shown:
            self._stream.write(CLEAR)
            self._stream.flush()

    def show(self, left: int, noun: str = "") -> None:
        """So many are left now, perhaps of something else than before: work of several steps has several nouns."""
        now_ns = self._clock.boot_ns()
        if noun not in ("", self._noun):
            self._noun, self._first = noun, None
        if not self._is_shown or (self._first is not None and now_ns - self._drawn_ns < REDRAW_MS * 1_000_000):
            return
        if self._first is None or left > self._first[1]:  # the work has grown: the rate counts from here
            self._first = now_ns, left
        self._drawn_ns = now_ns
        self._stream.write(f"{CLEAR}{self._text(left, now_ns)}")
        self._stream.flush()

    def _text(self, left: int, now_ns: int) -> str:
        assert self._first is not None
        began_ns, at_first = self._first
        rate = (at_first - left) / max(1e-9, (now_ns - began_ns) / 1e9)
        if rate <= 0:
            return f"{amount(left, self._noun)} left"
        speed = amount(rate, self._noun) if self._noun == BYTES else f"{rate:,.{0 if rate >= 10 else 1}f}"
        return f"{amount(left, self._noun)} left, {speed} a second, about {duration(left / rate)} to go"


def amount(number: float, noun: str) -> str:
    """So many of something, in words; bytes in the unit with the fewest digits."""
    if noun != BYTES:
        return f"{number:,.0f} {noun.removesuffix('s') if number == 1 else noun}"
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if number < 1024:
            return f"{number:,.0f} {unit}" if unit == "bytes" else f"{number:,.1f} {unit}"
        number /= 1024
    return f"{number:,.1f} TiB"


def duration(seconds: float) -> str:
    """Seconds in the largest unit of which there are two."""
    for unit, length in (("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:,.0f} {unit}"
    return f"{seconds:,.0f} s"
