"""Who is let in at a port, and what a caller shows: made from the settings of a cluster, or from a secret's file.

Arrives: settings, or the file that a client was given. Leaves: an :class:`Entrance` for servers, :class:`Credentials`
for callers. Nothing survives a crash; the files do.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bookkeeper.config import Settings
from bookkeeper.errors import NotAdmittedError
from bookkeeper.security.exposure import refuse_plaintext
from bookkeeper.security.secret import Secret, read_secret
from bookkeeper.security.secret_store import SUFFIX, SecretStore
from bookkeeper.security.tls import TlsFiles, caller_context, server_context, tls_files

SECRET_FILE_VARIABLE = "BOOKKEEPER_SECRET_FILE"
TLS_CA_VARIABLE = "BOOKKEEPER_TLS_CA"
TLS_CERTIFICATE_VARIABLE = "BOOKKEEPER_TLS_CERTIFICATE"

CLIENT_ADVICE = (
    "name the cluster by its directory, or the file of its clients' secret (DIR/secrets/client.secret, or a copy) with "
    f"--secret-file or {SECRET_FILE_VARIABLE}"
)
PROCESS_ADVICE = "all processes of a cluster need the same DIR/secrets/cluster.secret"
PEER_ADVICE = (
    "let its operator make a secret for this cluster (bookkeeper secret make), then: definecluster ALIAS "
    "QUORUM --secret-file FILE"
)


def nothing() -> Sequence[Secret]:
    """No secret is shown."""
    return ()


@dataclass(frozen=True, slots=True)
class Entrance:
    """What a server asks for. ``accepted`` None = whoever comes is let in (``security.authentication = "none"``);
    ``tls`` None = it speaks no TLS.
    """

    accepted: Callable[[], Mapping[str, Secret]] | None = None
    tls: ssl.SSLContext | None = None


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a caller shows: of all ``offers`` those that are meant for the instance that it calls; the server chooses
    one that it knows.

    ``demand``: a server that proves no secret is not spoken to. Without it, that holds for the instances whose secrets
    are offered. ``advice`` is the next step for whoever is refused. ``tls`` None = it speaks no TLS. ``instance_id``:
    the only instance that is called; empty: whoever answers says which one it is, before anything is offered to it.
    """

    offers: Callable[[], Sequence[Secret]] = nothing
    demand: bool = False
    advice: str = CLIENT_ADVICE
    tls: ssl.SSLContext | None = None
    instance_id: str = ""


def meant_for(instance_id: str, secrets: Sequence[Secret]) -> Sequence[Secret]:
    """What may be offered to an instance: those that say that they open it (or any one, which no command makes), and
    nothing while nobody knows which one it is.
    """
    return [secret for secret in secrets if instance_id and secret.instance_id in ("", instance_id)]


def offered_to(instance_id: str, secrets: Sequence[Secret]) -> Sequence[Secret]:
    """The same for an instance that asks for a secret; raises NotAdmittedError when there are others only."""
    meant = meant_for(instance_id, secrets)
    if secrets and not meant:
        others = ", ".join(sorted({f"{secret.cluster} ({secret.instance_id})" for secret in secrets})[:3])
        raise NotAdmittedError(
            f"it is instance {instance_id}, and what this side has is meant for {others or 'nobody'}",
            {"instance_id": instance_id},
        )
    return meant


def entrance_of(settings: Settings) -> Entrance:
    """For the servers of a cluster. Raises NotFoundError, RefusedError or InvalidInputError when its own secret or
    certificate can't be used, or when they would listen beyond loopback without TLS.
    """
    refuse_plaintext(settings)
    tls = server_context(tls_files(settings))
    if settings.security.authentication == "none":
        return Entrance(tls=tls)
    store = SecretStore(settings.directory)
    for kind in ("cluster", "client"):
        store.own(kind)
    return Entrance(store.accepted, tls)


def process_credentials(settings: Settings) -> Credentials:
    """For calls between processes of a cluster."""
    tls = caller_context(tls_files(settings))
    if settings.security.authentication == "none":
        return Credentials(advice=PROCESS_ADVICE, tls=tls, instance_id=settings.instance.instance_id)
    store = SecretStore(settings.directory)
    return Credentials(lambda: store.shown("cluster"), True, PROCESS_ADVICE, tls, settings.instance.instance_id)


def peer_credentials(settings: Settings) -> Credentials:
    """For calls to other clusters: each accepts what its operator made for this one."""
    tls = caller_context(tls_files(settings))
    return Credentials(SecretStore(settings.directory).presented, advice=PEER_ADVICE, tls=tls)


@dataclass(frozen=True, slots=True)
class CredentialFiles:
    """What a client was given by name; what is None is looked for elsewhere."""

    secret_file: Path | None = None
    tls_ca: Path | None = None
    tls_certificate: Path | None = None

    def or_named(self, environment: Mapping[str, str]) -> CredentialFiles:
        """The same, with what the environment names in place of what is not given."""

        def named(variable: str) -> Path | None:
            return Path(environment[variable]) if environment.get(variable) else None

        return CredentialFiles(
            self.secret_file or named(SECRET_FILE_VARIABLE),
            self.tls_ca or named(TLS_CA_VARIABLE),
            self.tls_certificate or named(TLS_CERTIFICATE_VARIABLE),
        )


def client_credentials(settings: Settings | None, given: CredentialFiles | None = None) -> Credentials:
    """For a client: what it was given, else what is in the cluster's directory (``settings``), else what the
    environment names. Raises NotFoundError, RefusedError, InvalidInputError.
    """
    given = given or CredentialFiles()
    named = given.or_named(os.environ)
    if settings is None:
        return replace(_shown(named.secret_file), tls=caller_context(_tls_given(named)))
    tls, own = caller_context(_tls_given(given) or tls_files(settings)), settings.instance.instance_id
    if given.secret_file is None and settings.security.authentication == "none":
        return Credentials(tls=tls, instance_id=own)
    store = SecretStore(settings.directory)
    if given.secret_file is None and not (named.secret_file and not os.access(store.file_of("client"), os.R_OK)):
        store.own("client")
        return Credentials(lambda: store.shown("client"), True, tls=tls, instance_id=own)
    return replace(_shown(named.secret_file), tls=tls)


def _tls_given(given: CredentialFiles) -> TlsFiles | None:
    return None if given.tls_ca is None else TlsFiles(given.tls_ca, given.tls_certificate)


def _shown(path: Path | None) -> Credentials:
    return Credentials() if path is None else file_credentials(path)


def file_credentials(path: Path) -> Credentials:
    """For a client with a secret's file, or a directory of such files. Raises NotFoundError, RefusedError.

    A cluster must prove one of them, unless none says whose it is.
    """
    files = sorted(path.glob(f"[!.]*{SUFFIX}")) if path.is_dir() else [path]
    shown = [read_secret(file) for file in files]
    instances = {secret.instance_id for secret in shown}
    only = instances.pop() if len(instances) == 1 else ""
    return Credentials(lambda: shown, demand=bool(only or instances), instance_id=only)
