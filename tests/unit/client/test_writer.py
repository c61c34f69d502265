"""The batch writer over real calls and failing tservers: every mutation arrives, each row in order, or an error names
it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest

from bookkeeper.client import BatchWriter, Client, Mutation, batch_writer, tablet_extents
from bookkeeper.errors import (
    BookkeeperError,
    CorruptionError,
    InvalidInputError,
    NotFoundError,
    OverloadedError,
    RefusedError,
    UnavailableError,
)
from bookkeeper.model import MUTATION_SCHEMA
from bookkeeper.rpc.contract.messages import WriteBatch
from bookkeeper.storage.wal.blocks.block import decode_batch
from tests.support.fake_cluster import FakeCluster, extents_of
from tests.support.tservers import wait_until

SMALL: dict[str, Any] = {"batch_bytes": 2_000, "request_bytes": 4_000}


def _put(row: bytes, number: int, size: int = 0) -> Mutation:
    return Mutation(row).put(b"f", b"q", b"%d" % number + b"." * size)


def _orders(cluster: FakeCluster) -> dict[bytes, list[int]]:
    """Numbers of each row in the order in which its tservers took them."""
    found: dict[bytes, list[int]] = {}
    for record in cluster.records():
        found.setdefault(record["row"], []).append(int(record["value"].rstrip(b".")))
    return found


def _times(count: int, error: BookkeeperError) -> Callable[[Sequence[WriteBatch]], None]:
    """Raise the error at the first ``count`` writes."""
    unwritten = [count]

    def fail(_: Sequence[WriteBatch]) -> None:
        if unwritten[0]:
            unwritten[0] -= 1
            raise error

    return fail


def test_everything_added_is_there_when_the_writer_ends() -> None:
    with FakeCluster(*extents_of(b"g", b"p"), tservers=2) as cluster, Client.connect(cluster.quorum) as client:
        with client.writer("t", durability="flush", **SMALL) as writer:
            for number in range(1, 301):
                writer.add(_put(b"abcdefghijklmnopqrstuvwxyz"[number % 26 : number % 26 + 1], number))
        orders = _orders(cluster)
        assert sum(map(len, orders.values())) == 300
        assert all(numbers == sorted(numbers) for numbers in orders.values())
        assert {d for t in cluster.tservers for d in t.durabilities} == {"flush"}
        assert all(t.writes for t in cluster.tservers)


def test_flush_returns_when_what_was_added_before_is_written() -> None:
    with FakeCluster() as cluster, Client.connect(cluster.quorum) as client, client.writer("t") as writer:
        writer.flush()
        for number in range(1, 4):
            writer.add_all([_put(b"r", number)])
            assert _orders(cluster).get(b"r", []) == list(range(1, number))
            writer.flush()
            assert _orders(cluster)[b"r"] == list(range(1, number + 1))


def test_arrow_batches_and_tables_go_through_between_mutations_in_order() -> None:
    with FakeCluster() as cluster, Client.connect(cluster.quorum) as client:
        with client.writer("t", **SMALL) as writer:
            writer.add(_put(b"r", 1))
            writer.add_batch(
                pa.RecordBatch.from_pydict(
                    {
                        "row": [b"r"] * 3,
                        "family": [b"f"] * 3,
                        "qualifier": [b"q"] * 3,
                        "value": [b"2", b"3", b"4"],
                        "timestamp": [7, None, 9],
                    }
                )
            )
            writer.add(_put(b"r", 5))
            batch = pa.RecordBatch.from_pylist(
                [
                    {
                        "row": b"%03d" % n,
                        "family": b"f",
                        "qualifier": b"q",
                        "visibility": b"",
                        "timestamp": None,
                        "delete": False,
                        "value": b"%d" % n,
                    }
                    for n in range(200)
                ],
                schema=MUTATION_SCHEMA,
            )
            writer.add_batch(pa.Table.from_batches([batch]))
        records = cluster.records()
        assert [int(r["value"]) for r in records if r["row"] == b"r"] == [1, 2, 3, 4, 5]
        assert [r["timestamp"] for r in records if r["row"] == b"r"] == [None, 7, None, 9, None]
        assert len(records) == 205


def test_a_row_keeps_its_order_while_its_tablet_moves_and_tservers_are_full() -> None:
    with FakeCluster(*extents_of(b"g", b"p"), tservers=3) as cluster, Client.connect(cluster.quorum) as client:
        ended = threading.Event()

        def trouble() -> None:
            turn = 0
            while not ended.wait(0.03):
                turn += 1
                cluster.move(_0=turn % 3, _1=(turn // 2) % 3, _2=None if turn % 5 == 0 else turn % 2)
                if turn < 20:
                    cluster.tservers[turn % 3].before = _times(1, OverloadedError("full"))

        troubling = threading.Thread(target=trouble)
        troubling.start()
        try:
            with client.writer("t", **SMALL) as writer:
                for number in range(1, 501):
                    for row in (b"a", b"h", b"z"):
                        writer.add(_put(row, number, 100))
        finally:
            ended.set()
            troubling.join()
        for tserver in cluster.tservers:
            for row in (b"a", b"h", b"z"):
                numbers = [int(r["value"].rstrip(b".")) for r in tserver.records if r["row"] == row]
                assert numbers == sorted(numbers)
        assert {row: sorted(numbers) for row, numbers in _orders(cluster).items()} == {
            row: list(range(1, 501)) for row in (b"a", b"h", b"z")
        }


def test_a_write_whose_answer_was_lost_is_sent_again_before_anything_later() -> None:
    with FakeCluster() as cluster, Client.connect(cluster.quorum) as client:
        cluster.tservers[0].after = _times(2, UnavailableError("the answer is lost"))
        with client.writer("t", **SMALL) as writer:
            for number in range(1, 40):
                writer.add(_put(b"r", number, 300))
        numbers = _orders(cluster)[b"r"]
        assert set(numbers) == set(range(1, 40))
        last_seen = {number: at for at, number in enumerate(numbers)}
        assert [last_seen[n] for n in range(1, 40)] == sorted(last_seen.values())


def test_records_whose_tserver_never_answers_go_where_their_tablet_is_by_now() -> None:
    """A machine without power never answers; here a tserver that answers others, and not this call."""
    gate = threading.Event()
    with FakeCluster(tservers=2) as cluster, Client.connect(cluster.quorum) as client:
        silent, other = cluster.tservers
        written = [0]

        def hang(_: Sequence[WriteBatch]) -> None:
            written[0] += 1
            gate.wait()

        silent.after = hang
        writer = client.writer("t", call_timeout_ms=3_600_000)
        writer.add(_put(b"r", 1))
        flushing = threading.Thread(target=writer.flush)
        flushing.start()
        wait_until(lambda: written[0] == 1, "a write that hangs")
        cluster.move(_0=1)
        flushing.join()
        assert [r["value"] for r in other.records] == [b"1"]
        writer.add(_put(b"r", 2))
        writer.close()  # nobody waits for the call that hangs
        gate.set()
        assert [r["value"] for r in other.records] == [b"1", b"2"]
        assert other.writes == 2


def test_a_slow_write_stays_where_its_tablet_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_writer, "LATE_MS", 1)
    with FakeCluster() as cluster, Client.connect(cluster.quorum) as client:
        master, slow = cluster.masters[0], cluster.tservers[0]

        def ask_often(_: Sequence[WriteBatch]) -> None:
            asked = master.calls.count("locate")
            wait_until(lambda: master.calls.count("locate") > asked + 3, "the writer asks the master")

        slow.before = ask_often
        with client.writer("t") as writer:
            writer.add(_put(b"r", 1))
        assert slow.writes == 1
        assert _orders(cluster)[b"r"] == [1]


def test_a_table_without_a_tserver_is_waited_for_and_then_given_up() -> None:
    with FakeCluster() as cluster, Client.connect(cluster.quorum) as client:
        cluster.move(_0=None)
        writer = client.writer("t", deadline_ms=300)
        writer.add(_put(b"r", 1))
        started = time.monotonic()
        with pytest.raises(
            UnavailableError, match=r"^1 records of table t were not written: not in 300 ms: no tserver"
        ) as caught:
            writer.flush()
        assert time.monotonic() - started >= 0.3
        assert caught.value.details == {"unwritten_records": "1"}
        with pytest.raises(UnavailableError):
            writer.close()
        assert [r["value"] for b in writer.unwritten() for r in b.to_pylist()] == [b"1"]
        with pytest.raises(UnavailableError):
            writer.add(_put(b"r", 2, 3_000_000))
        cluster.move(_0=0)
        with client.writer("t", deadline_ms=300) as another:
            for batch in writer.unwritten():
                another.add_batch(batch)
        assert _orders(cluster)[b"r"][0] == 1


def _make_unservable(cluster: FakeCluster) -> None:
    """The first tablet, given to a tserver that can't load it."""
    first, _ = cluster.extents
    cluster.problems[first] = "log x is damaged; restore the file"
    cluster.tservers[0].serves -= {first}


