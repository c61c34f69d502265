"""The rights of a peer with its own secret at a tserver: for itself, and for the tables that its secret opens."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from bookkeeper.errors import BookkeeperError, UnauthorizedError
from bookkeeper.metadata.values import SegmentEntry
from bookkeeper.model import Extent, StreamKey
from bookkeeper.origins import Root, Runs, root_of
from bookkeeper.rpc.contract.messages import PROTOCOL_VERSION, Hello, OfferedSegment, SegmentPart, SegmentsOffer
from bookkeeper.rpc.contract.services import TServer
from bookkeeper.rpc.contract.tables import PEER_METHODS
from bookkeeper.rpc.rpc_pool import RpcPool
from bookkeeper.security.access import file_credentials
from bookkeeper.security.secret_store import SecretStore
from bookkeeper.storage.wal.blocks.block_origins import BlockOrigins, block_origins_to_pb, exact_claims
from tests.support.faults import fault
from tests.support.tservers import Ground, ground, records, replicate_request, source_block, wait_until

pytestmark = pytest.mark.integration

OWN = StreamKey("i-east", "their/1.wal", "7", "1", 1)
BLOCK = source_block(1, records([(b"a", b"v")], timestamp=5))

CALLS: dict[str, Callable[[TServer, str, StreamKey], object]] = {
    "open_stream": lambda tserver, _, stream: tserver.open_stream(stream),
    "replicate": lambda tserver, token, stream: tserver.replicate(replicate_request(token, stream, 0, 0, 1, [BLOCK])),
    "offer_segments": lambda tserver, token, stream: tserver.offer_segments(
        SegmentsOffer(token, stream, (stream.source_instance_id,), 1, (), 0, 0, 0, ())
    ),
    "put_segment": lambda tserver, token, stream: tserver.put_segment(SegmentPart(token, stream, 0, 0, b"x")),
    "take_segments": lambda tserver, token, stream: tserver.take_segments(token, stream),
}
"""Every method that a peer may call, about any stream."""


@pytest.fixture
def west(tmp_path: Path) -> Iterator[Ground]:
    with ground(tmp_path / "west", {"tserver.wal_sync_interval_ms": 20}) as made:
        yield made


def _may(call: Callable[[TServer, str, StreamKey], object], tserver: TServer, token: str, stream: StreamKey) -> bool:
    """Whether the call gets past the question who may make it."""
    try:
        call(tserver, token, stream)
    except UnauthorizedError:
        return False
    except BookkeeperError:
        return True
    return True


def test_a_peer_reaches_its_own_streams_in_the_tables_that_its_secret_opens(west: Ground) -> None:
    assert set(CALLS) == PEER_METHODS["TServer"] - {"hello"}
    node = west.local()
    for table in ("1", "2"):
        west.assign(node, *west.create_table(table))
    store, own = SecretStore(west.settings.directory), west.settings.instance
    made = store.make_for_peer("east", own.name, own.instance_id, "i-east", ["table1"])
    hello = Hello(PROTOCOL_VERSION, "i-east", "east", "replay")
    with closing(RpcPool(hello, west.settings.rpc, None, file_credentials(made.path))) as pool:
        tserver = pool.tserver(node.address)
        token = tserver.open_stream(OWN)
        assert CALLS["replicate"](tserver, token, OWN)
        others = replace(OWN, source_instance_id="i-north")
        elsewhere, nowhere = (replace(OWN, target_table_id=table) for table in ("2", "99"))

        def reached(stream: StreamKey) -> set[str]:
            return {name for name, call in CALLS.items() if _may(call, tserver, token, stream)}

        assert [reached(stream) for stream in (OWN, others, elsewhere, nowhere)] == [set(CALLS), set(), set(), set()]
        store.change_rights("east", lambda found: replace(found, tables=("table2",)))
        wait_until(lambda: [reached(stream) for stream in (OWN, elsewhere)] == [set(), set(CALLS)], "the other table")
        store.change_rights("east", lambda found: replace(found, all_tables=True))
        wait_until(lambda: reached(OWN) == set(CALLS), "every table")
        assert [reached(stream) for stream in (others, elsewhere)] == [set(), set(CALLS)]


# ---- origins


def _caller(west: Ground, instance_id: str, relays: Sequence[str] = ()) -> RpcPool:
    """A process of another cluster, with the secret that the operator of west made for it."""
    store, own = SecretStore(west.settings.directory), west.settings.instance
    made = store.make_for_peer(instance_id[2:], own.name, own.instance_id, instance_id, ["table1"], relays=relays)
    return RpcPool(
        Hello(PROTOCOL_VERSION, instance_id, instance_id[2:], "replay"), west.settings.rpc, None,
        file_credentials(made.path),
    )  # fmt: skip


NORTH = StreamKey("i-north", "their/1.wal", "7", "1", 1)
HIDDEN = 3
"""Records of north that east says it brings."""


def _relayed(tserver: TServer, value: bytes) -> int:
    """East sends records in its own stream, as the first ones of north's log; the number that were applied."""
    token, root = tserver.open_stream(OWN), root_of(NORTH)
    sections = ((root, Runs.of((1, HIDDEN))),)
    told = block_origins_to_pb(BlockOrigins(sections, exact_claims(sections)), root_of(OWN)).SerializeToString()
    batch = records([(b"%d" % number, value) for number in range(HIDDEN)], timestamp=5)
    request = replicate_request(token, OWN, 0, 0, HIDDEN, [replace(source_block(1, batch), block_origins=told)])
    return tserver.replicate(replace(request, provenance=("i-north", "i-east"))).records_applied


