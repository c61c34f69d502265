"""Names of files on a Volume: relative, with slashes, and the same on every host.

``wal/tserver-3-08c7739f/000001.wal`` is such a name. It has no host and no path, so a Volume may be mounted anywhere.
"""

from __future__ import annotations

import re

from bookkeeper.errors import InvalidInputError

PART_BYTES_MAX = 255
"""Longest part between two slashes, as on the usual filesystems."""

NAME_BYTES_MAX = 1024

_PART = rf"(?!\.{{1,2}}(?:/|\Z))[!-.0-~]{{1,{PART_BYTES_MAX}}}"
_PLAIN = re.compile(rf"(?:{_PART}/)*{_PART}")
"""Names of printable ASCII, as all that this project makes: checked in one call, because each commit checks some."""

LOGS = "wal/"
"""Names of logs begin so, and then have their session."""

_NUMBERED = re.compile(r"(wal/([^/]+)/[0-9]{6,12}\.wal)(?:\.[^/]*)?")

LOG_SUFFIX = ".wal"
"""Names of logs end so."""

TABLES = "tables/"
"""Names of segments begin so, and then have their table."""

FENCE_SUFFIX = ".fence"
"""Added to the name of a fenced file, on a Volume that fences with a file."""


SCRATCH_SUFFIX = ".tmp"
"""Added to the name of a file that is being built, on a Volume that builds it in place."""


def session_of_numbered(name: str) -> str | None:
    """The session that a numbered log belongs to, also for the name of a file beside the log; None for any other name.
    The logs of imports and relay logs have no numbers.
    """
    match = _NUMBERED.fullmatch(name)
    return None if match is None else match[2]


def numbered_log(name: str) -> str | None:
    """The numbered log that has this name, or that a file of this name lies beside; None for any other name."""
    match = _NUMBERED.fullmatch(name)
    return None if match is None else match[1]


def log_directory(session_id: str) -> str:
    """The directory of a session's logs. Not checked."""
    return f"{LOGS}{session_id}"


def tablet_directory(table_id: str, directory: str) -> str:
    """A tablet's directory of segments. Not checked."""
    return f"{TABLES}{table_id}/{directory}"


def check_name(name: str) -> str:
    """The same name. Raises InvalidInputError unless it is relative, has no empty part, no ``.`` and no ``..``, and is
    short enough for a filesystem: such a name leads to one file below the Volume's root and to no other.
    """
    if len(name) <= NAME_BYTES_MAX and _PLAIN.fullmatch(name):
        return name
    reason = _reason_against(name)
    if reason:
        raise InvalidInputError(f"{name[:NAME_BYTES_MAX]!r} is no name of a file on a Volume: {reason}")
    return name


def _reason_against(name: str) -> str:
    try:
        encoded = name.encode()
    except UnicodeEncodeError:
        return "it is no UTF-8"
    parts = encoded.split(b"/")
    if b"\0" in encoded:
        return "it has a zero byte"
    if not all(parts) or b"." in parts or b".." in parts:
        return "want a relative name with slashes, such as wal/session/000001.wal"
    if len(encoded) > NAME_BYTES_MAX or max(map(len, parts)) > PART_BYTES_MAX:
        return f"it has more than {NAME_BYTES_MAX} bytes, or {PART_BYTES_MAX} between two slashes"
    return ""
