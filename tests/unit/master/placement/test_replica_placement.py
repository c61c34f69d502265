"""Tablets with several replicas: only a host that holds the named state leads, and the repair writes cells. Each test
runs with both elections.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Collection, Iterator
from contextlib import ExitStack

import pytest
from msgspec.structs import replace

from bookkeeper.coordination.config_changes import set_draining, set_table_properties
from bookkeeper.coordination.tablet_candidates import TabletCandidate, election_of
from bookkeeper.errors import BookkeeperError, NoSpaceError, NotFoundError, RefusedError
from bookkeeper.master.calls.keyed_executors import KeyedExecutors
from bookkeeper.master.calls.tserver_calls import TServerCalls
from bookkeeper.master.index.snapshot import tablet_view
from bookkeeper.master.index.tablet_index import TabletIndex
from bookkeeper.master.index.tablet_replicas import TabletReplica
from bookkeeper.master.operations.hosts.replica_moves import Moves
from bookkeeper.master.placement.placement import LEADERLESS_MS, ClusterState, Placement
from bookkeeper.master.queries.host_queries import WAITS_FOR_A_HOST, HostQueries
from bookkeeper.master.queries.queries import Queries
from bookkeeper.master.replicas.away_hosts import AwayHosts
from bookkeeper.master.replicas.leader_choice import LeaderChoice
from bookkeeper.master.replicas.repair_state import Join, RepairLimits
from bookkeeper.master.replicas.repairer import Repairer
from bookkeeper.metadata import keys, values
from bookkeeper.metadata.metadata_table import CellKey, Row, RowPut
from bookkeeper.metadata.values import JOINING, VOTER, FlushState, ReplicaCell
from bookkeeper.model import Extent, HostIdentity, RowRange
from bookkeeper.rpc.contract.messages import HeldReplicaInfo, ReplicaPlacement, SecretMark
from tests.support.border_world import held_row, hold, segment
from tests.support.failing_metadata import FailingMetadata
from tests.support.faults import fault
from tests.support.master_world import Master, World
from tests.support.scripted_tserver import ScriptedTServer, scripted
from tests.support.tservers import LIMIT_S, wait_until

LAST = Extent("1", None, None)
ROW = b"1<"
CYCLES = 6
"""Enough for a report, an unload and a load."""
LIMITS = RepairLimits(repair_after_ms=1_000, joins_max=2, flight_ms=500)


class Scanless(FailingMetadata):
    """A table that no test scans."""

    def scan(
        self,
        start: bytes = b"",  # noqa: ARG002
        stop: bytes | None = None,  # noqa: ARG002
        families: Collection[str] | None = None,  # noqa: ARG002
    ) -> Iterator[Row]:
        raise AssertionError("all rows of a table are read to answer about one tablet")


HOUR_MS = 3_600_000


class Hosts:
    """A leading master's placement and repair, and scripted hosts h1 to h4; the tablet has replicas on h1 to h3."""

    def __init__(self, world: World, stack: ExitStack, election: str) -> None:
        self.world, self.stack, self.lanes = world, stack, KeyedExecutors()
        self.stands = election == "coordination"
        stack.callback(self.lanes.stop)
        set_table_properties(world.coordination, "1", {"table.replicas": "3"})
        cells = {keys.replica_column(f"h{n}"): ReplicaCell("p0", "d1", VOTER).encode() for n in (1, 2, 3)}
        world.table.put([RowPut(ROW, cells)], 1)
        self.tservers = {f"h{n}": self.start(f"h{n}") for n in range(1, 5)}
        self.master: Master = world.master()
        calls = TServerCalls(self.master.tservers, self.lanes)
        stores = self.master.books.stores
        self.requests: list[Collection[bytes]] = []
        table, changed = world.table, self.requests.append
        leaders = (
            LeaderChoice.by_coordination(table, calls, changed, world.coordination)
            if self.stands
            else LeaderChoice.by_master(table, calls, changed)
        )
        self.placement = Placement(stores, calls, world.clock, lambda _: None, self.master.books.note_assigned, leaders)
        self.away = AwayHosts(world.coordination, world.clock)
        self.moved: list[str] = []
        self.repairer = Repairer(
            stores,
            world.clock,
            leaders.held,
            LIMITS,
            self.placement.request_leader,
            Moves,
            lambda *_: None,
            self.away,
            self.moved.append,
            tuple,
        )

    def start(self, name: str, disk: str = "d1", zone: str = "") -> ScriptedTServer:
        """A host's live session."""
        return self.stack.enter_context(scripted(self.world, HostIdentity(name, disk, zone)))

    def hold(self, name: str, *states: int, placement: str = "p0", leads: bool = False) -> None:
        """The answer of a host from now on."""
        self.tservers[name].holds = [
            HeldReplicaInfo(
                LAST, "t-00000", ReplicaPlacement(name, placement, "d1"), "LIVE", 1, None, leads,
                max(states, default=None), states, len(states), 100 * len(states),
            )
        ]  # fmt: skip
        if self.stands:
            candidate = TabletCandidate(name, placement, "d1", max(states, default=0), states)
            session = self.world.sessions[self.tservers[name].session]
            self.world.coordination.campaign(session, {election_of("1", "t-00000"): candidate.encode()})

    def name(self, state: int) -> None:
        """The books name a state."""
        flush = FlushState(state, {}, 1, 1, {}, ())
        self.world.table.put([RowPut(ROW, {keys.FLUSH: flush.encode()})], state)

    def cycle(self) -> None:
        """Placement and repair, as in a full cycle."""
        self.world.clock.jump(100)
        tablets = self.master.read_books().snapshot.tablets
        sessions = self.master.tservers.sessions()
        live = {info.session_id: info.address for info in sessions if info.alive}
        hosts = {info.session_id: info.host for info in sessions if info.alive and info.host is not None}
        self.placement.place(tablets, ClusterState(live, (), (), hosts))
        self.repairer.run(tablets, self.world.config(), sessions, self.placement.busy_rows())

    def wait_answers(self) -> None:
        """Wait until each host has answered the questions of the cycles so far."""
        for tserver in self.tservers.values():
            answered = threading.Event()
            assert self.lanes.submit(tserver.session, answered.set)
            assert answered.wait(LIMIT_S), f"{tserver.session} does not answer"

    def until(self, name: str, what: str) -> None:
        """Cycles until the host serves the tablet; the first choice is made when each host has answered."""
        self.cycle()
        self.wait_answers()

        def look() -> bool:
            self.cycle()
            return self.tservers[name].held == {LAST}

        wait_until(look, what)

    def replicas(self) -> dict[str, ReplicaCell]:
        """The cells of the row."""
        row = self.world.table.get(ROW, ("tablet", keys.REPLICA_FAMILY))
        assert row is not None
        found: tuple[TabletReplica, ...] = tablet_view(row).replicas
        return {one.host: one.cell for one in found}

    def until_cells(self, want: dict[str, str], what: str) -> None:
        """Cycles until the row has these hosts in these roles."""

        def look() -> bool:
            self.cycle()
            return {host: cell.role for host, cell in self.replicas().items()} == want

        wait_until(look, what)

    def leader(self, key: bytes = ROW) -> str:
        """The host of the location; empty without one."""
        row = self.world.table.get(key, ("location",))
        if row is None or keys.LOCATION not in row.cells:
            return ""
        session = values.Location.decode(row.cells[keys.LOCATION].value).session
        return next((name for name, tserver in self.tservers.items() if tserver.session == session), "")


