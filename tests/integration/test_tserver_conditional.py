"""Conditional writes: the check and the write are one step beside other writes."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bookkeeper.client import absent, equals
from bookkeeper.coordination.config_changes import set_read_only
from bookkeeper.errors import ConditionalRefusedError, InvalidInputError, NotServingError, ReadOnlyError
from bookkeeper.model import Extent, StreamKey
from bookkeeper.rpc.contract.messages import Condition
from bookkeeper.storage.wal.blocks.block import encode_batch
from bookkeeper.tserver.tablets.tablet import tablet_records
from bookkeeper.tserver.write.conditional_write import CONDITIONS_MAX, ConditionalWrite
from bookkeeper.tserver.write.control_submissions import SyncSubmission
from tests.support.must_raise import must_raise
from tests.support.prepared_imports import prepared_import
from tests.support.tservers import (
    Ground,
    LocalNode,
    ground,
    records,
    replicate_request,
    source_block,
    wait_until,
)

pytestmark = pytest.mark.integration

ROW = b"r"


@pytest.fixture
def west(tmp_path: Path) -> Iterator[Ground]:
    with ground(tmp_path / "west", {"tserver.wal_sync_interval_ms": 20}) as made:
        yield made


def _served(west: Ground) -> tuple[LocalNode, Extent]:
    (extent,) = west.create_table("1")
    node = west.local()
    west.assign(node, extent)
    return node, extent


def _write_if(
    west: Ground, node: LocalNode, extent: Extent, conditions: Sequence[Condition], value: bytes, row: bytes = ROW
) -> bool:
    batch = encode_batch(records([(row, value)])).to_pybytes()
    return west.tserver(node).write_if(extent, list(conditions), batch, "sync")


def _value(west: Ground, node: LocalNode, extent: Extent) -> bytes | None:
    return west.scan(node, extent).get((ROW, b"f", b"q"))


def test_a_row_is_written_if_its_cells_are_as_said(west: Ground) -> None:
    node, extent = _served(west)
    is_new = absent(b"f", b"q")
    assert _write_if(west, node, extent, [is_new], b"1")
    assert not _write_if(west, node, extent, [is_new], b"2")
    assert not _write_if(west, node, extent, [equals(b"f", b"q", b"2")], b"3")
    assert not _write_if(west, node, extent, [equals(b"f", b"q", b"1"), equals(b"f", b"other", b"")], b"3")
    assert _write_if(west, node, extent, [equals(b"f", b"q", b"1"), absent(b"f", b"other")], b"3")
    assert _value(west, node, extent) == b"3"
    west.tserver(node).flush_tablet(extent)
    assert not _write_if(west, node, extent, [equals(b"f", b"q", b"1")], b"4")
    assert _write_if(west, node, extent, [equals(b"f", b"q", b"3")], b"4")
    west.write(node, extent, records([(ROW, b"")], delete=True))
    assert not _write_if(west, node, extent, [equals(b"f", b"q", b"4")], b"5")
    assert _write_if(west, node, extent, [is_new], b"5")
    assert not _write_if(west, node, extent, [absent(b"f", b"q", b"")], b"6")
    assert _write_if(west, node, extent, [absent(b"f", b"q", b"secret")], b"6")


def test_of_many_at_once_each_condition_holds_for_one(west: Ground) -> None:
    """Counters in the commit thread's queue at the same moment: each number is written by exactly one of them."""
    node, extent = _served(west)
    west.write(node, extent, records([(ROW, b"0")]))
    path = node.process.parts.writing.path
    tablet = node.process.parts.tablets.registry.serving(extent)
    row_records = [tablet_records(records([(ROW, b"%d" % number)])) for number in range(1, 9)]
    writes = [ConditionalWrite(path.context, tablet, one, [equals(b"f", b"q", b"0")], None) for one in row_records]
    gate = _Gate()
    with ThreadPoolExecutor(9) as pool:
        held = pool.submit(path.commit, gate)
        assert gate.reached.wait(60)
        results = [pool.submit(path.judge, write) for write in writes]
        everything = sum(write.approx_bytes for write in writes)
        wait_until(lambda: node.process.parts.writing.committer.queued_bytes == everything, "all of them in the queue")
        gate.open.set()
        held.result(60)
        assert [result.result(60) for result in results].count(True) == 1, (
            "a condition holds for several writes at once"
        )


