"""Who is let in at a port, and what a caller shows: made from the settings of a cluster, or from a secret's file.

Arrives: settings, or the file that a client was given. Leaves: an :class:`Entrance` for servers, :class:`Credentials`
for callers. Nothing survives a crash; the files do.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bookkeeper.config import Settings
from bookkeeper.security.secret import Secret, read_secret
from bookkeeper.security.store import SUFFIX, SecretStore

SECRET_FILE_VARIABLE = "BOOKKEEPER_SECRET_FILE"

CLIENT_ADVICE = (
    "name the cluster by its directory, or the file of its clients' secret (DIR/secrets/client.secret, or a copy) with "
    f"--secret-file or {SECRET_FILE_VARIABLE}"
)
PROCESS_ADVICE = "all processes of a cluster need the same DIR/secrets/cluster.secret"
PEER_ADVICE = (
    "let its operator make a secret for this cluster (bookkeeper secret make DIR NAME), then: definecluster ALIAS "
    "QUORUM --secret-file FILE"
)


def nothing() -> Sequence[Secret]:
    """No secret is shown."""
    return ()


@dataclass(frozen=True, slots=True)
class Entrance:
    """What a server asks for. ``accepted`` None = whoever comes is let in (``security.authentication = "none"``)."""

    accepted: Callable[[], Mapping[str, Secret]] | None = None


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a caller shows: it offers the ids of all ``offers``, the server chooses one that it knows.

    ``demand``: a server that proves no secret is not spoken to. Without it, that holds for the instances whose secrets
    are offered. ``advice`` is the next step for whoever is refused.
    """

    offers: Callable[[], Sequence[Secret]] = nothing
    demand: bool = False
    advice: str = CLIENT_ADVICE


def entrance_of(settings: Settings) -> Entrance:
    """For the servers of a cluster. Raises NotFoundError or RefusedError when its own secret can't be used."""
    if settings.security.authentication == "none":
        return Entrance()
    store = SecretStore(settings.directory)
    for kind in ("cluster", "client"):
        store.own(kind)
    return Entrance(store.accepted)


def process_credentials(settings: Settings) -> Credentials:
    """For calls between processes of a cluster."""
    if settings.security.authentication == "none":
        return Credentials(advice=PROCESS_ADVICE)
    store = SecretStore(settings.directory)
    return Credentials(lambda: store.shown("cluster"), True, PROCESS_ADVICE)


def peer_credentials(settings: Settings) -> Credentials:
    """For calls to other clusters: each accepts what its operator made for this one."""
    return Credentials(SecretStore(settings.directory).presented, advice=PEER_ADVICE)


def client_credentials(settings: Settings | None, secret_file: Path | str | None = None) -> Credentials:
    """For a client: what is in the file that it was given, else in the cluster's directory (``settings``), else in the
    file that the environment names. Raises NotFoundError, RefusedError, InvalidInputError.
    """
    named = os.environ.get(SECRET_FILE_VARIABLE)
    if secret_file is not None:
        return file_credentials(Path(secret_file))
    if settings is None:
        return file_credentials(Path(named)) if named else Credentials()
    if settings.security.authentication == "none":
        return Credentials()
    store = SecretStore(settings.directory)
    if named and not os.access(store.file_of("client"), os.R_OK):
        return file_credentials(Path(named))
    store.own("client")
    return Credentials(lambda: store.shown("client"), True)


def file_credentials(path: Path) -> Credentials:
    """For a client with a secret's file, or a directory of such files. Raises NotFoundError, RefusedError.

    A cluster must prove one of them, unless none says whose it is.
    """
    files = sorted(path.glob(f"[!.]*{SUFFIX}")) if path.is_dir() else [path]
    shown = [read_secret(file) for file in files]
    return Credentials(lambda: shown, demand=any(secret.instance_id for secret in shown))
