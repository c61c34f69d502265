"""Addresses: ``host:port``, and a quorum, which is a comma-separated list of them. Parse and format side by side."""

from __future__ import annotations

from msgspec import Struct

from bookkeeper.errors import InvalidInputError


class Address(Struct, frozen=True, order=True):
    """A host (name, IPv4, or IPv6 without brackets) and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        """``host:port``, an IPv6 host in brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> Address:
    """Parse ``host:port``; raises InvalidInputError."""
    host, _, port = text.strip().rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        host = ""
    if not host or any(character.isspace() or character in "/@[]," for character in host):
        raise InvalidInputError(f"{text!r} is not an address; write HOST:PORT, an IPv6 host in brackets")
    if not (port.isascii() and port.isdigit() and 1 <= int(port) <= 65535):
        raise InvalidInputError(f"{text!r} is not an address: the port must be a number from 1 to 65535")
    return Address(host, int(port))


def parse_quorum(text: str) -> tuple[Address, ...]:
    """Parse ``host:port[,host:port...]`` in order and without repeats; raises InvalidInputError."""
    return tuple(dict.fromkeys(parse_address(part) for part in text.split(",")))


def format_quorum(addresses: tuple[Address, ...]) -> str:
    """Inverse of :func:`parse_quorum`."""
    return ",".join(str(address) for address in addresses)
