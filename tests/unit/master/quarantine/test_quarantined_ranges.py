"""A range with a permanent error: passed only with its row in the books, kept while as the row is there (R17, R19)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from msgspec.structs import replace

import combiners
from bookkeeper.errors import LeaseLostError, UnavailableError
from bookkeeper.master.index.shipments import Flight, Report
from bookkeeper.master.index.target_progress import Amount
from bookkeeper.master.index.write_times import Look
from bookkeeper.master.quarantine import quarantined_ranges
from bookkeeper.master.quarantine.quarantined_ranges import (
    AUTOMATIC_RANGES_MAX,
    RangeKey,
    blocking_ranges,
    read_rows,
    scan_rows,
    write_rows,
)
from bookkeeper.master.queries.causes import Now
from bookkeeper.master.queries.quarantine_admin import QuarantineAdmin
from bookkeeper.master.queries.target_states import target_states
from bookkeeper.metadata import keys, values
from bookkeeper.metadata.metadata_table import Cell, Row, RowPut
from bookkeeper.metadata.values import Quarantined
from bookkeeper.model import BlockRange, TargetKey
from bookkeeper.rpc.contract.messages import FileMark, WorkItem
from tests.support.failing_metadata import FailingMetadata
from tests.support.faults import fault
from tests.support.master_values import EAST, NORTH, by_name, entry, name, report, shipping
from tests.support.master_world import World
from tests.support.scripted_tserver import ScriptedTServer, scripted
from tests.support.tservers import wait_until
from tests.unit.master.cycle.test_cycle import Running

LAST = b"1<"
BAD = BlockRange(3, 4, 30, 50)
ENTRY = Quarantined(BAD, "invalid_input", "too long", 1_000)
FILE = "wal/s1/000001.wal"


def failure(file: bytes, finished: int, blocks: BlockRange | None = BAD, key: TargetKey = EAST) -> Report:
    """A worker reports a permanent error of blocks."""
    said = report(file, finished, key=key, error="too long", transient=False)
    return replace(said, error_code="invalid_input", failed=blocks)


def test_a_master_that_leads_no_more_sets_nothing_aside(world: World) -> None:
    """Nor does it pass a range: that follows the row."""
    master = world.master()
    master.session.close()
    with pytest.raises(LeaseLostError):
        write_rows(world.table, master.reign, {RangeKey(FILE, EAST, 3): ENTRY})
    assert scan_rows(world.table) == {}


# ---- what blocks


def test_blocks_that_fail_so_often_in_a_row_block_their_queue() -> None:
    work = shipping()
    for tries in range(1, 4):
        work.report(failure(name("s1"), 2), now_ns=0)
        assert len(list(blocking_ranges(work, 3))) == (tries == 3)
    ((key, shipment, blocks),) = blocking_ranges(work, 3)
    assert (key, blocks, shipment.failures) == (RangeKey(name("s1").decode(), EAST, 3), BAD, 3)


def test_progress_other_blocks_and_success_begin_the_count_anew() -> None:
    work = shipping()
    for said in (failure(name("s1"), 4, BlockRange(5, 6, 50, 70)), failure(name("s1"), 2, None), report(name("s1"), 9)):
        work.report(failure(name("s1"), 2), now_ns=0)
        work.report(said, now_ns=0)
        assert list(blocking_ranges(work, 2)) == []
    assert work.shipment((name("s1"), EAST)).failed is None
    for start_position in (0, 30):  # its start may become known in between
        work.report(failure(name("s1"), 2, replace(BAD, start_position=start_position)), now_ns=0)
    assert len(list(blocking_ranges(work, 2))) == 1


def test_an_error_without_blocks_never_blocks_for_good() -> None:
    work = shipping()
    for _ in range(9):
        work.report(failure(name("s1"), 2, None), now_ns=0)
    assert list(blocking_ranges(work, 1)) == []


LATE = [failure(name("s1"), 2), report(name("s1"), 2, error="busy")]
"""Late reports of a try that began before the command."""


@pytest.mark.parametrize("late", LATE)
def test_an_operators_request_does_not_wait_for_an_earlier_try(late: Report) -> None:
    work = shipping(base_ms=600_000, max_ms=600_000)
    stream = (name("s1"), EAST)
    for said in (failure(name("s1"), 2), report(name("s1"), 2, error="down")):
        work.report(said, now_ns=0)
    work.press(stream)
    assert (work.shipment(stream).next_try_ns, work.peer("east").next_try_ns) == (0, 0)
    work.hand_out(stream, Flight("s1", "", 3, 9, 0))
    work.report(late, now_ns=0)
    assert work.shipment(stream).flight is None, "it is handed out again"
    assert (work.shipment(stream).next_try_ns, work.peer("east").next_try_ns) == (0, 0), (
        "a try from before the command makes the range wait again"
    )
    work.report(late, now_ns=0)
    assert max(work.shipment(stream).next_try_ns, work.peer("east").next_try_ns) > 0, "that one had begun afterwards"


@pytest.mark.parametrize("late", LATE)
def test_without_that_rule_a_range_that_was_mended_waits_again(late: Report) -> None:
    with (
        fault("a-try-under-way-counts"),
        pytest.raises(AssertionError, match="a try from before the command makes the range wait again"),
    ):
        test_an_operators_request_does_not_wait_for_an_earlier_try(late)


def test_the_status_says_why_and_which_command_releases_it() -> None:
    work, made = shipping(), entry(name("s1"), 9)
    for _ in range(2):
        work.report(failure(name("s1"), 2), now_ns=0)
    (waiting,) = target_states(by_name(made), work, Now(0, 0), lambda _: True, 3)
    assert waiting.phase == "backing_off"
    (failing,) = target_states(by_name(made), work, Now(0, 0), lambda _: True, 2)
    assert failing.phase == "failing"
    range_id = RangeKey(name("s1").decode(), EAST, 3).range_id
    assert failing.last_error is not None
    assert failing.last_error.startswith("records 3 to 4 failed 2 times with a permanent error: too long")
    assert failing.last_error.endswith(f"replication quarantine hold {range_id}")


def test_a_range_has_one_short_name_and_others_have_others() -> None:
    files, targets, firsts = (FILE, FILE + "x"), (EAST, NORTH), (3, 4)
    all_keys = [RangeKey(file, target, first) for file in files for target in targets for first in firsts]
    assert len({key.range_id for key in all_keys}) == 8
    assert RangeKey(FILE, EAST, 3).range_id == RangeKey(FILE, EAST, 3).range_id


# ---- its row in the books


def test_rows_that_do_not_parse_are_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    good = keys.quar_column(EAST, 3)
    cells = {good: Cell(1, ENTRY.encode()), keys.quar_column(EAST, 9): Cell(1, b"{")}
    assert read_rows([Row(keys.quar_row(FILE), cells)]) == {RangeKey(FILE, EAST, 3): ENTRY}
    assert "can't be parsed as a range in quarantine" in caplog.text


@pytest.fixture
def tserver(world: World) -> Iterator[ScriptedTServer]:
    with scripted(world) as found:
        world.locate(LAST, found.session)
        yield found


def _failing_range(world: World, tserver: ScriptedTServer, running: Running) -> WorkItem:
    """A file of the tserver whose blocks 3 to 4 are refused for good."""
    world.enable("1")
    file = world.name(tserver.session)
    world.use(LAST, file, 9)
    running.cycle.live = {}
    item = running.until_given(tserver, 1)[0]
    running.world.ship(file, item.target, 2)
    for _ in range(world.settings.replication.quarantine_tries):
        said = failure(file.encode(), 2, key=item.target)
        running.event_queue.report([replace(said, session=tserver.session, txid=item.txid)])
        running.once()
        world.clock.jump(60_000)
    return item


def check_passed_with_its_row(world: World, policy: str = "auto") -> None:
    """The law: a tserver that is told to pass a range finds its row in the books at that moment. When the row can't be
    written, no tserver is told.
    """
    replication = replace(world.settings.replication, quarantine=policy)
    world.settings = replace(world.settings, replication=replication)
    table = FailingMetadata(world.table)
    seen: list[tuple[tuple[BlockRange, ...], dict[RangeKey, Quarantined]]] = []
    with ExitStack() as stack:
        tserver = stack.enter_context(scripted(world))
        tserver.on_work = lambda item: seen.append((item.passed, scan_rows(world.table)))
        world.locate(LAST, tserver.session)
        running = Running(world, world.master(), table)
        stack.callback(running.lanes.stop)
        with table.failing(lambda call, columns: call == "put" and any(c.startswith(b"quar:") for c in columns)):
            item = _failing_range(world, tserver, running)
            running.once(3)
            assert all(passed == () for passed, _ in seen), "a range is passed without its row in the books"

        def told() -> bool:
            running.once()
            return any(passed for passed, _ in seen)

        wait_until(told, "a worker that is told to pass the range", 20)
    for passed, rows in seen:
        for blocks in passed:
            row = rows.get(RangeKey(item.file, item.target, blocks.first))
            assert row is not None, "a range is passed without its row in the books"
            assert row.blocks == blocks


def test_no_worker_passes_a_range_without_its_row_in_the_books(world: World) -> None:
    check_passed_with_its_row(world)


def test_without_the_row_first_a_range_is_lost_silently(world: World) -> None:
    with (
        fault("passed-without-a-row"),
        pytest.raises(AssertionError, match="a range is passed without its row in the books"),
    ):
        check_passed_with_its_row(world)


def test_by_default_nothing_is_set_aside_until_a_person_says_so(world: World, tserver: ScriptedTServer) -> None:
    running = Running(world, world.master())
    item = _failing_range(world, tserver, running)
    running.once(3)
    assert scan_rows(world.table) == {}
    key = RangeKey(item.file, item.target, 3)
    context = _context(world, running)
    (told,) = context.list_ranges({"1": "table-1"})
    assert (told.state, told.range_id, told.table, told.blocks) == ("blocking", key.range_id, "table-1", BAD)
    assert context.hold(key.range_id, {}).state == "held"
    assert scan_rows(world.table).keys() == {key}

    def passes() -> bool:
        running.once()
        return any(given.passed for given in tserver.items)

    wait_until(passes, "a range that passes the blocks")  # one without was on its way, perhaps
    assert (tserver.items[-1].first_offset, tserver.items[-1].passed) == (3, (BAD,))
    running.lanes.stop()


def _context(world: World, running: Running) -> QuarantineAdmin:
    master = running.master
    tries = world.settings.replication.quarantine_tries
    return QuarantineAdmin(
        world.table, master.reign, world.clock, master.fate, running.event_queue, running.shipping, tries
    )


def test_a_peer_that_refuses_everything_is_not_set_aside_bit_by_bit(world: World) -> None:
    running = Running(world, world.master())
    auto = replace(world.settings.replication, quarantine="auto", quarantine_tries=1)
    running.quarantine.settings = auto
    for number in range(AUTOMATIC_RANGES_MAX + 5):
        running.shipping.report(failure(name("s1", number), 2), now_ns=0)
    running.shipping.report(failure(name("s1", 1), 2, key=NORTH), now_ns=0)
    assert len(running.quarantine.hold_due(running.shipping)) == AUTOMATIC_RANGES_MAX + 1
    assert running.quarantine.hold_due(shipping()) == []


def test_a_new_master_reads_the_ranges_in_quarantine(world: World) -> None:
    key = RangeKey(FILE, EAST, 3)
    first = Running(world, world.master())
    first.quarantine.hold({key: ENTRY})
    second = Running(world, world.depose(first.master))
    assert second.quarantine.passed(key.work) == ()
    second.quarantine.refresh()
    assert second.quarantine.passed(key.work) == (BAD,)
    late = replace(ENTRY, error="written late")
    write_rows(world.table, second.master.reign, {key: ENTRY})
    first.quarantine.hold({key: late})
    assert scan_rows(world.table)[key] == ENTRY, "the writes of a deposed master are older"


def test_a_range_of_an_import_keeps_its_place_in_the_tablet(world: World) -> None:
    """The cell that has the place goes when the queue has passed the range."""
    key = RangeKey("wal/import-1", EAST, 3)
    status = combiners.ReplicationStatus(replication_needed_offset=9, first_seq=41)
    cell = {keys.needed_column(EAST): values.encode_status(status)}
    world.table.put([RowPut(keys.repl_row(key.file), cell)], keys.master_rank(1, 1))
    running = Running(world, world.master())
    running.quarantine.hold({key: ENTRY})
    assert scan_rows(world.table)[key] == replace(ENTRY, first_seq=41)


def test_r7_a_target_counts_as_unconfigured_after_two_cycles(world: World) -> None:
    target = world.enable("1")
    running = Running(world, world.master())
    key = RangeKey(FILE, target, 3)
    running.quarantine.hold({key: ENTRY})
    running.cycle.full()
    world.disable("1")
    running.cycle.full()
    assert running.given_up == []
    running.cycle.full()
    assert running.given_up == [key]


# ---- the file


def check_file_is_kept(world: World) -> None:
    """The law: a file of which nothing is needed but a range in quarantine stays, and goes when the row does."""
    session = world.tserver()
    file = world.log(session, 4, seal=True)
    master = world.master()
    key = RangeKey(file, EAST, 3)
    write_rows(world.table, master.reign, {key: ENTRY})
    assert master.collect(3) == [], "the file of a range in quarantine goes"
    assert world.exists(file)
    world.table.delete([key.cell], master.reign.next_rank())
    assert master.collect(3) == [file]


def test_a_file_stays_while_a_range_of_it_is_in_quarantine(world: World) -> None:
    check_file_is_kept(world)


def test_without_the_collectors_check_the_file_of_a_quarantined_range_is_deleted(world: World) -> None:
    with (
        fault("quarantine-keeps-nothing"),
        pytest.raises(AssertionError, match="the file of a range in quarantine goes"),
    ):
        check_file_is_kept(world)


def test_references_are_read_in_the_order_in_which_they_end(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A range has its row before its file's books go: a reader that reads the rows last misses neither."""
    sections: list[bytes] = []
    scan = world.table.scan

    def noted(start: bytes = b"", *rest: object) -> Iterator[Row]:
        for row in scan(start, *rest):  # type: ignore[arg-type]
            if start not in sections:
                sections.append(start)
            yield row

    session = world.tserver()
    file = world.log(session, 4, seal=True)
    master = world.master()
    write_rows(world.table, master.reign, {RangeKey(file, EAST, 3): ENTRY})
    world.ship(file, EAST, 4)
    monkeypatch.setattr(world.table, "scan", noted)
    master.collector.observe()
    assert [s for s in sections if s] == [keys.REPL_PREFIX, keys.QUAR_PREFIX]


