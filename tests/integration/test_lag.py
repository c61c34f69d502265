"""The lag of a table and a target is exact, for any other content of the same logs and any progress."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from bookkeeper.client import Mutation
from bookkeeper.errors import UnavailableError
from bookkeeper.metadata import keys, values
from bookkeeper.model import LocalityGroup, TargetShare
from bookkeeper.replay.ranges import Range
from bookkeeper.storage.wal.reading.wal_recovery import file_summary
from bookkeeper.storage.wal.writing.seal import read_seal
from tests.support.faults import fault
from tests.support.local_pair import LocalCluster, local_pair
from tests.support.local_replay import at_once
from tests.support.tservers import wait_until

pytestmark = pytest.mark.integration

OTHERS = 1_000
GROUPS = [LocalityGroup("geo", (b"lat",)), LocalityGroup("label", (b"name",))]


def nobody_ships(_ranges: Sequence[Range]) -> None:
    """As if no replay process ran."""
    raise UnavailableError("no replay process is running")


def write(cluster: LocalCluster, table: str, rows: int, *families: bytes, prefix: bytes = b"r") -> None:
    with cluster.client.writer(table) as writer:
        for number in range(rows):
            mutation = Mutation(b"%s%06d" % (prefix, number))
            for family in families or (b"f",):
                mutation.put(family, b"q", b"v")
            writer.add(mutation)


def lag(cluster: LocalCluster) -> dict[str, int]:
    """Records that each table's targets lack, as the status says."""
    found: dict[str, int] = {}
    for one in cluster.client.replication.status():
        found[one.table] = found.get(one.table, 0) + one.lag_records
    return {table: records for table, records in found.items() if records}


def shows(cluster: LocalCluster, expected: dict[str, int]) -> None:
    wait_until(lambda: lag(cluster) == expected, f"a lag of {expected}")


def said_by_cells(cluster: LocalCluster, file: str) -> set[TargetShare]:
    """The shares of a file's targets as its `repl:` cells have them."""
    found = set()
    for row in cluster.metadata.scan(keys.TABLETS_START, keys.TABLETS_STOP, ("repl",)):
        cell = row.cells.get(keys.repl_column(file))
        for share in () if cell is None else values.decode_status(cell.value).shares:
            found.add(TargetShare(keys.parse_target(share.target.encode()), share.records, share.bytes))
    return found


@pytest.fixture
def west(tmp_path: Path) -> Iterator[LocalCluster]:
    """It replicates ``t``, ``u`` and the group ``geo`` of ``g`` to east, and has a table ``alone`` besides."""
    with local_pair(tmp_path) as (west, east):
        for cluster in (west, east):
            cluster.client.tables.create("u")
            cluster.client.tables.create("g", groups=GROUPS)
        west.client.tables.create("alone")
        west.client.replication.enable("u", "east")
        west.client.replication.enable("g", "east", ["geo"])
        yield west


def lag_beside_other_tables(west: LocalCluster) -> None:
    """One log holds records of four tables; the peer has some of them; then nobody ships."""
    write(west, "t", 20)
    write(west, "alone", OTHERS)
    write(west, "g", 3, b"lat", b"name")
    for table in ("t", "u", "g"):
        assert not west.client.replication.wait(table)
    shows(west, {})
    west.replay.before = nobody_ships
    write(west, "t", 10, prefix=b"s")
    write(west, "alone", OTHERS, prefix=b"s")
    write(west, "u", 30)
    write(west, "g", 7, b"lat", b"name", prefix=b"s")


def test_the_lag_counts_neither_other_tables_nor_other_groups_and_survives_the_log(west: LocalCluster) -> None:
    lag_beside_other_tables(west)
    shows(west, {"t": 10, "u": 30, "g": 7})
    (one,) = [one for one in west.client.replication.status("t") if one.lag_records]
    assert one.needed - one.finished > OTHERS, "offsets count everybody's records"
    assert 0 < one.lag_bytes < 10_000
    west.replace_tserver()
    wait_until(lambda: read_seal(west.volume, one.file) is not None, "the end of the log")
    shows(west, {"t": 10, "u": 30, "g": 7})
    told = {share for shares in file_summary(west.volume, one.file).shares.values() for share in shares}
    wait_until(
        lambda: said_by_cells(west, one.file) == told, "CLOSED has the shares of the blocks, from every writer of it"
    )
    write(west, "t", 5, prefix=b"x")
    shows(west, {"t": 15, "u": 30, "g": 7})
    west.replay.before = at_once
    for table in ("t", "u", "g"):
        assert not west.client.replication.wait(table)
    shows(west, {})


def test_without_the_shares_of_targets_the_lag_counts_other_tables(west: LocalCluster) -> None:
    with fault("a-log-is-one-targets"):
        lag_beside_other_tables(west)
        wait_until(lambda: lag(west).get("t", 0) > OTHERS, "a lag of t that counts the table alone")