class _Gate(SyncSubmission):
    """Stops the commit thread until it is opened."""

    def __init__(self) -> None:
        self.reached, self.open = threading.Event(), threading.Event()

    def take_effect(self) -> None:
        self.reached.set()
        assert self.open.wait(60)


def test_increments_of_many_clients_are_all_counted(west: Ground) -> None:
    node, extent = _served(west)
    west.write(node, extent, records([(ROW, b"0")]))

    def add(times: int) -> None:
        while times:
            seen = _value(west, node, extent)
            assert seen is not None
            times -= _write_if(west, node, extent, [equals(b"f", b"q", seen)], b"%d" % (int(seen) + 1))

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(add, 10) for _ in range(4)]:
            done.result(120)
    assert _value(west, node, extent) == b"40"


def test_a_replicated_table_takes_no_conditional_write(west: Ground) -> None:
    node, extent = _served(west)
    assert _write_if(west, node, extent, [absent(b"f", b"q")], b"1")
    west.enable("1")
    west.tserver(node).confirm_config(west.coordination.generation())
    for condition in (equals(b"f", b"q", b"1"), equals(b"f", b"q", b"no")):
        with must_raise(
            ConditionalRefusedError,
            "a replicated table takes a conditional write",
            match=r"table1 is replicated to east.*disablereplication -t table1",
        ):
            _write_if(west, node, extent, [condition], b"2")
    west.write(node, extent, records([(b"free", b"")]))
    assert _value(west, node, extent) == b"1"


def test_a_tablet_that_another_cluster_sends_to_takes_one_only_if_its_table_may_differ(west: Ground) -> None:
    node, extent = _served(west)
    stream = StreamKey("i-east", "their/1.wal", "7", "1", 1)
    tserver = west.tserver(node)
    sent = replicate_request(
        tserver.open_stream(stream), stream, 0, 0, 1, [source_block(1, records([(ROW, b"1")], timestamp=5))]
    )
    tserver.replicate(sent)
    for condition in (equals(b"f", b"q", b"1"), equals(b"f", b"q", b"no")):
        with must_raise(
            ConditionalRefusedError,
            "a table takes a conditional write that its source does not have",
            match=r"gets records of instance i-east.*config -t table1 -s table\.conditional\.received=true",
        ):
            _write_if(west, node, extent, [condition], b"2")
    west.set_properties("1", {"table.conditional.received": "true"})
    tserver.confirm_config(west.coordination.generation())
    assert _write_if(west, node, extent, [equals(b"f", b"q", b"1")], b"2")
    assert _value(west, node, extent) == b"2"


def test_an_import_forbids_no_conditional_write(west: Ground) -> None:
    node, extent = _served(west)
    tserver = west.tserver(node)
    tserver.adopt_segments(prepared_import(west, extent, records([(ROW, b"1")], timestamp=5)))
    assert _write_if(west, node, extent, [equals(b"f", b"q", b"1")], b"2")


def test_a_read_only_cluster_takes_none_either(west: Ground) -> None:
    node, extent = _served(west)
    set_read_only(west.coordination, True)
    west.tserver(node).confirm_config(west.coordination.generation())
    with pytest.raises(ReadOnlyError):
        _write_if(west, node, extent, [absent(b"f", b"q")], b"1")


def test_what_can_t_be_judged_is_refused(west: Ground) -> None:
    node, extent = _served(west)
    two_rows = encode_batch(records([(b"a", b""), (b"b", b"")])).to_pybytes()
    with pytest.raises(InvalidInputError, match="one row"):
        west.tserver(node).write_if(extent, [absent(b"f", b"q")], two_rows, "sync")
    for conditions in ([], [absent(b"f", b"%d" % number) for number in range(CONDITIONS_MAX + 1)]):
        with pytest.raises(InvalidInputError, match="conditions"):
            _write_if(west, node, extent, conditions, b"1")
    with pytest.raises(NotServingError):
        _write_if(west, node, Extent("1", b"m", None), [absent(b"f", b"q")], b"1")
    assert west.scan(node, extent) == {}
