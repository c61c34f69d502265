"""Each correction of the machine of replicas: a directed law that holds with it and breaks without it.

P1 to P17 and N1 to N6 are those of the page docs/design/segment-machine.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from bookkeeper.replicas.events import Collect, ContentArrived, Flushed, NameDue, OfferArrived, Wrote
from bookkeeper.replicas.instructions import Delete, Name
from bookkeeper.replicas.machine import decide
from bookkeeper.replicas.making import may_forget_deletes
from bookkeeper.replicas.messages import Offer
from bookkeeper.replicas.placements import Phase, RowReplica, TabletRow, targets_of
from bookkeeper.replicas.rules import CORRECTED, Rules, SkippedRows
from bookkeeper.replicas.values import Entry, KeyRange, Placement, Replica, Segment, Stage, state_id
from tests.support.segment_simulation.checker import BrokenError, Checker
from tests.support.segment_simulation.codec import Codec
from tests.support.segment_simulation.play import Play
from tests.support.segment_simulation.runner import run
from tests.support.segment_simulation.schedules import switches_of
from tests.support.segment_simulation.steps import take

Json = dict[str, Any]
A: Json = {"id": "A", "base": None, "major": True, "rows": ["k1=1"]}
B: Json = {"id": "B", "base": "A", "rows": ["k2=1"]}
C: Json = {"id": "C", "base": "A", "rows": ["k3=1"]}
M: Json = {"id": "M", "base": "B", "major": True, "included": ["B", "A"], "rows": ["k1=1", "k2=1"]}
OF_TERM_1 = (1 << 32) + 9


def play(rules: Rules, replicas: Json, *steps: Json) -> Json:
    """The output of the runner."""
    return run({"rules": "corrected", "switches": switches_of(rules), "replicas": replicas, "steps": list(steps)})


def leader(*segments: Json, root: Any = None, **more: Any) -> Json:
    """The replica a, which leads term 1."""
    last = segments[-1]["id"] if segments else None
    made: Json = {"leader": "a", "term": 1, "root": root or last, "segments": list(segments)}
    return made | more


def step(kind: str, replica: str | None = None, **args: Any) -> Json:
    """A step of the runner."""
    return {"step": kind, **({} if replica is None else {"replica": replica}), **args}


def ids(replica: Json) -> list[Any]:
    """The ids of a replica's list."""
    return [one["id"] for one in replica["segments"]]


def judged(rules: Rules, *steps: Json) -> list[Json]:
    """The replies of a schedule from three empty replicas on; the laws are judged after each step."""
    codec = Codec()
    world = codec.read({"rules": "corrected", "replicas": {"a": {}, "b": {}, "c": {}}})
    world.rules = rules
    checker = Checker(world)
    replies = []
    for one in steps:
        replies.append(take(Play(world, codec), one))
        try:
            checker.after_step()
        except BrokenError as law:
            raise AssertionError(str(law)) from law
    return replies


def old_terms(rules: Rules) -> None:
    given = {"a": leader(A), "b": {"leader": "a", "term": 3}}
    (reply,) = play(rules, given, step("offer", segment="A", **{"from": "a", "to": "b"}))["replies"]
    assert reply["reply"] == "INVALID", "an offer of an old term is taken"


def p1_forced_major(rules: Rules) -> None:
    given = {"a": leader(A, B), "b": leader(A, C)}
    replicas = play(rules, given, step("replicate_to", "a", to="b"))["replicas"]
    assert replicas["b"]["root"] == replicas["a"]["root"], "a follower never joins its leader's chain"


def p2_walk(rules: Rules) -> None:
    stray = {"id": "X", "base": "A", "rows": []}
    given = {"a": leader(A, B, stray, {"id": "D", "base": "B", "rows": []})}
    (reply,) = play(rules, given, step("is_referenced", "a", segment="B"))["replies"]
    assert reply["result"], "a segment of the chain counts as unreferenced"


def p3_merged_ids(rules: Rules) -> None:
    stray = {"id": OF_TERM_1, "base": "A", "rows": ["k3=1"]}
    given = {"a": leader(A), "b": leader(A | {"acks": ["a"]}, stray)}
    steps = (step("follower_run", "b"), step("flush", "a"), step("compact", "a", id="M"))
    (*_, major) = play(rules, given, *steps)["replicas"]["a"]["segments"]
    assert OF_TERM_1 in major["included"], "a merged segment is never weak at its follower"


def p4_rows_present(rules: Rules) -> None:
    given: Json = {"rules": "literal", "switches": {"p4_skipped_rows": rules.p4_skipped_rows.value}}
    given |= {"replicas": {"a": leader(A, C, {"id": "D", "base": "A", "rows": []})}}
    given |= {"steps": [step("leader_gc", "a")]}
    assert "k3=1" in run(given)["replicas"]["a"]["memory"], "rows of a merged segment are skipped and then deleted"


