"""One line on a terminal about long work: what is left, the rate, and the time left. Nothing of it in a pipe."""

from __future__ import annotations

import sys
from typing import TextIO

from bookkeeper.clock import Clock, SystemClock

CLEAR = "\r\x1b[K"
"""To the beginning of the line, and delete it."""

REDRAW_MS = 200


class ProgressLine:
    """The line of one command, on standard error. Use it as a context: its end deletes the line."""

    def __init__(self, noun: str, stream: TextIO | None = None, clock: Clock | None = None) -> None:
        """``noun``: of what is counted, in the plural."""
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

    def show(self, left: int) -> None:
        """So many are left now."""
        now_ns = self._clock.boot_ns()
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
            return f"{left:,} {self._noun} left"
        return f"{left:,} {self._noun} left, {rate:,.0f} a second, about {left / rate:,.0f} s to go"
