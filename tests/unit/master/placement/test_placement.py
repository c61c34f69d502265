"""Placing tablets: a cell first, an order later, nothing while a deposed leader's orders may count (R1, R7, R15)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import cast

import pytest
from msgspec.structs import replace

from bookkeeper.errors import InvalidInputError, UnavailableError
from bookkeeper.master.books.tserver_recovery import unsealed_sessions
from bookkeeper.master.calls.keyed_executors import KeyedExecutors
from bookkeeper.master.calls.tserver_calls import TServerCalls
from bookkeeper.master.placement.load_retries import pause_ms
from bookkeeper.master.placement.placement import ClusterState, Placement
from bookkeeper.master.placement.return_wait import RETURN_MS
from bookkeeper.master.placement.tablet_moves import MOVES_MAX
from bookkeeper.master.queries.queries import Queries
from bookkeeper.master.replicas.leader_choice import LeaderChoice
from bookkeeper.metadata import keys, values
from bookkeeper.metadata.metadata_table import CellKey, MetadataTable, RowPut
from bookkeeper.model import Extent
from bookkeeper.rpc.contract.messages import TabletProblem
from tests.support.faults import fault
from tests.support.master_world import Master, World
from tests.support.scripted_tserver import ScriptedTServer, scripted
from tests.support.tservers import wait_until

LAST = Extent("1", None, None)


@pytest.fixture
def tservers(world: World) -> Iterator[list[ScriptedTServer]]:
    """Two live tservers that answer."""
    with ExitStack() as stack:
        yield [stack.enter_context(scripted(world)) for _ in range(2)]


class Placed:
    """One leader's placement, driven by hand."""

    def __init__(self, world: World, master: Master) -> None:
        self.world, self.master, self.lanes = world, master, KeyedExecutors()
        self.changed: set[bytes] = set()
        calls = TServerCalls(master.tservers, self.lanes)
        self.placement = Placement(
            master.books.stores,
            calls,
            world.clock,
            lambda rows: self.changed.update(rows),
            master.books.note_assigned,
            LeaderChoice.by_master(world.table, calls, lambda rows: self.changed.update(rows)),
            unrecoverable=master.recovery.problems,
        )

    def place(self) -> None:
        """Place tablets as the cycle's thread does."""
        self.placement.place(self.master.read_books().snapshot.tablets, self.state())

    def state(self) -> ClusterState:
        """The living tservers."""
        sessions = self.master.tservers.sessions()
        live = {info.session_id: info.address for info in sessions if info.alive}
        hosts = {info.session_id: info.host for info in sessions if info.alive and info.host is not None}
        return ClusterState(live, unsealed_sessions(sessions, self.master.tservers), hosts=hosts)

    def until_answered(self, tserver: ScriptedTServer) -> None:
        """Wait for its report."""
        wait_until(lambda: self.placement.is_loaded(tserver.session, b"1<") is not None, "an answer")

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Place until the condition holds."""

        def look() -> bool:
            self.place()
            return condition()

        wait_until(look, what)

    def until_held(self, tserver: ScriptedTServer, *extents: Extent) -> None:
        """Place until the tserver holds exactly these."""

        self.until(lambda: set(tserver.held) == set(extents), f"{extents} at {tserver.session}")


@pytest.fixture
def placed(world: World, tservers: list[ScriptedTServer]) -> Iterator[Placed]:
    """The placement of a leader of ``world``; asks for the tservers first, so that they are there."""
    assert len(tservers) == 2
    found = Placed(world, world.master())
    yield found
    found.lanes.stop()


def _location(world: World, row: bytes = b"1<") -> tuple[str, int]:
    found = world.table.get(row, ("location",))
    assert found is not None
    cell = found.cells[keys.LOCATION]
    return values.Location.decode(cell.value).session, cell.rank


def _home(world: World, tservers: list[ScriptedTServer], row: bytes = b"1<") -> ScriptedTServer:
    session, _ = _location(world, row)
    return next(tserver for tserver in tservers if tserver.session == session)


def test_tablets_are_assigned_evenly_in_the_books_and_then_loaded(
    world: World, tservers: list[ScriptedTServer], placed: Placed
) -> None:
    world.create_table("2", [b"g", b"m", b"t"])
    placed.place()
    homes = [_location(world, row.key)[0] for row in world.table.scan(b"", b"~", ("location",))]
    assert sorted(homes.count(tserver.session) for tserver in tservers) == [2, 3]
    placed.until(lambda: sum(len(t.held) for t in tservers) == 5, "all tablets loaded")
    assert {extent for tserver in tservers for extent in tserver.held} >= {LAST, Extent("2", b"m", b"g")}


def test_the_location_is_in_the_books_before_the_order(
    world: World, tservers: list[ScriptedTServer], placed: Placed
) -> None:
    seen: list[str] = []
    for tserver in tservers:
        load = tserver.load_tablet

        def looks_first(assignment: object, load: object = load) -> None:
            seen.append(_location(world)[0])
            load(assignment)  # type: ignore[operator]

        tserver.load_tablet = looks_first  # type: ignore[method-assign]
    placed.place()
    home = _home(world, tservers)
    placed.until_held(home, LAST)
    assert set(seen) <= {home.session}


def test_a_new_leader_writes_every_location_again_at_its_own_rank(
    world: World, tservers: list[ScriptedTServer], placed: Placed
) -> None:
    placed.until_held(_home_of_first_place(placed, world, tservers), LAST)
    session, before = _location(world)
    successor = Placed(world, world.depose(placed.master))
    successor.place()
    after_session, after = _location(world)
    assert after_session == session
    assert after > before
    assert keys.split_master_rank(after)[0] == successor.master.reign.epoch
    successor.lanes.stop()


def _home_of_first_place(placed: Placed, world: World, tservers: list[ScriptedTServer]) -> ScriptedTServer:
    placed.place()
    return _home(world, tservers)


def test_no_tablet_is_loaded_before_every_live_tserver_has_reported(
    world: World, tservers: list[ScriptedTServer], placed: Placed
) -> None:
    silent, other = tservers
    silent.trouble["tablets"] = UnavailableError("hung")
    for _ in range(20):
        placed.place()
    assert not silent.orders
    assert not other.orders
    del silent.trouble["tablets"]
    placed.until_held(_home(world, tservers), LAST)


def test_a_tablet_that_a_deposed_leader_gave_away_is_taken_back(
    world: World, tservers: list[ScriptedTServer], placed: Placed
) -> None:
    placed.place()
    home = _home(world, tservers)
    other = next(tserver for tserver in tservers if tserver is not home)
    other.held.add(LAST)
    placed.until_held(home, LAST)
    placed.until_held(other)
    assert other.orders == ["unload None"]


def test_without_the_answers_two_tservers_would_hold_a_tablet(
    world: World, tservers: list[ScriptedTServer], placed: Placed
) -> None:
    silent, other = tservers
    silent.trouble["tablets"] = UnavailableError("hung")
    silent.held.add(LAST)
    world.locate(b"1<", other.session, rank=7)
    with fault("loads-before-answers"):
        placed.until_held(other, LAST)
    assert silent.held == {LAST}


def test_tablets_of_a_dead_tserver_go_elsewhere_once_its_logs_are_sealed(
    world: World, tservers: list[ScriptedTServer], placed: Placed
) -> None:
    placed.until_held(_home_of_first_place(placed, world, tservers), LAST)
    home = _home(world, tservers)
    other = next(tserver for tserver in tservers if tserver is not home)
    world.log(home.session, 3)
    world.kill(home.session)
    placed.place()
    assert _location(world)[0] == home.session
    placed.master.recovery.run_once(placed.master.recovery.tservers.sessions())
    placed.until_held(other, LAST)
    assert _location(world)[0] == other.session


def check_damaged_logs_hold_back_their_own(world: World, tservers: list[ScriptedTServer], placed: Placed) -> None:
    placed.until_held(_home_of_first_place(placed, world, tservers), LAST)
    home = _home(world, tservers)
    log = world.log(home.session, 3)
    path = world.path(log)
    path.write_bytes(path.read_bytes()[:200] + bytes(8) + path.read_bytes()[208:])
    cell = {keys.log_column(log): values.LOG}
    world.table.put([RowPut(b"1<", cell)], keys.first_use_rank(1))
    world.kill(home.session)
    placed.place()
    assert _location(world)[0] == home.session, "its logs are not read yet"
    placed.master.recovery.run_once(placed.master.recovery.tservers.sessions())
    assert placed.master.recovery.problems
    placed.place()
    assert _location(world)[0] == home.session, "the damaged log has records of it"
    queries = Queries(world.table, placed.master.tservers, world.config, world.clock, placed.placement)
    ((there, problem),) = [(found.address, found.problem) for found in queries.locate("1") if found.extent == LAST]
    assert there is None
    assert problem is not None
    assert f"{log} is damaged" in problem
    assert "; restore the file, or give up its records" in problem
    world.table.delete([CellKey(b"1<", column) for column in cell], keys.first_use_rank(1))
    other = next(tserver for tserver in tservers if tserver is not home)
    placed.until_held(other, LAST)
    assert _location(world)[0] == other.session
    assert not any(found.problem for found in queries.locate("1"))


def test_a_damaged_log_holds_back_the_tablets_that_use_it_and_no_others(
    world: World, tservers: list[ScriptedTServer], placed: Placed
) -> None:
    check_damaged_logs_hold_back_their_own(world, tservers, placed)


def test_without_a_check_of_its_users_a_log_is_left_behind_by_its_tablet(
    world: World, tservers: list[ScriptedTServer], placed: Placed
) -> None:
    with (
        fault("damaged-logs-have-no-records"),
        pytest.raises(AssertionError, match="the damaged log has records of it"),
    ):
        check_damaged_logs_hold_back_their_own(world, tservers, placed)


def test_a_load_that_fails_is_ordered_again(world: World, tservers: list[ScriptedTServer], placed: Placed) -> None:
    for tserver in tservers:
        tserver.trouble["load_tablet"] = UnavailableError("a log is not sealed yet")
    for _ in range(10):
        placed.place()
    home = _home(world, tservers)
    assert not home.held
    for tserver in tservers:
        tserver.trouble.clear()
    placed.until_held(home, LAST)


def test_load_moves_to_a_tserver_that_has_come(world: World, tservers: list[ScriptedTServer], placed: Placed) -> None:
    world.create_table("2", [b"g", b"m", b"t", b"w"])
    placed.until(lambda: sum(len(t.held) for t in tservers) == 6, "all tablets loaded")
    with scripted(world) as third:
        placed.until(lambda: len(third.held) == 2, "an even load")
        assert sorted(len(tserver.held) for tserver in tservers) == [2, 2]
        moved = [order for tserver in tservers for order in tserver.orders if order.startswith("unload")]
        assert len(moved) == 2


def test_a_move_whose_unload_fails_is_repeated(world: World, tservers: list[ScriptedTServer], placed: Placed) -> None:
    world.create_table("2", [b"g", b"m", b"t"])
    world.create_table("3", [b"g", b"m"])
    placed.until(lambda: sum(len(t.held) for t in tservers) == 8, "all tablets loaded")
    for tserver in tservers:
        tserver.trouble["unload_tablet"] = UnavailableError("busy")
    with scripted(world) as third:
        for _ in range(20):
            placed.place()
        assert not third.held
        for tserver in tservers:
            tserver.trouble.clear()
        placed.until(lambda: len(third.held) == 2, "an even load")


def test_a_tserver_that_dies_in_a_move_loses_nothing(
    world: World, tservers: list[ScriptedTServer], placed: Placed
) -> None:
    world.create_table("2", [b"g", b"m", b"t", b"w"])
    placed.until(lambda: sum(len(t.held) for t in tservers) == 6, "all tablets loaded")
    with scripted(world) as third:
        placed.until(lambda: bool(third.held), "a first move")
        world.kill(third.session)
    placed.until(lambda: sum(len(t.held) for t in tservers) == 6, "everything held again")


@dataclass
class Recorded:
    """A table that remembers which rows each put had."""

    inner: MetadataTable
    puts: list[list[bytes]] = field(default_factory=list)

    def put(self, rows: Sequence[RowPut], rank: int) -> None:
        self.puts.append([row.key for row in rows])
        self.inner.put(rows, rank)


def _move_whose_source_dies_when_it_has_let_go(
    world: World, tservers: list[ScriptedTServer], placed: Placed
) -> list[list[bytes]]:
    world.create_table("2", [b"g", b"m", b"t", b"w"])
    placed.until(lambda: sum(len(t.held) for t in tservers) == 6, "all tablets loaded")
    with scripted(world) as third:
        placed.until(lambda: bool(placed.placement.moves._leaving), "a move begins")
        wait_until(lambda: bool(placed.placement.moves._left), "a tablet is let go")
        for tserver in tservers:
            world.kill(tserver.session)
        placed.placement.return_wait._has_waited = True  # no tserver comes back
        recorded = Recorded(world.table)
        stores = placed.placement.stores
        placed.placement.stores = replace(stores, table=cast(MetadataTable, recorded))
        placed.place()
        placed.until(lambda: len(third.held) == 6, "everything held again")
    return recorded.puts


def test_r1_a_tablet_that_was_let_go_by_a_tserver_that_died_gets_one_home_in_a_put(
    world: World, tservers: list[ScriptedTServer], placed: Placed
) -> None:
    for rows in _move_whose_source_dies_when_it_has_let_go(world, tservers, placed):
        assert len(set(rows)) == len(rows)


def test_r1_red_two_homes_in_a_put(world: World, tservers: list[ScriptedTServer], placed: Placed) -> None:
    with fault("two-homes-in-a-put"):
        puts = _move_whose_source_dies_when_it_has_let_go(world, tservers, placed)
    assert any(len(set(rows)) < len(rows) for rows in puts), "without R1 two values have one rank"


def test_tablets_that_an_operation_has_claimed_are_left_alone(
    world: World, tservers: list[ScriptedTServer], placed: Placed
) -> None:
    rows = world.create_table("2", [b"m"])
    claimed: set[bytes] = {rows[0]}
    placed.placement.claimed = lambda: claimed
    placed.placement.let_go(claimed)
    placed.until(lambda: sum(len(tserver.held) for tserver in tservers) == 2, "the others are loaded")
    assert world.table.get(rows[0], ("location",)) is None
    claimed.clear()
    placed.until(lambda: sum(len(tserver.held) for tserver in tservers) == 3, "it is placed when nobody claims it")


def test_no_move_of_a_claimed_tablet_gets_its_location_between_two_steps_of_the_claim(
    placed: Placed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a placement puts the new location of an unloaded tablet after the operation began to change it."""
    placement, locked = placed.placement, []
    monkeypatch.setattr(
        type(placement.moves), "let_go", lambda _moves, _rows: locked.append(placement._placing.locked())
    )
    placement.let_go({b"1<"})
    assert locked == [True]