def p5_durable(rules: Rules) -> None:
    given = {"a": leader(A), "b": {"leader": "a", "term": 1}}
    offered = step("offer", segment="A", queued=True, **{"from": "a", "to": "b"})
    out = play(rules, given, offered, step("deliver", message=1), step("deliver", message=2))
    assert out["replicas"]["a"]["segments"][0]["acks"] == [], "an acknowledgement counts before the content is there"


def p5_at_commit(rules: Rules) -> None:
    given = {"a": leader(A, B, M), "b": leader(A)}
    late = step("offer", segment="B", queued=True, **{"from": "a", "to": "b"})
    major = step("offer", segment="M", **{"from": "a", "to": "b"})
    steps = (late, step("deliver", message=1), step("deliver", message=2), major, step("deliver", message=3))
    assert play(rules, given, *steps)["replicas"]["b"]["root"] == "M", "a late segment becomes the root"


def split_at(key: str) -> Json:
    """A split of a into x and y."""
    return step("split", "a", at=key, low={"tablet": "t1", "replicas": ["x"]}, high={"tablet": "t2", "replicas": ["y"]})


def split_of_named(rules: Rules, key: str) -> Json:
    """The leader x of a child whose parent has named its root, after the parent has served it."""
    given = {"rules": "corrected", "switches": switches_of(rules), "copies_min": 1, "replicas": {"a": leader(A, B)}}
    steps = [step("name", "a"), split_at(key), step("replicate_to", "a", to="x")]
    found: Json = run({**given, "steps": steps})["replicas"]["x"]
    return found


def p6_child(rules: Rules) -> None:
    assert split_of_named(rules, "k5")["memory"] == [], "a child merges row by row what its parent sends"


def p6_newer_parent(rules: Rules) -> None:
    """The parent has a newer term than the child: a fast-forward would give the child an id above its own next one."""
    child = Replica("x", Placement("x"), Stage.LOADING, leader="x", term=5, led=5)
    child, _ = decide(child, OfferArrived(Offer("a", Placement("a"), Segment(state_id(7, 1), None, True), None)), rules)
    child, _ = decide(child, ContentArrived(state_id(7, 1), "a"), rules)
    child, _ = decide(child, Wrote(), rules)
    child, _ = decide(child, Flushed(("f",)), rules)
    ids_of_child = [entry.segment.id for entry in child.entries]
    assert ids_of_child == sorted(ids_of_child), "the id of a child's next state falls"


def p7_unload(rules: Rules) -> None:
    parent = TabletRow("t", (RowReplica("a", Placement("a")),), phase=Phase.SPLIT)
    pair = (RowReplica("x", Placement("x")), RowReplica("z", Placement("z")))
    child = TabletRow("t1", pair, "x", KeyRange(None, "k5"))
    hosts = [target.host for target in targets_of(parent, (child,), "a", rules)]
    assert hosts == ["x"], "a follower of a child is asked, which answers INVALID for ever"


def p8_joiner(rules: Rules) -> None:
    given = {"a": leader(A)}
    *_, reply = play(rules, given, step("join", "d", leader="a"), step("elect", leader="d"))["replies"]
    assert reply["outcome"] == "refused", "a joiner leads"


def p9_memory(rules: Rules) -> None:
    given = {"a": leader(A, term=2), "b": {"leader": "b", "term": 1, "memory": ["k7=1"]}}
    offered = step("offer", segment="A", **{"from": "a", "to": "b"})
    assert play(rules, given, offered, offered)["replicas"]["b"]["memory"] == [], "memory of a deposed leader stays"


def p10_wiped(rules: Rules) -> None:
    given = {"a": leader(A | {"acks": ["b"]}), "b": leader(A)}
    out = play(rules, given, step("wipe", "b"), step("replicate_to", "a", to="b"))
    assert out["replicas"]["b"]["root"] == "A", "a wiped replica counts as complete"


def p11_flush_in_compaction(rules: Rules) -> None:
    late = {"id": "D", "base": "B", "rows": ["k4=1"], "retained": ["A", "B"]}
    given = {"a": leader(A, B | {"retained": ["A"]}, late)}
    (*_, major) = play(rules, given, step("compact", "a", id="M", inputs=["A", "B"]))["replicas"]["a"]["segments"]
    assert major.get("retained") == ["D"], "a flush during a compaction is lost"


def p12_history(rules: Rules) -> None:
    out = play(rules, {"a": leader(M)}, step("compact", "a", id="N"))["replicas"]["a"]
    assert "A" in out["segments"][-1]["included"], "an id that was folded twice is forgotten"


