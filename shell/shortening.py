"""Shortens messages that repeat long inputs.

It cuts the middle of each long run of a typed word in a message, in every form in which messages quote words. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

QUOTED_MAX = 200
"""Most characters of one input in a message."""

MESSAGE_MAX = 4_000
"""Most characters of one message."""

_HEAD, _TAIL = 120, 40
_WINDOW = QUOTED_MAX // 4
"""A run of more than QUOTED_MAX characters covers an aligned window of this size, so a search for windows suffices."""


_ESCAPED = re.compile(r"\\x([0-9a-fA-F]{2})")


def shortened(message: str, words: Iterable[str]) -> str:
    """The message with long runs of ``words`` cut, and cut itself if it is still too long."""
    typed = "\0".join(form for word in words if len(word) > QUOTED_MAX for form in _forms(word))
    parts: list[str] = []
    done = at = 0
    while typed and at + _WINDOW <= len(message):
        if message[at : at + _WINDOW] not in typed:
            at += _WINDOW
            continue
        start, end = _run_around(message, at, done, typed)
        if end - start > QUOTED_MAX:
            parts += [message[done:start], _cut(message[start:end], _HEAD, _TAIL)]
            done = end
        at = end
    result = "".join(parts) + message[done:]
    return result if len(result) <= MESSAGE_MAX else _cut(result, MESSAGE_MAX - 2 * QUOTED_MAX, QUOTED_MAX)


def _forms(word: str) -> set[str]:
    """The forms in which messages quote a word: unchanged, as text, as bytes, and with ``\\xHH`` decoded."""
    read = _ESCAPED.sub(lambda found: chr(int(found[1], 16)), word)
    return {form for text in (word, read) for form in (text, repr(text)[1:-1], repr(text.encode())[2:-1])}


def _run_around(message: str, at: int, floor: int, typed: str) -> tuple[int, int]:
    """Start and end of the longest typed run around the window at ``at``; it starts at ``floor`` or later."""
    end = _longest(at + _WINDOW, len(message), lambda end: message[at:end] in typed)
    start = -_longest(-at, -floor, lambda start: message[-start:end] in typed)
    return start, end


def _longest(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """The greatest number up to ``high`` for which ``holds`` is true; it is true from ``low`` up to some number."""
    while low < high:
        middle = (low + high + 1) // 2
        if holds(middle):
            low = middle
        else:
            high = middle - 1
    return low


def _cut(text: str, head: int, tail: int) -> str:
    return f"{text[:head]}…({len(text)} characters)…{text[-tail:]}"