def test_a_tablet_that_was_parked_and_left_is_placed_anew(
    world: World, tservers: list[ScriptedTServer], placed: Placed
) -> None:
    placed.until(lambda: sum(len(tserver.held) for tserver in tservers) == 1, "it is held")
    home = _home(world, tservers)
    claimed = {b"1<"}
    placed.placement.claimed = lambda: claimed
    placed.placement.let_go(claimed)
    world.table.put(
        [RowPut(b"1<", {keys.LOCATION: values.Location(home.session, "").encode()})], placed.master.reign.next_rank()
    )
    home.held.clear()
    placed.place()
    assert _location(world)[0] == home.session
    claimed.clear()
    placed.until(lambda: any(tserver.held for tserver in tservers), "a tserver holds it again")


def test_an_answer_that_is_older_than_a_claim_does_not_count(
    world: World, tservers: list[ScriptedTServer], placed: Placed
) -> None:
    """Otherwise the tablet counts as served until the next answer, and no tserver loads it."""
    placed.until_held(_home_of_first_place(placed, world, tservers), LAST)
    home = _home(world, tservers)
    wait_until(lambda: not placed.placement.reports._since, "no question under way")
    home.look = lambda method: placed.placement.let_go({b"1<"}) if method == "tablets" else None
    placed.place()
    wait_until(lambda: not placed.placement.reports._since, "an answer")
    assert placed.placement.reports.served([home.session]) == {home.session: set()}


