"""The files of logs below a directory, which a collector may empty meanwhile.

:meth:`pathlib.Path.rglob` raises FileNotFoundError when a directory goes between its name and its content.
"""

from __future__ import annotations

import os
from pathlib import Path


def logs_below(directory: Path) -> set[Path]:
    """All logs in the directory and below it; those of a directory that goes meanwhile may be missing."""
    return {Path(where) / name for where, _, names in os.walk(directory) for name in names if name.endswith(".wal")}
