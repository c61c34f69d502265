"""Tservers refuse timestamps far ahead from every sender: a delete at one would hide its cell for ever."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from bookkeeper.errors import DeclinedError, InvalidInputError
from bookkeeper.model import Extent, StreamKey
from bookkeeper.rpc.contract.messages import WriteBatch
from bookkeeper.storage.wal.blocks.block import encode_batch
from tests.support.compactions import move
from tests.support.faults import fault
from tests.support.given_files import given_files
from tests.support.jumping_clock import TestClock
from tests.support.must_raise import must_raise
from tests.support.tservers import Ground, ground, records, replicate_request, source_block

pytestmark = pytest.mark.integration

STREAM = StreamKey("east-instance", "their/1.wal", "7", "1", 1)
NEXT = StreamKey("east-instance", "their/2.wal", "7", "1", 1)
WHOLE = Extent("1", None, None)
KEY = (b"a", b"f", b"q")
BOUND_MS = 60_000
FAR = 2**62


@pytest.fixture
def west(tmp_path: Path) -> Iterator[Ground]:
    overrides = {"tserver.wal_sync_interval_ms": 20, "tserver.future_timestamp_max_ms": BOUND_MS}
    with ground(tmp_path / "west", overrides) as made:
        yield made


def _without_bound(west: Ground) -> None:
    tserver = replace(west.settings.tserver, future_timestamp_max_ms=0)
    west.settings = replace(west.settings, tserver=tserver)


def check_users(west: Ground) -> None:
    """A delete far ahead is refused, with the rest of its call; a delete within the bound is accepted."""
    clock = TestClock()
    node = west.local(clock=clock)
    west.assign(node, *west.create_table("1"))
    tserver = west.tserver(node)
    hide = encode_batch(records([(b"a", b"")], timestamp=FAR, delete=True)).to_pybytes()
    good = encode_batch(records([(b"b", b"v")])).to_pybytes()
    with must_raise(
        InvalidInputError,
        "a user's delete far ahead is taken",
        match=r"timestamp 4611686018427387904 lies more than tserver\.future_time",
    ):
        tserver.write([WriteBatch(WHOLE, good), WriteBatch(WHOLE, hide)], "sync", "", 0)
    with pytest.raises(InvalidInputError, match="ahead of this cluster's clock"):
        tserver.write_if(WHOLE, [], hide, "sync")
    assert west.scan(node, WHOLE) == {}
    soon = clock.wall_ms() + 2 * BOUND_MS
    with pytest.raises(InvalidInputError):
        west.write(node, WHOLE, records([(b"a", b"v")], timestamp=soon))
    clock.set_by_ms = BOUND_MS
    assert west.write(node, WHOLE, records([(b"a", b"v")], timestamp=soon)) == ()
    assert west.scan(node, WHOLE) == {KEY: b"v"}


def test_a_user_hides_nothing_for_ever(west: Ground) -> None:
    check_users(west)


def test_without_its_rule_a_user_does(west: Ground) -> None:
    with fault("any-time-will-do"), pytest.raises(AssertionError, match="a user's delete far ahead is taken"):
        check_users(west)


def check_peers(west: Ground) -> None:
    """A block with such a delete is refused for good, and other streams go on."""
    node = west.local()
    west.assign(node, *west.create_table("1"))
    tserver = west.tserver(node)
    token, other = tserver.open_stream(STREAM), tserver.open_stream(NEXT)
    good = source_block(1, records([(b"a", b"v")], timestamp=5))
    hide = source_block(2, records([(b"a", b"")], timestamp=FAR, delete=True))
    with must_raise(InvalidInputError, "a peer's delete far ahead is taken", match="ahead of this cluster's clock"):
        tserver.replicate(replicate_request(token, STREAM, 0, 0, 2, [good, hide]))
    assert west.scan(node, WHOLE) == {}
    assert tserver.replicate(replicate_request(token, STREAM, 0, 0, 1, [good])).records_applied == 1
    assert tserver.replicate(replicate_request(other, NEXT, 0, 0, 1, [good])).records_applied == 1
    assert west.scan(node, WHOLE) == {KEY: b"v"}


def test_a_peer_hides_nothing_for_ever(west: Ground) -> None:
    check_peers(west)


def test_without_its_rule_a_peer_does(west: Ground) -> None:
    with fault("any-time-will-do"), pytest.raises(AssertionError, match="a peer's delete far ahead is taken"):
        check_peers(west)


def test_a_segment_transfer_of_a_peer_neither(west: Ground, tmp_path: Path) -> None:
    node = west.local()
    west.assign(node, *west.create_table("1"))
    given = given_files(
        tmp_path / "east", [records([(b"a", b"1")], timestamp=5), records([(b"b", b"2")], timestamp=FAR)]
    )
    with pytest.raises(DeclinedError, match="timestamp 4611686018427387904: at most"):
        given.send_whole(west, node)
    with pytest.raises(InvalidInputError, match="ahead of this cluster's clock"):
        given.send_records(west, node)
    assert west.scan(node, WHOLE) == {}


def test_without_a_bound_any_time_is_taken_and_what_is_in_a_log_is_recovered(west: Ground) -> None:
    bounded = west.settings
    _without_bound(west)
    node = west.local()
    west.assign(node, *west.create_table("1"))
    west.write(node, WHOLE, records([(b"a", b"v")], timestamp=FAR))
    west.settings = bounded
    other = move(west, node, WHOLE)
    assert west.scan(other, WHOLE) == {KEY: b"v"}
