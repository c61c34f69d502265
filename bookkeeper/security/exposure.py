"""Addresses of a cluster beyond loopback: a process listens there only with TLS, unless a setting permits plaintext.

Arrives: settings. Leaves: RefusedError with the settings that bind such an address, and the next step. The system's
resolver resolves names.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Sequence

from bookkeeper.config.sections import Settings
from bookkeeper.errors import RefusedError

PLAINTEXT_ADVICE = (
    'name a certificate (security.tls_certificate, docs/security.md), or set security.beyond_loopback = "plaintext" '
    "where no other machine is on the network"
)


def refuse_plaintext(settings: Settings) -> None:
    """Raise RefusedError when a process would listen beyond loopback without TLS, and the settings forbid it."""
    named = settings.security
    if named.tls_certificate or named.beyond_loopback == "plaintext":
        return
    open_ones = exposed(settings)
    if open_ones:
        raise RefusedError(
            f"{' and '.join(open_ones)} {'lie' if len(open_ones) > 1 else 'lies'} beyond loopback, and there is no "
            f"TLS: every machine on the network could read everything; {PLAINTEXT_ADVICE}"
        )


def exposed(settings: Settings) -> Sequence[str]:
    """The settings that bind an address beyond loopback, with the address."""
    bound = {
        "rpc.bind_host": settings.rpc.bind_host,
        "master.host": settings.master.host,
        "monitor.host": settings.monitor.host,  # even for monitor.port 0: an option of the master may name a port
    }
    return [f"{key} ({host or 'every address'})" for key, host in bound.items() if not is_loopback(host)]


def is_loopback(host: str) -> bool:
    """Tell whether only this machine reaches a host: a loopback address, or a name with loopback addresses only. An
    unresolvable name is not loopback.
    """
    try:
        found = socket.getaddrinfo(host or None, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):
        return False
    return all(ipaddress.ip_address(str(address[0]).partition("%")[0]).is_loopback for *_, address in found)
