"""A log file in a listing of the directories of logs; listings, recovery and the collector share it."""

from __future__ import annotations

from msgspec import Struct

IMPORT_SESSION = "import"
"""Directory of the logs that imports write, with a name like that of a session that lives while an import is under way.
"""


class LogFile(Struct, frozen=True):
    """A log on disk: its name, the session whose directory it is in, and whether it is sealed."""

    name: str
    session: str
    sealed: bool
