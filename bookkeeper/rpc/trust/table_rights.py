"""Which tables a peer may replicate to: those that its secret opens now.

Arrives: callers, and the tables that they name. Leaves: nothing, or UnauthorizedError; UnavailableError on a connection
whose secret was forgotten, for another one may be shown on the next. The error is the same whether
there is such a table or not, so a peer learns nothing of tables that are not for it. What a secret opens is read from
the file of this cluster, four times a second at most: a change needs no new secret and no new connection. Nothing
survives a crash.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from bookkeeper.clock import Clock, SystemClock
from bookkeeper.errors import UnauthorizedError, UnavailableError
from bookkeeper.rpc.trust.rights import Caller
from bookkeeper.security.secret import Secret

LOOK_MS = 250
"""Time between looks at the files: each message of a peer asks, and a look takes as long as a small message."""


class TableRights:
    """Thread-safe."""

    def __init__(self, accepted: Callable[[], Mapping[str, Secret]] | None = None, clock: Clock | None = None) -> None:
        """``accepted``: who is let in now, by id (``Entrance.accepted``); None = nobody is asked for a secret."""
        self._accepted = accepted
        self._clock = clock or SystemClock()
        self._seen: tuple[int, Mapping[str, Secret]] = 0, {}

    def check_name(self, caller: Caller | None, table: str) -> None:
        """Raise UnauthorizedError unless the caller may replicate to the table of this name; UnavailableError when its
        secret is forgotten.
        """
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
        if self._accepted is None or shown is None or shown.kind != "peer":
            return None
        now_ns = self._clock.boot_ns()
        looked_ns, known = self._seen
        if shown.id not in known or now_ns - looked_ns > LOOK_MS * 1_000_000:
            known = self._accepted()
            self._seen = now_ns, known
        found = known.get(shown.id)
        if found is None:
            # The connection is about to end. A caller that was given another secret comes in with that one.
            raise UnavailableError(f"secret {shown.id} of {shown.holder} is forgotten: let its operator make another")
        return found


def opens(secret: Secret, table: str) -> bool:
    """Whether a peer's secret opens the table of this name."""
    return secret.opens(table)


def _closed(secret: Secret, what: str, name: str) -> UnauthorizedError:
    return UnauthorizedError(
        f"secret {secret.id} of {secret.holder} does not open {what}: if there is one, the operator of "
        f"{secret.cluster} may add it with bookkeeper secret tables DIR {secret.holder} --add {name}"
    )
