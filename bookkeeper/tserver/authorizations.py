"""What a scan may see: the authorizations that it asks for, of those that its user has.

Arrives: a scan's user and authorizations, the configuration in force. Leaves: a :class:`Sight`, or RefusedError. Pure.
Nobody proves yet who they are: the user's name is the client's word.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bookkeeper.errors import RefusedError
from bookkeeper.storage.tablet import Sight, sight_of

ROOT = "root"
"""The user of clients that name none."""


def sight_for(users: Mapping[str, frozenset[str]], user: str | None, authorizations: Sequence[str] | None) -> Sight:
    """``authorizations`` None: all that the user has. Raises RefusedError when it asks for others."""
    name = user or ROOT
    held = users.get(name, frozenset())
    asked = held if authorizations is None else frozenset(authorizations)
    more = lacking(asked, held)
    if more:
        raise RefusedError(
            f"user {name} has no authorization {', '.join(more)}; what it has: getauths -u {name}; "
            "the command setauths gives it others"
        )
    return sight_of(frozenset(authorization.encode() for authorization in asked))


def lacking(asked: frozenset[str], held: frozenset[str]) -> list[str]:
    """What is asked for and not had."""
    return sorted(asked - held)
