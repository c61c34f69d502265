"""The history of typed commands, in a private file of the user.

Only its owner can read the file, since users type values into commands. It keeps the latest :data:`ENTRIES_MAX` lines,
each from the moment of its entry, but no line that begins with a space.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from prompt_toolkit.history import FileHistory

ENTRIES_MAX = 5_000
_TRIM_BYTES = 1024 * 1024
_MARK = "\n# "
"""Begins an entry in the file."""


def history_file(environment: Mapping[str, str], home: Path) -> Path:
    """The path of the file, in the user's state directory: ``$XDG_STATE_HOME`` or ``~/.local/state``."""
    state = environment.get("XDG_STATE_HOME", "")
    base = Path(state) if state.startswith("/") else home / ".local" / "state"
    return base / "tablet-bookkeeper" / "history"


class PrivateHistory(FileHistory):
    """A history file of mode 0600. Raises OSError if the file can't be made or read."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(path, "ab", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            os.fchmod(file.fileno(), 0o600)
            size = file.tell()
        if size > _TRIM_BYTES:
            _trim(path)
        super().__init__(path)

    def append_string(self, string: str) -> None:
        """Store a line, unless it begins with a space."""
        if not string.startswith(" "):
            super().append_string(string)


def _trim(path: Path) -> None:
    """Drop all but the latest entries, atomically."""
    entries = path.read_text(encoding="utf-8", errors="replace").split(_MARK)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with open(temporary, "w", encoding="utf-8", opener=lambda name, flags: os.open(name, flags, 0o600)) as out:
        out.write(_MARK + _MARK.join(entries[-ENTRIES_MAX:]))
    temporary.replace(path)
