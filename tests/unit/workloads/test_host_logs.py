"""The books say which logs on the disk of a host somebody needs."""

from __future__ import annotations

import combiners
from bookkeeper.metadata import keys, values
from bookkeeper.metadata.metadata_table import Cell, Column, Row
from bookkeeper.model import TargetKey
from combiners import ReplicationStatus
from tests.soak.hosts.host_logs import needed_logs

LOG, ELSEWHERE = "wal/tserver-1-a/000001.wal", "wal/tserver-2-b/000001.wal"
HOMES = [
    Row(keys.home_row(session), {keys.HOME: Cell(1, values.LogHome(host, "d").encode())})
    for session, host in (("tserver-1-a", "host2"), ("tserver-2-b", "host3"))
]
EAST = TargetKey("east", "2", "1", 1)


def tablet(column: Column) -> Row:
    cells = {keys.PREV_ROW: Cell(1, values.encode_prev_row(None)), column: Cell(1, b"")}
    return Row(keys.tablet_row("1", None), cells)


def status(log: str, finished: int) -> Row:
    needed = combiners.close(combiners.append(ReplicationStatus(), 9))
    done = ReplicationStatus(replication_finished_offset=finished)
    cells = {keys.needed_column(EAST): needed, keys.done_column(EAST): done}
    return Row(keys.repl_row(log), {column: Cell(1, values.encode_status(value)) for column, value in cells.items()})


def test_a_log_that_is_named_and_replicated_is_not_needed() -> None:
    assert needed_logs([*HOMES, status(LOG, 9)], "host2") == []


def test_tablets_and_peers_need_logs_on_the_host_that_has_them() -> None:
    rows = [*HOMES, tablet(keys.log_column(LOG)), status(LOG, 8)]
    assert needed_logs(rows, "host2") == [f"tablet b'1<' names {LOG}", f"a peer lacks records of {LOG}"]
    assert needed_logs(rows, "host3") == []
    for column in (keys.lost_column(LOG), keys.repl_column(LOG)):
        assert needed_logs([*HOMES, tablet(column)], "host2") == [f"tablet b'1<' names {LOG}"]


def test_logs_on_other_hosts_and_on_the_volume_are_not_the_hosts() -> None:
    assert needed_logs([*HOMES, tablet(keys.log_column(ELSEWHERE))], "host2") == []
    assert needed_logs([tablet(keys.log_column(LOG))], "host2") == []
