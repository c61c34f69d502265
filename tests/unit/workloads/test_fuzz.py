"""Calls of the fuzzing client and peer: repeatable, of every method, never both right and harmful."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import pytest

from bookkeeper.errors import InvalidInputError
from bookkeeper.model import Extent, StreamKey
from bookkeeper.rpc.contract.faults import internal_fault, to_fault
from bookkeeper.rpc.contract.messages import WriteBatch
from bookkeeper.rpc.frames.envelope import FRAME_HEADER, method_codec
from bookkeeper.rpc.trust.rights import CLIENT_METHODS, PEER_METHODS
from bookkeeper.storage.wal import encode_batch
from tests.soak.faults import InvariantError
from tests.soak.fuzz import FUZZ_INSTANCE, Attack, Attacker, Names, harms
from tests.soak.fuzz_round import judge, process_problems
from tests.support.tservers import records

OWN, OTHER = Extent("7", None, None), Extent("1", None, None)


def names() -> Names:
    stream = StreamKey(FUZZ_INSTANCE, "fuzz/1.wal", "9", "7", 1)
    return Names(["7"], [OWN], [OTHER], frozenset({"links", "1", "west", "i-west"}), [("token", stream)])


def attacks(seed: str, rights: Mapping[str, frozenset[str]], count: int = 400) -> list[Attack]:
    return list(itertools.islice(Attacker(seed, names(), rights, may_harm=rights is CLIENT_METHODS), count))


@pytest.mark.parametrize("rights", [CLIENT_METHODS, PEER_METHODS])
def test_attacks_are_the_same_for_a_seed_and_of_all_methods(rights: Mapping[str, frozenset[str]]) -> None:
    found = attacks("1", rights)
    assert found == attacks("1", rights)
    assert found != attacks("2", rights)
    called = {(attack.service, attack.method) for attack in attacks("1", rights, 3_000)}
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
