"""Reads the end of a child process's log, for a message about its end."""

from __future__ import annotations

import os
from pathlib import Path

WORDS_BYTES_MAX = 8_192
"""The part of a log in which the last words of an ended process are searched."""


def log_end(log: Path, bytes_max: int) -> str:
    """The last bytes of a log as text; "" when it can't be read: the message is about the process, not its log."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - bytes_max))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def last_words(log: Path) -> str:
    """The message of the last line of level ERROR or CRITICAL near the end of a process's log; "" for none."""
    lines = log_end(log, WORDS_BYTES_MAX).splitlines()
    said = [line for line in lines if line.split(" ", 3)[2:3] in (["ERROR"], ["CRITICAL"])]
    return said[-1].partition(": ")[2] if said else ""
