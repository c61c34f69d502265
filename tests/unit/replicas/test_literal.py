"""The source's requirements to the letter: rule set ``literal``.

E-numbers are those of docs/design/segment-machine.md.
"""

from __future__ import annotations

from typing import Any

import pytest

from bookkeeper.replicas.rules import LITERAL, Rules
from tests.support.segment_simulation.runner import run

Json = dict[str, Any]
A: Json = {"id": "A", "base": None, "major": True, "rows": ["k1=1"]}
B: Json = {"id": "B", "base": "A", "rows": ["k2=1"]}
C: Json = {"id": "C", "base": "A", "rows": ["k3=1"]}
M: Json = {"id": "M", "base": "B", "major": True, "included": ["B", "A"], "rows": ["k1=1", "k2=1"]}


def play(replicas: Json, *steps: Json, **more: Any) -> Json:
    """The output of the runner for literal rules."""
    return run({"rules": "literal", "replicas": replicas, "steps": list(steps)} | more)


def held(*segments: Json, leader: str | None = "a", **more: Any) -> Json:
    """A replica whose root is its last segment."""
    return {"leader": leader, "root": segments[-1]["id"] if segments else None, "segments": list(segments)} | more


def offered(receiver: Json, segment: str = "B", sender: Json | None = None) -> tuple[str, Json]:
    """What b answers to a, and b afterwards."""
    out = play(
        {"a": sender or held(A, B, C, M), "b": receiver}, {"step": "offer", "from": "a", "to": "b", "segment": segment}
    )
    return out["replies"][0]["reply"], out["replicas"]["b"]


def ids(replica: Json) -> list[str]:
    """The ids of a replica's list."""
    return [one["id"] for one in replica["segments"]]


def acks(replica: Json) -> Json:
    """The acknowledgements of each segment."""
    return {one["id"]: one["acks"] for one in replica["segments"]}


def asked(replica: Json, step: str, segment: str) -> bool:
    """A question about a reference."""
    (reply,) = play({"a": replica}, {"step": step, "replica": "a", "segment": segment})["replies"]
    return bool(reply["result"])


def test_the_literal_rules_have_no_correction_but_the_two_words_of_the_source() -> None:
    kept = {name for name in Rules.__struct_fields__ if getattr(LITERAL, name) is True}
    assert kept == {"p8_joining_stage", "p14_send_empty"}


def test_e13_e14_the_first_segment_is_major_and_the_next_has_the_root_as_base() -> None:
    flush = {"step": "flush", "replica": "a", "id": "A"}
    write = {"step": "write", "replica": "a", "rows": ["k2=1"]}
    out = play({"a": {"leader": "a", "memory": ["k1=1"]}}, flush, write, flush | {"id": "B"})["replicas"]["a"]
    assert [(one["id"], one["base"], one["major"]) for one in out["segments"]] == [("A", None, True), ("B", "A", False)]
    assert (out["root"], out["memory"]) == ("B", [])


def test_e15_e16_e17_a_compaction_is_a_major_on_the_newest_folded_segment() -> None:
    out = play({"a": held(A, B)}, {"step": "compact", "replica": "a", "id": "M"})["replicas"]["a"]
    major = out["segments"][-1]
    assert (major["base"], major["included"], major["rows"]) == ("B", ["B", "A"], ["k1=1", "k2=1"])
    assert (out["root"], ids(out)) == ("M", ["A", "B", "M"])


def test_e16_the_history_is_bounded() -> None:
    compact = {"step": "compact", "replica": "a", "id": "M"}
    out = play({"a": held(A, B)}, compact, max_segment_history=1)["replicas"]["a"]
    assert out["segments"][-1]["included"] == ["B"]


@pytest.mark.parametrize("step", ["compact", "flush", "write"])
def test_e18_e21_only_the_leader_writes_and_makes_segments(step: str) -> None:
    args = {"rows": ["k1=1"]} if step == "write" else {}
    (reply,) = play({"a": held(A, memory=["k9=1"], leader="b")}, {"step": step, "replica": "a"} | args)["replies"]
    assert reply["outcome"] == "refused"


