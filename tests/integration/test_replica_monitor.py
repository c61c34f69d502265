"""The monitor of a cluster of three hosts shows what the commands say, also after a host was killed."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from bookkeeper.client import Mutation
from bookkeeper.client.host_admin import MovesLeft
from bookkeeper.monitor.replica_views import leader_of
from bookkeeper.rpc.contract.messages import TabletReplicas
from shell.failures import ExitCode
from tests.support.cluster import Cluster
from tests.support.monitor_scene import LIMIT_S, Scene, read
from tests.support.terminal import Terminal

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

TABLE = "ledgers"
QUIET = {"table.replicas": "3", "table.compaction.segments_max": "1000", "table.compaction.ratio": "1000"}


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """Three hosts; a table of two tablets, each on all of them."""
    overrides = {"standalone.hosts": 3, "replicas.repair_after_ms": 3_600_000}
    with Cluster(tmp_path_factory.mktemp("hosts") / "west", "west", 1, overrides=overrides) as west:
        west.client.tables.create(TABLE, properties=QUIET)
        west.client.tables.add_splits(TABLE, [b"000500"])
        found = Scene(west, TABLE, "")
        found.put(1_000, 0)
        west.client.tables.flush(TABLE)
        west.wait_until(lambda: all(is_settled(one) for one in tablets(found)), "every host has every segment", LIMIT_S)
        yield found


def tablets(scene: Scene) -> list[TabletReplicas]:
    """The answer that the commands ``tablets`` and ``segments`` show."""
    table_id = scene.west.client.tables.get(TABLE).table_id
    return list(scene.west.client.hosts.replicas(table_id, with_segments=True))


def is_settled(tablet: TabletReplicas) -> bool:
    """Whether each host has all, and the books name it."""
    held = [one.held for one in tablet.replicas if one.held is not None]
    return len(held) == 3 and {one.root for one in held} == {tablet.named}


def test_pages_show_what_the_commands_say(scene: Scene) -> None:
    first, second = tablets(scene)
    shown = scene.until(
        f"api/tablets?table={TABLE}",
        lambda body: [row["named"] for row in body["tablets"]] == [first.named, second.named],
    )
    assert [row["leader"] for row in shown["tablets"]] == [leader_of(first), leader_of(second)]
    assert [(row["copies"], row["copies_needed"], row["wanted"]) for row in shown["tablets"]] == [(3, 2, 3)] * 2
    one = scene.get(f"api/tablet?table={TABLE}&tablet={first.directory}")
    newest = one["segments"][0]
    assert (newest["segment"], newest["held_by"]) == (first.named, ["host1", "host2", "host3"])
    assert sorted(newest["acked_by"]) == sorted({"host1", "host2", "host3"} - {leader_of(first)})
    assert newest["waits_for"] == "named by the books"
    said = {host.name: host for host in scene.west.client.hosts.list()}
    rows = {row["host"]: row for row in scene.get("api/hosts")["hosts"]}
    assert rows.keys() == said.keys() == {"host1", "host2", "host3"}
    for name, row in rows.items():
        assert (row["bytes"], row["incarnation"]) == (said[name].bytes, said[name].incarnation)
        assert (row["replicas"], row["joining"], row["lacks"]) == (2, 0, 0)
    for path in ("hosts", f"tablets?table={TABLE}", f"tablet?table={TABLE}&tablet={first.directory}"):
        code, text = read(f"{scene.url}/{path}", scene.token)
        assert (code, "host3" in text) == (200, True)


def test_a_killed_host_lacks_nothing_once_it_is_back(scene: Scene) -> None:
    first, _ = tablets(scene)
    gone = next(name for name in ("host2", "host3") if name != leader_of(first))
    killed = scene.west.kill9(f"{gone}.tserver1")
    with scene.west.client.writer(TABLE) as writer:
        writer.add(Mutation(b"000000").put(b"f", b"q", b"again"))
    scene.west.client.tables.flush(TABLE)
    scene.west.wait_restarted(f"{gone}.tserver1", killed)
    scene.west.wait_until(lambda: all(is_settled(one) for one in tablets(scene)), "the host is back", LIMIT_S)
    newest, _ = tablets(scene)
    shown = scene.until(
        f"api/tablet?table={TABLE}&tablet={first.directory}",
        lambda body: body["named"] >= newest.named > first.named and body["copies"] == 3,
    )
    assert not shown["problem"]
    assert {row["lacks"] for row in shown["standings"]} == {0}


def test_joins_are_waited_for_with_a_line_on_a_terminal(scene: Scene) -> None:
    client = scene.west.client
    client.tables.create("grows", splits=[b"000500"])
    with client.writer("grows") as writer:
        for number in range(1_000):
            writer.add(Mutation(b"%06d" % number).put(b"f", b"q", b"value"))
    client.tables.flush("grows")
    client.tables.change_properties("grows", {"table.replicas": "3"})
    client.hosts.drain("host3", True)  # its replicas have no other place, however late the command looks
    command = [sys.executable, "-m", "shell.main", "shell", str(scene.west.directory), "hosts", "--wait"]
    with Terminal(command, {}) as terminal:
        terminal.expect(" left")
        client.hosts.drain("host3", False)
        terminal.expect("INCARNATION")
        assert terminal.wait() == ExitCode.OK
    found = client.hosts.replicas(client.tables.get("grows").table_id)
    assert [[one.role for one in tablet.replicas] for tablet in found] == [["voter"] * 3] * 2
    heard: list[MovesLeft] = []
    assert client.hosts.wait(progress=heard.append) == heard[-1] == MovesLeft(0, 0)
    client.tables.delete("grows")


def test_a_tablet_that_is_gone_is_not_found(scene: Scene) -> None:
    code, text = read(f"{scene.url}/api/tablet?table={TABLE}&tablet=t-none", scene.token)
    assert (code, "has no tablet t-none (any more)" in text) == (404, True)
