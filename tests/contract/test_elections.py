"""The laws of :class:`bookkeeper.master.replicas.election.LeaderElection`, for every implementation and each store of
coordination.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import pytest

from bookkeeper.coordination.coordination_protocol import Coordination, Session
from bookkeeper.coordination.tablet_candidates import TabletCandidate, election_of
from bookkeeper.errors import LeaseLostError
from bookkeeper.master.index.tablet_replicas import TabletReplica
from bookkeeper.master.replicas.coordinated_election import CoordinatedElection
from bookkeeper.master.replicas.election import LeaderElection, NewestState, candidates
from bookkeeper.master.replicas.held_states import HeldState, HeldStates
from bookkeeper.metadata.values import JOINING, VOTER, ReplicaCell, ReplicaRole
from bookkeeper.model import HostIdentity
from tests.support.coordination_process import STORES, new_store
from tests.support.faults import fault

KEY = ("1", "t-00000")
HOSTS = ("h1", "h2", "h3")
LEASE_MS = 60_000
"""Of the hosts' sessions: none is over by itself while a test runs."""


class Electorate(Protocol):
    """Hosts that say what they hold, in the way of one election."""

    @property
    def election(self) -> LeaderElection:
        """The election."""

    def say(self, host: HostIdentity, *states: int, placement: str = "p1") -> None:
        """A live host holds these states."""

    def die(self, name: str) -> None:
        """The host's session ends, and the master has noticed it."""

    def sessions(self) -> dict[str, tuple[str, HostIdentity]]:
        """Live hosts and their sessions."""


@dataclass
class Asked:
    """Hosts answer the master's questions."""

    states: HeldStates = field(default_factory=HeldStates)
    live: dict[str, tuple[str, HostIdentity]] = field(default_factory=dict)

    @property
    def election(self) -> LeaderElection:
        return NewestState(self.states)

    def say(self, host: HostIdentity, *states: int, placement: str = "p1") -> None:
        self.live[host.name] = f"s-{host.name}", host
        held = HeldState(placement, host.incarnation, max(states, default=0), frozenset(states))
        self.states.answer(host.name, {KEY: held})

    def die(self, name: str) -> None:
        del self.live[name]
        self.states.begin_questions(self.live)

    def sessions(self) -> dict[str, tuple[str, HostIdentity]]:
        return self.live


@dataclass
class Standing:
    """Hosts stand in the coordination store."""

    coordination: Coordination
    opened: dict[str, Session] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.election: LeaderElection = CoordinatedElection(self.coordination)

    def say(self, host: HostIdentity, *states: int, placement: str = "p1") -> None:
        if host.name not in self.opened:
            self.opened[host.name] = self.coordination.open_session("tserver", f"{host.name}:1", host)
        candidate = TabletCandidate(host.name, placement, host.incarnation, max(states, default=0), states)
        self.coordination.campaign(self.opened[host.name], {election_of(*KEY): candidate.encode()})

    def die(self, name: str) -> None:
        self.opened.pop(name).close()

    def sessions(self) -> dict[str, tuple[str, HostIdentity]]:
        return {
            info.host.name: (info.session_id, info.host)
            for info in self.coordination.sessions("tserver")
            if info.alive and info.host is not None
        }


@pytest.fixture(params=["master", *STORES])
def hosts(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Electorate]:
    """No host has said anything."""
    if request.param == "master":
        yield Asked()
        return
    coordination = STORES[request.param](new_store(request.param, request, tmp_path), LEASE_MS)
    yield Standing(coordination)
    coordination.close()


def disk(name: str, incarnation: str = "d1") -> HostIdentity:
    """A host with a disk."""
    return HostIdentity(name, incarnation)


def row(**roles: ReplicaRole) -> tuple[TabletReplica, ...]:
    """The replicas of the row: three voters, but for those that are named."""
    return tuple(TabletReplica(name, ReplicaCell("p1", "d1", roles.get(name, VOTER))) for name in HOSTS)


def elected(hosts: Electorate, named: int, replicas: tuple[TabletReplica, ...] | None = None) -> str | None:
    """The host that leads; None when no host may."""
    replicas = replicas or row()
    held = hosts.election.states_of(KEY, replicas)
    able = candidates(replicas, hosts.sessions(), held, named, {})
    return hosts.election.choose(KEY, able).host if able else None


def test_e19_exactly_one_leads_and_it_is_the_one_with_the_newest_state(hosts: Electorate) -> None:
    hosts.say(disk("h1"), 7)
    hosts.say(disk("h2"), 7, 9)
    hosts.say(disk("h3"), 7, 8)
    assert elected(hosts, 7) == "h2"
    hosts.say(disk("h3"), 7, 8, 10)
    assert elected(hosts, 7) == "h3", "a newer state that was made since does not count"


