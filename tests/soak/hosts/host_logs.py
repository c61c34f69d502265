"""Logs on the disks of hosts: which of them somebody needs, by the books.

Arrives: the rows of the books. Leaves: lines of text, none when the disk of a host may be destroyed: each record of its
logs is in a named state of its tablet, each peer has it, and the books say so. While a tablet names a lost log,
``replication wait`` can't tell what its table has written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from bookkeeper.metadata import keys, values
from bookkeeper.metadata.metadata_table import Row
from bookkeeper.storage.volume.names import LOGS
from tests.soak.watch import lacking


def needed_logs(rows: Iterable[Row], host: str) -> list[str]:
    """The logs on the disks of a host that a tablet or a peer needs, one line each."""
    rows = list(rows)
    homes = {
        keys.parse_home_row(row.key): values.LogHome.decode(row.cells[keys.HOME].value).host
        for row in rows
        if row.key.startswith(keys.HOME_PREFIX)
    }
    return [line for line, log in _needs(rows) if homes.get(_session_of(log)) == host]


def _needs(rows: list[Row]) -> Iterator[tuple[str, str]]:
    for row in rows:
        if row.key.startswith(b"~"):
            continue
        for column in row.cells:
            if column.family in ("log", "repl"):
                log = keys.parse_file(column.qualifier)
            elif keys.is_lost(column):
                log = keys.parse_lost(column)
            else:
                continue
            yield f"tablet {row.key!r} names {log}", log
    for log in sorted(lacking(rows)):
        yield f"a peer lacks records of {log}", log


def _session_of(log: str) -> str:
    return log.removeprefix(LOGS).partition("/")[0]
