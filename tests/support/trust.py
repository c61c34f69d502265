"""Clusters of tests trust each other and the clients of tests, under any name.

A cluster that is defined as a peer of another one finds the secret that it needs, and a client that names a cluster by
its quorum finds one in the environment (``tests/conftest.py``).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from bookkeeper.config.sections import Settings
from bookkeeper.security.access import SECRET_FILE_VARIABLE
from bookkeeper.security.secret import Secret, write_secret
from bookkeeper.security.secret_store import SecretStore

PAIR = Secret(
    "00000000000000aa", "peer", "tests", "", "tests", 0, hashlib.sha256(b"clusters of tests").digest(), all_tables=True
)
"""One for all of them. Its instance is empty: it is no proof of which of them answers."""

CLIENT = Secret("00000000000000cc", "client", "tests", "", "tests", 0, hashlib.sha256(b"clients of tests").digest())
"""The same for clients that name a cluster by its quorum."""

ALIAS = "everybody"


def trust_everybody(settings: Settings) -> None:
    """The cluster lets in the secrets that all tests share, and shows that of clusters."""
    store = SecretStore(settings.directory)
    write_secret(store.directory / f"{ALIAS}.secret", CLIENT, replace=True)
    write_secret(store.directory / "from" / f"{ALIAS}.secret", PAIR, replace=True)
    store.keep_for_peer(ALIAS, PAIR)


@contextmanager
def trusted_clients(place: Path) -> Iterator[None]:
    """Clients without a cluster's directory, in processes of their own too, show :data:`CLIENT` inside."""
    write_secret(place / "client.secret", CLIENT)
    with patch.dict(os.environ, {SECRET_FILE_VARIABLE: str(place / "client.secret")}):
        yield
