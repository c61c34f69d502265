"""The thread's stages against tservers that answer: ranges handed out, given back, tried again, and shown."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from bookkeeper.coordination.config_changes import change_table, remove_table_record, set_table_properties
from bookkeeper.coordination.config_tree import table_path
from bookkeeper.errors import LeaseLostError, OverloadedError, UnavailableError
from bookkeeper.master.calls.keyed_executors import KeyedExecutors
from bookkeeper.master.calls.tserver_calls import TServerCalls
from bookkeeper.master.cycle.cycle import Cycle, CycleTiming
from bookkeeper.master.cycle.event_queue import EventQueue
from bookkeeper.master.cycle.replicate_file import KIND, ReplicateFiles
from bookkeeper.master.cycle.work_dispatch import RESEND_NS, DispatchSettings, WorkDispatcher
from bookkeeper.master.fate.fate_store import FateStore
from bookkeeper.master.index.shipments import Report, Shipments
from bookkeeper.master.operations.hosts.replica_moves import Moves
from bookkeeper.master.operations.table_lifecycle import as_deleted
from bookkeeper.master.placement.placement import Placement
from bookkeeper.master.quarantine.quarantined_ranges import Quarantine, RangeKey
from bookkeeper.master.replicas.away_hosts import AwayHosts
from bookkeeper.master.replicas.failover import LogFailover
from bookkeeper.master.replicas.leader_choice import LeaderChoice
from bookkeeper.master.replicas.repair_state import RepairLimits
from bookkeeper.master.replicas.repairer import Repairer
from bookkeeper.metadata import keys, values
from bookkeeper.metadata.metadata_table import CellKey, MetadataTable, RowPut
from bookkeeper.model import Barrier, TargetKey
from bookkeeper.rpc.contract.messages import WorkItem
from tests.support.faults import fault
from tests.support.master_world import Master, World
from tests.support.scripted_tserver import ScriptedTServer, scripted
from tests.support.tservers import wait_until

LAST = b"1<"


class Running:
    """One leader's cycle, driven by hand."""

    def __init__(self, world: World, master: Master, quarantine_table: MetadataTable | None = None) -> None:
        self.world, self.master = world, master
        self.lanes, self.event_queue = KeyedExecutors(), EventQueue()
        rng = random.Random(1)
        store = FateStore(world.table, master.reign)
        replicating = ReplicateFiles(store, world.clock)
        replicating.adopt(store.load())
        settings = world.settings.master
        self.shipping = Shipments(settings.backoff_base_ms, settings.backoff_max_ms, rng)
        self.given_up: list[RangeKey] = []
        table = world.table if quarantine_table is None else quarantine_table
        self.quarantine = Quarantine(table, master.reign, world.clock, world.settings.replication, self.given_up.append)
        calls = TServerCalls(master.tservers, self.lanes)
        self.dispatcher = WorkDispatcher(
            DispatchSettings.of(world.settings),
            world.clock,
            master.reign,
            calls,
            self.event_queue,
            replicating,
            self.shipping,
            self.quarantine,
        )
        ask_place = self.event_queue.ask_place
        leaders = LeaderChoice.by_master(world.table, calls, ask_place)
        placement = Placement(master.books.stores, calls, world.clock, ask_place, master.books.note_assigned, leaders)
        stores, limits = master.books.stores, RepairLimits(60_000, 2, 90_000)
        away = AwayHosts(world.coordination, world.clock)
        repairer = Repairer(
            stores,
            world.clock,
            leaders.held,
            limits,
            placement.request_leader,
            Moves,
            lambda *_: None,
            away,
            lambda _: None,
            tuple,
        )
        failover = LogFailover(stores, world.clock, dict, placement.is_loaded)
        self.cycle = Cycle(
            CycleTiming(world.clock, rng, settings),
            calls,
            master.books,
            placement,
            repairer,
            failover,
            master.recovery,
            self.dispatcher,
            self.event_queue,
        )

    def once(self, times: int = 1) -> None:
        """Cycles, as the thread runs them."""
        for _ in range(times):
            self.cycle.run_once()

    def until_given(self, tserver: ScriptedTServer, count: int) -> list[WorkItem]:
        """Cycle until the tserver got so many ranges."""

        def given_out() -> bool:
            self.once()
            return len(tserver.items) >= count

        wait_until(given_out, f"{count} ranges, not {tserver.items}")
        assert len(tserver.items) == count
        return tserver.items

    def said(self, tserver: ScriptedTServer, item: WorkItem, finished: int, error: str | None = None) -> None:
        """The worker's report, and its cell."""
        if finished:
            self.world.ship(item.file, item.target, finished)
        report = Report(
            tserver.session, item.txid, item.file.encode(), item.target, finished, finished, 0, 0, error, bool(error)
        )
        self.event_queue.report([report])


