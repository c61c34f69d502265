"""Authentication at a port: what a server requires and what a caller presents.

Arrives: the settings of a cluster, or the file of a client's secret. Leaves: an :class:`Entrance` for servers,
:class:`Credentials` for callers.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from bookkeeper.config.sections import Settings
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
    """Present no secret."""
    return ()


class Entrance(Struct, frozen=True):
    """Requirements of a server. ``accepted`` None = it accepts every caller (``security.authentication = "none"``);
    ``tls`` None = it speaks no TLS.
    """

    accepted: Callable[[], Mapping[str, Secret]] | None = None
    tls: ssl.SSLContext | None = None


class Credentials(Struct, frozen=True):
    """Secrets and TLS of a caller. It presents the ``offers`` that are for the called instance; the server chooses one
    that it knows.

    ``demand``: the caller ends the connection when the server proves no secret. Without it, this holds only for the
    instances whose secrets it offers. ``advice`` is the next step for a refused caller. ``tls`` None = it speaks no
    TLS. ``instance_id`` is the only instance that it calls; empty: the server names its instance before the caller
    offers a secret.
    """

    offers: Callable[[], Sequence[Secret]] = nothing
    demand: bool = False
    advice: str = CLIENT_ADVICE
    tls: ssl.SSLContext | None = None
    instance_id: str = ""


def meant_for(instance_id: str, secrets: Sequence[Secret]) -> Sequence[Secret]:
    """The secrets that a caller may offer to an instance: those that name it, or that name none (no command makes
    such a secret). An unknown instance gets none.
    """
    return [secret for secret in secrets if instance_id and secret.instance_id in ("", instance_id)]


def offered_to(instance_id: str, secrets: Sequence[Secret]) -> Sequence[Secret]:
    """:func:`meant_for` an instance that requires a secret; raises NotAdmittedError when others have all of them."""
    meant = meant_for(instance_id, secrets)
    if secrets and not meant:
        others = ", ".join(sorted({f"{secret.cluster} ({secret.instance_id})" for secret in secrets})[:3])
        raise NotAdmittedError(
            f"it is instance {instance_id}, and the secrets of this side are for {others or 'no instance'}",
            {"instance_id": instance_id},
        )
    return meant


def entrance_of(settings: Settings) -> Entrance:
    """Requirements of the servers of a cluster. Raises NotFoundError, RefusedError or InvalidInputError when its own
    secret or certificate is unusable, or when they would listen beyond loopback without TLS.
    """
    refuse_plaintext(settings)
    tls = server_context(tls_files(settings))
    if settings.security.authentication == "none":
        return Entrance(tls=tls)
    store = SecretStore(settings.cluster_directory)
    for kind in ("cluster", "client"):
        store.own(kind)
    return Entrance(store.accepted, tls)


def process_credentials(settings: Settings) -> Credentials:
    """Credentials for calls between processes of a cluster."""
    tls = caller_context(tls_files(settings))
    if settings.security.authentication == "none":
        return Credentials(advice=PROCESS_ADVICE, tls=tls, instance_id=settings.instance.instance_id)
    store = SecretStore(settings.cluster_directory)
    return Credentials(lambda: store.shown("cluster"), True, PROCESS_ADVICE, tls, settings.instance.instance_id)


def peer_credentials(settings: Settings) -> Credentials:
    """Credentials for calls to other clusters: each accepts the secret that its operator made for this cluster."""
    tls = caller_context(tls_files(settings))
    return Credentials(SecretStore(settings.cluster_directory).presented, advice=PEER_ADVICE, tls=tls)


class CredentialFiles(Struct, frozen=True):
    """Files that a client names as arguments; for None it uses the environment or the cluster's directory."""

    secret_file: Path | None = None
    tls_ca: Path | None = None
    tls_certificate: Path | None = None

    def or_named(self, environment: Mapping[str, str]) -> CredentialFiles:
        """The same files; the environment names those that are None here."""

        def named(variable: str) -> Path | None:
            return Path(environment[variable]) if environment.get(variable) else None

        return CredentialFiles(
            self.secret_file or named(SECRET_FILE_VARIABLE),
            self.tls_ca or named(TLS_CA_VARIABLE),
            self.tls_certificate or named(TLS_CERTIFICATE_VARIABLE),
        )


def client_credentials(settings: Settings | None, arguments: CredentialFiles | None = None) -> Credentials:
    """Credentials of a client: from its arguments, else from the cluster's directory (``settings``), else from the
    environment. Raises NotFoundError, RefusedError, InvalidInputError.
    """
    arguments = arguments or CredentialFiles()
    named = arguments.or_named(os.environ)
    if settings is None:
        return replace(_optional_file(named.secret_file), tls=caller_context(_tls_arguments(named)))
    tls, own = caller_context(_tls_arguments(arguments) or tls_files(settings)), settings.instance.instance_id
    if arguments.secret_file is None and settings.security.authentication == "none":
        return Credentials(tls=tls, instance_id=own)
    store = SecretStore(settings.cluster_directory)
    if arguments.secret_file is None and not (named.secret_file and not os.access(store.file_of("client"), os.R_OK)):
        store.own("client")
        return Credentials(lambda: store.shown("client"), True, tls=tls, instance_id=own)
    return replace(_optional_file(named.secret_file), tls=tls)


def _tls_arguments(files: CredentialFiles) -> TlsFiles | None:
    return None if files.tls_ca is None else TlsFiles(files.tls_ca, files.tls_certificate)


def _optional_file(path: Path | None) -> Credentials:
    return Credentials() if path is None else file_credentials(path)


def file_credentials(path: Path) -> Credentials:
    """Credentials from a secret's file, or a directory of such files. Raises NotFoundError, RefusedError.

    The cluster must prove one of them, unless none of them names an instance.
    """
    files = sorted(path.glob(f"[!.]*{SUFFIX}")) if path.is_dir() else [path]
    shown = [read_secret(file) for file in files]
    instances = {secret.instance_id for secret in shown}
    only = instances.pop() if len(instances) == 1 else ""
    return Credentials(lambda: shown, demand=bool(only or instances), instance_id=only)