# ---- what a person sees


def test_a_quarantined_range_is_not_replicated_after_its_queue_passed_it(world: World) -> None:
    running = Running(world, world.master())
    target = TargetKey("east", "r1", "1", 1)
    key = RangeKey(FILE, target, 3)
    write_rows(world.table, running.master.reign, {key: ENTRY})
    context = _context(world, running)
    for offset, cluster, below in ((2, "", 0), (3, "", 1), (9, "east", 1), (9, "north", 0)):
        found = context.statuses_below([FileMark(FILE, offset)], "1", cluster, {})
        assert len(found) == below
    assert context.statuses_below([FileMark(FILE, 9)], "2", "", {}) == []
    (status,) = context.statuses("1", {"1": "cities"})
    assert (status.phase, status.table, status.finished, status.needed) == ("quarantined", "cities", 2, 4)
    assert (status.cause, status.root_cause) == ("quarantined", None)
    assert (status.lag_records, status.lag_bytes, status.lag_seconds) == (2, 20, None)
    running.shipping.times.note_range((*key.work, key.first), world.clock.boot_ns() - 4_000_000_000)
    (status,) = context.statuses("1", {"1": "cities"})
    assert status.lag_seconds == pytest.approx(4.0, abs=1)
    assert status.last_error is not None
    assert f"replication quarantine retry|skip {key.range_id}" in status.last_error


