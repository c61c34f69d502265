"""Users and what they may see; each a call of the leading master.

A user is a name that a client gives: whoever has the clients' secret may give any.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from bookkeeper.client.master_link import MasterLink

ROOT = "root"
"""The user of scans that name none."""


class Users:
    """``client.users``. Every method raises what the master says, or UnavailableError."""

    def __init__(self, master: MasterLink) -> None:
        self._master = master

    def authorizations(self, user: str = ROOT) -> Sequence[str]:
        """What a user may see, sorted; nothing for one that was never given any."""
        held: Sequence[str] = self._master.call("authorizations", user)
        return held

    def set_authorizations(self, authorizations: Collection[str], user: str = ROOT) -> None:
        """Replace what a user may see; in force on return. Raises InvalidInputError."""
        self._master.call("set_authorizations", user, sorted(set(authorizations)))