def test_an_answer_that_is_older_than_a_load_does_not_hide_the_tablet(
    world: World, tservers: list[ScriptedTServer], placed: Placed
) -> None:
    """Otherwise a served tablet is shown as loading until the next answer."""
    placed.until_held(_home_of_first_place(placed, world, tservers), LAST)
    home, reports = _home(world, tservers), placed.placement.reports
    wait_until(lambda: not reports._since, "no question under way")
    home.held.clear()
    home.look = lambda method: reports.loaded(home.session, b"1<") if method == "tablets" else None
    placed.place()
    wait_until(lambda: not reports._since, "an answer")
    assert reports.served([home.session]) == {home.session: {b"1<"}}


# ---- an even load


def _restart(world: World, tservers: list[ScriptedTServer], placed: Placed) -> None:
    """Nine tablets of tservers that died at once."""
    world.create_table("2", [b"%d" % number for number in range(7)])
    placed.until(lambda: sum(len(t.held) for t in tservers) == 9, "all tablets loaded")
    for tserver in tservers:
        world.kill(tserver.session)


def check_that_tservers_wait_for_each_other(world: World, tservers: list[ScriptedTServer], placed: Placed) -> None:
    _restart(world, tservers, placed)
    with scripted(world) as first:
        placed.until(lambda: len(first.held) >= 5, "the first one's share")
        for _ in range(5):
            placed.place()
        assert len(first.held) == 5, "the first one back gets more than half of nine tablets"
        with scripted(world) as second:
            placed.until(lambda: len(second.held) == 4, "the second one's share")
            assert len(set(first.orders)) == 5, "something is moved"  # an order may come again before its answer


