"""Reads and writes of a socket, plain or TLS, for both sides of a connection.

BlockingIOError means that no byte can move now. Errors of TLS become errors that name the next step.
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
    """Receive without TLS decryption, for bytes that the caller discards. Raises BlockingIOError, OSError."""
    return socket.socket.recv_into(sock, target)


def send_some(sock: socket.socket, buffers: list[memoryview]) -> int:
    """Send from the first buffers; returns the number of sent bytes. Raises BlockingIOError, OSError."""
    if not isinstance(sock, ssl.SSLSocket):
        return sock.sendmsg(buffers)
    try:
        return sock.send(buffers[0][:TLS_SEND_BYTES])
    except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
        raise BlockingIOError from None


def end(sock: socket.socket, how: int) -> None:
    """Shut the TCP connection down; the TLS state stays with the thread that uses it. Raises OSError."""
    socket.socket.shutdown(sock, how)


def channel_binding(sock: socket.socket) -> bytes:
    """The channel binding of a TLS connection: unique to it and equal on both sides; empty without TLS.

    It is ``tls-unique``: the client's Finished message, a MAC with the connection's own key over its handshake. In TLS
    1.3, the only version that servers here accept, it has the length of the hash. The exporter of RFC 9266 would serve
    as well, but Python's ``ssl`` does not offer it. Raises CorruptionError.
    """
    if not isinstance(sock, ssl.SSLSocket):
        return b""
    binding = sock.get_channel_binding("tls-unique")
    if not binding or sock.version() != "TLSv1.3":
        raise CorruptionError(f"{sock.version() or 'TLS'} gives no channel binding")
    return binding


def tls_failure(address: str, error: ssl.SSLError) -> BookkeeperError:
    """The error for a caller when TLS fails; a closed connection counts as no answer."""
    if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return UnavailableError(f"{address} closed the connection in the middle of the TLS handshake")
    if isinstance(error, ssl.SSLCertVerificationError):
        return NotAdmittedError(
            f"{address} shows an invalid certificate ({error.verify_message}): the CA (security.tls_ca, "
            "--tls-ca) must have signed it, and it must name the address"
        )
    reason = (error.reason or str(error)).replace("_", " ").lower()
    if "certificate" in reason or "unknown ca" in reason:
        return NotAdmittedError(f"{address} asks for a certificate ({reason}): name one that its CA signed")
    return IncompatibleError(
        f"{address} does not speak TLS as this side does ({reason}): set it on both sides, or none"
    )