def _by_north(tserver: TServer) -> int:
    """North sends the first records of its log itself; the number that were applied."""
    batch = records([(b"%d" % number, b"of north") for number in range(HIDDEN)], timestamp=6)
    request = replicate_request(tserver.open_stream(NORTH), NORTH, 0, 0, HIDDEN, [source_block(1, batch)])
    return tserver.replicate(request).records_applied


def _nothing_is_hidden(west: Ground) -> None:
    node = west.local()
    extent: Extent = west.create_table("1")[0]
    west.assign(node, extent)
    with closing(_caller(west, "i-east")) as east, closing(_caller(west, "i-north")) as north:
        assert _relayed(east.tserver(node.address), b"of east") == HIDDEN
        applied = _by_north(north.tserver(node.address))
        assert applied == HIDDEN, f"R22: a peer has hidden {HIDDEN - applied} records of another cluster"
    assert set(west.scan(node, extent).values()) == {b"of north"}


def test_r22_a_peer_hides_no_records_of_another_cluster(west: Ground) -> None:
    _nothing_is_hidden(west)


def test_r22_without_its_rule_a_peer_hides_them(west: Ground) -> None:
    with (
        fault("relays-need-no-name"),
        pytest.raises(AssertionError, match="a peer has hidden 3 records of another cluster"),
    ):
        _nothing_is_hidden(west)


def test_r22_a_relay_that_the_operator_named_is_believed(west: Ground) -> None:
    node = west.local()
    extent = west.create_table("1")[0]
    west.assign(node, extent)
    with closing(_caller(west, "i-east", ["i-north"])) as east, closing(_caller(west, "i-north")) as north:
        assert _by_north(north.tserver(node.address)) == HIDDEN
        assert _relayed(east.tserver(node.address), b"of north") == 0, "R22: a record is applied once on two paths"


def _files_hide_nothing(west: Ground) -> None:
    node = west.local()
    west.assign(node, *west.create_table("1"))
    root = Root("i-north", "their/1.wal", "7").encode()
    entry = SegmentEntry("default", HIDDEN, 9, b"a", b"c", 1, HIDDEN, 1).encode()
    with closing(_caller(west, "i-east")) as east:
        tserver = east.tserver(node.address)
        token, passed = tserver.open_stream(OWN), ("i-north", "i-east")
        offer = SegmentsOffer(token, OWN, passed, HIDDEN, (), 9, 9, 9, (OfferedSegment(entry, "0" * 64),), root)
        answer = tserver.offer_segments(offer)
    assert (answer.state, "a relay of instance i-north" in answer.reason) == ("declined", True), (
        "R22: a peer's files count as those of another cluster"
    )


def test_r22_files_of_a_relay_that_nobody_named_come_as_records(west: Ground) -> None:
    _files_hide_nothing(west)


def test_r22_without_its_rule_files_hide_records(west: Ground) -> None:
    with (
        fault("files-need-no-relay"),
        pytest.raises(AssertionError, match="a peer's files count as those of another cluster"),
    ):
        _files_hide_nothing(west)
