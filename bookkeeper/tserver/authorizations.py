"""The authorizations of a scan: those that it requests, of those that its user has.

The configuration in force has the authorizations of each user. Pure. No user is authenticated: a client states its
user's name, and the tserver believes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bookkeeper.errors import RefusedError
from bookkeeper.storage.tablet.scans.visibility import Authorizations, authorizations_of

ROOT = "root"
"""The user of a client that names none."""


def authorizations_for(
    users: Mapping[str, frozenset[str]], user: str | None, requested: Sequence[str] | None
) -> Authorizations:
    """``requested`` None: all that the user has. Raises RefusedError for an authorization that the user lacks."""
    name = user or ROOT
    granted = users.get(name, frozenset())
    effective = granted if requested is None else frozenset(requested)
    more = lacking(effective, granted)
    if more:
        raise RefusedError(
            f"user {name} has no authorization {', '.join(more)}; the command getauths -u {name} lists those that it "
            "has, setauths grants others"
        )
    return authorizations_of(frozenset(authorization.encode() for authorization in effective))


def lacking(requested: frozenset[str], granted: frozenset[str]) -> list[str]:
    """The requested authorizations that are not granted."""
    return sorted(requested - granted)