def test_the_first_tserver_that_is_back_gets_its_share_and_the_others_get_theirs(
    world: World, tservers: list[ScriptedTServer], placed: Placed
) -> None:
    check_that_tservers_wait_for_each_other(world, tservers, placed)


def test_red_the_first_tserver_that_is_back_gets_everything(
    world: World, tservers: list[ScriptedTServer], placed: Placed
) -> None:
    with fault("everybody-gets-everything"), pytest.raises(AssertionError, match="gets more than half of nine tablets"):
        check_that_tservers_wait_for_each_other(world, tservers, placed)


def test_a_tserver_that_does_not_come_back_is_waited_for_a_while_only(
    world: World, tservers: list[ScriptedTServer], placed: Placed
) -> None:
    _restart(world, tservers, placed)
    with scripted(world) as first:
        placed.until(lambda: len(first.held) == 5, "the first one's share")
        due_ns = placed.placement.due_ns()
        assert due_ns is not None
        assert 0 < due_ns - world.clock.boot_ns() <= RETURN_MS * 1_000_000
        world.clock.jump(RETURN_MS)
        placed.until(lambda: len(first.held) == 9, "everything")
        assert placed.placement.due_ns() is None


def check_that_the_load_gets_even(world: World, tservers: list[ScriptedTServer], placed: Placed) -> None:
    """Beyond one round of moves, each of them begun by the news of the one before."""
    splits = 5 * MOVES_MAX
    world.create_table("2", [b"%03d" % number for number in range(splits)])
    placed.until(lambda: sum(len(t.held) for t in tservers) == splits + 2, "all tablets loaded")
    with scripted(world) as third:
        tablets = placed.master.read_books().snapshot.tablets
        placed.placement.place(tablets, placed.state())
        placed.until_answered(third)
        placed.placement.place(tablets, placed.state())
        assert any(map(placed.placement.moves.is_moving, tablets)), "an uneven load stays as it is"
        most = 0

        def even() -> bool:
            nonlocal most
            rows, placed.changed = placed.changed, set()
            most = max(most, splits + 2 - len({e for t in (*tservers, third) for e in t.held}))
            placed.placement.place_some(tablets, rows, placed.state())
            return len(third.held) == (splits + 2) // 3

        wait_until(even, "an even load, by looks at the tablets that move only", limit_s=20)
        assert most <= MOVES_MAX


