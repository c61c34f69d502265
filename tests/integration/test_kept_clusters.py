"""Clusters that an earlier version wrote, and a crash left, open and serve: nothing is lost, nothing comes twice.

``tests/support/kept_clusters.py`` makes such clusters. Each directory below ``data`` has those of one version.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from bookkeeper.client import Client
from bookkeeper.config.file import SETTINGS_FILE
from bookkeeper.standalone.ports import free_ports
from tests.support.cluster import Cluster
from tests.support.directory_peer import DirectoryPeer
from tests.support.kept_clusters import (
    ARCHIVE,
    CELLS,
    EAST_VALUE_BYTES_MAX,
    LAKE,
    LIMIT_MS,
    LONG_VALUE,
    PLACE,
    CellText,
    cells_of,
    own_place,
    reading,
    unpack,
    write,
)

pytestmark = [pytest.mark.integration, pytest.mark.spark]

DATA = Path(__file__).parent / "data"
VERSIONS = sorted(path.parent for path in DATA.glob(f"*/{ARCHIVE}"))

Cells = Mapping[str, list[CellText]]


def use_free_ports(directory: Path) -> None:
    """The ports that the archive names may be taken on this machine."""
    settings = directory / SETTINGS_FILE
    ports = iter(free_ports(2))
    text, changed = re.subn(r"^port = \d+$", lambda _: f"port = {next(ports)}", settings.read_text(), flags=re.M)
    assert changed == 2
    settings.write_text(text)


def take_larger_values(directory: Path) -> None:
    """The range that east refused is one that it takes from now on."""
    settings, old = directory / SETTINGS_FILE, f"value_bytes_max = {EAST_VALUE_BYTES_MAX}"
    text = settings.read_text()
    assert old in text
    settings.write_text(text.replace(old, f"value_bytes_max = {len(LONG_VALUE)}"))


@pytest.fixture(params=VERSIONS, ids=lambda path: path.name)
def kept(request: pytest.FixtureRequest) -> Iterator[tuple[Cluster, Cluster, Mapping[str, Cells]]]:
    """West and east, which run, and the cells that they had when they were killed."""
    with own_place(), ExitStack() as running:
        unpack(request.param / ARCHIVE)
        for name in ("west", "east"):
            use_free_ports(PLACE / name)
        take_larger_values(PLACE / "east")
        west, east = (running.enter_context(Cluster.opened(PLACE / name)) for name in ("west", "east"))
        yield west, east, json.loads((request.param / CELLS).read_text())


def replicate(client: Client, table: str, cluster: str) -> None:
    assert not client.replication.wait(table, cluster, timeout_ms=LIMIT_MS)


def records_in_lake() -> list[tuple[str, int]]:
    """Log and offset of each record in the directory that is a peer."""
    table = DirectoryPeer(PLACE / LAKE).table()
    return sorted(zip(table.column("_file").to_pylist(), table.column("_offset").to_pylist(), strict=True))


@pytest.mark.long
def test_clusters_of_an_earlier_version_open_serve_and_replicate(
    kept: tuple[Cluster, Cluster, Mapping[str, Cells]], tmp_path: Path
) -> None:
    west, east, before = kept
    assert cells_of(west.client) == before["west"], "west reads other cells than the earlier version"
    assert cells_of(east.client) == before["east"], "east reads other cells than the earlier version"
    in_lake = records_in_lake()

    # East gets what it lacked when both were killed, in its order, and each record once.
    west.client.replication.define_cluster("east", east.quorum)
    replicate(west.client, "shared", "east")
    assert cells_of(east.client)["shared"] == before["west"]["shared"]
    (held,) = west.client.replication.quarantine()
    assert (held.table, held.state) == ("refused", "held")
    west.client.replication.retry_range(held.range_id)
    west.wait_until(lambda: not west.client.replication.quarantine(), "end of the range that was set aside")
    assert cells_of(east.client)["refused"] == before["west"]["refused"]

    # New writes travel the same path, to a peer that knows the old clusters and to a new one.
    with Cluster(tmp_path / "fresh", "fresh", tservers=1, overrides={"files.roots": [str(PLACE)]}) as fresh:
        fresh.client.users.set_authorizations(west.client.users.authorizations())
        west.client.tables.export("plain", PLACE / "plain")
        fresh.client.tables.import_exported("plain", PLACE / "plain")
        assert cells_of(fresh.client)["plain"] == before["west"]["plain"]
        west.client.replication.define_cluster("fresh", fresh.quorum)
        west.client.replication.enable("plain", "fresh")
        for number in (10, 11):
            for table in ("plain", "shared"):
                write(west.client, table, *(reading(row, number) for row in (b"a", b"m", b"z")))
            west.client.tables.flush("plain")
        after = cells_of(west.client)
        assert after["plain"] != before["west"]["plain"]
        replicate(west.client, "plain", "")
        replicate(west.client, "shared", "")
        assert cells_of(fresh.client) == {"plain": after["plain"]}
        assert cells_of(east.client) == {name: after[name] for name in ("refused", "shared")}
    now_in_lake = records_in_lake()
    assert len(set(now_in_lake)) == len(now_in_lake) == len(in_lake) + 2 * 3 * 3, "a record is missing or came twice"
    assert set(in_lake) < set(now_in_lake)

    # All of it survives one more crash.
    for cluster in (west, east):
        cluster.crash()
        cluster.start()
    assert cells_of(west.client) == after
    assert cells_of(east.client) == {name: after[name] for name in ("refused", "shared")}


def test_there_is_an_archive() -> None:
    assert VERSIONS
