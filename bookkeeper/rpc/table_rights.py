"""Which tables a peer may replicate to: those that its secret opens now.

Arrives: callers, and the tables that they name. Leaves: nothing, or UnauthorizedError. The error is the same whether
there is such a table or not, so a peer learns nothing of tables that are not for it. What a secret opens is read from
the file of this cluster at each call: a change needs no new secret and no new connection. Nothing survives a crash.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from bookkeeper.errors import UnauthorizedError
from bookkeeper.rpc.rights import Caller
from bookkeeper.security.secret import Secret


@dataclass(frozen=True, slots=True)
class TableRights:
    """``accepted``: who is let in now, by id (``Entrance.accepted``); None = nobody is asked for a secret."""

    accepted: Callable[[], Mapping[str, Secret]] | None = None

    def check_name(self, caller: Caller | None, table: str) -> None:
        """Raise UnauthorizedError unless the caller may replicate to the table of this name."""
        secret = self._secret_of_peer(caller)
        if secret is not None and not opens(secret, table):
            raise _closed(secret, f"table {table}", table)

    def check_id(self, caller: Caller | None, table_id: str, name_of: Callable[[str], str | None]) -> None:
        """The same for the table of this id; ``name_of`` tells its name, None when there is no such table."""
        secret = self._secret_of_peer(caller)
        if secret is None or secret.all_tables:
            return
        name = name_of(table_id)
        if name is None or not opens(secret, name):
            raise _closed(secret, f"a table with id {table_id}", "TABLE")

    def _secret_of_peer(self, caller: Caller | None) -> Secret | None:
        """The secret of a peer as it is now; None for others. One that was forgotten meanwhile opens nothing."""
        shown = None if caller is None else caller.secret
        if self.accepted is None or shown is None or shown.kind != "peer":
            return None
        found = self.accepted().get(shown.id)
        if found is None:
            raise UnauthorizedError(f"secret {shown.id} of {shown.holder} is forgotten: let its operator make another")
        return found


def opens(secret: Secret, table: str) -> bool:
    """Whether a peer's secret opens the table of this name."""
    return secret.opens(table)


def _closed(secret: Secret, what: str, name: str) -> UnauthorizedError:
    return UnauthorizedError(
        f"secret {secret.id} of {secret.holder} does not open {what}: if there is one, the operator of "
        f"{secret.cluster} may add it with bookkeeper secret tables DIR {secret.holder} --add {name}"
    )