def test_e19_every_reader_comes_to_the_same_leader_among_equal_ones(hosts: Electorate) -> None:
    for name in ("h2", "h1", "h3"):
        hosts.say(disk(name), 7)
    first = elected(hosts, 7)
    assert first == ("h1" if isinstance(hosts, Asked) else "h2")
    assert {elected(hosts, 7) for _ in range(3)} == {first}
    for name in ("h1", "h2", "h3"):
        hosts.say(disk(name), 7, 9)
    assert elected(hosts, 7) == first, "the order changes although each host stands as before"


def test_e23_a_joining_host_never_leads(hosts: Electorate) -> None:
    hosts.say(disk("h1"), 7)
    hosts.say(disk("h2"), 7, 9)
    assert elected(hosts, 7, row(h2=JOINING)) == "h1"
    assert elected(hosts, 9, row(h2=JOINING)) is None
    with fault("any-replica-leads"):
        assert elected(hosts, 9, row(h2=JOINING)) == "h2", "red: a joiner leads"


def test_p10_a_wiped_disk_and_another_placement_never_lead(hosts: Electorate) -> None:
    hosts.say(disk("h1"), 7)
    hosts.say(disk("h2", "d2"), 7, 9)
    hosts.say(disk("h3"), 7, 9, placement="p0")
    assert elected(hosts, 7) == "h1"
    assert elected(hosts, 9) is None


def test_a_host_without_the_named_state_never_leads_although_it_has_a_newer_one(hosts: Electorate) -> None:
    hosts.say(disk("h1"), 9)
    hosts.say(disk("h2"), 7)
    assert elected(hosts, 7) == "h2"


def test_the_death_of_a_session_ends_what_its_host_has_said(hosts: Electorate) -> None:
    hosts.say(disk("h1"), 7, 9)
    hosts.say(disk("h2"), 7)
    version = hosts.election.version()
    assert hosts.election.version() == version, "news without anything new"
    hosts.die("h1")
    assert elected(hosts, 7) == "h2"
    assert "h1" not in hosts.election.states_of(KEY, row())
    hosts.say(disk("h1", "d2"))
    assert elected(hosts, 7) == "h2", "a wiped host leads by what it held before"
    assert hosts.election.version() > version


def test_before_the_first_state_a_voter_that_has_said_nothing_may_lead(hosts: Electorate) -> None:
    hosts.say(disk("h2"), placement="another tablet")
    assert elected(hosts, 0) == "h2"


# ---- the candidacies themselves


@pytest.fixture(params=list(STORES))
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Coordination]:
    """One store."""
    coordination = STORES[request.param](new_store(request.param, request, tmp_path), LEASE_MS)
    yield coordination
    coordination.close()


def test_candidacies_are_in_the_order_in_which_sessions_began_to_stand(store: Coordination) -> None:
    one, other = store.open_session("tserver", "a:1"), store.open_session("tserver", "b:1")
    store.campaign(one, {"1/a": b"x"})
    store.campaign(other, {"1/a": b"y", "1/b": b"y"})
    store.campaign(one, {"1/a": b"z", "1/b": b"z"})
    found = {election: [(c.session_id, c.value) for c in all_] for election, all_ in store.candidates().items()}
    a, b = one.session_id, other.session_id
    assert found == {"1/a": [(a, b"z"), (b, b"y")], "1/b": [(b, b"y"), (a, b"z")]}
    store.campaign(one, {"1/b": b"z"})
    store.campaign(one, {"1/a": b"z", "1/b": b"z"})
    assert [c.session_id for c in store.candidates()["1/a"]] == [b, a], "a candidacy that ended kept its place"


def test_the_version_changes_with_each_change_and_with_no_other_write(store: Coordination) -> None:
    session = store.open_session("tserver", "a:1")
    versions = [store.candidates_version()]
    for wanted in ({"1/a": b"x"}, {"1/a": b"y"}, {}):
        store.campaign(session, wanted)
        versions.append(store.candidates_version())
        store.campaign(session, wanted)
        store.put("/x", b"")
        assert store.candidates_version() == versions[-1]
    assert len(set(versions)) == len(versions)


def test_candidacies_end_with_their_session_and_nobody_stands_after_its_end(store: Coordination) -> None:
    session, other = store.open_session("tserver", "a:1"), store.open_session("tserver", "b:1")
    store.campaign(session, {"1/a": b"x"})
    store.campaign(other, {"1/a": b"x"})
    session.close()
    assert [c.session_id for c in store.candidates()["1/a"]] == [other.session_id]
    with pytest.raises(LeaseLostError):
        store.campaign(session, {"1/a": b"x"})
    store.forget_session(session.session_id)
    other.close()
    assert store.candidates() == {}