@pytest.fixture(params=["master", "coordination"])
def hosts(world: World, request: pytest.FixtureRequest) -> Iterator[Hosts]:
    """Four live hosts."""
    with ExitStack() as stack:
        yield Hosts(world, stack, request.param)


def test_the_voter_with_the_newest_state_leads_and_no_other_host(hosts: Hosts) -> None:
    hosts.name(7)
    hosts.hold("h1", 5)
    hosts.hold("h2", 7)
    hosts.hold("h3", 7, 9)
    hosts.hold("h4", 7, 11)
    hosts.until("h3", "the newest voter")
    assert not any(hosts.tservers[name].loads for name in ("h1", "h2", "h4"))


def test_a_tablet_gets_a_leader_in_the_first_cycle_after_the_operation_that_had_claimed_it(hosts: Hosts) -> None:
    """A split of the only tablet with replicas claims it, and its end needs answers about the tablets that it made."""
    hosts.name(7)
    for name in ("h1", "h2", "h3"):
        hosts.hold(name, 7, *([9] if name == "h2" else []))
    hosts.placement.claimed = lambda: (ROW,)
    hosts.cycle()
    hosts.wait_answers()
    assert not hosts.leader(), "a claimed tablet is placed"
    hosts.placement.claimed = tuple
    hosts.cycle()
    assert hosts.leader() == "h2", "nobody was asked about a claimed tablet"


