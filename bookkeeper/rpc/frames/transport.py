"""Bytes over a socket, plain or TLS, alike for both sides.

Arrives: a socket. Leaves: what moved; BlockingIOError when nothing can now. Errors of TLS become errors that say what
is to be done. Nothing survives a crash.
"""

from __future__ import annotations

import socket
import ssl

from bookkeeper.errors import BookkeeperError, CorruptionError, IncompatibleError, NotAdmittedError, UnavailableError

TLS_SEND_BYTES = 256 * 1024
"""Most that one call encrypts."""


def receive_some(sock: socket.socket, target: memoryview) -> int:
    """Receive into ``target``; 0 at the end. Raises BlockingIOError, OSError."""
    try:
        return sock.recv_into(target)
    except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
        raise BlockingIOError from None


def receive_raw(sock: socket.socket, target: memoryview) -> int:
    """The same, past TLS: what is thrown away need not be understood."""
    return socket.socket.recv_into(sock, target)


def send_some(sock: socket.socket, buffers: list[memoryview]) -> int:
    """Send from the first buffers; how many bytes went. Raises BlockingIOError, OSError."""
    if not isinstance(sock, ssl.SSLSocket):
        return sock.sendmsg(buffers)
    try:
        return sock.send(buffers[0][:TLS_SEND_BYTES])
    except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
        raise BlockingIOError from None


def end(sock: socket.socket, how: int) -> None:
    """Shut down, past TLS: its state stays that of whoever uses it. Raises OSError."""
    socket.socket.shutdown(sock, how)


def channel_binding(sock: socket.socket) -> bytes:
    """What tells this TLS connection from every other one, alike on both sides; empty without TLS.

    It is ``tls-unique``: the client's Finished message, a MAC with the connection's own key over its whole handshake.
    In TLS 1.3, the only version that is spoken here, it has the length of the hash. The exporter of RFC 9266 would say
    as much, but Python's ``ssl`` does not offer it. Raises CorruptionError.
    """
    if not isinstance(sock, ssl.SSLSocket):
        return b""
    binding = sock.get_channel_binding("tls-unique")
    if not binding or sock.version() != "TLSv1.3":
        raise CorruptionError(f"{sock.version() or 'TLS'} gives no channel binding")
    return binding


def tls_failure(address: str, error: ssl.SSLError) -> BookkeeperError:
    """What a caller is told when TLS fails; the end of a connection is as good as no answer."""
    if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return UnavailableError(f"{address} closed the connection in the middle of the TLS handshake")
    if isinstance(error, ssl.SSLCertVerificationError):
        return NotAdmittedError(
            f"{address} shows a certificate that does not hold ({error.verify_message}): the CA (security.tls_ca, "
            "--tls-ca) must have signed it, and it must name the address"
        )
    reason = (error.reason or str(error)).replace("_", " ").lower()
    if "certificate" in reason or "unknown ca" in reason:
        return NotAdmittedError(f"{address} asks for a certificate ({reason}): name one that its CA signed")
    return IncompatibleError(
        f"{address} does not speak TLS as this side does ({reason}): set it on both sides, or none"
    )
