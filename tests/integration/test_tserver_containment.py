"""A failure of one tablet stays with it: the status names it, the tserver tries again and serves other tablets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import patch

import pytest
from msgspec.structs import replace

from bookkeeper.errors import BookkeeperError, CorruptionError
from bookkeeper.metadata import keys
from bookkeeper.metadata.metadata_table import RowPut
from bookkeeper.model import Extent
from tests.support.compactions import QUIET, parts_of
from tests.support.faults import fault
from tests.support.tservers import Cells, Ground, LocalNode, flush_of, ground, records, wait_until

pytestmark = pytest.mark.integration

LEFT, RIGHT = Extent("1", b"m", None), Extent("1", None, b"m")
FOUND: Cells = {(b"a", b"f", b"q"): b"1"}


@pytest.fixture
def west(tmp_path: Path) -> Iterator[Ground]:
    with ground(tmp_path / "west", {"tserver.wal_sync_interval_ms": 20}) as made:
        yield made


def _served(west: Ground) -> LocalNode:
    """A record in each of two tablets."""
    west.create_table("1", [b"m"])
    west.set_properties("1", QUIET)
    node = west.local()
    west.assign(node, LEFT, RIGHT)
    west.write(node, LEFT, records([(b"a", b"1")]))
    west.write(node, RIGHT, records([(b"z", b"1")]))
    node.may_die = True
    return node


def _problems(west: Ground, node: LocalNode) -> dict[Extent, str]:
    return {problem.extent: problem.reason for problem in west.tserver(node).tablets().problems}


def _breaking(node: LocalNode, extent: Extent, method: str) -> object:
    """One tablet's data raises what nobody declares."""
    data = parts_of(node, extent)[1].data
    return patch.object(data, method, side_effect=ValueError("no such thing"))


def _the_left_one_goes_on(west: Ground, node: LocalNode) -> None:
    assert not node.died
    assert west.scan(node, LEFT) == FOUND
    west.write(node, LEFT, records([(b"a", b"1")]))


def _a_flush_fails(west: Ground) -> None:
    node = _served(west)
    flusher = node.process.parts.tablets.flusher
    with (
        patch("bookkeeper.tserver.maintenance.flush_schedule.due_tablets", lambda memories, limits: sorted(memories)),  # noqa: ARG005
        patch("bookkeeper.tserver.maintenance.flush_schedule.FAILED_AGAIN_MS", 0),
    ):
        with _breaking(node, RIGHT, "write_segments"):  # type: ignore[attr-defined]
            try:
                flusher._flush_due()
            except ValueError as error:
                raise AssertionError("a flush that fails is more than its tablet's problem") from error
            wait_until(lambda: RIGHT in _problems(west, node), "a named problem")
            assert "a flush of tablet" in _problems(west, node)[RIGHT]
            assert "ValueError: no such thing" in _problems(west, node)[RIGHT]
            assert flush_of(west, LEFT).last_seq == 1, "the other one is flushed"
            _the_left_one_goes_on(west, node)
        flusher._flush_due()
        assert _problems(west, node) == {}
        assert flush_of(west, RIGHT).last_seq == 1


def test_a_flush_that_nobody_can_make_is_its_tablets_problem(west: Ground) -> None:
    _a_flush_fails(west)


def test_a_tablet_whose_flush_failed_rests(west: Ground) -> None:
    node = _served(west)
    flusher = node.process.parts.tablets.flusher
    with (
        patch("bookkeeper.tserver.maintenance.flush_schedule.due_tablets", lambda memories, limits: sorted(memories)),  # noqa: ARG005
        _breaking(node, RIGHT, "write_segments") as broken,  # type: ignore[attr-defined]
    ):
        for _ in range(5):
            flusher._flush_due()
        assert broken.call_count == 1
        _the_left_one_goes_on(west, node)