@pytest.mark.parametrize(
    ("segments", "root", "segment", "referenced", "weak"),
    [
        ([A, B], "B", "B", True, False),
        ([A, B], "B", "A", True, False),
        ([A, B, M], "M", "A", True, True),
        ([A, B, M], "M", "M", True, False),
        ([A, B], "B", "X", False, True),
        ([A, B, C], "B", "B", False, True),
        ([A, C, B], "B", "A", False, True),
        ([], None, "A", False, True),
    ],
)
def test_e31_e32_references(segments: list[Json], root: str | None, segment: str, referenced: bool, weak: bool) -> None:
    replica = {"leader": "a", "root": root, "segments": segments}
    assert asked(replica, "is_referenced", segment) is referenced
    assert asked(replica, "is_reference_weak", segment) is weak


def test_e33_a_leader_deletes_the_weak_and_merges_the_unreferenced() -> None:
    out = play({"a": held(A, B, C, M)}, {"step": "leader_gc", "replica": "a"})["replicas"]["a"]
    assert (ids(out), out["memory"]) == (["M"], ["k3=1"])


def test_e34_a_leader_begins_at_the_newest_referenced_major_and_skips_the_acknowledged() -> None:
    sender = held(A, B, M | {"acks": ["b"]}, {"id": "N", "base": "M", "rows": []})
    out = play({"a": sender, "b": held(M)}, {"step": "replicate_to", "replica": "a", "to": "b"})
    assert [one["segment"] for one in out["offers"]] == ["N"]
    assert acks(out["replicas"]["a"]) == {"A": [], "B": [], "M": ["b"], "N": ["b"]}


def test_e35_exists_counts_as_acknowledged() -> None:
    out = play({"a": held(A), "b": held(A)}, {"step": "replicate_to", "replica": "a", "to": "b"})
    assert out["offers"][0]["reply"] == "SEGMENT_EXISTS"
    assert acks(out["replicas"]["a"]) == {"A": ["b"]}


@pytest.mark.parametrize(
    ("receiver", "reason"),
    [
        (held(A, incoming=["P", "Q"], incoming_limit=1), "OVERLOADED"),
        (held(A, incoming=["B"]), "INFLIGHT"),
        (held(A, leader="c"), "INVALID"),
    ],
)
def test_e36_a_decline_ends_the_turn(receiver: Json, reason: str) -> None:
    sender = held(A | {"acks": ["b"]}, B, {"id": "D", "base": "B", "rows": []})
    out = play({"a": sender, "b": receiver}, {"step": "replicate_to", "replica": "a", "to": "b"})
    assert [(one["segment"], one["reply"]) for one in out["offers"]] == [("B", reason)]
    assert acks(out["replicas"]["a"]) == {"A": ["b"], "B": [], "D": []}


def test_e37_out_of_order_drops_the_acknowledgements_and_begins_again() -> None:
    sender = held(A | {"acks": ["b", "c"]}, B)
    out = play({"a": sender, "b": held()}, {"step": "replicate_to", "replica": "a", "to": "b"})
    assert [(one["segment"], one["reply"]) for one in out["offers"]] == [
        ("B", "OUT_OF_ORDER"),
        ("A", "ACCEPTED"),
        ("B", "ACCEPTED"),
    ]
    assert acks(out["replicas"]["a"]) == {"A": ["b", "c"], "B": ["b"]}


def test_e38_a_sender_counts_an_accept_as_acknowledged() -> None:
    offer = {"step": "offer", "from": "a", "to": "b", "segment": "A", "queued": True}
    steps = (offer, {"step": "deliver", "message": 1}, {"step": "deliver", "message": 2})
    out = play({"a": held(A), "b": held()}, *steps)["replicas"]
    assert (acks(out["a"]), out["b"]["root"]) == ({"A": ["b"]}, None)


def test_e39_an_error_ends_the_turn() -> None:
    cut = {"step": "partition", "sides": [["a"], ["b"]]}
    out = play({"a": held(A), "b": held()}, cut, {"step": "replicate_to", "replica": "a", "to": "b"})
    assert (out["offers"][0]["reply"], acks(out["replicas"]["a"])) == ("ERROR", {"A": []})