def test_moves_follow_each_other_until_the_load_is_even_and_few_tablets_are_away_at_once(
    world: World, tservers: list[ScriptedTServer], placed: Placed
) -> None:
    check_that_the_load_gets_even(world, tservers, placed)


def test_red_an_uneven_load_stays_uneven(world: World, tservers: list[ScriptedTServer], placed: Placed) -> None:
    with fault("nothing-is-uneven"), pytest.raises(AssertionError, match="an uneven load stays as it is"):
        check_that_the_load_gets_even(world, tservers, placed)


def check_what_fails_with_a_tablet_is_named(world: World, tservers: list[ScriptedTServer], placed: Placed) -> None:
    world.create_table("2", [b"m"])
    other = Extent("2", b"m", None)
    for tserver in tservers:
        tserver.refused[LAST] = InvalidInputError("its state is nonsense")
    placed.until(lambda: any(other in tserver.held for tserver in tservers), "the others are loaded")
    placed.until(lambda: b"1<" in placed.placement.problems, "a named problem")
    queries = Queries(world.table, placed.master.tservers, world.config, world.clock, placed.placement)
    ((there, problem, loaded),) = [(t.address, t.problem, t.loaded) for t in queries.locate("1") if t.extent == LAST]
    assert there is not None
    assert (problem, loaded) == ("its state is nonsense", False)
    placed.until(lambda: all(found.loaded for found in queries.locate("2")), "the master knows that they are loaded")

    def loads() -> int:
        return sum(tserver.loads[LAST] for tserver in tservers)

    def fail_again() -> None:
        wait_until(lambda: not placed.placement._orders._open, "no order under way")
        before = loads()
        world.clock.jump(pause_ms(before))
        placed.until(lambda: loads() > before, "another try")

    while pause_ms(loads()) < 30_000:  # the next pause is longer than this check on any machine
        fail_again()
    wait_until(lambda: not placed.placement._orders._open, "no order under way")
    tried = loads()
    for _ in range(20):
        placed.place()
    wait_until(lambda: not placed.placement._orders._open, "no order under way")
    assert loads() == tried, "it rests"
    for tserver in tservers:
        tserver.refused.clear()
    world.clock.jump(pause_ms(tried))
    placed.until_held(_home(world, tservers), *_home(world, tservers).held, LAST)
    assert not any(found.problem for found in queries.locate("1"))