def test_a_tablet_that_a_person_has_to_help_ends_the_writer_long_before_its_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tablet_extents, "UNSERVABLE_MS", 200)
    with FakeCluster(*extents_of(b"m")) as cluster, Client.connect(cluster.quorum) as client:
        _make_unservable(cluster)
        writer = client.writer("t", deadline_ms=3_600_000)
        writer.add_all([_put(b"a", 1), _put(b"z", 2)])
        with pytest.raises(CorruptionError, match=r"^1 records .*: log x is damaged; restore the file"):
            writer.close()
        assert [r["value"] for batch in writer.unwritten() for r in batch.to_pylist()] == [b"1"]
        assert list(_orders(cluster)) == [b"z"], "the other tablet needs no help"


def test_a_problem_that_is_over_in_time_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tablet_extents, "UNSERVABLE_MS", 3_600_000)
    with FakeCluster(*extents_of(b"m")) as cluster, Client.connect(cluster.quorum) as client:
        _make_unservable(cluster)
        with client.writer("t", batch_bytes=1) as writer:
            writer.add(_put(b"a", 1))
            wait_until(lambda: cluster.masters[0].calls.count("locate") > 3, "a few looks")
            cluster.problems.clear()
            cluster.move()
        assert _orders(cluster)[b"a"] == [1]


