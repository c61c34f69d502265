"""The labels that a scan may read: the authorizations that it requests, out of those that its user has. Pure.

The user's name is not authenticated yet: the client chooses it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bookkeeper.errors import RefusedError
from bookkeeper.storage.tablet import Sight, sight_of

ROOT = "root"
"""The user of a client that names none."""


def sight_for(users: Mapping[str, frozenset[str]], user: str | None, authorizations: Sequence[str] | None) -> Sight:
    """``authorizations`` None: all of the user's. Raises RefusedError for an authorization that the user lacks."""
    name = user or ROOT
    granted = users.get(name, frozenset())
    requested = granted if authorizations is None else frozenset(authorizations)
    missing = lacking(requested, granted)
    if missing:
        raise RefusedError(
            f"user {name} has no authorization {', '.join(missing)}; what it has: getauths -u {name}; "
            "the command setauths gives it others"
        )
    return sight_of(frozenset(authorization.encode() for authorization in requested))


def lacking(requested: frozenset[str], granted: frozenset[str]) -> list[str]:
    """The requested authorizations that the user does not have."""
    return sorted(requested - granted)
