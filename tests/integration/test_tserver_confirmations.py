"""A source asks for records that were acknowledged: a tserver counts those that are missing, and takes none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from bookkeeper.errors import StreamOverError
from bookkeeper.model import StreamKey
from tests.integration.test_tserver_borders import LEFT, RIGHT, STREAM, WHOLE, let_go, merge, send
from tests.support.must_raise import must_raise
from tests.support.tservers import Ground, LocalNode, ground, records, replicate_request, source_block

pytestmark = pytest.mark.integration


@pytest.fixture
def west(tmp_path: Path) -> Iterator[Ground]:
    with ground(tmp_path / "west", {"tserver.wal_sync_interval_ms": 20}) as made:
        yield made


def missing(west: Ground, node: LocalNode, last: int, *rows: bytes, stream: StreamKey = STREAM) -> int | None:
    """How many of the records of a block that ends at ``last`` are missing."""
    first = last - len(rows) + 1
    block = source_block(first, records([(row, b"v") for row in rows], timestamp=5))
    request = replicate_request("", stream, first - 1, first - 1, last, [block])
    answer = west.tserver(node).replicate(replace(request, confirms=True))
    assert answer.records_applied == 0
    return answer.records_missing


def test_the_missing_records_of_each_tablet_are_counted_and_not_taken(west: Ground) -> None:
    """One tserver has a tablet, another one the other."""
    west.create_table("1", [b"m"])
    first, second = west.local(), west.local()
    west.assign(first, LEFT)
    west.assign(second, RIGHT)
    assert send(west, first, 0, 0, b"a", b"z") == (2, 0)
    assert missing(west, first, 2, b"a", b"z") == missing(west, second, 2, b"a", b"z") == 0
    assert missing(west, second, 4, b"b", b"y") == missing(west, first, 4, b"b", b"y") == 2, "the question took records"
    assert missing(west, first, 4, b"c", b"y") == 2
    assert set(west.scan(first, LEFT)) == {(b"a", b"f", b"q")}
    assert send(west, first, 2, 2, b"b") == (1, 0)
    assert missing(west, first, 3, b"b") == 0


def test_rows_of_a_merged_tablet_that_have_more_than_others_lack_nothing(west: Ground) -> None:
    west.create_table("1", [b"m"])
    node = west.local()
    west.assign(node, LEFT, RIGHT)
    assert send(west, node, 0, 0, b"a") == (1, 0)
    assert send(west, node, 1, 1, b"z", b"y") == (2, 0)
    merge(west, let_go(west, (node, LEFT), (node, RIGHT)))
    other = west.local()
    west.assign(other, WHOLE)
    assert missing(west, other, 3, b"z", b"y") == 0
    assert missing(west, other, 3, b"z", b"b") == 1


def test_a_stream_that_is_not_known_is_told_from_one_that_lacks_everything(west: Ground) -> None:
    west.create_table("1")
    node = west.local()
    west.assign(node, WHOLE)
    with must_raise(StreamOverError, "a stream that may be over counts as lost"):
        missing(west, node, 1, b"a")
    west.tserver(node).open_stream(STREAM)
    assert missing(west, node, 1, b"a") == 1
