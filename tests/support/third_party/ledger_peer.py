"""A replica system of another party: ``ledger:///PATH`` is an SQLite file that lists what was replicated.

An example of a third party's package. It imports ``bookkeeper.peers.protocol`` and nothing else of the project; its
entry point names it. Where a peer has transactions, the guarantees of the protocol are one transaction: check the
high-water, apply, raise it.
"""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bookkeeper.peers.protocol import (
    Acked,
    GapError,
    Identity,
    InvalidInputError,
    Message,
    NotFoundError,
    Peer,
    RefusedError,
    RetryLimits,
    StreamKey,
    UnavailableError,
)

TABLES = """
CREATE TABLE IF NOT EXISTS identity (one INTEGER PRIMARY KEY CHECK (one = 1), instance_id TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS stream (key TEXT PRIMARY KEY, high_water INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS entry (
  account TEXT NOT NULL, stream TEXT NOT NULL, block INTEGER NOT NULL, position INTEGER NOT NULL,
  row BLOB NOT NULL, family BLOB NOT NULL, qualifier BLOB NOT NULL, value BLOB
);
"""


@contextmanager
def ledger(path: str) -> Iterator[sqlite3.Connection]:
    """The file, in one transaction that is durable when it ends."""
    try:
        connection = sqlite3.connect(path, timeout=30, isolation_level=None)
        try:
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("BEGIN IMMEDIATE")
            yield connection
            connection.execute("COMMIT")
        finally:
            connection.close()
    except sqlite3.OperationalError as error:
        raise UnavailableError(f"ledger {path}: {error}") from error


@dataclass(slots=True)
class LedgerSystem:
    """See ``bookkeeper.peers.protocol.InstalledSystem``."""

    name: str = "ledger"

    def prepare(self, quorum: str) -> Identity:
        """The identity of the file, which is created when it does not exist."""
        if not Path(quorum).is_absolute():
            raise InvalidInputError(f"ledger://{quorum}: want ledger:///absolute/path")
        with ledger(quorum) as connection:
            for statement in filter(str.strip, TABLES.split(";\n")):
                connection.execute(statement)
            connection.execute("INSERT OR IGNORE INTO identity VALUES (1, ?)", [str(uuid.uuid4())])
        return self.identify(quorum)

    def identify(self, quorum: str) -> Identity:
        """The identity of the file."""
        if not Path(quorum).is_file():
            raise UnavailableError(f"ledger://{quorum}: there is no such file; bring it back")
        with ledger(quorum) as connection:
            (instance_id,) = connection.execute("SELECT instance_id FROM identity").fetchone()
        return Identity(instance_id, "ledger")

    def resolve_table(self, peer: Peer, name: str) -> str:  # noqa: ARG002 - the protocol's
        """Accounts have capital names."""
        if not name.isupper():
            raise NotFoundError(f"ledgers have accounts with capital names only, not {name}; use --remote-table")
        return name

    def stream_done(self, peer: Peer, streams: Sequence[StreamKey]) -> None:
        """High-waters are kept: they are few, and a message may still come."""

    def open(self, peer: Peer, stream: StreamKey, limits: RetryLimits) -> LedgerSession:  # noqa: ARG002 - the protocol's
        """A session without retries of its own: the sender repeats a message in its next run."""
        return LedgerSession(peer, stream)


@dataclass(slots=True)
class LedgerSession:
    """See ``bookkeeper.peers.protocol.ReplicaSession``."""

    peer: Peer
    stream: StreamKey
    sends: int = 0

    def ship(self, message: Message) -> Acked:
        """One transaction."""
        self.sends += 1
        key, account = self.stream.encode(), self.stream.target_table_id
        applied = total = 0
        with ledger(self.peer.quorum) as connection:
            (instance_id,) = connection.execute("SELECT instance_id FROM identity").fetchone()
            if instance_id != self.peer.instance_id or instance_id in message.provenance:
                raise RefusedError(f"ledger {self.peer.quorum} is {instance_id}, not {self.peer.instance_id}")
            found = connection.execute("SELECT high_water FROM stream WHERE key = ?", [key]).fetchone()
            known = max(found[0] if found else 0, message.acked_offset)
            if message.after_offset > known:
                raise GapError(f"the ledger has {known}", {"high_water": str(known)})
            for block in message.blocks:
                total += block.record_count
                if block.last_offset <= known:
                    continue
                applied += block.record_count
                columns = block.record_batch().select(["row", "family", "qualifier", "value"]).to_pydict()
                connection.executemany(
                    "INSERT INTO entry VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                    (
                        (account, key, block.first_offset, position, *cells)
                        for position, cells in enumerate(zip(*columns.values(), strict=True))
                    ),
                )
            high_water = max(known, message.to_offset)
            connection.execute("INSERT OR REPLACE INTO stream VALUES (?, ?)", [key, high_water])
        return Acked(message.to_offset, applied, total - applied)

    def close(self) -> None:
        """See the protocol."""
