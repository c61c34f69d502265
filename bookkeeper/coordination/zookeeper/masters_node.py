"""The public node of a cluster in ZooKeeper: where its masters answer. Pure.

Clients and peers, which can't open the other nodes, find the masters by it. Everybody may read it, so it has nothing
secret. A reader does not trust it: an attacker who writes it, or runs another ZooKeeper at that address, sends readers
to other addresses, and no process there proves that it is of the cluster. So the content is plain JSON with a bound,
not compressed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from bookkeeper.config.setting import NAME_PATTERN
from bookkeeper.errors import InvalidInputError
from bookkeeper.rpc.address import parse_address

CONTENT_BYTES_MAX = 4_096
MASTERS_MAX = 8
"""A reader needs one of them, and asks one after the other: a node with very many would keep it for minutes."""


class PublicMasters(Struct, frozen=True):
    """The cluster, and the addresses ``host:port`` of its masters, the leading one first."""

    instance_id: str
    masters: tuple[str, ...]


def content_of(instance_id: str, addresses: Sequence[str], leading: str | None) -> bytes:
    """The content for masters that live at these addresses."""
    distinct = sorted(set(addresses), key=lambda address: (address != leading, address))
    return msgspec.json.encode(PublicMasters(instance_id, tuple(distinct[:MASTERS_MAX])))


def masters_of(content: bytes) -> PublicMasters:
    """Raises InvalidInputError unless it is the content of such a node."""
    if len(content) > CONTENT_BYTES_MAX:
        raise InvalidInputError(f"it has {len(content)} bytes")
    try:
        found = msgspec.json.decode(content, type=PublicMasters)
    except msgspec.MsgspecError as error:
        raise InvalidInputError(str(error)) from error
    if re.match(NAME_PATTERN, found.instance_id) is None:
        raise InvalidInputError(f"no cluster can be {found.instance_id[:80]!r}")
    if not 0 < len(found.masters) <= MASTERS_MAX:
        raise InvalidInputError(f"it has {len(found.masters)} addresses")
    return PublicMasters(found.instance_id, tuple(str(parse_address(address)) for address in found.masters))
