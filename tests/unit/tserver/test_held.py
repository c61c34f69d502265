"""What a tablet remembers of roots is forgotten when they are over, and its bound refuses, never loses (R22)."""

from __future__ import annotations

from pathlib import Path

import pytest

from bookkeeper.errors import OverloadedError
from bookkeeper.model import RowRange
from bookkeeper.roots import Held, Part, Root, RootLog, Runs, root_of
from bookkeeper.storage.wal.descent import Descent, exact_claims
from bookkeeper.tserver import held as bounds
from bookkeeper.tserver.held import HeldRoots
from bookkeeper.tserver.replicated import ReceivedRange, ReplicatedApply
from bookkeeper.tserver.tablet import ReceivedBlock
from tests.unit.tserver.test_commit import RANGE, STREAM, desk, served

ROWS = RowRange(None, None)


def a_root(number: int) -> Root:
    return Root("east", f"file:///{number}.wal", "t")


def holding(*pairs: tuple[int, int], last_ms: int = 0) -> Held:
    return Held((Part(ROWS, None, Runs.of(*pairs)),), last_ms)


def a_log(number: int) -> RootLog:
    return a_root(number).log


def test_r22_what_is_over_is_forgotten_and_nothing_else_however_much_it_is() -> None:
    roots = HeldRoots({a_root(number): holding((1, 9)) for number in range(3_000)})
    assert roots.forget({a_log(1), a_log(5_000)})
    assert not roots.forget({a_log(1)})
    assert roots.remembered().keys() == {a_root(number) for number in range(3_000)} - {a_root(1)}
    assert roots.known(a_root(1)) == Held()


def test_r22_what_makes_it_less_has_room_when_nothing_else_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "RUNS_MAX", 3)
    roots = HeldRoots({a_root(1): holding((1, 2), (4, 5), (7, 8))})
    assert not roots.has_room({a_root(2): holding((1, 1))})
    assert not roots.has_room({a_root(1): holding((1, 2), (4, 5), (7, 8), (11, 12))})
    joined = {a_root(1): holding((1, 8))}
    assert roots.has_room(joined)
    roots.stage(joined)
    roots.apply(joined)
    assert roots.has_room({a_root(2): holding((1, 1))})


def test_what_was_staged_and_given_up_is_not_known() -> None:
    roots = HeldRoots({a_root(1): holding((1, 2))})
    first = roots.stage({a_root(1): holding((1, 4)), a_root(2): holding((1, 1))})
    second = roots.stage({a_root(1): holding((1, 6))})
    assert roots.known(a_root(1)) == holding((1, 6))
    roots.take_back(second)
    assert roots.known(a_root(1)) == holding((1, 4))
    roots.take_back(first)
    assert (roots.known(a_root(1)), roots.known(a_root(2))) == (holding((1, 2)), Held())
    assert roots.remembered() == {a_root(1): holding((1, 2))}


def test_r22_what_is_given_up_when_what_was_before_it_is_applied_leaves_nothing_in_flight() -> None:
    roots, news = HeldRoots({}), {a_root(1): holding((1, 4))}
    roots.stage(news)
    given_up = roots.stage({a_root(1): holding((1, 6))})
    roots.apply(news)
    roots.take_back(given_up)
    assert roots.known(a_root(1)) == holding((1, 4))
    assert roots.forget([a_root(1).log])
    assert roots.known(a_root(1)) == Held()


def test_r22_at_the_bound_a_message_is_refused_whole_and_taken_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (block,) = RANGE.blocks
    sections = ((root_of(STREAM), Runs.of((1, 1))),)
    told = ReceivedBlock(1, 1, block.share, Descent(sections, exact_claims(sections)))
    received = ReceivedRange(STREAM, ("east",), 0, 0, 1, (told,))
    tablet = served(tmp_path)
    monkeypatch.setattr(bounds, "RUNS_MAX", 0)
    with pytest.raises(OverloadedError, match="waits for the others"):
        ReplicatedApply(desk(), tablet, received, 0).prepare(1)
    assert (tablet.known_high_water(STREAM), tablet.next_seq) == (0, 1)
    monkeypatch.setattr(bounds, "RUNS_MAX", 1)
    (draft,) = ReplicatedApply(desk(), tablet, received, 0).prepare(1)
    assert draft.header.origin.to_offset == 1