def test_e40_a_follower_deletes_what_its_leader_has_and_its_root_refers_to_weakly() -> None:
    follower = held(A | {"acks": ["a"]}, B | {"acks": ["a"]}, M | {"acks": ["a"]})
    out = play({"a": held(M), "b": follower}, {"step": "follower_run", "replica": "b"})
    assert (ids(out["replicas"]["b"]), out["offers"]) == (["M"], [])


def test_e40_a_segment_that_is_acknowledged_in_this_turn_stays_until_the_next() -> None:
    turn = {"step": "follower_run", "replica": "b"}
    follower = held(A, M | {"acks": ["a"]})
    assert ids(play({"a": held(M), "b": follower}, turn)["replicas"]["b"]) == ["A", "M"]
    assert ids(play({"a": held(M), "b": follower}, turn, turn)["replicas"]["b"]) == ["M"]


def test_e41_a_follower_pushes_the_rest_to_its_leader() -> None:
    follower = held(A | {"acks": ["a"]}, C)
    out = play({"a": held(A), "b": follower}, {"step": "follower_run", "replica": "b"})
    assert out["replicas"]["a"]["memory"] == ["k3=1"]
    assert acks(out["replicas"]["b"]) == {"A": ["a"], "C": ["a"]}


def test_e42_overloaded_above_the_limit() -> None:
    assert offered(held(A, incoming=["P", "Q"], incoming_limit=2))[0] == "ACCEPTED"
    assert offered(held(A, incoming=["P", "Q", "R"], incoming_limit=2))[0] == "OVERLOADED"
    assert offered(held(A, B, incoming=["P", "Q", "R"], incoming_limit=2))[0] == "OVERLOADED"


def test_e43_inflight() -> None:
    assert offered(held(A, incoming=["B"]))[0] == "INFLIGHT"


def test_e44_a_loading_leader_without_a_root_fast_forwards() -> None:
    reply, replica = offered(held(leader="b", stage="LOADING"))
    assert (reply, ids(replica), acks(replica)) == ("ACCEPTED", ["B"], {"B": []})


def test_e45_a_leader_merges_what_it_lacks() -> None:
    reply, replica = offered(held(A, leader="b"))
    assert (reply, ids(replica), replica["memory"]) == ("ACCEPTED", ["A"], ["k2=1"])
    assert offered(held(A, B, leader="b"))[0] == "SEGMENT_EXISTS"
    reply, replica = offered(held(A, leader="b", stage="LOADING"))
    assert (reply, replica["memory"]) == ("ACCEPTED", ["k2=1"])


def test_e46_a_follower_fast_forwards_and_knows_that_the_leader_has_it() -> None:
    reply, replica = offered(held(A))
    assert (reply, replica["root"], acks(replica)) == ("ACCEPTED", "B", {"A": [], "B": ["a"]})


def test_e47_a_follower_has_it_already() -> None:
    assert offered(held(A, B, {"id": "D", "base": "B", "rows": []}))[0] == "SEGMENT_EXISTS"


def test_e48_a_follower_takes_a_major_and_declines_another_one_out_of_order() -> None:
    reply, replica = offered(held(A, C), "M")
    assert (reply, replica["root"], acks(replica)["M"]) == ("ACCEPTED", "M", ["a"])
    assert offered(held(A, C))[0] == "OUT_OF_ORDER"


def test_e49_a_sender_that_does_not_lead_is_invalid() -> None:
    assert offered(held(A, leader="c"))[0] == "INVALID"
    assert offered(held(A, leader=None))[0] == "INVALID"


def test_e52_an_acknowledgement_names_a_placement() -> None:
    out = play({"a": held(A), "b": held(placement="p9")}, {"step": "replicate_to", "replica": "a", "to": "b"})
    assert acks(out["replicas"]["a"]) == {"A": ["p9"]}


def test_e23_e54_a_joiner_never_leads_and_is_live_with_the_latest_segment() -> None:
    joined = {"step": "join", "leader": "a", "replica": "d"}
    finalize = {"step": "join_finalize", "leader": "a", "replica": "d"}
    serve = {"step": "replicate_to", "replica": "a", "to": "d"}
    out = play({"a": held(A)}, joined, {"step": "elect", "leader": "d"}, finalize, serve, finalize, finalize)
    assert [one["outcome"] for one in out["replies"]] == ["done", "refused", "refused", "done", "done", "done"]
    assert out["replicas"]["d"]["stage"] == "LIVE"


