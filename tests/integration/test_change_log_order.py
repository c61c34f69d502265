"""The change log of a directory peer leads to the table: writes, imports, splits and merges with equal timestamps."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from bookkeeper.bulk.import_places import read_first_seq
from bookkeeper.metadata import keys, values
from bookkeeper.metadata.metadata_table import RowPut
from bookkeeper.model import Extent, Target
from bookkeeper.peers.parquet.system import ParquetSystem
from bookkeeper.peers.registry import Registry
from bookkeeper.replay.ranges import Range
from bookkeeper.replay.stream.range_shipping import Sessions, Shipper
from bookkeeper.security.file_roots import ANYWHERE
from tests.integration.test_tserver_borders import let_go, merge, split
from tests.support.compactions import QUIET
from tests.support.directory_peer import LATEST
from tests.support.faults import fault
from tests.support.prepared_imports import prepared_import
from tests.support.tservers import Ground, LocalNode, ground, records, status_of

pytestmark = pytest.mark.integration

WHOLE, LEFT, RIGHT = Extent("1", None, None), Extent("1", b"m", None), Extent("1", None, b"m")
ROWS = [b"a", b"b", b"c", b"x", b"y", b"z"]
TIMES = (5, 6)
STEPS = 30
PAGE = Path(__file__).parents[2] / "docs" / "parquet-peer.md"


@pytest.fixture
def west(tmp_path: Path) -> Iterator[Ground]:
    with ground(tmp_path / "west", {"tserver.wal_sync_interval_ms": 20}) as made:
        yield made


class History:
    """A table that a tserver holds, and everything that a user does to it."""

    def __init__(self, west: Ground, seed: int) -> None:
        self.west, self.choose = west, random.Random(seed)
        west.create_table("1")
        west.set_properties("1", QUIET)
        self.target: Target = west.enable("1")
        self.node: LocalNode = west.local()
        self.extents = [WHOLE]
        self.imports: list[str] = []
        self.values = 0
        west.assign(self.node, WHOLE)

    def play(self) -> None:
        for _ in range(STEPS):
            self.choose.choices([self.write, self.delete, self.take_import, self.move_border], [4, 2, 3, 1])[0]()

    def _batch(self, extent: Extent, delete: bool = False) -> pa.RecordBatch:
        rows = self.choose.choices([row for row in ROWS if extent.contains(row)], k=3)
        self.values += 1
        value = b"" if delete else b"%d" % self.values
        return records([(row, value) for row in rows], timestamp=self.choose.choice(TIMES), delete=delete)

    def write(self) -> None:
        extent = self.choose.choice(self.extents)
        self.west.write(self.node, extent, self._batch(extent))

    def delete(self) -> None:
        extent = self.choose.choice(self.extents)
        self.west.write(self.node, extent, self._batch(extent, delete=True))

    def take_import(self) -> None:
        """An import of the master, whose needed cell says what the tablet's put said."""
        extent = self.choose.choice(self.extents)
        request = prepared_import(self.west, extent, self._batch(extent), self.target)
        self.west.tserver(self.node).adopt_segments(request)
        assert request.log is not None
        status = status_of(self.west, extent, request.log.name)
        assert status is not None
        cell = {keys.needed_column(self.target.key): values.encode_status(status)}
        self.west.metadata.put([RowPut(keys.repl_row(request.log.name), cell)], keys.master_rank(1, 1))
        self.imports.append(request.log.name)

    def move_border(self) -> None:
        held = let_go(self.west, *((self.node, extent) for extent in self.extents))
        if self.extents == [WHOLE]:
            split(self.west, held)
            self.extents = [LEFT, RIGHT]
        else:
            merge(self.west, held)
            self.extents = [WHOLE]
        self.west.assign(self.node, *self.extents)

    def cells(self) -> dict[tuple[bytes, bytes, bytes], bytes]:
        return {key: value for extent in self.extents for key, value in self.west.scan(self.node, extent).items()}

    def ship(self, lake: Path) -> None:
        """Every log, in any order, as a worker sends it."""
        identity = ParquetSystem(roots=ANYWHERE).prepare(str(lake))
        logs = [*self.west.logs_of(self.node), *self.imports]
        self.choose.shuffle(logs)
        ranges = [
            Range(
                range_id=number,
                file=log,
                first=1,
                last=blocks[-1].last_offset,
                position_hint=0,
                target=self.target.key,
                peer_quorum=f"parquet://{lake}",
                peer_instance_id=identity.instance_id,
                own_instance_id="west",
                finished=0,
                order_key=number,
                first_seq=read_first_seq(self.west.metadata, log, self.target.key),
            )
            for number, log in enumerate(logs)
            if (blocks := self.west.blocks_of(log))
        ]
        sessions = Sessions(Registry(roots=ANYWHERE), self.west.settings)
        for result in Shipper(sessions, self.west.volume, self.west.settings).ship(ranges, 60_000):
            assert result.error is None, result.error


def _the_change_log_leads_to_the_table(west: Ground, lake: Path, seed: int) -> None:
    history = History(west, seed)
    history.play()
    history.ship(lake)
    with duckdb.connect() as connection:
        found = connection.execute(LATEST.format(root=lake, table="r1")).fetchall()
    told = {(row, family, qualifier): value for row, family, qualifier, _, value in found}
    assert told == history.cells(), "the query of the page finds another table than a scan"


@pytest.mark.parametrize("seed", range(5))
def test_the_newest_record_of_each_cell_is_the_tables_whatever_was_imported(
    west: Ground, tmp_path: Path, seed: int
) -> None:
    assert "arg_max(value, (timestamp, _sequence))" in PAGE.read_text(), "the page orders records in another way"
    _the_change_log_leads_to_the_table(west, tmp_path / "lake", seed)


def test_without_the_place_in_the_tablet_imports_count_from_one(west: Ground, tmp_path: Path) -> None:
    with (
        fault("imports-count-from-one"),
        pytest.raises(AssertionError, match="finds another table than a scan"),
    ):
        _the_change_log_leads_to_the_table(west, tmp_path / "lake", 0)
