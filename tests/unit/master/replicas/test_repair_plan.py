"""The plans of repair and balance, from any state, with deaths, returns, wipes and cuts at any moment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bookkeeper.master.replicas.election import candidates
from bookkeeper.master.replicas.repair_state import Demote, Join, Step
from bookkeeper.metadata.values import JOINING, VOTER, ReplicaCell
from tests.support.faults import fault
from tests.support.replica_plan_world import LIMITS, TICK_MS, PlanWorld, Tablet

Event = tuple[str, int]
EVENTS = st.lists(
    st.tuples(
        st.sampled_from(
            ["kill", "start", "wipe", "drain", "undrain", "write", "copy", "elect", "plan", "wait", "wanted"]
        ),
        st.integers(0, 40),
    ),
    max_size=60,
)


def happen(world: PlanWorld, event: Event) -> None:
    """One event; a wipe that would destroy the last copies of a named state is left out, as no plan can help then."""
    what, number = event
    host = sorted(world.hosts)[number % len(world.hosts)]
    tablet = list(world.tablets.values())[number % len(world.tablets)]
    match what:
        case "kill" | "start" | "wipe":
            if what != "wipe" or all(set(world.copies(one, one.named)) - {host} for one in world.tablets.values()):
                getattr(world, what)(host)
        case "drain" | "undrain":
            world.hosts[host].draining = what == "drain"
        case "write" if tablet.leader is not None:
            world.make_state(tablet)
        case "copy":
            world.copy(tablet, host)
            world.name(tablet)
        case "elect":
            world.elect()
        case "plan":
            world.plan(limit=number % 3)
        case "wait":
            world.now_ms += number * 20
        case "wanted":
            set_wanted(tablet, 2 + number % 2)


def leads_of(world: PlanWorld) -> dict[str, int]:
    """The tablets that each host leads."""
    found = Counter(tablet.leader for tablet in world.tablets.values())
    return {name: found[name] for name in world.hosts}


def set_wanted(tablet: Tablet, replicas: int) -> None:
    """``table.replicas`` changes; ``table.copies_min`` stays a majority."""
    tablet.wanted, tablet.copies_needed = replicas, replicas // 2 + 1


def run(world: PlanWorld, events: Sequence[Event]) -> PlanWorld:
    """All events, then every host is well and the plan has time."""
    for event in events:
        happen(world, event)
    for name, host in world.hosts.items():
        host.draining = False
        world.start(name)
    world.settle()
    return world


@settings(max_examples=150, deadline=None)
@given(EVENTS, st.integers(1, 4), st.integers(2, 3), st.booleans())
def test_whatever_happens_enough_copies_are_left_and_in_the_end_each_tablet_has_its_replicas(
    events: list[Event], tablets: int, replicas: int, in_order: bool
) -> None:
    world = PlanWorld.of(5, tablets, replicas, replicas // 2 + 1, (100, 700))
    world.in_order = in_order
    run(world, events)
    assert not world.broken
    for tablet in world.tablets.values():
        assert [one.cell.role for one in tablet.replicas()] == [VOTER] * tablet.wanted
        assert len(world.in_sync(tablet)) == tablet.wanted
        leads = leads_of(world)
        assert leads[tablet.leader or ""] - min(leads[one.host] for one in tablet.replicas()) < 2, "leaders are uneven"


def zones_of(world: PlanWorld, tablet: Tablet) -> set[str]:
    """The zones of a tablet's replicas."""
    return {world.hosts[one.host].zone for one in tablet.replicas()}


def in_zones(world: PlanWorld, zones: str) -> PlanWorld:
    """The hosts in these zones, by their order."""
    for host, zone in zip(world.hosts.values(), zones, strict=True):
        host.zone = zone
    return world


@settings(max_examples=60, deadline=None)
@given(EVENTS, st.sampled_from(["aabbc", "aaabb", "abcde", "aaaab"]), st.integers(1, 4))
def test_whatever_happens_the_replicas_end_in_as_many_zones_as_there_are(
    events: list[Event], zones: str, tablets: int
) -> None:
    world = run(in_zones(PlanWorld.of(5, tablets, 3, 2, (100, 700)), zones), events)
    assert not world.broken
    for tablet in world.tablets.values():
        assert len(zones_of(world, tablet)) == min(tablet.wanted, len(set(zones))), world.history
    began = len(world.history)
    world.settle()
    assert world.history[began:] == [], "the plan goes on although nothing happens"


