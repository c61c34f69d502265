"""The tables of the attacking peer's secret change while tables are split, merged, exported and imported.

Arrives: a cluster under attack. Leaves: changes, one at a time, and a verdict on each answer that the peer gets: a call
about a table that its secret does not open has to fail, whatever became of the table's tablets meanwhile.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from bookkeeper.clock import Clock, SystemClock
from bookkeeper.errors import BookkeeperError
from bookkeeper.rpc.trust.table_rights import CACHE_MS
from bookkeeper.security.secret_store import SecretStore
from tests.soak.faults import InvariantError
from tests.soak.fuzz import FUZZ_TABLES, Attack
from tests.support.cluster import Cluster

HOLDER = "fuzz"
COPY = "fuzz-copy"
SPLIT = b"f"
STREAM_OF: dict[str, Callable[[Sequence[Any]], str]] = {
    "pick_tserver": lambda arguments: str(arguments[0]),
    "open_stream": lambda arguments: str(arguments[0].target_table_id),
    "replicate": lambda arguments: str(arguments[0].stream.target_table_id),
    "offer_segments": lambda arguments: str(arguments[0].stream.target_table_id),
    "put_segment": lambda arguments: str(arguments[0].stream.target_table_id),
    "take_segments": lambda arguments: str(arguments[1].target_table_id),
}
"""The id of the table in a peer's call."""


@dataclass(slots=True)
class PeerRights:
    """The rights of the peer's secret, now and before its last change."""

    cluster: Cluster
    clock: Clock = field(default_factory=SystemClock)
    done: list[str] = field(default_factory=list)
    _opened: tuple[str, ...] = FUZZ_TABLES
    _before: tuple[str, ...] = FUZZ_TABLES
    _changed_ns: int = 0
    _names: dict[str, str] = field(default_factory=dict)
    _changes: Iterator[Callable[[], None]] = field(init=False)

    def __post_init__(self) -> None:
        self._changes = itertools.cycle((self._narrow, self._split, self._copy, self._merge, self._widen))
        self._learn()

    def change(self) -> None:
        """Make the next change. A table may be gone: the attackers may delete their own."""
        change = next(self._changes)
        with suppress(BookkeeperError):
            change()
            self.done.append(change.__name__.removeprefix("_"))
        self._learn()

    def check(self, attack: Attack, arguments: Sequence[Any], sent_ns: int) -> None:
        """Raise InvariantError for a call that got a result, although no right opened its table when it was sent."""
        if attack.method not in STREAM_OF:
            return
        name = self._names.get(STREAM_OF[attack.method](arguments))
        known = sent_ns - self._changed_ns > CACHE_MS * 1_000_000  # servers read the rights at least so often
        opened = self._opened if known else (*self._opened, *self._before)
        if name is not None and name not in opened:
            raise InvariantError(f"{attack.method} for table {name} got a result, and the secret opens {opened}")

    def _learn(self) -> None:
        with suppress(BookkeeperError):
            self._names |= {table.table_id: table.name for table in self.cluster.client.tables.list()}

    def _open(self, tables: tuple[str, ...]) -> None:
        store = SecretStore(self.cluster.directory)
        store.change_rights(HOLDER, lambda secret: replace(secret, tables=tables))
        self._before, self._opened, self._changed_ns = self._opened, tables, self.clock.boot_ns()

    def _others(self) -> list[str]:
        names = {table.name for table in self.cluster.client.tables.list()}
        return sorted(names - {*FUZZ_TABLES, COPY})[:1]

    def _split(self) -> None:
        for name in (*FUZZ_TABLES, *self._others()):
            with suppress(BookkeeperError):
                self.cluster.client.tables.add_splits(name, [SPLIT])

    def _merge(self) -> None:
        for name in (*FUZZ_TABLES, *self._others()):
            with suppress(BookkeeperError):
                self.cluster.client.tables.merge(name)

    def _narrow(self) -> None:
        self._open(FUZZ_TABLES[:1])

    def _widen(self) -> None:
        self._open(FUZZ_TABLES)

    def _copy(self) -> None:
        tables = self.cluster.client.tables
        with suppress(BookkeeperError):
            tables.delete(COPY)
        with tempfile.TemporaryDirectory(prefix="fuzz-") as directory:
            for name in (*self._others(), FUZZ_TABLES[1]):
                tables.export(name, Path(directory, name))
            tables.import_exported(COPY, Path(directory, FUZZ_TABLES[1]))
