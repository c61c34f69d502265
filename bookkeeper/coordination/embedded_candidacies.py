"""The candidacies in the SQLite file of the embedded coordination. Each function works in the caller's transaction.

One row for each session and election, so as many as there are replicas. They are removed in the transaction that notes
the death of their session. A row has a checksum of its own.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping

from bookkeeper.coordination.coordination_protocol import Candidacy
from bookkeeper.coordination.embedded_store import increment
from bookkeeper.sqlite_file import row_sum

_PLACES = "candidacy"
_VERSION = "candidacies"


def set_candidacies(db: sqlite3.Connection, session_id: str, wanted: Mapping[str, bytes]) -> None:
    """Make these all candidacies of a session; writes those that differ."""
    rows = db.execute("SELECT election, place, value FROM candidacies WHERE session_id = ?", (session_id,)).fetchall()
    before = {election: (place, value) for election, place, value in rows}
    gone = before.keys() - wanted.keys()
    changed = [election for election, value in sorted(wanted.items()) if before.get(election, (0, None))[1] != value]
    for election in changed:
        place = before[election][0] if election in before else increment(db, _PLACES)
        row = (session_id, election, place, wanted[election])
        db.execute("INSERT OR REPLACE INTO candidacies VALUES (?, ?, ?, ?, ?)", (*row, row_sum(row)))
    db.executemany(
        "DELETE FROM candidacies WHERE session_id = ? AND election = ?", [(session_id, name) for name in sorted(gone)]
    )
    if changed or gone:
        increment(db, _VERSION)


def end_candidacies(db: sqlite3.Connection, session_id: str) -> None:
    """Remove the candidacies of a session that is over."""
    set_candidacies(db, session_id, {})


def read_candidacies(db: sqlite3.Connection) -> dict[str, list[Candidacy]]:
    """All candidacies by election, in their order. Raises sqlite3.DatabaseError for a row with a wrong checksum."""
    found: dict[str, list[Candidacy]] = {}
    for session_id, election, place, value, checksum in db.execute("SELECT * FROM candidacies ORDER BY place"):
        if row_sum((session_id, election, place, value)) != checksum:
            raise sqlite3.DatabaseError(f"the candidacy of {session_id} in {election} does not match its checksum")
        found.setdefault(election, []).append(Candidacy(session_id, place, value))
    return found


def read_version(db: sqlite3.Connection) -> int:
    """The number of changes so far."""
    row = db.execute("SELECT value FROM counters WHERE name = ?", (_VERSION,)).fetchone()
    return 0 if row is None else int(row[0])