def test_tablets_that_need_leaders_at_once_get_different_ones(hosts: Hosts) -> None:
    cells = {keys.replica_column(f"h{n}"): ReplicaCell("p0", "d1", VOTER).encode() for n in (1, 2, 3)}
    rows = hosts.world.create_table("2", [b"d", b"h"])
    set_table_properties(hosts.world.coordination, "2", {"table.replicas": "3"})
    hosts.world.table.put([RowPut(row, cells) for row in rows], 1)

    def all_lead() -> bool:
        hosts.cycle()
        return all(hosts.leader(row) for row in (ROW, *rows))

    wait_until(all_lead, "leaders")
    assert {hosts.leader(row) for row in (ROW, *rows)} == {"h1", "h2", "h3"}


def test_without_the_named_state_a_tablet_waits_and_says_why_until_a_host_has_it(hosts: Hosts) -> None:
    hosts.name(7)
    for name in ("h1", "h2", "h3"):
        hosts.hold(name, 5)

    def is_said() -> bool:
        hosts.cycle()
        return "h1 holds 5" in hosts.placement.warnings.get(ROW, "")

    wait_until(is_said, "a problem in words")
    assert "no host that may lead holds state 7, which the books name" in hosts.placement.warnings[ROW]
    assert ROW not in hosts.placement.problems, "clients give up while a host is started again"
    hosts.world.clock.jump(LEADERLESS_MS)
    hosts.cycle()
    assert hosts.placement.problems[ROW] == hosts.placement.warnings[ROW]
    hosts.hold("h2", 5, 7)
    hosts.until("h2", "the host that got the state")
    assert ROW not in {*hosts.placement.problems, *hosts.placement.warnings}


@pytest.mark.parametrize("hosts", ["coordination"], indirect=True)
def test_a_placement_is_requested_when_a_host_stands_of_which_a_tablet_waits(hosts: Hosts) -> None:
    leaders = hosts.placement.leaders
    hosts.name(7)
    hosts.cycle()
    assert ROW in hosts.placement.warnings
    hosts.wait_answers()
    hosts.requests.clear()
    leaders.watch()
    assert not hosts.requests, "a placement is requested although nothing is new"
    hosts.hold("h2", 5, 7)
    leaders.watch()
    leaders.watch()
    assert hosts.requests == [()], "one request for the news of one host"
    hosts.cycle()
    assert hosts.leader() == "h2"
    hosts.wait_answers()
    hosts.requests.clear()
    hosts.hold("h2", 5, 7, 9)
    leaders.watch()
    assert not hosts.requests, "a placement is requested although no tablet waits"


