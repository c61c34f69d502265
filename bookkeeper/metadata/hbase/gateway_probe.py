"""A call that HBase's Thrift gateway answers by itself, without HBase: so it tells whether the gateway stands still."""

from __future__ import annotations

import socket
import struct

_METHOD = b"getThriftServerType"
_VERSION = 0x8001
_CALL = struct.pack(">HHI", _VERSION, 1, len(_METHOD)) + _METHOD + struct.pack(">IB", 1, 0)
"""A call of Thrift's binary protocol: version, kind, name, number of the call, and a struct without a field."""


def gateway_answers(host: str, port: int, timeout_ms: int) -> bool:
    """Whether a Thrift server answers there, be HBase there or not. ``timeout_ms`` bounds the connection and the
    answer. An answer that says the method is unknown counts, too.
    """
    try:
        with socket.create_connection((host, port), timeout_ms / 1000) as connection:
            connection.sendall(_CALL)
            return connection.recv(1) == _CALL[:1]
    except OSError:
        return False
