"""Users and their authorizations; each method is a call of the leading master.

A user is a name that a client sends: a client with the clients' secret may send any name.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from bookkeeper.client.master_link import MasterLink

ROOT = "root"
"""The user of scans without a user."""


class Users:
    """``client.users``: the authorizations of each user. A user is a name that a client sends.

    Every method raises the master's error, or UnavailableError when no master answers for 30 seconds.
    """

    def __init__(self, master: MasterLink) -> None:
        self._master = master

    def authorizations(self, user: str = ROOT) -> Sequence[str]:
        """The authorizations of a user, sorted; empty for an unknown user."""
        authorizations: Sequence[str] = self._master.call("authorizations", user)
        return authorizations

    def set_authorizations(self, authorizations: Collection[str], user: str = ROOT) -> None:
        """Replace the authorizations of a user; in force on every tserver on return (rule R14). Raises
        InvalidInputError.
        """
        self._master.call("set_authorizations", user, sorted(set(authorizations)))