def test_a_refusal_ends_the_writer_at_once_and_names_what_is_left() -> None:
    with FakeCluster(*extents_of(b"m"), tservers=2) as cluster, Client.connect(cluster.quorum) as client:
        cluster.tservers[1].before = _times(10**6, RefusedError("the table is read-only"))
        writer = client.writer("t")
        writer.add_all([_put(b"a", 1), _put(b"z", 2), _put(b"z", 3)])
        with pytest.raises(RefusedError, match=r"records of table t were not written: the table is read-only"):
            writer.close()
        unwritten = [r["value"] for batch in writer.unwritten() for r in batch.to_pylist()]
        assert unwritten[-2:] == [b"2", b"3"]
        assert cluster.tservers[1].writes == 0


def test_an_error_in_the_block_is_told_and_what_was_added_is_written() -> None:
    with FakeCluster() as cluster, Client.connect(cluster.quorum) as client:

        def write(number: int) -> None:
            with client.writer("t") as writer:
                writer.add(_put(b"r", number))
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            write(1)
        assert _orders(cluster)[b"r"] == [1]
        cluster.tservers[0].before = _times(10**6, RefusedError("no"))
        with pytest.raises(ZeroDivisionError) as caught:
            write(2)
        assert any("closing the writer failed" in note for note in caught.value.__notes__)


def test_memory_is_bounded_adding_waits_for_slow_tservers() -> None:
    with FakeCluster() as cluster, Client.connect(cluster.quorum) as client:
        gate, most = threading.Event(), [0]

        def slow(_: Sequence[WriteBatch]) -> None:
            assert gate.wait(30)

        cluster.tservers[0].before = slow
        writer = client.writer("t", batch_bytes=10_000, memory_bytes_max=100_000)
        added = [0]

        def add() -> None:
            for number in range(300):
                writer.add(_put(b"r", number, 1_000))
                added[0] += 1
                most[0] = max(most[0], writer._queues.unwritten_bytes)

        adding = threading.Thread(target=add)
        adding.start()
        wait_until(lambda: added[0] >= 50, "some records")
        seen = -1
        while added[0] != seen:  # until it does not get on
            seen = added[0]
            threading.Event().wait(0.2)
        assert added[0] < 150
        gate.set()
        adding.join()
        writer.close()
        assert most[0] <= 100_000
        assert _orders(cluster)[b"r"] == list(range(300))


def test_many_threads_may_add() -> None:
    with FakeCluster(*extents_of(b"m"), tservers=2) as cluster, Client.connect(cluster.quorum) as client:
        with client.writer("t", **SMALL) as writer:

            def add(row: bytes) -> None:
                for number in range(100):
                    writer.add(_put(row, number))
                writer.flush()

            threads = [threading.Thread(target=add, args=(b"%c" % c,)) for c in b"abcxyz"]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert _orders(cluster) == {b"%c" % c: list(range(100)) for c in b"abcxyz"}


def test_one_call_carries_batches_of_several_tablets_up_to_its_bound() -> None:
    with FakeCluster(*extents_of(b"b", b"d", b"f")) as cluster, Client.connect(cluster.quorum) as client:
        calls: list[list[int]] = []

        def see(batches: Sequence[WriteBatch]) -> None:
            calls.append([decode_batch(batch.records).num_rows for batch in batches])
            assert len({batch.extent for batch in batches}) == len(batches)

        cluster.tservers[0].before = see
        with client.writer("t") as writer:
            writer.add_all(_put(row, number) for number in range(25) for row in (b"a", b"c", b"e", b"g"))
        assert calls == [[25, 25, 25, 25]]


def test_a_closed_writer_takes_nothing_and_a_missing_table_has_none() -> None:
    with FakeCluster() as cluster, Client.connect(cluster.quorum) as client:
        writer: BatchWriter = client.writer("t")
        writer.close()
        writer.close()
        with pytest.raises(InvalidInputError, match="closed"):
            writer.add_batch(pa.RecordBatch.from_pydict({n: [b"x"] for n in ("row", "family", "qualifier", "value")}))
        with pytest.raises(InvalidInputError, match="closed"):
            writer.add(_put(b"a", 1))
        with pytest.raises(InvalidInputError, match="closed"):
            writer.add_all([_put(b"a", 1)])
        with pytest.raises(NotFoundError, match="no table nope"):
            client.writer("nope")


def test_each_batch_says_when_its_tablet_was_given_away_as_the_master_said() -> None:
    seen: set[tuple[bytes | None, int | None]] = set()
    with FakeCluster(*extents_of(b"g")) as cluster, Client.connect(cluster.quorum) as client:
        cluster.tservers[0].before = lambda batches: seen.update((b.extent.end_row, b.placed) for b in batches)
        with client.writer("t", **SMALL) as writer:
            writer.add_all([_put(b"a", 1), _put(b"z", 2)])
    assert seen == {(b"g", 1), (None, 2)}
