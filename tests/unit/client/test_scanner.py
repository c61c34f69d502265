"""Scans over real calls: every cell once and in order, through pages, tablets and tservers that come and go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from bookkeeper.client import Cell, Client, tablet_extents
from bookkeeper.client.scanner import PAGE_BYTES, PAGE_BYTES_MAX, admit_page
from bookkeeper.client.tablet_extents import table_map
from bookkeeper.errors import CorruptionError, NotFoundError, NotServingError
from bookkeeper.model import Extent
from bookkeeper.rpc.contract.messages import TabletLocation
from bookkeeper.storage.wal.blocks.block import decode_batch
from tests.support.fake_cluster import FakeCluster, extents_of
from tests.support.ipc_forms import bomb

LETTERS = b"abcdefghijklmnopqrstuvwxyz"


def _record(row: bytes, family: bytes = b"f", qualifier: bytes = b"q") -> dict[str, Any]:
    return {
        "row": row,
        "family": family,
        "qualifier": qualifier,
        "visibility": b"",
        "timestamp": 5,
        "delete": False,
        "value": row,
    }


def _filled(cluster: FakeCluster) -> None:
    for letter in LETTERS:
        row = bytes([letter])
        for extent, tserver in cluster.placement.items():
            if extent.contains(row) and tserver is not None:
                cluster.tservers[tserver].records.append(_record(row))


def _rows(batches: Any) -> bytes:
    return b"".join(row for batch in batches for row in batch.column("row").to_pylist())


def test_a_small_page_that_takes_much_memory_is_refused_before_it_does() -> None:
    raw, before = bomb(65 << 20), pa.default_memory_pool().bytes_allocated()
    with pytest.raises(CorruptionError, match="a page of a scan takes"):
        decode_batch(raw, admit_page)
    assert pa.default_memory_pool().bytes_allocated() < before + (1 << 20)


def test_a_tablet_that_a_person_has_to_help_ends_the_scan_long_before_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tablet_extents, "UNSERVABLE_MS", 200)
    with FakeCluster(*extents_of(b"g", b"p"), tservers=3) as cluster, Client.connect(cluster.quorum) as client:
        _filled(cluster)
        cluster.problems[cluster.extents[1]] = "log x is damaged; restore the file"
        expected = bytes(LETTERS)
        assert _rows(client.scan("t")) == expected, "who serves it after all has the last word"
        cluster.move(_1=None)
        with pytest.raises(CorruptionError, match=r"can serve tablet .*: log x is damaged; restore the file"):
            _rows(client.scan("t"))
        assert _rows(client.scan("t", None, b"g")) + _rows(client.scan("t", b"q")) == b"abcdefqrstuvwxyz"


@pytest.mark.parametrize(
    ("start", "stop"),
    [
        (None, None),
        (b"a", b"z\x00"),
        (b"c", b"y"),
        (b"g", b"h"),
        (b"h", b"p"),
        (b"p\x00", None),
        (b"x", b"b"),
        (b"{", None),
    ],
)
def test_a_range_is_read_in_order_through_all_tablets_and_no_others(start: bytes | None, stop: bytes | None) -> None:
    with FakeCluster(*extents_of(b"g", b"p"), tservers=3) as cluster, Client.connect(cluster.quorum) as client:
        _filled(cluster)
        expected = bytes(c for c in LETTERS if (start or b"") <= bytes([c]) and (stop is None or bytes([c]) < stop))
        scanner = client.scan("t", start, stop)
        assert _rows(scanner) == expected
        for tserver, extent in zip(cluster.tservers, cluster.extents, strict=True):
            low, high = start or b"", stop
            if (extent.end_row is not None and low > extent.end_row) or (
                high is not None and extent.prev_row is not None and high <= extent.prev_row and low < high
            ):
                assert tserver.scans == 0
        assert _rows(scanner) == expected, "each iteration is a scan of its own"


def test_pages_of_a_tablet_grow_unless_their_size_is_asked_for() -> None:
    with FakeCluster(*extents_of(b"h"), tservers=2) as cluster, Client.connect(cluster.quorum) as client:
        _filled(cluster)
        assert _rows(client.scan("t")) == LETTERS
        first, second = cluster.tservers
        assert first.pages_asked == [PAGE_BYTES, 2 * PAGE_BYTES, PAGE_BYTES_MAX, PAGE_BYTES_MAX]
        assert second.pages_asked[:2] == [PAGE_BYTES, 2 * PAGE_BYTES]
        first.pages_asked.clear()
        assert _rows(client.scan("t", None, b"h", page_bytes=7)) == b"abcdefg"
        assert first.pages_asked == [7, 7, 7, 7]


def test_cells_and_tables_are_the_same_scan() -> None:
    with FakeCluster() as cluster, Client.connect(cluster.quorum) as client:
        cluster.tservers[0].records += [_record(b"r", b"f", b"1"), _record(b"r", b"g", b"2"), _record(b"s", b"g", b"1")]
        assert list(client.scan("t", families=[b"g"]).cells()) == [
            Cell(b"r", b"g", b"2", b"", 5, b"r"),
            Cell(b"s", b"g", b"1", b"", 5, b"s"),
        ]
        assert client.scan("t", columns=[(b"f", b"1"), (b"g", b"1")]).table().num_rows == 2
        assert client.scan("t", b"x").table().num_rows == 0


def test_a_tablet_that_moves_in_the_middle_is_read_on_where_it_is_then() -> None:
    with FakeCluster(*extents_of(b"m"), tservers=2) as cluster, Client.connect(cluster.quorum) as client:
        _filled(cluster)
        got = b""
        for number, batch in enumerate(client.scan("t")):
            got += _rows([batch])
            if number in (2, 9):
                first, second = cluster.tservers
                first.records, second.records = second.records, first.records
                cluster.move(_0=1 if number == 2 else 0, _1=0 if number == 2 else 1)
        assert got == LETTERS


def test_a_tablet_that_nobody_serves_is_waited_for() -> None:
    with FakeCluster() as cluster, Client.connect(cluster.quorum) as client:
        _filled(cluster)
        cluster.move(_0=None)
        attempts = [0]

        def appear(name: str) -> None:
            attempts[0] += name in ("locate", "locate_tablet")
            if attempts[0] == 3:
                cluster.move(_0=0)

        cluster.masters[0].hook = appear
        assert _rows(client.scan("t")) == LETTERS
        assert attempts[0] == 3


def test_a_scan_that_is_left_early_ends() -> None:
    with FakeCluster() as cluster, Client.connect(cluster.quorum) as client:
        _filled(cluster)
        for batch in client.scan("t"):
            assert batch.num_rows == 2
            break
        assert cluster.tservers[0].scans <= 2


def test_a_scan_of_a_missing_table_is_an_error() -> None:
    with FakeCluster() as cluster, Client.connect(cluster.quorum) as client, pytest.raises(NotFoundError):
        client.scan("nope")


@pytest.mark.parametrize(
    "extents",
    [
        [],
        [Extent("1", b"m", None)],
        [Extent("1", None, b"m")],
        [Extent("1", b"m", None), Extent("1", None, b"n")],
        [Extent("1", b"m", None), Extent("1", None, b"l")],
        [Extent("1", b"m", None), Extent("1", b"m", None), Extent("1", None, b"m")],
        [Extent("1", None, None), Extent("1", None, None)],
    ],
)
def test_tablets_that_do_not_cover_every_row_once_are_not_believed(extents: Sequence[Extent]) -> None:
    with pytest.raises(NotServingError):
        table_map(TabletLocation(extent, "h:1") for extent in extents)


def test_tablets_are_found_by_row() -> None:
    found = table_map(TabletLocation(extent, None) for extent in reversed(extents_of(b"b", b"d")))
    assert [found.index_of(row) for row in (b"", b"a", b"b", b"b\x00", b"d", b"d\x00", b"\xff")] == [
        0,
        0,
        0,
        1,
        1,
        2,
        2,
    ]
