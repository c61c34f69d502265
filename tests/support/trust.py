"""Clusters of tests trust each other and the clients of tests, under any name.

A cluster that is defined as a peer of another one finds the secret that it needs, and a client that names a cluster by
its quorum finds one in the environment (``trusted_clients``).
"""

from __future__ import annotations

import hashlib

from bookkeeper.config.sections import Settings
from bookkeeper.security.secret import Secret, write_secret
from bookkeeper.security.secret_store import SecretStore
from tests.support.trusted_clients import CLIENT

PAIR = Secret(
    "00000000000000aa", "peer", "tests", "", "tests", 0, hashlib.sha256(b"clusters of tests").digest(), all_tables=True
)
"""One for all of them. Its instance is empty: it is no proof of which of them answers."""

ALIAS = "everybody"


def trust_everybody(settings: Settings) -> None:
    """The cluster lets in the secrets that all tests share, and shows that of clusters."""
    store = SecretStore(settings.directory)
    write_secret(store.directory / f"{ALIAS}.secret", CLIENT, replace=True)
    write_secret(store.directory / "from" / f"{ALIAS}.secret", PAIR, replace=True)
    store.keep_for_peer(ALIAS, PAIR)