def p13_again(rules: Rules) -> None:
    stray: Json = {"id": "X", "base": None, "major": True, "rows": []}
    given = {"a": leader(stray), "b": leader(A, stray, C)}
    out = play(rules, given, step("offer", segment="X", **{"from": "a", "to": "b"}))["replicas"]["b"]
    assert ids(out) == ["A", "C", "X"], "a segment is listed twice"


def p14_empty(rules: Rules) -> None:
    assert ids(split_of_named(rules, "k2")) == ["A", "B"], "the chain of a child has a hole"


def p15_page(rules: Rules) -> None:
    held = Replica("a", Placement("a"), root=2, entries=(Entry(Segment(2, 1, True, files=("2",))),))
    held = replace(held, files=frozenset({"1", "2"}))
    _, done = decide(held, Collect(2, ("2",), frozenset({"1"})), rules)
    assert not any(isinstance(one, Delete) for one in done), "a page loses its file"


def p16_busy(rules: Rules) -> None:
    given = {"a": leader(A), "b": leader(A, incoming=["P", "Q"], incoming_limit=1)}
    (reply,) = play(rules, given, step("offer", segment="A", **{"from": "a", "to": "b"}))["replies"]
    assert reply["reply"] == "SEGMENT_EXISTS", "a busy receiver holds up an acknowledgement"


def p17_deletes(rules: Rules) -> None:
    held = Replica("a", Placement("a"), leader="a", term=2, led=2)
    assert may_forget_deletes(held, (2, 2), awaits_older=False, rules=rules)
    told = "an older segment can bring a deleted row back"
    assert not may_forget_deletes(held, (2, 1), awaits_older=False, rules=rules), told
    assert not may_forget_deletes(held, (2, 2), awaits_older=True, rules=rules), told


FIRST = (step("elect", leader="a"), step("replicate_to", "a", to="b"), step("name", "a"))
WRITTEN = (*FIRST, step("write", "a", rows=["k1=1"]), step("flush", "a"))


def n1_late_name(rules: Rules) -> None:
    judged(
        rules,
        *WRITTEN,
        step("replicate_to", "a", to="b"),
        step("name", "a", queued=True),
        step("stop", "a"),
        step("elect", leader="c"),
        step("replicate_to", "c", to="b"),
        step("deliver", message=1),
        step("name", "c"),
    )


def n2_written_list(rules: Rules) -> None:
    pruned = Segment(2, 1, files=("2",), retained=("1",))
    acked = Entry(pruned, frozenset({Placement("b")}))
    held = Replica("a", Placement("a"), root=2, entries=(acked,), files=frozenset({"1", "2"}), leader="a")
    _, (name,) = decide(held, NameDue((Placement("a"), Placement("b")), 2, None), rules)
    assert isinstance(name, Name)
    assert name.files == ("1", "2"), "a named state lacks a file of a record that was pruned"


def n3_copies(rules: Rules) -> None:
    judged(rules, *WRITTEN, step("name", "a"))


def n3_child_of_unnamed(rules: Rules) -> None:
    """A parent adopts an import and is away before it names it. The next leader of the parent takes the import, too."""
    given: Json = {"rules": "corrected", "switches": switches_of(rules), "copies_min": 1}
    given |= {"replicas": {"a": {}, "b": {}}, "steps": []}
    codec = Codec()
    world = codec.read(given)
    world.rules = rules
    checker = Checker(world)
    taken = {"import": 1, "rows": ["k1=i1"]}
    steps = (
        *(step("elect", leader="a"), step("name", "a"), split_at("k5"), step("replicate_to", "a", to="b")),
        *(step("adopt", "a", **taken), step("replicate_to", "a", to="x"), step("name", "x"), step("stop", "a")),
        *(step("elect", leader="b"), step("elect", leader="x"), step("adopt", "b", **taken), step("name", "b")),
    )
    for one in steps:
        take(Play(world, codec), one)
        checker.after_step()
    rows = [row for (name, _), held in world.rows.items() if name == "x" for row in held]
    assert "k1=i1" not in rows, "a child has what the next term of its parent lacks"


def n4_local_root(rules: Rules) -> None:
    judged(
        rules,
        *WRITTEN,
        step("replicate_to", "a", to="b"),
        step("name", "a"),
        step("compact", "a"),
        step("replicate_to", "a", to="b"),
        step("follower_run", "b"),
        step("leader_gc", "a"),
    )


def n5_unseen_major(rules: Rules) -> None:
    """A leader compacts, and no other replica sees it. The next leader has nothing to write."""
    codec = Codec()
    world = codec.read({"rules": "corrected", "replicas": {"a": {}, "b": {}, "c": {}}})
    world.rules = rules
    steps = (*WRITTEN, step("replicate_to", "a", to="b"), step("name", "a"), step("compact", "a"))
    after = (step("elect", leader="b"), step("replicate_to", "b", to="a"), step("follower_run", "a"))
    for one in (*steps, *after, step("replicate_to", "b", to="a")):
        take(Play(world, codec), one)
    assert world.replicas["a"].root == world.replicas["b"].root, "replicas have several roots for ever"