@pytest.mark.parametrize("error", [RefusedError("a file of state 7 is missing"), NoSpaceError("the disk is full")])
def test_a_tablet_of_which_a_host_says_that_it_can_t_lead_goes_to_another_voter(
    hosts: Hosts, error: BookkeeperError
) -> None:
    hosts.name(7)
    for name in ("h1", "h2", "h3"):
        hosts.hold(name, 7, *([9] if name == "h1" else []))
    hosts.tservers["h1"].refused[LAST] = error
    hosts.until("h2", "another voter")


def test_a_tablet_whose_move_ends_at_a_host_that_can_t_lead_goes_on_to_another_voter(hosts: Hosts) -> None:
    hosts.name(7)
    for name in ("h1", "h2", "h3"):
        hosts.hold(name, 7, *([9] if name != "h3" else []))
    hosts.until("h1", "the newest voter")
    hosts.tservers["h3"].refused[LAST] = NoSpaceError("the disk is full")
    hosts.placement.request_leader(hosts.master.read_books().snapshot.tablets[ROW], "h3")

    def is_asked() -> bool:
        hosts.cycle()
        return hosts.tservers["h3"].loads[LAST] > 0

    wait_until(is_asked, "the end of the move")
    hosts.until("h1", "the newest voter again")


def test_a_tablet_leaves_a_host_without_room_for_its_next_segment(hosts: Hosts) -> None:
    check_a_tablet_leaves_a_full_host(hosts)


def test_red_a_tablet_stays_with_a_host_without_room(hosts: Hosts) -> None:
    with fault("full-hosts-keep-their-tablets"), pytest.raises(AssertionError, match="no room, and leads"):
        check_a_tablet_leaves_a_full_host(hosts)


def check_a_tablet_leaves_a_full_host(hosts: Hosts) -> None:
    hosts.name(7)
    for name in ("h1", "h2", "h3"):
        hosts.hold(name, 7, *([9] if name == "h1" else []))
    hosts.until("h1", "the newest voter")
    hosts.cycle()
    hosts.wait_answers()
    hosts.tservers["h1"].without_room = (LAST,)
    for _ in range(CYCLES):
        hosts.cycle()
        hosts.wait_answers()
    assert hosts.leader() == "h2", f"{hosts.leader()} has no room, and leads the tablet"


def test_a_host_that_stays_away_is_replaced_in_the_books(hosts: Hosts) -> None:
    hosts.name(7)
    hosts.hold("h1", 7, 9)
    hosts.hold("h2", 7)
    hosts.hold("h3", 7)
    hosts.until("h1", "the newest voter")
    hosts.hold("h1", 7, 9, leads=True)
    hosts.world.kill(hosts.tservers["h3"].session)
    hosts.until_cells({"h1": VOTER, "h2": VOTER, "h3": VOTER, "h4": JOINING}, "a join")
    assert hosts.replicas()["h4"].placement != "p0"
    assert hosts.repairer.progress.under_replicated == 1
    hosts.hold("h4", 9, placement=hosts.replicas()["h4"].placement)
    hosts.until_cells({"h1": VOTER, "h2": VOTER, "h3": JOINING, "h4": VOTER}, "a vote, and one less")
    assert hosts.replicas()["h3"].placement == "p0"
    hosts.until_cells({"h1": VOTER, "h2": VOTER, "h4": VOTER}, "the end of the repair")


