"""A log file in a listing of the directories of logs; listings, recovery and the collector share it."""

from __future__ import annotations

from dataclasses import dataclass

IMPORT_SESSION = "import"
"""Directory of the logs that imports write, with a name like that of a session that lives while an import is under way.
"""


@dataclass(frozen=True, slots=True)
class LogFile:
    """A log on disk: its name, the session whose directory it is in, and whether it is sealed."""

    name: str
    session: str
    sealed: bool