def test_a_tablet_whose_replicas_share_a_zone_moves_and_says_why() -> None:
    world = in_zones(PlanWorld.of(4, 1, 3, 2), "aabc")
    join = rounds_until(world, "Join")
    assert isinstance(join, Join)
    assert (join.host, join.reason) == ("h3", "replicas share zone a")
    world.settle()
    (tablet,) = world.tablets.values()
    assert zones_of(world, tablet) == {"a", "b", "c"}
    assert not world.broken


def test_a_lost_host_is_replaced_in_another_zone_although_a_nearer_one_has_less() -> None:
    world = in_zones(PlanWorld.of(5, 2, 3, 2), "abcac")
    world.hosts["h4"].held[b"2;0", "p0"] = {1}
    world.tablets[b"2;0"] = Tablet(b"2;0", {"h4": (1, ReplicaCell("p0", "disk-1", VOTER))}, 1, 1, 100, 1, 1, "h4")
    world.kill("h2")
    join = rounds_until(world, "Join")
    assert isinstance(join, Join)
    assert join.host == "h4", "h3 is empty, and shares zone a"


def moved_by_the_balance() -> PlanWorld:
    """h2 alone is in zone b, and has much more than its share."""
    world = in_zones(PlanWorld.of(4, 6, 2, 1), "abaa")
    world.settle()
    return world


def test_the_balance_takes_no_zone_away() -> None:
    world = moved_by_the_balance()
    assert not world.broken
    assert all(zones_of(world, tablet) == {"a", "b"} for tablet in world.tablets.values())


def test_red_the_balance_takes_a_zone_away_and_the_plan_never_ends() -> None:
    with fault("balance-takes-zones-away"):
        world = moved_by_the_balance()
    assert any("the plan does not end" in law for law in world.broken)


@settings(max_examples=60, deadline=None)
@given(EVENTS)
def test_no_replica_comes_back_to_a_host_that_it_left(events: list[Event]) -> None:
    world = run(PlanWorld.of(5, 3, 3, 2, (100, 700, 40)), events)
    began = len(world.history)
    world.settle()
    assert world.history[began:] == [], "the plan goes on although nothing happens"


@settings(max_examples=100, deadline=None)
@given(EVENTS, st.sets(st.integers(0, 5), min_size=3, max_size=3))
def test_a_tablet_ends_up_on_the_chosen_hosts_whatever_happens(events: list[Event], numbers: set[int]) -> None:
    world = PlanWorld.of(6, 3, 3, 2, (100, 700, 40))
    tablet, chosen = world.tablets[b"1;1"], frozenset(f"h{number}" for number in numbers)
    tablet.chosen = chosen
    run(world, events)
    assert not world.broken
    assert {one.host for one in tablet.replicas() if one.is_voter} <= chosen, "another host has the tablet"
    assert tablet.leader in chosen
    for any_one in world.tablets.values():
        assert len(any_one.replicas()) == len(world.in_sync(any_one)) == any_one.wanted


def test_a_chosen_host_that_stays_away_is_done_without() -> None:
    world = PlanWorld.of(6, 1, 3, 2)
    world.tablets[b"1;0"].chosen = frozenset({"h3", "h4", "h5"})
    world.kill("h5")
    world.settle()
    hosts = {one.host for one in world.tablets[b"1;0"].replicas()}
    assert len(hosts) == len(world.in_sync(world.tablets[b"1;0"])) == 3
    assert {"h3", "h4"} < hosts
    world.start("h5")
    world.settle()
    assert {one.host for one in world.tablets[b"1;0"].replicas()} == {"h3", "h4", "h5"}
    assert not world.broken


def kinds(steps: Sequence[Step]) -> list[str]:
    """The names of steps."""
    return [type(step).__name__ for step in steps]


def rounds_until(world: PlanWorld, kind: str, rounds: int = 60) -> Step:
    """Rounds until the plan has a step of this kind."""
    for _ in range(rounds):
        for step in world.round():
            if type(step).__name__ == kind:
                return step
    raise AssertionError(f"no {kind} in {world.history}")


def test_a_host_that_is_away_for_a_short_time_is_not_replaced() -> None:
    world = PlanWorld.of(4, 1, 3, 2)
    world.kill("h1")
    assert not [step for _ in range(3) for step in world.round()]
    world.start("h1")
    assert not [step for _ in range(20) for step in world.round()]