def test_a_replica_that_leaves_is_not_shown_as_one_that_joins(hosts: Hosts) -> None:
    """The cell of both has the same role; the plan of the repair tells them apart."""
    hosts.name(7)
    hosts.hold("h1", 7, 9)
    hosts.until("h1", "a leader")
    hosts.hold("h1", 7, 9, leads=True)
    for name in ("h2", "h3"):
        hosts.hold(name, 7, 9)
    set_draining(hosts.world.coordination, "h2", True)
    hosts.until_cells({"h1": VOTER, "h2": VOTER, "h3": VOTER, "h4": JOINING}, "a join")
    assert roles(hosts) == {"h1": "voter", "h2": "voter", "h3": "voter", "h4": "joining"}
    assert joins_and_leaves(hosts, "h4") == (1, 0)
    hosts.hold("h4", 7, 9, placement=hosts.replicas()["h4"].placement)
    hosts.until_cells({"h1": VOTER, "h2": JOINING, "h3": VOTER, "h4": VOTER}, "a replica that votes no more")
    hosts.cycle()
    assert roles(hosts) == {"h1": "voter", "h2": "leaving", "h3": "voter", "h4": "voter"}
    assert joins_and_leaves(hosts, "h2") == (0, 1)
    assert hosts.repairer.progress.joining == 0
    set_draining(hosts.world.coordination, "h2", False)
    set_table_properties(hosts.world.coordination, "1", {"table.replicas": "4"})
    hosts.cycle()
    assert roles(hosts)["h2"] != "leaving", "a replica that may vote again is shown as one that leaves"


def queries_of(hosts: Hosts) -> HostQueries:
    """The queries of the leading master."""
    world, master, leaving = hosts.world, hosts.master, hosts.repairer.leaving
    return HostQueries(world.table, master.tservers, world.config, hosts.away, TabletIndex, leaving=leaving)


def roles(hosts: Hosts) -> dict[str, str]:
    """The roles that the tablet's report shows."""
    (found,) = queries_of(hosts).replicas("1", False)
    return {one.host: one.role for one in found.replicas}


def joins_and_leaves(hosts: Hosts, name: str) -> tuple[int, int]:
    """How many replicas join a host and leave it, as `hosts` shows it."""
    (found,) = (host for host in queries_of(hosts).hosts() if host.name == name)
    return found.joining, found.leaving or 0


def test_a_drained_host_gives_its_leader_away_first(hosts: Hosts) -> None:
    hosts.name(7)
    hosts.hold("h1", 7, 9)
    hosts.hold("h2", 7)
    hosts.hold("h3", 7)
    hosts.until("h1", "the newest voter")
    hosts.hold("h1", 7, 9, leads=True)
    hosts.cycle()
    hosts.wait_answers()
    set_draining(hosts.world.coordination, "h1", True)
    hosts.until("h3", "another voter")
    assert "unload None" in hosts.tservers["h1"].orders
    assert hosts.replicas().keys() == {"h1", "h2", "h3"}


def test_the_balance_copies_no_rows_of_another_tablet(hosts: Hosts) -> None:
    ordered: list[Extent] = []
    hosts.repairer.rewrite = lambda _, view: ordered.append(view.extent)
    join, config = Join(ROW, "h4", "d1", "h1 has more than its share"), hosts.world.config()
    tablets = hosts.master.read_books().snapshot.tablets
    shared = replace(segment(b"a", b"z"), ranges=(RowRange(b"m", None),))
    for entry, joins in ((shared, []), (segment(b"n", b"z"), [join])):
        hold(hosts.world.table, held_row(ROW, {"s/1": entry}, 1, ("wal/x/1", 1)))
        assert hosts.repairer._unshared([join], tablets, config) == joins, "a host gets rows of another tablet"
    assert ordered == [LAST]


def test_a_tablet_whose_replicas_share_a_zone_gets_a_host_in_another_one(hosts: Hosts) -> None:
    for name, zone in (("h1", "a"), ("h2", "a"), ("h3", "b"), ("h4", "c")):
        hosts.world.kill(hosts.tservers[name].session)
        hosts.tservers[name] = hosts.start(name, zone=zone)
    hosts.name(7)
    hosts.hold("h1", 7, 9, leads=True)
    hosts.hold("h2", 7, 9)
    hosts.hold("h3", 7, 9)
    hosts.until_cells({"h1": VOTER, "h2": VOTER, "h3": VOTER, "h4": JOINING}, "a join in zone c")
    hosts.hold("h4", 7, 9, placement=hosts.replicas()["h4"].placement)
    hosts.until_cells({"h1": VOTER, "h3": VOTER, "h4": VOTER}, "one host of each zone")