@pytest.fixture
def tserver(world: World) -> Iterator[ScriptedTServer]:
    """A live tserver that holds the tablet."""
    with scripted(world) as found:
        world.locate(LAST, found.session)
        yield found


@pytest.fixture
def target(world: World) -> TargetKey:
    """Table 1 is replicated."""
    return world.enable("1")


@pytest.fixture
def running(world: World, tserver: ScriptedTServer, target: TargetKey) -> Iterator[Running]:
    """A leader's cycle; the tserver's log is there and in use, three records needed."""
    world.log(tserver.session, 3)
    world.use(LAST, world.name(tserver.session), 3)
    assert world.target(target).key == target
    found = Running(world, world.master())
    yield found
    found.lanes.stop()


# ---- work


def test_a_range_goes_to_the_tserver_with_all_that_it_needs(
    world: World, tserver: ScriptedTServer, running: Running
) -> None:
    (item,) = running.until_given(tserver, 1)
    assert (item.file, item.first_offset, item.last_offset) == (world.name(tserver.session), 1, 3)
    assert (item.peer_quorum, item.peer_instance_id) == ("127.0.0.1:1", "east-instance")
    assert item.epoch == running.master.reign.epoch
    (record,) = FateStore(world.table, running.master.reign).load()
    assert (record.op.type, record.txid, record.state) == (KIND, item.txid, {"session": tserver.session})


def test_a_nudge_extends_a_flight(world: World, tserver: ScriptedTServer, running: Running) -> None:
    running.until_given(tserver, 1)
    world.use(LAST, world.name(tserver.session), 8)
    full = running.cycle.health.full_cycles
    running.event_queue.nudge(tserver.session)
    running.once()
    wait_until(lambda: len(tserver.items) == 2, "a second range")
    assert (tserver.items[1].first_offset, tserver.items[1].last_offset) == (1, 8)
    assert tserver.items[1].txid == tserver.items[0].txid
    assert (running.cycle.health.full_cycles, running.cycle.health.quick_cycles > 0) == (full, True)


def test_a_report_makes_the_next_range_begin_behind_it_without_reading_all_books(
    world: World, tserver: ScriptedTServer, running: Running
) -> None:
    (item,) = running.until_given(tserver, 1)
    running.said(tserver, item, 3)
    world.use(LAST, item.file, 5)
    running.event_queue.nudge(tserver.session)
    found = running.until_given(tserver, 2)
    assert (found[1].first_offset, found[1].last_offset) == (4, 5)


def cycles_of(running: Running) -> int:
    return running.cycle.health.full_cycles + running.cycle.health.quick_cycles


def test_a_report_of_all_that_is_needed_starts_no_cycle_and_is_shown(
    tserver: ScriptedTServer, running: Running
) -> None:
    (item,) = running.until_given(tserver, 1)
    before = cycles_of(running)
    running.said(tserver, item, 3)
    running.once()
    assert cycles_of(running) == before, "a cycle that has nothing to do"
    shipment = running.shipping.shipment((item.file.encode(), item.target))
    assert (shipment.finished, shipment.flight) == (3, None)


def test_a_report_starts_a_cycle_when_there_is_something_to_do(tserver: ScriptedTServer, running: Running) -> None:
    (item,) = running.until_given(tserver, 1)
    before = cycles_of(running)
    running.said(tserver, item, 3)
    running.event_queue.wake()
    running.once()
    assert cycles_of(running) == before + 1, "an operation that wants a cycle waits"
    running.said(tserver, item, 0, "no")
    running.once()
    assert cycles_of(running) == before + 2, "a range with an error waits for its try or for its place in quarantine"


def test_a_report_starts_a_cycle_when_a_barrier_is_passed(
    world: World, tserver: ScriptedTServer, running: Running
) -> None:
    first = world.name(tserver.session)
    later = world.log(tserver.session, 2, number=2, after=[(1, first, 3)])
    world.use(LAST, later, 2, [Barrier(1, first, 3)])
    (item,) = running.until_given(tserver, 1)
    assert item.file == first
    running.said(tserver, item, 3)
    before = cycles_of(running)
    running.once()
    wait_until(lambda: len(tserver.items) == 2, "the records behind the barrier are handed out")
    assert (cycles_of(running), tserver.items[1].file) == (before + 1, later)


def test_a_file_that_is_done_ends_its_operation(world: World, tserver: ScriptedTServer, running: Running) -> None:
    (item,) = running.until_given(tserver, 1)
    world.closed(LAST, item.file, 3)
    running.said(tserver, item, 3)
    for _ in range(3):
        running.event_queue.ask_full()
        running.once()
    assert world.repl(item.file) == {}
    assert FateStore(world.table, running.master.reign).load() == []
    assert not running.shipping.shipments


