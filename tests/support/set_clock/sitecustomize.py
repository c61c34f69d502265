"""Lets a test set the wall clock of real processes: Python loads this first where its directory is in PYTHONPATH.

Arrives: the file that SET_CLOCK_FILE names, with milliseconds to add; none yet, or garbage: nothing is added. Leaves:
``time.time`` and ``time.time_ns``, which is how all our code reads the wall clock; the boot clock stays as it is, and
so do the times of files, which the kernel writes.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

FILE = Path(os.environ.get("SET_CLOCK_FILE", "/nonexistent"))

_machine_ns = time.time_ns


def _set_ns() -> int:
    try:
        return _machine_ns() + int(FILE.read_text()) * 1_000_000
    except (OSError, ValueError):
        return _machine_ns()


time.time_ns = _set_ns
time.time = lambda: _set_ns() / 1e9
