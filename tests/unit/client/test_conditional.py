"""Conditional writes of a client: sent again only when nobody can have taken them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from bookkeeper.client import Client, Mutation, absent, equals, tablet_extents
from bookkeeper.errors import (
    BookkeeperError,
    ConditionalRefusedError,
    CorruptionError,
    NotServingError,
    OverloadedError,
    TransientError,
    UnavailableError,
)
from bookkeeper.model import Extent
from bookkeeper.rpc.contract.messages import Condition
from bookkeeper.storage.wal.blocks.block import decode_batch
from tests.support.fake_cluster import FakeCluster, FakeTServer, extents_of
from tests.support.faults import fault


class Judge(FakeTServer):
    """A tserver that answers conditional writes by a script: its errors and answers, in turn."""

    def __init__(self) -> None:
        super().__init__()
        self.script: list[BookkeeperError | bool] = []
        self.asked: list[tuple[Extent, tuple[Condition, ...], list[dict[str, Any]], str]] = []

    def write_if(self, extent: Extent, conditions: Sequence[Condition], records: bytes, durability: str) -> bool:
        self.asked.append((extent, tuple(conditions), decode_batch(records).to_pylist(), durability))
        answer = self.script.pop(0)
        if isinstance(answer, BookkeeperError):
            raise answer
        return answer


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    made = FakeCluster(*extents_of(b"m"))
    made.tservers = [Judge()]
    with made:
        yield made


def _judge(cluster: FakeCluster, *script: BookkeeperError | bool) -> Judge:
    judge = cluster.tservers[0]
    assert isinstance(judge, Judge)
    judge.script = list(script)
    return judge


def _mutation() -> Mutation:
    return Mutation(b"x").put(b"f", b"q", b"new").delete(b"f", b"old")


def test_the_answer_is_the_tservers_and_the_row_goes_whole_to_its_tablet(cluster: FakeCluster) -> None:
    conditions = [equals(b"f", b"q", b"old"), absent(b"f", b"other", b"label")]
    judge = _judge(cluster, True, False)
    with Client.connect(cluster.quorum) as client:
        assert client.write_if("t", _mutation(), conditions)
        assert not client.write_if("t", _mutation(), conditions, durability="flush")
    extent, asked, records, durability = judge.asked[0]
    assert (extent, list(asked), durability) == (cluster.extents[1], conditions, "default")
    assert [(record["row"], record["qualifier"], record["delete"]) for record in records] == [
        (b"x", b"q", False),
        (b"x", b"old", True),
    ]
    assert judge.asked[1][3] == "flush"


def test_a_tserver_that_refused_a_write_is_asked_again(cluster: FakeCluster) -> None:
    judge = _judge(cluster, NotServingError("moved"), OverloadedError("busy"), True)
    with Client.connect(cluster.quorum) as client:
        assert client.write_if("t", _mutation(), [absent(b"f", b"q")])
    assert len(judge.asked) == 3


@pytest.mark.parametrize("lost", [UnavailableError("the answer was lost"), TransientError("who knows")])
def test_what_may_have_been_written_is_not_sent_again_and_said(cluster: FakeCluster, lost: TransientError) -> None:
    judge = _judge(cluster, lost, True)
    with (
        Client.connect(cluster.quorum) as client,
        pytest.raises(UnavailableError, match="not known whether row b'x' was written") as caught,
    ):
        client.write_if("t", _mutation(), [absent(b"f", b"q")])
    assert caught.value.details == {"unknown": "yes"}
    assert len(judge.asked) == 1


def test_a_refusal_comes_through_as_it_is(cluster: FakeCluster) -> None:
    _judge(cluster, ConditionalRefusedError("replicated"))
    with Client.connect(cluster.quorum) as client, pytest.raises(ConditionalRefusedError, match="replicated"):
        client.write_if("t", _mutation(), [absent(b"f", b"q")])


@pytest.mark.parametrize("is_assigned", [True, False])
def test_a_tablet_that_a_person_has_to_help_ends_it_long_before_its_deadline(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, is_assigned: bool
) -> None:
    monkeypatch.setattr(tablet_extents, "UNSERVABLE_MS", 200)
    judge = _judge(cluster, *(NotServingError("not loaded") for _ in range(1_000)))
    cluster.problems[cluster.extents[1]] = "log x is damaged; restore the file"
    if not is_assigned:
        cluster.move(_1=None)
    with Client.connect(cluster.quorum) as client:
        with pytest.raises(CorruptionError, match=r"can serve tablet .*: log x is damaged; restore the file"):
            client.write_if("t", _mutation(), [absent(b"f", b"q")], deadline_ms=3_600_000)
        judge.script = [True]
        assert client.write_if("t", Mutation(b"a").put(b"f", b"q", b"v"), []), "the other tablet needs no help"


def test_who_serves_it_after_all_has_the_last_word(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tablet_extents, "UNSERVABLE_MS", 3_600_000)
    judge = _judge(cluster, NotServingError("not loaded"), NotServingError("not loaded"), True)
    cluster.problems[cluster.extents[1]] = "log x is damaged; restore the file"
    with Client.connect(cluster.quorum) as client:
        assert client.write_if("t", _mutation(), [absent(b"f", b"q")])
    assert len(judge.asked) == 3


def test_without_that_rule_a_waiting_caller_learns_the_reason_at_the_very_end(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tablet_extents, "UNSERVABLE_MS", 200)
    _judge(cluster, *(NotServingError("not loaded") for _ in range(1_000)))
    cluster.problems[cluster.extents[1]] = "log x is damaged; restore the file"
    with (
        fault("damage-is-waited-for"),
        Client.connect(cluster.quorum) as client,
        pytest.raises(NotServingError, match="not loaded"),
    ):
        client.write_if("t", _mutation(), [absent(b"f", b"q")], deadline_ms=1_000)
