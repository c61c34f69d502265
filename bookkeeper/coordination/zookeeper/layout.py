"""The nodes of a cluster in ZooKeeper: their names, and what is in them. Pure.

Below the root:

- ``sessions/ID``: what a session is, and the digest of its process's token; it never changes. ``alive/ID``: an empty
  node that its owner writes with each renewal and an observer deletes at the version that it saw unchanged
  (:mod:`.lives`). Both come at once.
- ``leader``: the last leader. ``serial``: its version counts the sessions.
- ``candidates/ID``: the candidacies of a session; very many are in ``ID,1`` and so on, too. ``places``: the highest
  place in the order; its version counts the changes of candidacies.
- ``tree/PATH``: one node for each value of the configuration tree, its path quoted. ``generation``: its version counts
  the changes, and it has the newest ones, so that nobody reads the tree again for a few of them.
- ``numbers/NAME``: a number.
- ``masters``: where the masters answer; everybody may read it (:mod:`.masters_node`). The first master makes it.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import TypeVar
from urllib.parse import quote, unquote

import msgspec
from msgspec import Struct

from bookkeeper.coordination.coordination_protocol import Leader
from bookkeeper.errors import CorruptionError, InvalidInputError
from bookkeeper.model import HostIdentity

SESSIONS, ALIVE, CANDIDATES, TREE, NUMBERS = "sessions", "alive", "candidates", "tree", "numbers"
LEADER, SERIAL, PLACES, GENERATION = "leader", "serial", "places", "generation"
MASTERS = "masters"
PARTS = (SESSIONS, ALIVE, CANDIDATES, TREE, NUMBERS, LEADER, SERIAL, PLACES, GENERATION)

CHANGES_MAX = 64
"""Changes that the generation has; who missed more reads the tree anew."""

SEVERAL = ""
"""In place of the path of a change: several paths have changed, and the tree is read anew."""

PLACES_MAX = 2_000
"""Candidacies in one node: far below :data:`NODE_BYTES_MAX`."""

_PART = ","
_T = TypeVar("_T")
NODE_BYTES_MAX = 900_000
"""Below ``jute.maxbuffer`` (1 MiB): a server closes the connection on a larger request and says nothing."""


class SessionNode(Struct, frozen=True):
    """The kind, address and host of a session, and the digest of its process's token. A supervisor that knows the
    token may end it (:func:`bookkeeper.coordination.lease.digest_of`).
    """

    kind: str
    address: str
    token_digest: str
    host: HostIdentity | None = None


class Place(Struct, frozen=True):
    """A candidacy: its place in the order of all elections, and its value."""

    order: int
    value: bytes


class TreeChange(Struct, frozen=True):
    """A path, or :data:`SEVERAL`, that changed with the generation of this number; ``token``: whose change it was."""

    generation: int
    path: str
    token: str


def quoted(name: str) -> str:
    """A name as one node; ZooKeeper takes no name of dots alone, and no slash."""
    return quote(name, safe="").replace(".", "%2E")


def unquoted(node: str) -> str:
    """Inverse of :func:`quoted`."""
    return unquote(node)


def checked_path(path: str) -> str:
    """Raises InvalidInputError unless it is a path of the configuration tree."""
    if not path.startswith("/") or "\x00" in path:
        raise InvalidInputError(f"a path of the configuration tree must start with a slash and have no NUL: {path!r}")
    return path


def encode(value: object) -> bytes:
    """The content of a node, compressed. Raises InvalidInputError when a server would not take it."""
    content = zlib.compress(msgspec.json.encode(value), 1)
    return checked_size(content, "this change")


def checked_size(content: bytes, what: str) -> bytes:
    """Raises InvalidInputError when a server would not take it."""
    if len(content) > NODE_BYTES_MAX:
        raise InvalidInputError(f"{what} has {len(content)} bytes, and ZooKeeper takes {NODE_BYTES_MAX}")
    return content


def session_of(content: bytes) -> SessionNode:
    """Raises CorruptionError."""
    return _decode(content, SessionNode)


def leader_of(content: bytes) -> Leader | None:
    """None before the first reign. Raises CorruptionError."""
    return _decode(content, Leader) if content else None


def places_of(content: bytes) -> dict[str, Place]:
    """The candidacies of a session, by election. Raises CorruptionError."""
    return _decode(content, dict[str, Place]) if content else {}


def changes_of(content: bytes) -> list[TreeChange]:
    """The newest changes of the tree, oldest first. Raises CorruptionError."""
    return _decode(content, list[TreeChange]) if content else []


def with_change(changes: list[TreeChange], new: TreeChange) -> bytes:
    """The content of the generation behind one more change."""
    return encode([*changes, new][-CHANGES_MAX:])


def missed(changes: list[TreeChange], known: int, now: int) -> set[str] | None:
    """The paths that changed behind generation ``known``; None when the list does not reach back to it."""
    behind = {change.path for change in changes if known < change.generation <= now}
    numbers = [change.generation for change in changes if known < change.generation <= now]
    return behind if len(numbers) == now - known and SEVERAL not in behind else None


def session_of_part(name: str) -> str:
    """The session to which a node with candidacies belongs."""
    return name.partition(_PART)[0]


def parted(
    session_id: str, before: Mapping[str, Mapping[str, Place]], wanted: Mapping[str, bytes], highest: int
) -> tuple[dict[str, dict[str, Place]], int]:
    """The candidacies that a session wants, by node, and the highest place then. One that stays keeps its place, and
    its node.
    """
    found = {
        name: {
            election: Place(place.order, wanted[election]) for election, place in places.items() if election in wanted
        }
        for name, places in before.items()
    }
    number, name = 0, session_id
    for election in sorted(wanted.keys() - {election for places in found.values() for election in places}):
        while len(found.setdefault(name, {})) >= PLACES_MAX:
            number += 1
            name = f"{session_id}{_PART}{number}"
        highest += 1
        found[name][election] = Place(highest, wanted[election])
    return found, highest


def grouped(contents: Mapping[str, bytes]) -> list[dict[str, bytes]]:
    """Nodes in groups, each of which a server takes in one transaction."""
    groups, size = [dict[str, bytes]()], 0
    for name, content in contents.items():
        size += len(content)
        if groups[-1] and size > NODE_BYTES_MAX:
            groups.append({})
            size = len(content)
        groups[-1][name] = content
    return groups


def _decode(content: bytes, kind: type[_T]) -> _T:
    try:
        return msgspec.json.decode(zlib.decompress(content), type=kind)
    except (zlib.error, msgspec.MsgspecError) as error:
        raise CorruptionError(f"a node of the coordination store does not parse: {error}") from error