def test_r1_a_cell_of_a_deposed_master_loses(hosts: Hosts) -> None:
    late = ReplicaCell("late", "d1", JOINING).encode()
    hosts.name(7)
    hosts.hold("h1", 7, leads=True)
    hosts.hold("h2", 7)
    hosts.until("h1", "a leader")
    hosts.world.kill(hosts.tservers["h3"].session)
    hosts.until_cells({"h1": VOTER, "h2": VOTER, "h3": VOTER, "h4": JOINING}, "a join")
    placement = hosts.replicas()["h4"].placement
    hosts.world.table.put([RowPut(ROW, {keys.replica_column("h4"): late})], keys.master_rank(1, 1))
    assert hosts.replicas()["h4"].placement == placement


def test_hosts_and_replicas_are_shown_as_books_and_hosts_have_them(hosts: Hosts) -> None:
    hosts.name(7)
    hosts.hold("h1", 7, 9, leads=True)
    hosts.hold("h2", 7)
    hosts.hold("h3", 7, placement="p-old")
    hosts.until("h1", "a leader")
    hosts.world.kill(hosts.tservers["h4"].session)
    set_draining(hosts.world.coordination, "h2", True)
    queries = HostQueries(hosts.world.table, hosts.master.tservers, hosts.world.config, hosts.away, TabletIndex)
    found = [host for host in queries.hosts() if host.name != "host1"]  # the directory itself, without a process
    shown = [(host.name, host.draining, host.replicas, host.leads, host.bytes) for host in found]
    assert shown == [("h1", False, 1, 1, 200), ("h2", True, 1, 0, 100), ("h3", False, 1, 0, 100)]
    hosts.world.kill(hosts.tservers["h2"].session)
    hosts.cycle()
    away = next(host for host in queries.hosts() if host.name == "h2")
    assert (away.incarnation, away.bytes, away.problem) == (None, None, "the host is away")
    assert away.away_since_ms == hosts.away.since_ms["h2"]
    (tablet,) = queries.replicas("1", False)
    assert (tablet.named, tablet.copies_needed) == (7, 2)
    said = [(one.host, one.leads, one.held is not None, one.problem) for one in tablet.replicas]
    assert said == [
        ("h1", True, True, ""),
        ("h2", False, False, "the host is away"),
        ("h3", False, False, "the host holds nothing of it"),
    ]
    locating = Queries(hosts.world.table, hosts.master.tservers, hosts.world.config, hosts.world.clock)
    located = {one.extent: one.replicas for one in locating.locate("1")}
    live = hosts.master.tservers.live()
    assert set(located.pop(LAST)) == {live[hosts.tservers[name].session] for name in ("h1", "h3")}, (
        "a client is sent to a host that is away"
    )
    assert not any(located.values()), "a tablet without replicas has hosts to read from"
    with pytest.raises(NotFoundError, match="no host h9; the hosts are h1, h3, host1"):
        queries.check_host("h9")


def clocks_and_secrets_of_hosts_are_compared(hosts: Hosts) -> None:
    own, peer = SecretMark("cluster.secret", "aa"), SecretMark("to/east.secret", "bb")
    now_ms = hosts.world.clock.wall_ms()
    for name, wall_ms, secrets in (
        ("h1", now_ms, (own, peer)),
        ("h2", now_ms + HOUR_MS, (own,)),
        ("h3", now_ms - HOUR_MS, (own, peer)),
        ("h4", None, None),
    ):
        hosts.tservers[name].wall_ms, hosts.tservers[name].secrets = wall_ms, secrets
    tservers, config = hosts.master.tservers, hosts.world.config
    queries = HostQueries(hosts.world.table, tservers, config, hosts.away, TabletIndex, clock=hosts.world.clock)
    shown = {host.name: host for host in queries.hosts()}
    assert "it lacks secrets that other hosts have: to/east.secret (bb)" in shown["h2"].problem, "a host lacks a secret"
    assert "s ahead of the master's: set the clocks of both machines" in shown["h2"].problem, "a clock is off"
    assert re.fullmatch(r"its clock is \d+\.\d s behind the master's: set the clocks of .*", shown["h3"].problem)
    assert [shown[name].problem for name in ("h1", "h4")] == ["", ""]
    ahead_ms = [shown[name].clock_ahead_ms for name in ("h1", "h2", "h3", "h4")]
    assert ahead_ms[3] is None
    assert [round((ms or 0) / HOUR_MS) for ms in ahead_ms] == [0, 1, -1, 0]
    assert (shown["h1"].secrets, shown["h4"].secrets) == ((own, peer), None)


