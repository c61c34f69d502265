"""Calls of the fuzzing client, peer and process: repeatable, of every method, never both right and harmful."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from bookkeeper.errors import InvalidInputError
from bookkeeper.model import Extent, StreamKey, TargetKey
from bookkeeper.rpc.contract.faults import internal_fault, to_fault
from bookkeeper.rpc.contract.messages import (
    HeldReplicaInfo,
    HeldSegment,
    ReplicaPlacement,
    SegmentOffer,
    SegmentRecord,
    StateConfirmation,
    TabletAssignment,
    WorkReport,
    WriteBatch,
)
from bookkeeper.rpc.contract.tables import CLIENT_METHODS, PEER_METHODS, PROCESS_METHODS
from bookkeeper.rpc.frames.envelope import FRAME_HEADER, method_codec
from bookkeeper.storage.wal.blocks.block import encode_batch
from tests.soak.faults import InvariantError
from tests.soak.fuzz import FRAME_BYTES, FUZZ_INSTANCE, Attack, Attacker, Names, harms
from tests.soak.fuzz_inside import Inside
from tests.soak.fuzz_round import judge, process_problems
from tests.support.tservers import records

TERM = 5
OWN, OTHER = Extent("7", None, None), Extent("1", None, None)


LOG = "wal/tserver-1-0a/000001.wal"


def held(host: str) -> HeldReplicaInfo:
    """The replica of the other tablet on a host, with one file."""
    segment = SegmentRecord(TERM << 32, None, True, (), ("tables/1/t-00000/1-a.parquet",), (), ())
    return HeldReplicaInfo(
        extent=OTHER, directory="t-00000", placement=ReplicaPlacement(host, f"p-{host}", f"disk-{host}"), stage="LIVE",
        term=TERM, leader="host1", is_leader=host == "host1", root=TERM << 32, complete=(TERM << 32,), files=1, bytes=9,
        lags=(), segments=(HeldSegment(segment, True, (), 9),), incoming_bytes=0, unlisted=(), damaged=(),
    )  # fmt: skip


INSIDE = Inside({"host1": "disk-host1", "host2": "disk-host2"}, [held("host1"), held("host2")], [LOG], 3)


def names() -> Names:
    stream = StreamKey(FUZZ_INSTANCE, "fuzz/1.wal", "9", "7", 1)
    others = frozenset({"links", "1", "west", "i-west", "host1", "host2", LOG})
    return Names(["7"], [OWN], [OTHER], others, [("token", stream)], INSIDE)


def attacks(seed: str, rights: Mapping[str, frozenset[str]], count: int = 200) -> list[Attack]:
    return list(itertools.islice(Attacker(seed, names(), rights, may_harm=rights is not PEER_METHODS), count))


@pytest.mark.parametrize("rights", [CLIENT_METHODS, PEER_METHODS, PROCESS_METHODS], ids=["client", "peer", "process"])
def test_attacks_are_the_same_for_a_seed_and_of_all_methods(rights: Mapping[str, frozenset[str]]) -> None:
    found = attacks("1", rights)
    assert found == attacks("1", rights)
    assert found != attacks("2", rights)
    called = {(attack.service, attack.method) for attack in attacks("1", rights, 1_500)}
    harmless = {"set_read_only", "define_cluster", "delete_cluster", "set_authorizations"}
    for service in ("Master", "TServer"):
        assert {method for name, method in called if name == service} >= rights[service] - harmless
    assert {attack.what for attack in found} >= {"as it is", "bytes changed", "cut", "announced longer"}


def frame(method: str, *arguments: object, service: str = "Master") -> Attack:
    message = b"".join(method_codec(service, method).call(1, arguments, 1 << 20))[FRAME_HEADER.size :]
    return Attack(service, method, message, len(message), "as it is")


def test_what_is_right_and_would_change_what_is_others_is_not_sent() -> None:
    raw = encode_batch(records([(b"a", b"v")])).to_pybytes()
    assert harms(frame("delete_table", "links"), names())
    assert harms(frame("set_read_only", True), names())
    assert harms(frame("write", (WriteBatch(OTHER, raw),), "sync", "w", 1, service="TServer"), names())
    for fine in (
        frame("delete_table", "fuzz"),
        frame("disk_usage", ("links",)),
        frame("write", (WriteBatch(OTHER, raw[:-9]),), "sync", "w", 1, service="TServer"),
        frame("write", (WriteBatch(OWN, raw),), "sync", "w", 1, service="TServer"),
    ):
        assert not harms(fine, names())


def test_a_process_that_poses_as_the_master_or_as_a_leader_is_not_sent() -> None:
    leader, follower = INSIDE.held
    state = leader.segments[0].segment
    offer = SegmentOffer(
        OTHER, "t-00000", TERM, "host1", leader.placement, follower.placement, state, (), b"{}", 1
    )  # fmt: skip
    word = StateConfirmation("1", "t-00000", follower.placement, TERM, TERM << 32, 1)
    for posed in (
        frame("unload_tablet", OTHER, 3, True, service="TServer"),
        frame("segment_offer", offer, service="TServer"),
        frame("confirm_states", "host1", (word,), service="TServer"),
        frame("report_work", "tserver-1-0a", (work_report(LOG),)),
        frame("drain_host", "host1", True),
    ):
        assert harms(posed, names()), posed.method
    for fine in (
        frame("load_tablet", TabletAssignment(OTHER, "t-00000", 3), service="TServer"),
        frame("load_tablet", TabletAssignment(OTHER, "t-00000", 1 << 62), service="TServer"),
        frame("unload_tablet", OTHER, 1 << 62, True, service="TServer"),
        frame("unload_tablet", OTHER, 3, False, service="TServer"),
        frame("segment_offer", replace(offer, term=TERM - 1), service="TServer"),
        frame("segment_offer", replace(offer, sender=replace(leader.placement, placement="x")), service="TServer"),
        frame("confirm_states", "host2", (word,), service="TServer"),
        frame("confirm_states", "host1", (replace(word, as_of_ms=1 << 50),), service="TServer"),
        frame("drop_logs", "disk-host1", (LOG,), service="TServer"),
        frame("seal_log", "disk-host1", LOG, False, 0, service="TServer"),
        frame("take_replica", OTHER, {"tables/1/t-00000/1-a.parquet": "secrets/cluster.secret"}, service="TServer"),
        frame("report_work", "tserver-1-0a", (work_report("x"),)),
    ):
        assert not harms(fine, names()), fine.method


def test_a_process_sends_existing_names_with_hostile_ends_and_very_long_lists() -> None:
    found = attacks("1", PROCESS_METHODS, 2_000)
    assert any(b"000001.wal/../../secrets" in one.message for one in found)
    assert any(one.method == "drop_logs" and len(one.message) > 20_000 for one in found)
    assert max(len(one.message) for one in found) < FRAME_BYTES


def work_report(file: str) -> WorkReport:
    return WorkReport("t", file, TargetKey("a", "9", "8", 1), 1 << 40, 0, 0, 0, 0, None, False, 0)


def test_an_answer_that_nobody_foresaw_ends_a_round() -> None:
    attack, codec = frame("tables"), method_codec("Master", "tables")

    def answer(fault: object) -> bytes:
        return b"".join(codec.fault(1, fault, 1 << 20))[FRAME_HEADER.size :]  # type: ignore[arg-type]

    assert judge(attack, answer(to_fault(InvalidInputError("no"))), names()) == "invalid_input"
    with pytest.raises(InvariantError, match=r"tables .* failed unexpectedly"):
        judge(attack, answer(internal_fault(KeyError(), "Master.tables")), names())


def test_processes_that_end_or_grow_are_named() -> None:
    before = {("master", 1): 100, ("tserver1", 2): 100}
    assert process_problems(before, dict(before), 50) == []
    assert process_problems(before, {("master", 1): 151, ("tserver1", 3): 100}, 50) == [
        "tserver1 ended",
        "master grew from 100 to 151 bytes: at most 50 more are allowed",
    ]
