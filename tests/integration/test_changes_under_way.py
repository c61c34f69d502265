"""Changes while work is outstanding: books are cleaned, nothing is left behind, a later enable starts at *now*.

Two clusters run inside the test; the receiving one has no tserver for a while. The tests compare the peer's rows, the
books and the disk. Rules: R5, R9, R13 and R17.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from bookkeeper.client import Mutation
from bookkeeper.errors import RefusedError
from bookkeeper.metadata import keys
from bookkeeper.metadata.values import FateStep
from bookkeeper.model import LocalityGroup
from tests.support.local_pair import LocalCluster, local_pair
from tests.support.log_files import logs_below
from tests.support.tservers import wait_until

pytestmark = pytest.mark.integration

Pair = tuple[LocalCluster, LocalCluster]
GROUPS = [LocalityGroup("geo", (b"lat", b"lon")), LocalityGroup("label", (b"name",))]
ROWS = 5


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with local_pair(tmp_path_factory.mktemp("changes")) as (west, east):
        west.client.replication.disable("t", "east")
        yield west, east


def _write(west: LocalCluster, table: str, prefix: str) -> set[bytes]:
    rows = {f"{prefix}{number}".encode() for number in range(ROWS)}
    with west.client.writer(table) as writer:
        for row in sorted(rows):
            writer.add(Mutation(row).put(b"lat", b"", b"46").put(b"lon", b"", b"7").put(b"name", b"", b"x"))
    return rows


def _outstanding(pair: Pair, table: str, groups: Sequence[str] | None = None) -> set[bytes]:
    """A replicated table, some of whose rows are at the peer, and others on their way; returns the former."""
    west, east = pair
    west.client.tables.create(table, groups=GROUPS)
    if all(one.name != table for one in east.client.tables.list()):
        east.client.tables.create(table)
    west.client.replication.enable(table, "east", groups)
    there = _write(west, table, "there")
    assert not west.client.replication.wait(table)
    east.tserver.stop()
    _write(west, table, "waits")
    wait_until(lambda: any(one.lag_records for one in west.client.replication.status(table)), "records on their way")
    return there


def _left(west: LocalCluster) -> list[str]:
    """Logs, their books, and operations that go on; but for the log that is written now."""
    now = west.tserver.session_id
    files = [str(path) for path in logs_below(west.settings.wal_dir) if path.parent.name != now]
    for prefix in (keys.REPL_PREFIX, keys.QUAR_PREFIX):
        files += [repr(row.key) for row in west.metadata.scan(*keys.section(prefix), ("repl", "done", "quar"))]
    for row in west.metadata.scan(*keys.section(keys.FATE_PREFIX), ("fate",)):
        step = row.cells.get(keys.FATE_STEP)
        files += [] if step is not None and FateStep.decode(step.value).step == "failed" else [repr(row.key)]
    for row in west.metadata.scan(keys.TABLETS_START, keys.TABLETS_STOP, ("repl",)):
        files += [column.qualifier.decode() for column in row.cells if now.encode() not in column.qualifier]
    return files


def _cleaned(west: LocalCluster) -> None:
    """Everything of the logs up to now goes, though the peer never got it."""
    west.replace_tserver()
    wait_until(lambda: not _left(west), "books and logs without anything of what was outstanding")


def _begins_now(pair: Pair, table: str, there: set[bytes]) -> None:
    """Replication that is enabled now brings what is written now, and nothing older."""
    west, east = pair
    east.replace_tserver()
    west.client.replication.enable(table, "east")
    new = _write(west, table, "new")
    assert not west.client.replication.wait(table)
    wait_until(lambda: east.rows(table).keys() >= new, "what was written now")
    assert east.rows(table).keys() == there | new
    west.client.replication.disable(table, "east")


def test_a_target_that_is_disabled_leaves_nothing_behind(pair: Pair) -> None:
    west, _ = pair
    there = _outstanding(pair, "disabled")
    west.client.replication.disable("disabled", "east")
    _cleaned(west)
    _begins_now(pair, "disabled", there)


def test_a_cluster_that_is_deleted_leaves_nothing_behind(pair: Pair) -> None:
    west, east = pair
    there = _outstanding(pair, "deleted-cluster")
    replication = west.client.replication
    with pytest.raises(RefusedError, match="deleted-cluster"):
        replication.delete_cluster("east", east.quorum)
    replication.disable("deleted-cluster", "east")
    replication.delete_cluster("east", east.quorum)
    _cleaned(west)
    replication.define_cluster("east", east.quorum)
    _begins_now(pair, "deleted-cluster", there)


def test_a_table_that_is_deleted_leaves_nothing_behind(pair: Pair) -> None:
    west, _ = pair
    there = _outstanding(pair, "deleted-table")
    west.client.tables.delete("deleted-table")
    _cleaned(west)
    west.client.tables.create("deleted-table")
    _begins_now(pair, "deleted-table", there)


def test_a_table_of_the_peer_that_is_made_again_gets_nothing_that_was_on_its_way(pair: Pair) -> None:
    west, east = pair
    _outstanding(pair, "made-again")
    east.client.tables.delete("made-again")
    east.client.tables.create("made-again")
    west.client.replication.disable("made-again", "east")
    _cleaned(west)
    _begins_now(pair, "made-again", set())


def test_a_group_that_changes_leaves_nothing_behind_and_travels_as_it_is_then(pair: Pair) -> None:
    west, east = pair
    _outstanding(pair, "groups", ["geo"])
    changed = [LocalityGroup("geo", (b"lat",)), LocalityGroup("label", (b"lon", b"name"))]
    with pytest.raises(RefusedError, match="group geo of table groups is replicated"):
        west.client.tables.set_groups("groups", changed)
    west.client.replication.disable("groups", "east", ["geo"])
    west.client.tables.set_groups("groups", changed)
    _cleaned(west)
    east.replace_tserver()
    west.client.replication.enable("groups", "east", ["geo"])
    _write(west, "groups", "later")
    assert not west.client.replication.wait("groups")
    families: dict[bytes, set[bytes]] = {}
    for cell in east.client.scan("groups").cells():
        families.setdefault(cell.row.rstrip(b"0123456789"), set()).add(cell.family)
    assert families == {b"there": {b"lat", b"lon"}, b"later": {b"lat"}}
    west.client.replication.disable("groups", "east")
