"""A host stands for the lead of each tablet that it holds, with one write for all changes and none without one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from bookkeeper.config.sections import CoordinationSettings
from bookkeeper.coordination.coordination_protocol import Session
from bookkeeper.coordination.embedded import EmbeddedCoordination
from bookkeeper.coordination.tablet_candidates import TabletCandidate, election_of
from bookkeeper.errors import UnavailableError
from bookkeeper.tserver.replicas.candidacies import Candidacies
from tests.support.replica_disks import KEY
from tests.support.replica_world import DIE, ReplicaWorld, replica_world

ELECTION = election_of(KEY.table_id, KEY.directory)


class Store(EmbeddedCoordination):
    """Counts the campaigns, and can be out of reach."""

    campaigns = 0
    is_away = False

    def campaign(self, session: Session, candidacies: Mapping[str, bytes]) -> None:
        self.campaigns += 1
        if self.is_away:
            raise UnavailableError("the store is away")
        super().campaign(session, candidacies)


class Site:
    """host2 follows host1, and stands."""

    def __init__(self, world: ReplicaWorld, directory: Path) -> None:
        self.world = world
        self.store = Store(directory / "coordination", CoordinationSettings())
        replicas = world.host("host2").disk.replicas
        session = self.store.open_session("tserver", "h:1", replicas.host)
        self.standing = Candidacies(replicas, self.store, session, world.clock, DIE)

    def make_state(self, file: str) -> int:
        """Both hosts get a new state."""
        state = self.world.flush("host1", file)
        self.world.replicate("host1", "host2")
        return state

    def read(self) -> TabletCandidate:
        """The only candidacy."""
        (found,) = self.store.candidates()[ELECTION]
        return TabletCandidate.decode(found.value)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """Two hosts with the first states of a term."""
    world = replica_world(tmp_path, "host1", "host2")
    world.replicate("host1", "host2")
    made = Site(world, tmp_path)
    yield made
    made.store.close()
    world.close()


def test_e19_a_host_stands_with_what_it_holds_and_writes_only_what_has_changed(site: Site) -> None:
    first = site.make_state("1.parquet")
    site.standing.stand()
    assert (site.read().root, site.read().host) == (first, "host2")
    assert first in site.read().complete
    site.standing.stand()
    assert site.store.campaigns == 1, "a write although nothing has changed"
    later = [site.make_state(f"{number}.parquet") for number in (2, 3)]
    site.standing.stand()
    assert site.store.campaigns == 2, "more than one write for what has changed"
    assert site.read().root == later[-1]
    assert {first, *later} <= set(site.read().complete)


def test_a_host_stands_no_more_for_a_tablet_that_it_holds_no_more(site: Site) -> None:
    site.make_state("1.parquet")
    site.standing.stand()
    site.world.host("host2").disk.replicas.remove(KEY, site.world.host("host2").held.placement)
    site.standing.stand()
    assert site.store.candidates() == {}


def test_a_store_out_of_reach_is_tried_again(site: Site) -> None:
    site.make_state("1.parquet")
    site.store.is_away = True
    site.standing.stand()
    assert site.store.candidates() == {}
    site.store.is_away = False
    site.standing.stand()
    assert site.read().host == "host2"