def test_a_tablet_that_can_t_be_loaded_is_named_rests_and_is_tried_again(
    world: World, tservers: list[ScriptedTServer], placed: Placed
) -> None:
    check_what_fails_with_a_tablet_is_named(world, tservers, placed)


def test_without_a_pause_a_load_is_ordered_in_each_cycle(
    world: World, tservers: list[ScriptedTServer], placed: Placed
) -> None:
    with fault("loads-do-not-pause"), pytest.raises(AssertionError, match="it rests"):
        check_what_fails_with_a_tablet_is_named(world, tservers, placed)


def test_a_reported_problem_of_a_tablet_stays_until_the_next_report(
    world: World, tservers: list[ScriptedTServer], placed: Placed
) -> None:
    placed.until_held(_home_of_first_place(placed, world, tservers), LAST)
    home = _home(world, tservers)
    home.problems.append(TabletProblem(LAST, "its flush fails"))
    placed.until(lambda: placed.placement.warnings == {b"1<": "its flush fails"}, "a warning")
    queries = Queries(world.table, placed.master.tservers, world.config, world.clock, placed.placement)
    (found,) = [found for found in queries.locate("1") if found.extent == LAST]
    assert (found.problem, found.warning, found.loaded) == (None, "its flush fails", True)
    home.problems.clear()
    placed.until(lambda: not placed.placement.warnings, "no warning any more")
    home.problems.append(TabletProblem(LAST, "its flush fails"))
    placed.until(lambda: bool(placed.placement.warnings), "a warning")
    world.kill(home.session)
    placed.until(lambda: not placed.placement.warnings, "nothing of a dead one")


def test_rests_grow_up_to_a_minute() -> None:
    assert [pause_ms(failures) for failures in (1, 2, 3, 10, 11, 1000)] == [100, 200, 400, 51_200, 60_000, 60_000]
