"""Which addresses of a cluster lie beyond loopback: nothing listens there without TLS, unless a setting says so.

Arrives: settings. Leaves: RefusedError with the settings that bind such an address, and the next step. A name is asked
of the system's resolver. Nothing survives a crash.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Sequence

from bookkeeper.config import Settings
from bookkeeper.errors import RefusedError

PLAINTEXT_ADVICE = (
    'name a certificate (security.tls_certificate, docs/security.md), or set security.beyond_loopback = "plaintext" '
    "where nobody else is on the network"
)


def refuse_plaintext(settings: Settings) -> None:
    """Raise RefusedError when something would listen beyond loopback without TLS, and may not."""
    named = settings.security
    if named.tls_certificate or named.beyond_loopback == "plaintext":
        return
    open_ones = exposed(settings)
    if open_ones:
        raise RefusedError(
            f"{' and '.join(open_ones)} {'lie' if len(open_ones) > 1 else 'lies'} beyond loopback, and there is no "
            f"TLS: whoever is on the network could read everything; {PLAINTEXT_ADVICE}"
        )


def exposed(settings: Settings) -> Sequence[str]:
    """The settings that bind an address beyond loopback, with the address."""
    bound = {
        "rpc.bind_host": settings.rpc.bind_host,
        "master.host": settings.master.host,
        "monitor.host": settings.monitor.host,  # whatever monitor.port is: a master may be given another one
    }
    return [f"{key} ({host or 'every address'})" for key, host in bound.items() if not is_loopback(host)]


def is_loopback(host: str) -> bool:
    """Tell whether only this machine reaches a host: an address, or a name all of whose addresses are such ones. One
    that nobody can resolve is not.
    """
    try:
        found = socket.getaddrinfo(host or None, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):
        return False
    return all(ipaddress.ip_address(str(address[0]).partition("%")[0]).is_loopback for *_, address in found)
