"""An operator accepts the loss of a disk: its logs are needed by no tablet any more, and nothing else changes."""

from __future__ import annotations

import pytest

from bookkeeper.coordination.coordination_protocol import SessionInfo
from bookkeeper.errors import NotFoundError, RefusedError
from bookkeeper.master.operations.hosts.lost_disks import forget_host_args, needed_cells
from bookkeeper.metadata import keys
from bookkeeper.metadata.metadata_table import Cell, CellKey, Row
from bookkeeper.metadata.values import LogHome
from bookkeeper.model import HostIdentity

KEY = keys.tablet_row("1", None)
GONE, HERE = "wal/s1/000001.wal", "wal/s2/000001.wal"
HOMES = {"s1": LogHome("h1", "lost"), "s2": LogHome("h2", "disk")}


def session(name: str, incarnation: str, is_alive: bool = True) -> SessionInfo:
    """A session of host h1."""
    return SessionInfo(name, "tserver", "127.0.0.1:1", is_alive, HostIdentity("h1", incarnation))


def test_the_sessions_of_the_lost_disk_alone_are_meant() -> None:
    assert forget_host_args("h1", HOMES, [session("s9", "new"), session("s1", "lost", is_alive=False)]) == {
        "host": "h1",
        "sessions": ["s1"],
    }


def test_a_disk_that_is_here_is_not_lost() -> None:
    with pytest.raises(RefusedError, match="host h1 is alive with the disk that has its logs: nothing of them is lost"):
        forget_host_args("h1", HOMES, [session("s9", "lost")])
    with pytest.raises(NotFoundError, match="the books know no log on host h3"):
        forget_host_args("h3", HOMES, [])


def test_the_cells_of_its_logs_go_and_no_others() -> None:
    columns = [make(log) for make in (keys.log_column, keys.lost_column, keys.repl_column) for log in (GONE, HERE)]
    row = Row(KEY, {column: Cell(1, b"") for column in [*columns, keys.FLUSH, keys.SERIAL]})
    assert set(needed_cells([row], {"s1"})) == {
        CellKey(KEY, keys.log_column(GONE)),
        CellKey(KEY, keys.lost_column(GONE)),
    }
