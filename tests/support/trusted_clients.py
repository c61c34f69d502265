"""The secret of the clients of tests. Every test has it, so this module imports little."""

from __future__ import annotations

import hashlib
from pathlib import Path

from bookkeeper.security.secret import Secret, write_secret

SECRET_FILE_VARIABLE = "BOOKKEEPER_SECRET_FILE"
"""As ``bookkeeper.security.access`` reads it; that module imports the settings of a cluster."""

CLIENT = Secret("00000000000000cc", "client", "tests", "", "tests", 0, hashlib.sha256(b"clients of tests").digest())
"""One for clients that name a cluster by its quorum."""


def client_secret_in(place: Path) -> Path:
    """The file of :data:`CLIENT` in a directory."""
    path = place / "client.secret"
    write_secret(path, CLIENT)
    return path
