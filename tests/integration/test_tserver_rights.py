"""The rights of a peer with its own secret at a tserver: for itself, and for the tables that its secret opens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from bookkeeper.errors import BookkeeperError, UnauthorizedError
from bookkeeper.model import StreamKey
from bookkeeper.rpc.contract.messages import PROTOCOL_VERSION, Hello, SegmentPart, SegmentsOffer
from bookkeeper.rpc.contract.services import TServer
from bookkeeper.rpc.contract.tables import PEER_METHODS
from bookkeeper.rpc.rpc_pool import RpcPool
from bookkeeper.security.access import file_credentials
from bookkeeper.security.secret_store import SecretStore
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
        store.change_tables("east", lambda found: replace(found, tables=("table2",)))
        wait_until(lambda: [reached(stream) for stream in (OWN, elsewhere)] == [set(), set(CALLS)], "the other table")
        store.change_tables("east", lambda found: replace(found, all_tables=True))
        wait_until(lambda: reached(OWN) == set(CALLS), "every table")
        assert [reached(stream) for stream in (others, elsewhere)] == [set(), set(CALLS)]