def test_clocks_and_secrets_of_hosts_are_compared(hosts: Hosts) -> None:
    clocks_and_secrets_of_hosts_are_compared(hosts)


@pytest.mark.parametrize(
    ("switch", "broken"),
    [("hosts-with-any-secrets", "a host lacks a secret"), ("hosts-with-any-clock", "a clock is off")],
)
def test_without_the_comparison_they_are_not_named(hosts: Hosts, switch: str, broken: str) -> None:
    with fault(switch), pytest.raises(AssertionError, match=broken):
        clocks_and_secrets_of_hosts_are_compared(hosts)


def test_the_reports_of_a_tablet_have_the_problems_of_rows_that_are_served(hosts: Hosts) -> None:
    """Such as records that it lacks: `tablets` says it, and so do the monitor's pages and its API."""
    hosts.hold("h1", 7, leads=True)
    hosts.until("h1", "a leader")
    tservers, config = hosts.master.tservers, hosts.world.config
    lost = {ROW: "records after 7 of wal/a/1.wal are missing"}
    queries = HostQueries(hosts.world.table, tservers, config, hosts.away, TabletIndex, warnings=lost)
    (found,) = queries.replicas("1", False)
    assert (found.problem, found.warning) == ("", lost[ROW])
    assert queries.tablet("1", found.directory).warning == lost[ROW]


def test_a_tablet_on_the_volume_waits_for_no_host_while_it_is_served(hosts: Hosts) -> None:
    hosts.hold("h1", 7, leads=True)
    hosts.until("h1", "a leader")
    cells = [CellKey(ROW, keys.replica_column(name)) for name in ("h1", "h2", "h3")]
    hosts.world.table.delete(cells, keys.master_rank(9, 9))
    tservers, config = hosts.master.tservers, hosts.world.config
    queries = HostQueries(hosts.world.table, tservers, config, hosts.away, TabletIndex)
    (found,) = queries.replicas("1", False)
    assert (found.replicas, found.problem) == ((), "")
    hosts.world.kill(hosts.tservers["h1"].session)
    (waits,) = queries.replicas("1", False)
    assert waits.problem == WAITS_FOR_A_HOST


def test_one_tablet_is_answered_from_its_own_row(hosts: Hosts) -> None:
    hosts.name(7)
    hosts.hold("h1", 7, 9, leads=True)
    tservers, config = hosts.master.tservers, hosts.world.config
    known = list(hosts.master.read_books().snapshot.tablets.values())
    alone = HostQueries(Scanless(hosts.world.table), tservers, config, hosts.away, lambda: TabletIndex(known))
    found = alone.tablet("1", known[0].directory)
    assert (found.extent, found.named) == (LAST, 7)
    later = HostQueries(hosts.world.table, tservers, config, hosts.away, TabletIndex)
    assert later.tablet("1", known[0].directory) == found, "a tablet that is new since the last cycle is not found"
    renamed = [replace(view, directory="t-gone") for view in known]
    moved = HostQueries(hosts.world.table, tservers, config, hosts.away, lambda: TabletIndex(renamed))
    with pytest.raises(NotFoundError, match="has no tablet t-gone"):
        moved.tablet("1", "t-gone")