@pytest.mark.parametrize("holder", ["operator", "policy"])
def test_a_range_that_enters_the_quarantine_keeps_the_age_of_its_first_block(world: World, holder: str) -> None:
    running, target = Running(world, world.master()), TargetKey("east", "r1", "1", 1)
    key, shipping_ = RangeKey(FILE, target, 3), running.shipping
    now_ns = world.clock.boot_ns()
    for records, ago_s in ((2, 300), (4, 200), (9, 10)):
        shipping_.times.note_growth(key.work, 0, 0, records, Look(now_ns - ago_s * 1_000_000_000))
    refused = replace(failure(FILE.encode(), 2, key=target), share=Amount(2, 20))
    for _ in range(world.settings.replication.quarantine_tries):
        shipping_.report(refused, now_ns=0)
    context = _context(world, running)
    if holder == "operator":
        context.hold(key.range_id, {})
    else:
        running.quarantine.settings = replace(world.settings.replication, quarantine="auto")
        assert running.quarantine.hold_due(shipping_) == [key]
    shipping_.report(replace(report(FILE.encode(), 9, key=target), share=Amount(9, 90)), now_ns=0)
    shipping_.times.note_growth(key.work, 9, 9, 12, Look(now_ns))
    (status,) = context.statuses("1", {"1": "cities"})
    assert status.lag_seconds == pytest.approx(200, abs=1)


def test_the_operations_of_a_range_are_shown(world: World) -> None:
    running = Running(world, world.master())
    target = world.enable("1")
    key = RangeKey(FILE, target, 3)
    write_rows(world.table, running.master.reign, {key: ENTRY})
    context = _context(world, running)
    with pytest.raises(UnavailableError, match="still at"):
        context.skip(key.range_id, 0)
    (told,) = context.list_ranges({})
    assert told.state == "skipping"


def test_the_lines_that_people_get_name_command_and_range() -> None:
    key = RangeKey(FILE, EAST, 3)
    for line in (
        quarantined_ranges.quarantine_message(key, ENTRY),
        quarantined_ranges.advice(key.range_id, BAD, "too long", 7),
    ):
        assert key.range_id in line
        assert "records 3 to 4" in line
