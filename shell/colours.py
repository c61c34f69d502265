"""Colours of words for a state, where a terminal has them: green works, yellow goes on by itself, red needs a look.

Nothing is coloured in a pipe, with the variable NO_COLOR (https://no-color.org), or on a terminal that calls itself
``dumb``. The words alone say the same.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TextIO

GREEN, YELLOW, RED = 32, 33, 31

WORDS: Mapping[str, Mapping[str, int]] = {
    "state": {
        **dict.fromkeys(("alive", "served", "online"), GREEN),
        **dict.fromkeys(("draining", "loading", "unknown", "held", "retrying", "skipping"), YELLOW),
        **dict.fromkeys(("away", "unassigned", "needs help", "blocking"), RED),
    },
    "phase": {
        **dict.fromkeys(("done", "shipping"), GREEN),
        **dict.fromkeys(("waiting", "blocked", "uncopied", "unsealed"), YELLOW),
        **dict.fromkeys(("backing_off", "failing", "quarantined"), RED),
    },
    "step": {"failed": RED},
}
"""The colour of each word, by the column in which it stands."""


def are_wanted(stream: TextIO | None = None, environment: Mapping[str, str] | None = None) -> bool:
    """Whether a stream, by default standard output, is a terminal that shows colours."""
    shown = sys.stdout if stream is None else stream
    found = os.environ if environment is None else environment
    return shown.isatty() and not found.get("NO_COLOR") and found.get("TERM", "dumb") != "dumb"


def painted(text: str, colour: int) -> str:
    """A text in a colour."""
    return f"\x1b[{colour}m{text}\x1b[0m"


def of_cell(column: str, text: str) -> int | None:
    """The colour of a cell of a table; None = none."""
    return WORDS.get(column, {}).get(text)
