"""A lane notes a peer that lacks what it acknowledged, with the last check-in before the lost acknowledgement."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from bookkeeper.coordination.connect import open_coordination
from bookkeeper.coordination.coordination_protocol import Coordination
from bookkeeper.coordination.older_peers import CONFIRMED, CONFIRMED_TARGETS, lost_since
from bookkeeper.errors import PeerOlderError
from bookkeeper.replay.ranges import Range, RangeError, RangeResult
from bookkeeper.standalone.directory import init_cluster
from bookkeeper.tserver.shipping.older_peers import READ_AGAIN_MS, OlderPeers
from bookkeeper.tserver.shipping.worker_plan import Confirmed, StreamProgress
from tests.support.jumping_clock import TestClock
from tests.support.ranges import a_range
from tests.support.wal_files import EAST, TO_EAST

BEFORE, AFTER = 1_000, 9_000
OLDER = RangeError(PeerOlderError.code, "east lacks 3 records", transient=False)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Coordination]:
    made = open_coordination(init_cluster(tmp_path / "west", "west"))
    yield made
    made.close()


def result(r: Range, error: RangeError | None) -> dict[int, RangeResult]:
    return {r.range_id: RangeResult(r.range_id, 8, 0, None, 0, 0, 0, 0, 0, 0, 0, error, "h", 1, 0.1)}


def found(store: Coordination, r: Range, progress: StreamProgress, error: RangeError | None = OLDER) -> object:
    """What is noted after a run; a check-in comes after the acknowledgement that was lost."""
    older = OlderPeers(store, TestClock())
    earlier = {("w1", TO_EAST, ""): StreamProgress(4, 4, confirmed=Confirmed(1, 0, BEFORE - 500))}
    store.raise_number(CONFIRMED + EAST, AFTER)
    assert older.note([r], result(r, error), [progress], earlier, older.checked_in([r])) == (error is not None)
    return lost_since(store, EAST)


def test_the_time_is_that_of_the_last_check_in_before_the_lost_acknowledgement(store: Coordination) -> None:
    r = replace(a_range("w2", 9, 20, range_id=0), confirm_file="w2", confirm_first=5)
    progress = StreamProgress(8, 8, confirmed=Confirmed(5, 0, BEFORE))
    assert found(store, r, progress) == (BEFORE, TO_EAST.incarnation), "a check-in behind the loss hides records"


def test_a_block_of_an_earlier_log_has_the_time_of_its_own(store: Coordination) -> None:
    r = replace(a_range("w2", 1, 20, range_id=0), confirm_file="w1", confirm_first=1)
    assert found(store, r, StreamProgress(0, 0)) == (BEFORE - 500, TO_EAST.incarnation)


def test_a_block_of_the_same_run_has_the_check_in_before_the_run(store: Coordination) -> None:
    assert found(store, a_range("w2", 1, 20, range_id=0), StreamProgress(0, 0)) == (AFTER, TO_EAST.incarnation)


def test_the_finding_is_about_all_targets_of_the_last_check_in(store: Coordination) -> None:
    store.raise_number(CONFIRMED_TARGETS + EAST, TO_EAST.incarnation + 7)
    assert found(store, a_range("w2", 1, 20, range_id=0), StreamProgress(0, 0)) == (AFTER, TO_EAST.incarnation + 7)


def test_other_outcomes_note_nothing(store: Coordination) -> None:
    assert found(store, a_range("w2", 1, 20, range_id=0), StreamProgress(0, 0), error=None) is None


def test_the_number_is_read_once_in_a_while(store: Coordination) -> None:
    clock = TestClock()
    older, r = OlderPeers(store, clock), a_range("w2", 1, 20, range_id=0)
    assert older.checked_in([r]) == {EAST: 0}
    store.raise_number(CONFIRMED + EAST, BEFORE)
    assert older.checked_in([r]) == {EAST: BEFORE}, "the first check-in is not seen"
    store.raise_number(CONFIRMED + EAST, AFTER)
    assert older.checked_in([r]) == {EAST: BEFORE}
    clock.jump(READ_AGAIN_MS)
    assert older.checked_in([r]) == {EAST: AFTER}