SPLIT: Json = {"step": "split", "replica": "a", "at": "k2"}
SPLIT |= {"low": {"tablet": "t1", "replicas": ["x", "v"]}, "high": {"tablet": "t2", "replicas": ["y"]}}
FINALIZE = {"step": "split_finalize", "replica": "a"}


def serve(target: str) -> Json:
    """The leader's turn for a target."""
    return {"step": "replicate_to", "replica": "a", "to": target}


def test_e57_only_the_leader_begins_a_split_inside_the_range_and_once() -> None:
    out = play({"a": held(A), "b": held(A)}, SPLIT | {"replica": "b"}, SPLIT, SPLIT | {"low": {"tablet": "t3"}})
    assert [one["outcome"] for one in out["replies"]] == ["refused", "done", "refused"]


def test_e58_e60_the_leaders_of_children_get_their_range_under_the_same_ids() -> None:
    out = play({"a": held(A, B)}, SPLIT, serve("x"), serve("y"))["replicas"]
    assert [one["replica"] for one in out["a"]["targets"]] == ["x", "y"]
    assert (ids(out["x"]), out["x"]["segments"][0]["rows"]) == (["A"], ["k1=1"])
    assert (ids(out["y"]), out["y"]["segments"][0]["rows"], out["y"]["memory"]) == (["A"], [], ["k2=1"])


def test_e61_e62_a_split_ends_with_the_segments_that_it_began_with() -> None:
    write, flush = {"step": "write", "replica": "a", "rows": ["k1=2"]}, {"step": "flush", "replica": "a", "id": "Z"}
    out = play({"a": held(A)}, SPLIT, FINALIZE, serve("x"), serve("y"), write, flush, FINALIZE)
    assert [one["outcome"] for one in out["replies"]][1::5] == ["refused", "done"]
    assert [one["stage"] for one in out["replicas"].values()] == ["UNLOAD", "LIVE", "LIVE", "LIVE"]


def test_e63_e64_an_async_split_ends_at_once_and_its_parent_takes_no_writes() -> None:
    write = {"step": "write", "replica": "a", "rows": ["k1=2"]}
    out = play({"a": held(A)}, SPLIT | {"async": True}, write, {"step": "elect", "leader": "a"})
    assert [one["outcome"] for one in out["replies"]] == ["done", "refused", "refused"]
    assert out["replicas"]["a"]["stage"] == "UNLOAD"


def test_e65_e66_each_replica_pushes_to_each_target_and_then_may_go() -> None:
    parent = held(A, leader=None, stage="UNLOAD", targets=["x", "y"])
    children = {"x": {"tablet": "t1", "leader": "x"}, "y": {"tablet": "t2", "leader": "y"}}
    out = play({"a": parent} | children, {"step": "unload", "replica": "a"})
    assert [(one["to"], one["reply"]) for one in out["offers"]] == [("x", "ACCEPTED"), ("y", "ACCEPTED")]
    assert out["replicas"]["a"]["stage"] == "UNLOAD_FINAL"


def test_p7_to_the_letter_a_follower_of_a_child_keeps_the_parent_for_ever() -> None:
    out = play({"a": held(A)}, SPLIT | {"async": True}, *[{"step": "unload", "replica": "a"}] * 3)
    assert [one["outcome"] for one in out["replies"]] == ["done", "waits", "waits", "waits"]
    assert ("v", "INVALID") in [(one["to"], one["reply"]) for one in out["offers"]]


def test_e68_to_e72_a_segment_travels_in_four_messages() -> None:
    offer = {"step": "offer", "from": "a", "to": "b", "segment": "A", "queued": True}
    deliveries = [{"step": "deliver", "message": number} for number in (1, 2, 3, 4)]
    out = play({"a": held(A), "b": held()}, offer, *deliveries)
    kinds = ["SEGMENT_OFFER", "SEGMENT_ACCEPT", "SEGMENT_TRANSIT", "SEGMENT_ACK"]
    assert [one["delivered"]["kind"] for one in out["replies"][1:]] == kinds
