"""The location cache of a client: a small scan is one call, and a stale entry costs one call more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from bookkeeper.client import Client, Mutation, absent, location_cache
from bookkeeper.errors import NotFoundError, NotServingError
from bookkeeper.model import Extent
from bookkeeper.rpc.channel import Channel
from bookkeeper.rpc.contract.messages import Condition
from tests.support.fake_cluster import FakeCluster, FakeTServer, extents_of
from tests.support.faults import fault


class _Agreeing(FakeTServer):
    """Takes every conditional write."""

    def write_if(self, extent: Extent, conditions: Sequence[Condition], records: bytes, durability: str) -> bool:
        del conditions, records, durability
        return extent in self.serves


def _record(row: bytes, value: bytes = b"") -> dict[str, Any]:
    cell = {"row": row, "family": b"f", "qualifier": b"q", "visibility": b"", "timestamp": 5}
    return {**cell, "delete": False, "value": value}


def _fill(cluster: FakeCluster, *rows: bytes) -> None:
    for row in rows:
        there = next(where for extent, where in cluster.placement.items() if extent.contains(row))
        assert there is not None
        cluster.tservers[there].records.append(_record(row))


def _rows(client: Client) -> list[bytes]:
    return [cell.row for cell in client.scan("t").cells()]


def test_a_scan_and_a_conditional_write_of_a_table_that_was_used_ask_no_master() -> None:
    cluster = FakeCluster(*extents_of(b"m"), tservers=2)
    cluster.tservers = [_Agreeing(), _Agreeing()]
    cluster.move()
    with cluster, Client.connect(cluster.quorum) as client:
        _fill(cluster, b"a", b"z")
        assert _rows(client) == [b"a", b"z"]
        assert cluster.masters[0].calls == ["tables", "locate"]
        for _ in range(3):
            assert _rows(client) == [b"a", b"z"]
            assert client.write_if("t", Mutation(b"x").put(b"f", b"q", b""), [absent(b"f", b"q")])
        assert cluster.masters[0].calls == ["tables", "locate"]
        assert [tserver.scans for tserver in cluster.tservers] == [4, 4]


def test_what_is_remembered_is_asked_for_anew_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    with FakeCluster() as cluster, Client.connect(cluster.quorum) as client:
        _rows(client)
        _rows(client)
        assert cluster.masters[0].calls.count("locate") == 1
        monkeypatch.setattr(location_cache, "CACHED_MS", -1)
        _rows(client)
        assert cluster.masters[0].calls.count("locate") == 2


def test_a_tablet_that_moved_is_found_with_one_question() -> None:
    with FakeCluster(tservers=2) as cluster, Client.connect(cluster.quorum) as client:
        _fill(cluster, b"a")
        assert _rows(client) == [b"a"]
        cluster.move(_0=1)
        _fill(cluster, b"b")
        assert _rows(client) == [b"b"]
        assert cluster.masters[0].calls[1:] == ["locate", "locate_tablet"]
        cluster.move(_0=0)
        with fault("memory-is-the-last-word"), pytest.raises(NotServingError, match="not here"):
            _rows(client)


def test_an_address_that_others_have_by_now_does_not_end_a_scan(monkeypatch: pytest.MonkeyPatch) -> None:
    """The new owner of the address speaks another protocol or proves another secret: no call was sent."""
    with FakeCluster(tservers=2) as cluster, Client.connect(cluster.quorum) as client:
        _fill(cluster, b"a")
        assert _rows(client) == [b"a"]
        gone = cluster.tserver_servers[0].address
        cluster.tserver_servers[0].stop()
        cluster.move(_0=1)
        _fill(cluster, b"b")
        begin = Channel.__init__

        def elsewhere(self: Channel, address: str, *rest: Any) -> None:
            begin(self, cluster.master_servers[0].address if address == gone else address, *rest)

        monkeypatch.setattr(Channel, "__init__", elsewhere)
        assert _rows(client) == [b"b"]


def test_a_table_that_was_deleted_is_missing_when_a_scan_begins() -> None:
    with FakeCluster() as cluster, Client.connect(cluster.quorum) as client:
        _fill(cluster, b"a")
        assert _rows(client) == [b"a"]
        del cluster.masters[0].made["t"]
        cluster.move(_0=None)
        with pytest.raises(NotFoundError):
            _rows(client)


def test_a_table_that_was_made_again_under_its_name_is_the_new_one() -> None:
    with FakeCluster(*extents_of(b"m"), tservers=2) as cluster, Client.connect(cluster.quorum) as client:
        _fill(cluster, b"a", b"z")
        scanner = client.scan("t")
        assert [row for batch in scanner for row in batch.column("row").to_pylist()] == [b"a", b"z"]
        cluster.make_again("2")
        _fill(cluster, b"b", b"y")
        assert _rows(client) == [b"b", b"y"]
        assert [row for batch in scanner for row in batch.column("row").to_pylist()] == [b"b", b"y"]


def _scan_while_made_again() -> list[bytes]:
    with FakeCluster() as cluster, Client.connect(cluster.quorum) as client:
        _fill(cluster, *(bytes([row]) for row in b"abcdefgh"))
        found = []
        for number, batch in enumerate(client.scan("t")):
            found += batch.column("row").to_pylist()
            if number == 0:
                cluster.make_again("2")
                _fill(cluster, *(b"new" + bytes([row]) for row in b"abcdefgh"))
        return found


def test_one_scan_never_shows_two_tables() -> None:
    with pytest.raises(NotFoundError, match="created again"):
        _scan_while_made_again()
    with fault("a-name-is-one-table-for-ever"):
        found = _scan_while_made_again()
    assert found[0] == b"a"
    assert found[-1].startswith(b"new")


def test_a_tablet_that_nobody_serves_yet_is_asked_for_alone_however_long_it_takes() -> None:
    with FakeCluster(*extents_of(b"g", b"m"), tservers=2) as cluster, Client.connect(cluster.quorum) as client:
        _fill(cluster, b"a", b"h", b"z")
        assert _rows(client) == [b"a", b"h", b"z"]
        cluster.move(_1=None)
        asked = cluster.masters[0].calls

        def serve_at_last(_method: str) -> None:
            if asked.count("locate_tablet") == 4:
                cluster.move(_1=1)
                cluster.tservers[1].records.append(_record(b"h"))

        cluster.masters[0].hook = serve_at_last
        assert b"h" in _rows(client)
        assert asked[1:].count("locate") == 1
        assert asked.count("locate_tablet") >= 4


def test_borders_that_changed_are_learned_from_one_tablet_that_is_another() -> None:
    with FakeCluster(*extents_of(b"m"), tservers=2) as cluster, Client.connect(cluster.quorum) as client:
        _fill(cluster, b"a", b"z")
        assert _rows(client) == [b"a", b"z"]
        low, high = cluster.extents
        cluster.extents = [*extents_of(b"g", b"m")[:2], high]
        cluster.placement = dict.fromkeys(cluster.extents, 0)
        cluster.tservers[0].records = [_record(row) for row in (b"a", b"h", b"z")]
        cluster.move()
        assert _rows(client) == [b"a", b"h", b"z"]
        assert low not in cluster.extents
