"""A tablet that is served without a log: what it remembers until the log's tail has come (N6, R18, R24)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from bookkeeper.errors import GapError
from bookkeeper.metadata import keys
from bookkeeper.metadata.metadata_table import Cell, Row
from bookkeeper.metadata.values import LogHome
from bookkeeper.model import StreamKey
from bookkeeper.tserver.receive.receiver import SliceApply
from bookkeeper.tserver.receive.tablet_slice import ReceivedRange
from bookkeeper.tserver.tablets.given_up import GivenUpLogs
from bookkeeper.tserver.tablets.load_plan import LogToRead, Recovered, parse_tablet, recovery_plan, tails_to_merge
from bookkeeper.tserver.tablets.tablet import MergedBlock, ServedTablet
from bookkeeper.tserver.tablets.wal_order import WalPosition
from bookkeeper.tserver.write.control_submissions import ForgetStreams
from tests.support.faults import fault
from tests.support.must_raise import must_raise
from tests.support.tservers import records
from tests.unit.tserver.tablets.test_load_plan import flush_state, tablet_row
from tests.unit.tserver.tablets.test_tablet import Served, flushed
from tests.unit.tserver.write.test_submissions import POINT, context

AWAY, HERE = "wal/s1/000002.wal", "wal/s2/000001.wal"
STREAM = StreamKey("east", "1.wal", "7", "1", 1)


def away_row() -> Row:
    """A tablet at its third serial, with one log that can be read and one that was given up."""
    cells = {keys.SERIAL: Cell(3, keys.SERIAL_VALUE), keys.lost_column(AWAY): Cell(3, LogHome("h", "1").encode())}
    cells |= {keys.log_column(log): Cell(1, b"{}") for log in (AWAY, HERE)}
    base = tablet_row(flush=flush_state(through={AWAY: 7}).encode())
    return Row(base.key, {**base.cells, **cells})


def served_without(directory: Path, after: int = 7) -> Served:
    """A tablet that is served without a log, whose records after this offset it lacks."""
    recovered = Recovered(
        next_seq=50, last_wals=(WalPosition(AWAY, after),), tails={AWAY: after}, lost=frozenset({AWAY})
    )
    return Served(directory, recovered)


def tail(*rows: bytes) -> MergedBlock:
    return MergedBlock(records([(row, b"tail") for row in rows], timestamp=1), 10, 900)


def test_n6_loading_reads_every_log_but_the_given_up_ones() -> None:
    row = parse_tablet(away_row())
    assert recovery_plan(row) == [LogToRead(HERE, 0)]
    assert tails_to_merge(row) == [LogToRead(AWAY, 7)]


def test_a_holder_without_a_log_numbers_its_records_above_all_earlier_ones() -> None:
    recovered = Recovered.start(flush_state(last_seq=40))
    recovered.go_without(parse_tablet(away_row()), 0)
    assert recovered.next_seq > 40 + 2**32, "a record has the number of one in the tail"
    assert recovered.tails == {AWAY: 7}


def test_n7_a_holder_without_a_log_begins_above_all_times_in_it() -> None:
    recovered = Recovered.start(flush_state(last_seq=40))
    recovered.go_without(parse_tablet(away_row()), 5_000)
    assert recovered.last_time_ms == 5_001, "N7: at a peer, the tail wins"
    later = Recovered(last_time_ms=9_000)
    later.go_without(parse_tablet(away_row()), 5_000)
    assert later.last_time_ms == 9_000


def test_n7_red_its_own_clock_is_enough() -> None:
    with fault("leaders-trust-their-clock"), pytest.raises(AssertionError, match="N7: at a peer"):
        test_n7_a_holder_without_a_log_begins_above_all_times_in_it()


def test_red_a_tail_is_newer_than_what_was_written_after_it() -> None:
    with fault("tails-are-newer"), pytest.raises(AssertionError, match="a record has the number of one in the tail"):
        test_a_holder_without_a_log_numbers_its_records_above_all_earlier_ones()


def test_r24_no_record_waits_for_a_log_of_a_session_that_was_given_up(tmp_path: Path) -> None:
    draft = served_without(tmp_path).write(HERE, b"a")
    assert not draft.header.after, "R24: peers wait for a log that may never come back"
    older = GivenUpLogs({AWAY}, {}).in_order((WalPosition("wal/s1/000001.wal", 3), WalPosition("wal/s3/000001.wal", 4)))
    assert older == (WalPosition("wal/s3/000001.wal", 4),), "an older log of the session lies on the same disk"


def test_red_r24_peers_wait(tmp_path: Path) -> None:
    with fault("tails-are-waited-for"), pytest.raises(AssertionError, match="R24: peers wait"):
        test_r24_no_record_waits_for_a_log_of_a_session_that_was_given_up(tmp_path)


def test_n6_each_state_says_where_a_tail_begins(tmp_path: Path) -> None:
    served = served_without(tmp_path)
    for now_ns in (1, 2, 3):
        served.write(HERE, b"a")
        point = flushed(served, HERE, now_ns)
        assert point.state.through.get(AWAY) == 7, "N6: the next leader merges records that segments have"
        assert AWAY not in point.logs


def test_red_n6_states_forget_it(tmp_path: Path) -> None:
    with fault("states-forget-where-tails-begin"), pytest.raises(AssertionError, match="N6: the next leader merges"):
        test_n6_each_state_says_where_a_tail_begins(tmp_path)


def test_n6_a_flush_has_the_complete_tail_or_nothing_of_it(tmp_path: Path) -> None:
    served = served_without(tmp_path)
    served.tablet.merge_tail(AWAY, [tail(b"a"), tail(b"b")])
    assert served.tablet.data.memory_records == 2
    point = flushed(served, HERE, 1)
    assert point.state.through[AWAY] == keys.OFFSET_MAX
    assert point.logs == {AWAY: keys.OFFSET_MAX}
    assert served.tablet.given_up.merged == {AWAY}
    assert served.tablet.given_up.awaits_tails, "the state is not named yet"
    served.tablet.given_up.close({AWAY})
    assert not served.tablet.given_up.awaits_tails


def test_the_server_time_of_later_records_is_not_before_a_tail(tmp_path: Path) -> None:
    served = served_without(tmp_path)
    served.tablet.merge_tail(AWAY, [MergedBlock(None, 10, 5_000)])
    assert served.write(HERE, b"a").header.write_time_ms == 5_000


def forget(served: Served) -> bool:
    """Whether a tablet forgets a stream that has ended."""
    served.tablet.received.apply_high_water(STREAM, 9)
    ForgetStreams([served.tablet], [STREAM]).applied([])
    return STREAM not in served.tablet.received.high_water


def check_remembers(directory: Path) -> None:
    assert not forget(served_without(directory)), "R18: the tail brings records of a forgotten stream a second time"


def test_r18_a_stream_is_remembered_until_the_tail_has_come(tmp_path: Path) -> None:
    check_remembers(tmp_path)
    assert forget(Served(tmp_path))


def resume(tablet: ServedTablet) -> None:
    """The sender takes the records up to 20 for known everywhere here, and goes on behind them."""
    received = ReceivedRange(STREAM, ("east",), acked=20, after=20, to=21, blocks=())
    SliceApply(context(), tablet, received, tablet.received.forgotten_count).prepare(POINT)


def check_asks_again(directory: Path) -> None:
    with must_raise(GapError, "R18: records that only the tail has count as received", match="here up to 0"):
        resume(served_without(directory).tablet)


def test_r18_a_sender_is_not_believed_that_the_tablet_has_its_records(tmp_path: Path) -> None:
    check_asks_again(tmp_path)
    resume(Served(tmp_path).tablet)


@pytest.mark.parametrize(
    ("switch", "check", "said"),
    [
        ("tails-have-no-duplicates", check_remembers, "R18: the tail brings records of a forgotten stream"),
        ("senders-are-believed", check_asks_again, "R18: records that only the tail has count"),
    ],
)
def test_red_r18(tmp_path: Path, switch: str, check: Callable[[Path], None], said: str) -> None:
    with fault(switch), pytest.raises(AssertionError, match=said):
        check(tmp_path)
