"""Users and what they may see; each a call of the leading master.

A user is a name that a client gives: whoever has the clients' secret may give any.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from bookkeeper.client.master_link import MasterLink

ROOT = "root"
"""The user of scans that name none."""


class Users:
    """``client.users``: which authorizations each user has. A user is a name that a client gives.

    Every method raises the master's error, or UnavailableError when no master answers for 30 seconds.
    """

    def __init__(self, master: MasterLink) -> None:
        self._master = master

    def authorizations(self, user: str = ROOT) -> Sequence[str]:
        """The authorizations of a user, sorted; empty for a user who was never given any."""
        held: Sequence[str] = self._master.call("authorizations", user)
        return held

    def set_authorizations(self, authorizations: Collection[str], user: str = ROOT) -> None:
        """Replace the authorizations of a user; in force on every tserver on return (rule R14). Raises
        InvalidInputError.
        """
        self._master.call("set_authorizations", user, sorted(set(authorizations)))
