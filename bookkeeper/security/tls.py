"""TLS for the ports of a cluster, when its settings name a certificate: contexts of the standard library's ``ssl``.

Arrives: settings, or the files that a client names. Leaves: contexts that check the other side's certificate against
the CA and its name against the address, with TLS 1.3 only; or an error that names the file, the reason and the next
step. Certificates are read once: a new one needs a new process.
"""

from __future__ import annotations

import ssl
from pathlib import Path

from msgspec import Struct

from bookkeeper.config.sections import Settings
from bookkeeper.errors import InvalidInputError, NotFoundError
from bookkeeper.security.secret import refuse_readable_by_others


class TlsFiles(Struct, frozen=True):
    """PEM files. ``ca`` signs the certificates of the other side. ``certificate`` (with its chain of signers, if the CA
    did not sign it) and ``key`` are this side's; a client may have none. For ``key`` None the certificate's file
    contains it.
    """

    ca: Path
    certificate: Path | None = None
    key: Path | None = None
    clients_certified: bool = False
    """Servers require a certificate from callers, too."""


def tls_files(settings: Settings) -> TlsFiles | None:
    """The TLS files that the settings name; None = no TLS."""
    named = settings.security
    if not named.tls_certificate:
        return None
    home = settings.cluster_directory
    certified = named.tls_clients == "certified"
    return TlsFiles(home / named.tls_ca, home / named.tls_certificate, home / named.tls_key, certified)


def server_context(files: TlsFiles | None) -> ssl.SSLContext | None:
    """Context for a port. Raises NotFoundError, RefusedError for a key that others can read, InvalidInputError."""
    if files is None:
        return None
    context = _context(ssl.PROTOCOL_TLS_SERVER, files)
    context.num_tickets = 0  # callers never resume, and they would take a ticket for an unexpected answer
    if files.clients_certified:
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def caller_context(files: TlsFiles | None) -> ssl.SSLContext | None:
    """Context for calls; raises like :func:`server_context`."""
    if files is None:
        return None
    context = _context(ssl.PROTOCOL_TLS_CLIENT, files)
    expect_certificate(context)
    return context


def expect_certificate(context: ssl.SSLContext) -> None:
    """Require a certificate of the server: signed by the CA, and for its address."""
    context.check_hostname = True
    context.verify_mode = ssl.CERT_REQUIRED


def _context(protocol: int, files: TlsFiles) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    present = [path for path in (files.ca, files.certificate, files.key) if path is not None]
    for path in present:
        if not path.is_file():
            raise NotFoundError(f"there is no file {path}, which is named for TLS; see docs/security.md")
    if files.certificate is not None:
        holder = files.key or files.certificate
        refuse_readable_by_others(holder, holder.stat().st_mode)
        try:
            context.load_cert_chain(files.certificate, files.key, password=_refuse_password)
        except (ssl.SSLError, OSError) as error:
            raise InvalidInputError(
                f"{files.certificate} with {holder} can't be used for TLS ({_reason(error)}): "
                "name a PEM certificate and its unencrypted key"
            ) from error
    try:
        context.load_verify_locations(files.ca)
    except (ssl.SSLError, OSError) as error:
        raise InvalidInputError(f"{files.ca} holds no CA for TLS ({_reason(error)}): name a PEM file") from error
    return context


def _refuse_password() -> str:
    raise InvalidInputError("the key for TLS is encrypted, and a process can't ask for its password: name a plain one")


def _reason(error: OSError) -> str:
    return str(getattr(error, "reason", None) or error.strerror or error).replace("_", " ").lower()
