"""The holds of a tserver's session in a test: its books, and retries that know of no end of the session."""

from __future__ import annotations

import random

from bookkeeper.clock import Clock
from bookkeeper.metadata import keys
from bookkeeper.metadata.metadata_table import MetadataTable
from bookkeeper.runtime.session_retries import SessionRetries
from bookkeeper.tserver.bulk.session_holds import SessionHolds
from tests.support.master_world import StoppedSession


def session_holds(table: MetadataTable, clock: Clock, session_id: str = "s-1") -> SessionHolds:
    """The holds of a session that lives to itself."""
    return SessionHolds(table, SessionRetries(StoppedSession(session_id), clock, random.Random(1)), session_id)


def held_files(table: MetadataTable) -> set[str]:
    """The files that anything holds."""
    rows = table.scan(*keys.section(keys.HOLD_PREFIX), keys.HOLD_FAMILIES)
    return {keys.parse_hold_row(row.key) for row in rows}


def holders_of(table: MetadataTable, file: str) -> set[str]:
    """The families of a file's holds."""
    row = table.get(keys.hold_row(file), keys.HOLD_FAMILIES)
    return set() if row is None else {column.family for column in row.cells}