def test_a_range_that_did_not_reach_its_tserver_is_handed_out_again(
    world: World, tserver: ScriptedTServer, running: Running
) -> None:
    tserver.trouble["assign_work"] = OverloadedError("full")
    key = (world.name(tserver.session).encode(), world.config().targets_of("1")[0].key)

    def came_back() -> bool:
        running.once()
        return tserver.session in running.shipping.tservers

    wait_until(came_back, "the range given back")
    assert running.shipping.shipments[key].flight is None
    running.once(3)
    assert running.shipping.tservers[tserver.session].failures == 1, "it is left alone for a while"
    tserver.trouble.clear()
    world.clock.jump(1_000)
    running.until_given(tserver, 1)


def test_a_silent_range_is_sent_again_after_a_while(world: World, tserver: ScriptedTServer, running: Running) -> None:
    running.until_given(tserver, 1)
    running.once(3)
    assert len(tserver.items) == 1
    world.clock.jump(RESEND_NS // 1_000_000 + 1)
    found = running.until_given(tserver, 2)
    assert found[0] == found[1]


def test_a_failing_peer_is_tried_again_when_its_backoff_is_over(
    world: World, tserver: ScriptedTServer, running: Running
) -> None:
    (item,) = running.until_given(tserver, 1)
    running.said(tserver, item, 0, "connection refused")
    running.once(3)
    assert len(tserver.items) == 1
    due_ns = running.dispatcher.next_try_ns()
    assert due_ns is not None
    assert due_ns <= running.cycle._due_ns()
    world.clock.jump(60_000)
    running.until_given(tserver, 2)


def test_a_new_replay_process_ends_every_wait(world: World, tserver: ScriptedTServer, running: Running) -> None:
    (item,) = running.until_given(tserver, 1)
    running.said(tserver, item, 0, "no replay process is running")
    running.once(2)
    assert len(tserver.items) == 1
    running.event_queue.replay_started()
    running.until_given(tserver, 2)
    assert world.config().tables


def test_the_work_of_a_dead_tserver_goes_to_another_that_can_read_its_log(
    world: World, tserver: ScriptedTServer, running: Running
) -> None:
    (item,) = running.until_given(tserver, 1)
    world.kill(tserver.session)
    with scripted(world) as other:
        running.event_queue.ask_full()
        (again,) = running.until_given(other, 1)
    assert (again.file, again.txid, again.last_offset) == (item.file, item.txid, 3)


def test_the_next_master_goes_on_with_the_operation_of_a_file(
    world: World, tserver: ScriptedTServer, running: Running
) -> None:
    (item,) = running.until_given(tserver, 1)
    world.ship(item.file, item.target, 2)
    successor = Running(world, world.depose(running.master))
    found = successor.until_given(tserver, 2)
    assert (found[1].txid, found[1].first_offset, found[1].last_offset) == (item.txid, 3, 3)
    assert found[1].epoch > item.epoch
    successor.lanes.stop()


def _known_when_a_missing_file_failed(
    tserver: ScriptedTServer, running: Running, target: TargetKey
) -> tuple[bool, int]:
    """Whether a report of a file that is not outstanding changed the master's shipments, and failures of the peer."""
    running.until_given(tserver, 1)
    known = set(running.shipping.shipments)
    running.event_queue.report([Report(tserver.session, "t", b"nothing", target, 9, 9, 0, 0, "no", True)])
    running.once()
    return set(running.shipping.shipments) != known, running.shipping.peer("east").failures


def test_r11_a_report_of_a_file_that_is_not_outstanding_counts_for_nothing(
    tserver: ScriptedTServer, running: Running, target: TargetKey
) -> None:
    assert _known_when_a_missing_file_failed(tserver, running, target) == (False, 0)


def test_r11_red_reports_count_for_ever(tserver: ScriptedTServer, running: Running, target: TargetKey) -> None:
    with fault("reports-count-for-ever"):
        changed, _ = _known_when_a_missing_file_failed(tserver, running, target)
    assert changed, "without R11 a file that is gone is tried again and again"


def test_an_offline_peer_delays_no_other(world: World, tserver: ScriptedTServer, running: Running) -> None:
    (item,) = running.until_given(tserver, 1)
    running.said(tserver, item, 0, "connection refused")
    running.once()
    world.define("north")
    second = world.enable("1", "north", "r2")

    def given_out() -> bool:
        running.once()
        return any(given.target == second for given in tserver.items)

    wait_until(given_out, "a range for the other peer")


# ---- the thread


def test_a_transient_error_ends_the_cycle_is_shown_and_the_next_one_is_a_full_one(
    world: World, running: Running
) -> None:
    running.once()
    health = running.cycle.health
    with pytest.MonkeyPatch.context() as patch:

        def no_store(*_: object) -> object:
            raise UnavailableError("the store is away")

        patch.setattr(world.table, "scan", no_store)
        running.event_queue.ask_full()
        running.once()
    assert (health.failures, health.last_error) == (1, "unavailable: the store is away")
    full = health.full_cycles
    running.once()
    assert (health.full_cycles, health.last_error) == (full + 1, "")


def test_an_unreadable_configuration_ends_the_cycle_and_is_shown(world: World, running: Running) -> None:
    running.once()
    world.coordination.put(table_path("1"), b"{")
    running.once()
    assert running.cycle.health.last_error.startswith("corruption: configuration /tables/1")


def test_a_lost_lease_ends_the_thread(running: Running) -> None:
    running.once()
    running.master.session.close()
    running.event_queue.ask_full()
    with pytest.raises(LeaseLostError):
        running.once()


def test_a_changed_configuration_makes_the_next_cycle_a_full_one(world: World, running: Running) -> None:
    running.once(4)
    full = running.cycle.health.full_cycles
    running.once()
    assert running.cycle.health.full_cycles == full
    world.define("north")
    running.once()
    assert running.cycle.health.full_cycles == full + 1


def test_files_of_dead_sessions_are_safe_after_a_second_full_cycle_at_once(world: World, target: TargetKey) -> None:
    dead = world.tserver()
    world.closed(LAST, world.name(dead), 5)
    world.kill(dead)
    with scripted(world) as other:
        running = Running(world, world.master())
        running.once(2)
        (item,) = running.until_given(other, 1)
        assert (item.last_offset, item.target) == (5, target)
        assert running.cycle.health.full_cycles == 2
        running.lanes.stop()


def test_garbage_collection_of_lanes_follows_the_live_tservers(world: World, running: Running) -> None:
    with ExitStack() as stack:
        extra = stack.enter_context(scripted(world))
        running.once()
        running.event_queue.ask_full()
        running.once()
        assert extra.session in running.cycle.live
    running.event_queue.ask_full()
    running.once()
    assert extra.session not in running.cycle.live


# ---- tablets that change


def test_tablets_that_an_operation_changed_are_placed_without_reading_all_books(
    world: World, tserver: ScriptedTServer, running: Running
) -> None:
    wait_until(lambda: _cycles_until(running, lambda: bool(tserver.held)), "the first tablet loaded")
    full = running.cycle.health.full_cycles
    rows = world.create_table("2", [b"m"])
    running.event_queue.tablets_changed(*keys.table_section("2"))
    wait_until(lambda: _cycles_until(running, lambda: len(tserver.held) == 3), "the new tablets loaded")
    tablets = running.cycle.books.snapshot.tablets
    assert {tablets[row].session for row in rows} == {tserver.session}
    world.table.purge([CellKey(rows[0], keys.PREV_ROW), CellKey(rows[0], keys.DIR)])
    world.table.put([RowPut(rows[1], {keys.PREV_ROW: values.encode_prev_row(None)})], 2)
    running.event_queue.tablets_changed(rows[0], rows[1] + b"\x00")
    running.once()
    assert rows[0] not in tablets
    assert tablets[rows[1]].extent.prev_row is None
    assert running.cycle.health.full_cycles == full


def _cycles_until(running: Running, condition: Callable[[], bool]) -> bool:
    running.once()
    return condition()


def test_only_tablets_follow_from_a_new_table_and_all_books_from_targets_peers_and_tables_that_go(
    world: World, running: Running
) -> None:
    running.once(4)
    full = running.cycle.health.full_cycles

    def full_cycles_after(change: Callable[[], object]) -> int:
        nonlocal full
        change()
        running.once()
        done, full = running.cycle.health.full_cycles - full, running.cycle.health.full_cycles
        assert running.cycle.config == world.config()
        return done

    assert full_cycles_after(lambda: world.create_table("2")) == 0
    assert full_cycles_after(lambda: set_table_properties(world.coordination, "2", {"table.versions.max": "2"})) == 0
    assert full_cycles_after(lambda: world.enable("2")) == 1
    assert full_cycles_after(lambda: world.disable("2")) == 1
    assert full_cycles_after(lambda: world.define("south")) == 1
    assert full_cycles_after(lambda: change_table(world.coordination, "2", as_deleted)) == 1
    assert full_cycles_after(lambda: remove_table_record(world.coordination, "2")) == 1