def test_a_host_that_stays_away_is_replaced_and_its_cell_says_why() -> None:
    world = PlanWorld.of(4, 1, 3, 2)
    world.kill("h1")
    join = rounds_until(world, "Join")
    assert isinstance(join, Join)
    assert (join.host, join.reason) == ("h3", "h1 is away for 0 s")
    world.settle()
    assert [one.host for one in world.tablets[b"1;0"].replicas()] == ["h0", "h2", "h3"]
    assert world.steps == {"Join": 1, "Finalize": 1, "Demote": 1, "Leave": 1}


def test_a_wiped_host_gets_the_tablet_again_under_another_placement() -> None:
    world = PlanWorld.of(4, 1, 3, 2)
    world.wipe("h1")
    join = rounds_until(world, "Join")
    assert isinstance(join, Join)
    assert (join.host, join.incarnation, join.reason) == ("h1", "disk-2", "the disk of h1 was wiped")
    world.settle()
    assert [one.host for one in world.tablets[b"1;0"].replicas()] == ["h0", "h1", "h2"]
    assert world.steps == {"Join": 1, "Finalize": 1}


def test_a_drained_host_gives_away_its_leaders_first_then_its_replicas() -> None:
    world = PlanWorld.of(4, 2, 3, 2)
    drained = world.tablets[b"1;0"].leader or ""
    world.hosts[drained].draining = True
    first = world.round()
    assert set(kinds(first)) == {"Lead"}
    world.settle()
    assert all(one.host != drained for tablet in world.tablets.values() for one in tablet.replicas())
    assert not world.broken


def test_without_another_host_a_drained_one_keeps_its_replicas() -> None:
    world = PlanWorld.of(3, 1, 3, 2)
    world.hosts["h1"].draining = True
    world.settle()
    assert [one.host for one in world.tablets[b"1;0"].replicas()] == ["h0", "h1", "h2"]
    assert not world.broken


