"""The tables that a peer may replicate to, and the origins under which it may send records: those of its secret now.

The error is the same whether the table exists or not, so a peer learns nothing about tables that its secret does not
open. The tables of a secret come from the file of this cluster, read at most four times a second: a change needs no new
secret and no new connection. A forgotten secret raises UnavailableError, because the peer may show another one on its
next connection.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from bookkeeper.clock import Clock, SystemClock
from bookkeeper.errors import UnauthorizedError, UnavailableError
from bookkeeper.rpc.trust.rights import Caller
from bookkeeper.security.secret import Secret

CACHE_MS = 250
"""Time between two reads of the files: each message of a peer needs a check, and a read costs as much as a message."""


class TableRights:
    """Checks the tables of callers. Thread-safe."""

    def __init__(self, accepted: Callable[[], Mapping[str, Secret]] | None = None, clock: Clock | None = None) -> None:
        """``accepted``: the secrets that this cluster accepts now, by id (``Entrance.accepted``); None = the server
        asks for no secret.
        """
        self._accepted = accepted
        self._clock = clock or SystemClock()
        self._cache: tuple[int, Mapping[str, Secret]] = 0, {}

    def check_name(self, caller: Caller | None, table: str) -> None:
        """Raise UnauthorizedError unless the caller may replicate to the table of this name; UnavailableError when its
        secret is forgotten.
        """
        secret = self._secret_of_peer(caller)
        if secret is not None and not opens(secret, table):
            raise _not_opened(secret, f"table {table}", table)

    def check_id(self, caller: Caller | None, table_id: str, name_of: Callable[[str], str | None]) -> None:
        """Check the table of this id; ``name_of`` returns its name, None when there is no such table. Raises as
        :meth:`check_name`.
        """
        secret = self._secret_of_peer(caller)
        if secret is None or secret.all_tables:
            return
        name = name_of(table_id)
        if name is None or not opens(secret, name):
            raise UnauthorizedError(
                f"{_not_opened(secret, f'a table with id {table_id}', 'TABLE').message}; if the table was deleted "
                "there and made again, it has another id: disablereplication and enablereplication send to the new one"
            )

    def origins(self, caller: Caller | None) -> frozenset[str] | None:
        """The instances under whose origins the caller may send records (R22); None = any. With another instance as the
        origin, a peer could make this cluster drop that instance's records as duplicates. Raises UnavailableError when
        its secret is forgotten.
        """
        secret = self._secret_of_peer(caller)
        return None if secret is None else secret.origins

    def _secret_of_peer(self, caller: Caller | None) -> Secret | None:
        """The secret of a peer as it is now; None for other callers. Raises UnavailableError when it is forgotten."""
        proved = None if caller is None else caller.secret
        if self._accepted is None or proved is None or proved.kind != "peer":
            return None
        now_ns = self._clock.boot_ns()
        read_ns, secrets_by_id = self._cache
        if proved.id not in secrets_by_id or now_ns - read_ns > CACHE_MS * 1_000_000:
            secrets_by_id = self._accepted()
            self._cache = now_ns, secrets_by_id
        found = secrets_by_id.get(proved.id)
        if found is None:
            # The server is about to close the connection. A caller with a new secret shows it on the next one.
            raise UnavailableError(f"secret {proved.id} of {proved.holder} is forgotten: let its operator make another")
        return found


def opens(secret: Secret, table: str) -> bool:
    """Whether a peer's secret opens the table of this name."""
    return secret.opens(table)


def _not_opened(secret: Secret, description: str, name: str) -> UnauthorizedError:
    return UnauthorizedError(
        f"secret {secret.id} of {secret.holder} does not open {description}: if there is one, the operator of "
        f"{secret.cluster} may add it with bookkeeper secret tables DIR {secret.holder} --add {name}"
    )