def _a_compaction_fails(west: Ground) -> None:
    node = _served(west)
    compactor = node.process.parts.tablets.compactor
    with patch("bookkeeper.tserver.maintenance.compactor.FAILED_AGAIN_MS", 0):
        with _breaking(node, RIGHT, "write_merged"):  # type: ignore[attr-defined]
            tickets = {extent: west.tserver(node).compact_tablet(extent, 0) for extent in (LEFT, RIGHT)}
            wait_until(lambda: RIGHT in _problems(west, node), "a named problem")
            wait_until(lambda: west.tserver(node).compact_tablet(LEFT, tickets[LEFT]) == 0, "the other one compacted")
            _the_left_one_goes_on(west, node)
        compactor.run_once()
        wait_until(lambda: west.tserver(node).compact_tablet(RIGHT, tickets[RIGHT]) == 0, "all compacted")
        wait_until(lambda: _problems(west, node) == {}, "no problem any more")


def test_a_compaction_that_nobody_can_make_is_its_tablets_problem(west: Ground) -> None:
    _a_compaction_fails(west)


def test_a_state_that_no_store_takes_is_the_problem_of_a_compaction(west: Ground) -> None:
    """It was not written, which is known before anything is: the tablet is served on."""
    node = _served(west)
    with patch("bookkeeper.metadata.metadata_limits.VALUE_BYTES_MAX", 100):
        node.process.parts.tablets.compactor.request(parts_of(node, RIGHT)[1], 0)
        wait_until(lambda: RIGHT in _problems(west, node), "a named problem")
        assert "bytes of values in one put" in _problems(west, node)[RIGHT]
        assert west.scan(node, RIGHT) == {(b"z", b"f", b"q"): b"1"}
    assert not node.died


def _a_load_fails(west: Ground) -> None:
    """The books say of a tablet what nobody writes: its next number is 2^63, and there is a record for it in a log."""
    node = _served(west)
    for extent in (LEFT, RIGHT):
        west.tserver(node).flush_tablet(extent)
        west.write(node, extent, records([(extent.end_row or b"z", b"2")]))
    state = flush_of(west, RIGHT)
    row, rank = keys.tablet_row("1", None), state.flush_id + 1
    west.metadata.put([RowPut(row, {keys.FLUSH: replace(state, flush_id=rank, last_seq=2**63 - 1).encode()})], rank)
    other = west.local()
    other.may_die = True
    node.lose_session()
    west.recover_logs(node)
    with pytest.raises(BookkeeperError) as refused:
        west.assign(other, RIGHT)
    assert isinstance(refused.value, CorruptionError), "a load that fails is more than its tablet's problem"
    assert refused.match(r"a load of tablet .* failed unexpectedly \(OverflowError")
    west.assign(other, LEFT)
    assert west.tserver(other).tablets().extents == (LEFT,)
    assert not other.died


def test_a_tablet_that_nobody_can_load_is_named(west: Ground) -> None:
    _a_load_fails(west)


def test_a_clean_end_flushes_the_others(west: Ground) -> None:
    node = _served(west)
    with _breaking(node, LEFT, "write_segments"):  # type: ignore[attr-defined]
        node.stop()
    assert flush_of(west, RIGHT).last_seq == 1


@pytest.mark.parametrize(
    ("law", "says"),
    [
        (_a_flush_fails, "a flush that fails is more than its tablet's problem"),
        (_a_load_fails, "a load that fails is more than its tablet's problem"),
    ],
)
def test_without_its_rule_a_law_is_red(law: Callable[[Ground], None], says: str, west: Ground) -> None:
    with fault("one-tablet-is-all"), pytest.raises(AssertionError, match=says):
        law(west)


def test_without_its_rule_a_compaction_ends_a_server(west: Ground) -> None:
    node = _served(west)
    with fault("one-tablet-is-all"), _breaking(node, RIGHT, "write_merged"):  # type: ignore[attr-defined]
        west.tserver(node).compact_tablet(RIGHT, 0)
        wait_until(lambda: bool(node.died), "the end of the server")