@pytest.mark.parametrize(("before", "after"), [(2, 3), (3, 2), (3, 5), (5, 3)])
def test_another_number_of_replicas_is_reached(before: int, after: int) -> None:
    world = PlanWorld.of(6, 3, before, before // 2 + 1)
    for tablet in world.tablets.values():
        set_wanted(tablet, after)
    world.settle()
    assert not world.broken
    assert {len(tablet.replicas()) for tablet in world.tablets.values()} == {after}


def test_replicas_that_join_at_once_are_few_and_tablets_in_danger_come_first() -> None:
    world = PlanWorld.of(6, 5, 3, 2)
    world.hosts["h0"].held.pop((b"1;3", "p0"))
    world.tablets[b"1;3"].leader = "h1"
    world.kill("h2")
    world.now_ms += 10_000
    world.elect()
    steps = world.plan()
    assert kinds(steps).count("Join") == LIMITS.joins_max
    assert steps[0].row == b"1;3"


def test_a_repeated_step_changes_nothing_and_one_of_a_deposed_master_loses() -> None:
    world = PlanWorld.of(4, 1, 3, 2)
    world.kill("h1")
    join = rounds_until(world, "Join")
    tablet = world.tablets[b"1;0"]
    finalized = rounds_until(world, "Finalize")
    cells = dict(tablet.cells)
    world.apply(join, 500)  # the rank of an earlier reign
    assert tablet.cells == cells
    world.apply(finalized, world.rank)
    assert tablet.replicas()[-1].cell.role == VOTER


# ---- tablets that merge come together


def apart(sizes: tuple[int, ...] = (100, 700)) -> PlanWorld:
    """Two tablets on three of seven hosts each; one host has both."""
    world = PlanWorld.of(7, 2, 3, 2, sizes)
    tablet = world.tablets[b"1;1"]
    for old, new in (("h0", "h3"), ("h1", "h4")):
        tablet.cells[new] = tablet.cells.pop(old)
        world.hosts[new].held[tablet.row, "p0"] = world.hosts[old].held.pop((tablet.row, "p0"))
    tablet.leader = "h3"
    world.meetings = [[b"1;0", b"1;1"]]
    return world


def places(world: PlanWorld) -> list[list[str]]:
    return [[one.host for one in tablet.replicas()] for tablet in world.tablets.values()]


def test_tablets_that_merge_meet_where_most_of_their_bytes_are() -> None:
    world = apart()
    assert places(world) == [["h0", "h1", "h2"], ["h2", "h3", "h4"]]
    world.settle()
    assert places(world) == [["h2", "h3", "h4"]] * 2
    assert world.steps["Join"] == 2, "only the smaller tablet was copied"
    assert not world.broken


def test_tablets_meet_elsewhere_when_a_host_of_the_larger_one_is_drained_or_lost() -> None:
    world = apart()
    world.plan()
    world.hosts["h3"].draining = True
    world.settle()
    world.kill("h4")
    world.settle()
    (one, other) = places(world)
    assert one == other
    assert not {"h3", "h4"} & {*one}
    assert not world.broken


def test_a_host_that_is_away_for_a_short_time_stays_the_place_of_a_meeting() -> None:
    world = PlanWorld.of(5, 2, 3, 2)
    world.meetings = [[b"1;0", b"1;1"]]
    world.kill("h1")
    assert not [step for _ in range(3) for step in world.round()]


@settings(max_examples=60, deadline=None)
@given(EVENTS, st.integers(2, 3))
def test_whatever_happens_tablets_that_merge_come_together(events: list[Event], tablets: int) -> None:
    world = PlanWorld.of(6, 4, 3, 2, (100, 700, 40))
    world.settle()
    world.meetings = [[b"1;%d" % number for number in range(tablets)]]
    run(world, [event for event in events if event[0] != "wanted"])
    assert not world.broken
    assert len({tuple(hosts) for hosts in places(world)[:tablets]}) == 1


def check_tablets_meet_in_zones() -> None:
    """Both tablets have h1 and h2 of zone a, and one more host of it each; h4 of zone b has neither."""
    world = in_zones(PlanWorld.of(5, 2, 3, 2), "aaaab")
    other = world.tablets[b"1;1"]
    other.cells["h3"] = other.cells.pop("h0")
    world.hosts["h3"].held[other.row, "p0"] = world.hosts["h0"].held.pop((other.row, "p0"))
    other.leader = "h3"
    world.meetings = [[b"1;0", b"1;1"]]
    world.settle()
    (hosts, hosts_of_other) = places(world)
    assert hosts == hosts_of_other
    assert "h4" in hosts, "the merged tablet lies in one zone"
    assert world.steps["Join"] == 2
    assert not world.broken


def test_tablets_that_merge_meet_in_as_many_zones_as_there_are() -> None:
    check_tablets_meet_in_zones()


def test_red_tablets_that_merge_meet_in_one_zone() -> None:
    with fault("choices-ignore-zones"), pytest.raises(AssertionError, match="the merged tablet lies in one zone"):
        check_tablets_meet_in_zones()


@settings(max_examples=60, deadline=None)
@given(EVENTS, st.sampled_from(["aabbcc", "aaabbb", "abcdef", "aaaaab"]))
def test_whatever_happens_tablets_that_merge_come_together_in_as_many_zones_as_there_are(
    events: list[Event], zones: str
) -> None:
    world = in_zones(PlanWorld.of(6, 3, 3, 2, (100, 700, 40)), zones)
    world.settle()
    world.meetings = [[b"1;0", b"1;1"]]
    run(world, [event for event in events if event[0] != "wanted"])
    assert not world.broken
    assert len({tuple(hosts) for hosts in places(world)[:2]}) == 1
    for row in world.meetings[0]:
        assert len(zones_of(world, world.tablets[row])) == min(3, len(set(zones))), world.history


# ---- each condition, and what happens without it


def joiner_without_data() -> PlanWorld:
    """A joiner that has nothing yet, while only two voters are in sync."""
    world = PlanWorld.of(4, 1, 3, 2)
    world.kill("h2")
    world.now_ms += 10_000
    world.elect()
    world.plan()  # h3 joins
    for _ in range(12):
        world.now_ms += 60
        world.plan()
    return world


def test_e54_a_joiner_votes_only_with_the_newest_state() -> None:
    world = joiner_without_data()
    assert "Finalize" not in world.steps
    tablet = world.tablets[b"1;0"]
    assert {one.host: one.cell.role for one in tablet.replicas()}["h3"] == JOINING


def test_e54_red_a_joiner_votes_without_data() -> None:
    with fault("joiner-votes-without-data"):
        world = joiner_without_data()
    assert world.steps["Finalize"] == 1
    voters = [one.host for one in world.tablets[b"1;0"].replicas() if one.is_voter]
    assert "h3" in voters
    assert "h3" not in world.in_sync(world.tablets[b"1;0"]), "an empty host votes"


def joiner_after_a_compaction() -> tuple[PlanWorld, list[str]]:
    """h3 joins when the leader has compacted: it holds the newest state and not the named one. All others are lost as
    soon as it votes. The hosts that may lead then.
    """
    world = PlanWorld.of(4, 1, 3, 2)
    world.kill("h2")
    world.now_ms += 10_000
    world.elect()
    world.plan()
    tablet = world.tablets[b"1;0"]
    world.make_state(tablet)
    for host in ("h1", "h3"):
        world.copy(tablet, host)
    voted = False
    for _ in range(4):
        world.now_ms += TICK_MS
        voted = voted or "Finalize" in kinds(world.plan())
        if voted:
            break
        world.name(tablet)
    for name in ("h0", "h1"):
        world.kill(name)
    able = candidates(tablet.replicas(), world.sessions(), world.held(tablet), tablet.named, {})
    return world, [one.host for one in able]


def test_e22_a_joiner_that_votes_may_lead_when_all_others_are_lost() -> None:
    world, able = joiner_after_a_compaction()
    assert world.steps["Finalize"] == 1
    assert able == ["h3"]


def test_e22_red_a_joiner_votes_that_may_not_lead() -> None:
    with fault("joiner-votes-before-the-name"):
        world, able = joiner_after_a_compaction()
    assert world.steps["Finalize"] == 1
    assert able == [], "no host may lead although h3 has every record"


def test_a_joiner_votes_at_once_when_the_newest_state_lacks_copies_without_it() -> None:
    world = PlanWorld.of(4, 1, 3, 2)
    for name in ("h1", "h2"):
        world.kill(name)
    world.now_ms += 10_000
    tablet = world.tablets[b"1;0"]
    tablet.leader = "h0"
    world.plan()
    world.make_state(tablet)
    world.copy(tablet, "h3")
    assert "Finalize" in kinds(world.plan()), "the newest state is never named"
    world.name(tablet)
    assert tablet.named == tablet.newest


def replicas_reduced() -> PlanWorld:
    """``table.replicas`` falls to 2 while h0, the most loaded, is one of the only two with the named state."""
    world = PlanWorld.of(3, 1, 3, 2)
    tablet = world.tablets[b"1;0"]
    tablet.leader, tablet.newest, tablet.named, tablet.wanted = "h1", 2, 2, 2
    for name in ("h1", "h2"):
        world.hosts[name].held[b"1;0", "p0"] = {2}
    world.hosts["h0"].held[b"1;0", "p0"] = {1}
    for _ in range(10):
        world.now_ms += TICK_MS
        world.plan()
    return world


def test_n3_a_voter_leaves_only_when_enough_others_hold_the_named_state() -> None:
    world = replicas_reduced()
    assert not world.broken
    assert not world.steps, "h0 is kept, and h2 waits until h0 holds the named state"


def test_n3_red_a_voter_leaves_although_too_few_others_hold_the_named_state() -> None:
    with fault("voter-leaves-too-early"):
        world = replicas_reduced()
    assert "after Demote tablet b'1;0' has 1 voters in sync, 2 are needed" in world.broken


def late_name() -> list[str]:
    """The disks with the named state, after a leader that still counts a demoted voter named a state that the two of
    them have alone.
    """
    world = PlanWorld.of(3, 1, 3, 2)
    tablet = world.tablets[b"1;0"]
    tablet.leader, tablet.wanted = "h0", 2
    demoted = rounds_until(world, "Demote")
    assert isinstance(demoted, Demote)
    tablet.newest += 1
    for name in ("h0", demoted.replica.host):
        world.hosts[name].held[b"1;0", "p0"].add(tablet.newest)
    world.now_ms += LIMITS.flight_ms / 2
    world.plan()
    tablet.named = tablet.newest  # the leader read the row before, and its write has arrived
    world.now_ms += 10 * LIMITS.flight_ms
    world.plan()
    return [name for name, host in world.hosts.items() if tablet.named in host.held.get((b"1;0", "p0"), ())]


def test_r4_a_demoted_replica_stays_until_no_state_that_counts_on_it_can_still_arrive() -> None:
    assert len(late_name()) == 2


def test_r4_red_a_demoted_replica_leaves_at_once() -> None:
    with fault("demoted-replica-leaves-at-once"):
        held = late_name()
    assert held == ["h0"], "the named state is on one disk only"