def n6_replayed(rules: Rules) -> None:
    *_, pushed = judged(
        rules, *WRITTEN, step("elect", leader="b"), step("replicate_to", "b", to="a"), step("follower_run", "a")
    )
    assert "merged" not in pushed, "a segment whose log was replayed is merged"


def n6_start(rules: Rules) -> None:
    judged(
        rules,
        *WRITTEN,
        step("replicate_to", "a", to="b"),
        step("name", "a"),
        step("elect", leader="b"),
        step("replicate_to", "b", to="a"),
        step("name", "b"),
        step("elect", leader="c"),
        step("replicate_to", "c", to="b"),
        step("name", "c"),
    )


def n6_origin(rules: Rules) -> None:
    *_, elected = judged(
        rules,
        *WRITTEN,
        step("replicate_to", "a", to="c"),
        step("partition", sides=[["a"], ["b", "c"]]),
        step("elect", leader="b", give_up=True),
        step("replicate_to", "b", to="c"),
        step("follower_run", "c"),
        step("heal"),
        step("elect", leader="a"),
    )
    assert elected["replayed"] == ["k1=1"], "a merged row counts twice"


LAWS: dict[str, tuple[Callable[[Rules], None], str]] = {
    "terms": (old_terms, "an offer of an old term is taken"),
    "p1_force_major": (p1_forced_major, "never joins its leader's chain"),
    "p2_walk_by_base": (p2_walk, "counts as unreferenced"),
    "p3_merged_in_majors": (p3_merged_ids, "never weak at its follower"),
    "p4_skipped_rows": (p4_rows_present, "skipped and then deleted"),
    "p5_ack_when_durable": (p5_durable, "counts before the content is there"),
    "p5_ask_again": (p5_at_commit, "a late segment becomes the root"),
    "p6_loading_fast_forward": (p6_child, "merges row by row"),
    "p6_below_own_term": (p6_newer_parent, "next state falls"),
    "p7_unload_to_leader": (p7_unload, "INVALID for ever"),
    "p8_joining_stage": (p8_joiner, "a joiner leads"),
    "p9_flush_on_loss": (p9_memory, "memory of a deposed leader stays"),
    "p10_incarnation": (p10_wiped, "counts as complete"),
    "p11_base_is_root": (p11_flush_in_compaction, "a flush during a compaction is lost"),
    "p12_transitive_history": (p12_history, "folded twice is forgotten"),
    "p13_move_to_tail": (p13_again, "listed twice"),
    "p14_send_empty": (p14_empty, "has a hole"),
    "p15_readers_hold": (p15_page, "a page loses its file"),
    "p16_exists_first": (p16_busy, "holds up an acknowledgement"),
    "p17_deletes_outlive": (p17_deletes, "bring a deleted row back"),
    "n1_name_what_was_replayed": (n1_late_name, "was acknowledged and is lost"),
    "n2_list_is_written": (n2_written_list, "lacks a file of a record that was pruned"),
    "n3_copies_min": (n3_copies, "had 1 copies when its leader named it"),
    "n3_children_get_named": (n3_child_of_unnamed, "has what the next term of its parent lacks"),
    "n4_books_release": (n4_local_root, "no host holds file"),
    "n5_major_begins_term": (n5_unseen_major, "several roots for ever"),
    "n6_covered_exists": (n6_replayed, "whose log was replayed is merged"),
    "n6_named_start": (n6_start, "was acknowledged and is lost"),
    "n6_by_origin": (n6_origin, "a merged row counts twice"),
}


def switched_off(switch: str) -> Rules:
    """The corrected rules without one correction."""
    broken: Any = SkippedRows.LIST if switch == "p4_skipped_rows" else False
    return replace(CORRECTED, **{switch: broken})


@pytest.mark.parametrize("switch", LAWS)
def test_a_correction_keeps_its_law(switch: str) -> None:
    law, _ = LAWS[switch]
    law(CORRECTED)


@pytest.mark.parametrize(("switch", "says"), [(switch, says) for switch, (_, says) in LAWS.items()], ids=list(LAWS))
def test_without_its_correction_a_law_breaks(switch: str, says: str) -> None:
    law, _ = LAWS[switch]
    with pytest.raises(AssertionError, match=says):
        law(switched_off(switch))


def test_each_switch_has_a_test_that_turns_red() -> None:
    assert list(LAWS) == [name for name in Rules.__struct_fields__ if name not in ("name", "max_history")]
