"""Elections through coordination, with real processes: the leader is killed, the next one is a host that stands."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from bookkeeper.client import Client, Mutation
from bookkeeper.coordination.connect import open_coordination
from bookkeeper.coordination.coordination_protocol import Coordination
from bookkeeper.coordination.tablet_candidates import TabletCandidate
from bookkeeper.errors import TransientError
from tests.support.cluster import Cluster
from tests.support.replay_process import all_gone

pytestmark = pytest.mark.integration

ROWS = [b"%03d" % number for number in range(100)]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Three hosts."""
    overrides = {"standalone.hosts": 3, "replicas.election": "coordination", "master.scan_interval_ms": 500}
    with Cluster(tmp_path / "own", "own", tservers=1, overrides=overrides) as made:
        yield made


def write(client: Client, value: bytes) -> None:
    """All rows, acknowledged."""
    with client.writer("t") as writer:
        for row in ROWS:
            writer.add(Mutation(row).put(b"f", b"q", value))


def leader(cluster: Cluster) -> str | None:
    """The host that leads the only tablet; None while nobody does, or the master changes."""
    try:
        (tablet,) = cluster.client.hosts.replicas(cluster.client.tables.get("t").table_id)
    except TransientError:
        return None
    return next((one.host for one in tablet.replicas if one.leads and one.held is not None), None)


def standing(coordination: Coordination) -> dict[str, tuple[int, ...]]:
    """The hosts that stand for the lead of the only tablet, in their order, and what they say that they hold."""
    found = [TabletCandidate.decode(one.value) for all_ in coordination.candidates().values() for one in all_]
    return {one.host: one.complete for one in found}


def test_e19_a_killed_leader_stands_no_more_and_a_host_that_stands_leads(cluster: Cluster) -> None:
    client = cluster.client
    client.tables.create("t", properties={"table.replicas": "3"})
    write(client, b"1")
    client.tables.flush("t")
    with closing(open_coordination(cluster.settings)) as coordination:

        def all_stand() -> bool:
            named = client.hosts.replicas(client.tables.get("t").table_id)[0].named
            found = standing(coordination)
            return len(found) == 3 and all(named in states for states in found.values())

        cluster.wait_until(all_stand, "three hosts stand with the named state")
        first = leader(cluster)
        assert first is not None
        role = f"{first}.tserver1" if first != "host1" else "tserver1"

        def dead() -> set[str]:
            return {info.session_id for info in coordination.sessions("tserver") if not info.alive}

        before = dead()
        killed = psutil.Process(cluster.pid(role))
        cluster.kill9(role)
        assert all_gone([killed]), "a killed process ends"
        # Its first thread may end before the others, which still have its files.
        cluster.wait_until(lambda: bool(dead() - before), "the session of a killed process is over")
        gone = dead()
        session_ids = {one.session_id for all_ in coordination.candidates().values() for one in all_}
        assert not session_ids & gone, "a dead session stands"
        cluster.wait_until(lambda: leader(cluster) not in (None, first), "another host leads")
    write(client, b"2")
    assert {cell.row: cell.value for cell in client.scan("t").cells()} == dict.fromkeys(ROWS, b"2")
