"""Chooses free TCP ports, for a cluster and for the services that it starts. Nobody listens at them at any address: a
process of the cluster may bind another one than loopback.

A port is free again until its server listens, so two processes can choose the same one. One process goes through the
range in a random order, and chooses no port twice before it has tried all of them.
"""

from __future__ import annotations

import itertools
import random
import socket
from contextlib import ExitStack

from bookkeeper.errors import UnavailableError

HOST = "127.0.0.1"
_EVERY_ADDRESS = "0.0.0.0"

PORTS = range(20_000, 32_000)
"""Below Linux's ephemeral range, so that no outgoing connection takes a port between its choice and its use."""

_order = itertools.cycle(random.sample(PORTS, len(PORTS)))


def free_ports(count: int) -> list[int]:
    """``count`` distinct TCP ports that are free at every address, below the ephemeral range. Raises UnavailableError
    when there are fewer.
    """
    found: list[int] = []
    with ExitStack() as sockets:
        for port in itertools.islice(_order, len(PORTS)):
            if not _takes(sockets.enter_context(socket.socket()), _EVERY_ADDRESS, port):
                continue
            found.append(port)
            if len(found) == count:
                return found
    raise UnavailableError(f"no {count} free TCP ports between {PORTS[0]} and {PORTS[-1]}")


def is_in_use(port: int) -> bool:
    """Whether a process listens at a port of the loopback address."""
    with socket.socket() as candidate:
        return not _takes(candidate, HOST, port)


def _takes(candidate: socket.socket, host: str, port: int) -> bool:
    candidate.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        candidate.bind((host, port))
    except OSError:
        return False
    return True
