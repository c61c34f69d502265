"""The refusals of operations, their messages and their waits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bookkeeper.coordination.config_changes import define_cluster, set_table_groups
from bookkeeper.coordination.config_tree import PeerCluster
from bookkeeper.errors import ExistsError, InvalidInputError, NotFoundError, RefusedError, UnavailableError
from bookkeeper.master.fate.engine import Args
from bookkeeper.master.operations.clusters import cluster_args
from bookkeeper.master.operations.replicated_tables import disable_args, enable_args
from bookkeeper.master.operations.streams import forget_streams_args, stream_of
from bookkeeper.master.operations.table_lifecycle import create_table_args, set_groups_args
from bookkeeper.metadata import keys
from bookkeeper.metadata.metadata_limits import KEY_BYTES_MAX
from bookkeeper.metadata.metadata_table import RowPut
from bookkeeper.metadata.values import LogHome, Received
from bookkeeper.model import LocalityGroup, StreamKey, TargetKey
from bookkeeper.standalone.directory import init_cluster
from bookkeeper.standalone.ports import free_ports
from tests.support.faults import fault
from tests.support.master_world import UNHURRIED, Master, World
from tests.support.masters import LocalMaster


@pytest.fixture
def master(world: World) -> Master:
    """The leader of a cluster with one table, ``table-1``."""
    return world.master()


@pytest.fixture(scope="module")
def peer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalMaster]:
    """Another cluster, with tables ``table-1`` and ``other``."""
    home: Path = tmp_path_factory.mktemp("peer")
    with LocalMaster(init_cluster(home / "peer", "peer", overrides=UNHURRIED)) as found:
        for table in ("table-1", "other"):
            found.calls.create_table(table, [], [], {})
        yield found


def _run(master: Master, kind: str, args: Args) -> object:
    running = master.fate.submit(kind, args)
    master.run_fate()
    return master.fate.wait(running, 0)


def _targets(world: World, name: str = "table-1") -> list[tuple[str, tuple[str, ...] | None]]:
    return [(t.remote_table, t.groups) for t in world.config().table_named(name).targets]


# ---- tables


def test_a_table_of_a_name_that_is_taken_is_refused_and_nothing_is_left_of_it(world: World, master: Master) -> None:
    with pytest.raises(ExistsError, match="there is a table table-1 already"):
        _run(master, "create_table", create_table_args("table-1", [], [], {}))
    assert [table.name for table in world.config().tables.values()] == ["table-1"]


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 256])
def test_an_invalid_table_name_is_refused_before_an_operation_begins(name: str) -> None:
    with pytest.raises(InvalidInputError, match="can't be a table's name"):
        create_table_args(name, [], [], {})


def test_splits_are_sorted_rows_none_of_them_empty(world: World, master: Master) -> None:
    with pytest.raises(InvalidInputError):
        create_table_args("t", [b""], [], {})
    table_id = _run(master, "create_table", create_table_args("t", [b"x", b"k", b"k"], [], {}))
    rows = [row.key for row in world.table.scan(*keys.table_section(str(table_id)))]
    assert rows == [keys.tablet_row(str(table_id), end) for end in (b"k", b"x", None)]


def test_a_split_that_the_books_can_t_hold_leaves_no_table_half_made(world: World, master: Master) -> None:
    too_long = b"x" * (KEY_BYTES_MAX + 1)
    with pytest.raises(InvalidInputError, match="a split of 32768 bytes is too long; use rows of up to 16384"):
        _run(master, "create_table", create_table_args("t", [b"a", too_long], [], {}))
    assert [table.name for table in world.config().tables.values()] == ["table-1"]
    with fault("splits-of-any-length"), pytest.raises(InvalidInputError, match="a row key has 1 to 32767 bytes"):
        _run(master, "create_table", create_table_args("t", [b"a", too_long], [], {}))
    assert "creating" in [table.state for table in world.config().tables.values()], "without the check it is"


def test_a_family_is_in_one_group_only() -> None:
    with pytest.raises(InvalidInputError, match="one group only"):
        create_table_args("t", [], [LocalityGroup("a", (b"f",)), LocalityGroup("b", (b"f",))], {})


def test_a_missing_table_can_t_be_deleted(master: Master) -> None:
    with pytest.raises(NotFoundError, match="no table nothing"):
        _run(master, "delete_table", {"name": "nothing"})


def test_a_new_table_waits_for_tservers_only_if_there_are_any(world: World, master: Master) -> None:
    session = world.tserver()
    running = master.fate.submit("create_table", create_table_args("t", [], [], {}))
    master.run_fate()
    assert (running.step, running.ended) == ("place", False)
    assert "1 tablets have no tserver yet" in running.note
    world.locate(keys.tablet_row(str(running.state["table_id"]), None), session)
    world.clock.jump(1_000)
    master.run_fate()
    assert running.ended


def test_a_group_that_is_replicated_by_name_can_t_change(world: World, master: Master, peer: LocalMaster) -> None:
    set_table_groups(world.coordination, "1", [LocalityGroup("g", (b"f",)), LocalityGroup("h", (b"q",))])
    _run(master, "define_cluster", cluster_args("peer", peer.address))
    _run(master, "enable_replication", enable_args("table-1", ["g"], "peer", ""))
    with pytest.raises(RefusedError, match="disablereplication -t table-1 -lg g peer"):
        _run(master, "set_groups", set_groups_args("table-1", [LocalityGroup("g", (b"f", b"x"))]))
    _run(master, "set_groups", set_groups_args("table-1", [LocalityGroup("g", (b"f",))]))
    assert [group.name for group in world.config().table("1").groups] == ["g"]


# ---- clusters


@pytest.mark.parametrize("quorum", ["", "host", "host:0", "host:70000", "a b:1", "host:1,", ":1"])
def test_a_malformed_quorum_is_refused_before_an_operation_begins(quorum: str) -> None:
    with pytest.raises(InvalidInputError):
        cluster_args("east", quorum)


def test_a_cluster_name_is_a_word() -> None:
    for name in ("", "a:b", "../x", "x" * 65):
        with pytest.raises(InvalidInputError, match="can't be a cluster's name"):
            cluster_args(name, "host:1")


def test_a_definition_stores_the_peers_identity(world: World, master: Master, peer: LocalMaster) -> None:
    own = peer.settings.instance
    assert _run(master, "define_cluster", cluster_args("peer", f"127.0.0.1:1,{peer.address}")) == own.instance_id
    assert world.config().cluster("peer") == PeerCluster(
        "peer", f"127.0.0.1:1,{peer.address}", own.instance_id, own.name
    )


def test_the_same_definition_again_is_fine_and_may_bring_a_new_quorum(
    world: World, master: Master, peer: LocalMaster
) -> None:
    for quorum in (peer.address, peer.address, f"{peer.address},127.0.0.1:1"):
        _run(master, "define_cluster", cluster_args("peer", quorum))
        assert world.config().cluster("peer").quorum == quorum


def test_an_alias_of_another_instance_is_refused(master: Master, peer: LocalMaster) -> None:
    with pytest.raises(ExistsError, match="deletecluster"):
        _run(master, "define_cluster", cluster_args("east", peer.address))


def test_a_second_name_for_one_instance_is_refused(master: Master, peer: LocalMaster) -> None:
    _run(master, "define_cluster", cluster_args("peer", peer.address))
    with pytest.raises(ExistsError, match="cluster peer is the same instance"):
        _run(master, "define_cluster", cluster_args("pair", peer.address))


def test_a_peer_that_does_not_answer_is_not_defined(world: World, master: Master) -> None:
    quorum = f"127.0.0.1:{free_ports(1)[0]}"
    with pytest.raises(UnavailableError, match="nothing was changed"):
        _run(master, "define_cluster", cluster_args("far", quorum))
    assert "far" not in world.config().clusters


def a_directory_replaced_by_an_empty_one(world: World, master: Master, lake: Path) -> None:
    """A question about a peer whose directory is gone fails for now, and the place stays as it is."""
    quorum = f"parquet://{lake}"
    instance_id = _run(master, "define_cluster", cluster_args("lake", quorum))
    assert _run(master, "define_cluster", cluster_args("lake", quorum)) == instance_id
    lake.rename(lake.with_name("away"))
    lake.mkdir()
    for kind, args in (
        ("define_cluster", cluster_args("lake", quorum)),
        ("enable_replication", enable_args("table-1", [], "lake", "")),
    ):
        with pytest.raises(UnavailableError, match=r"no _bookkeeper\.json: the directory is gone"):
            _run(master, kind, args)
    assert list(lake.iterdir()) == []
    lake.rmdir()
    lake.with_name("away").rename(lake)
    _run(master, "enable_replication", enable_args("table-1", [], "lake", ""))
    assert world.config().cluster("lake").instance_id == instance_id


def test_only_definecluster_of_a_new_name_makes_a_directory_a_peer(
    world: World, master: Master, tmp_path: Path
) -> None:
    a_directory_replaced_by_an_empty_one(world, master, tmp_path / "lake")
    with pytest.raises(ExistsError, match="cluster lake is the same instance"):
        _run(master, "define_cluster", cluster_args("pond", f"parquet://{tmp_path}/lake"))


@pytest.mark.parametrize("name", ["a-defined-place-begins-anew", "a-question-makes-a-peer"])
def test_without_the_rule_an_empty_directory_becomes_another_peer(
    world: World, master: Master, tmp_path: Path, name: str
) -> None:
    with fault(name), pytest.raises((ExistsError, RefusedError), match=r"is instance|was defined as instance"):
        a_directory_replaced_by_an_empty_one(world, master, tmp_path / "lake")


def test_a_cluster_is_no_peer_of_itself(tmp_path: Path) -> None:
    with LocalMaster(init_cluster(tmp_path / "self", "self", overrides=UNHURRIED)) as own:
        with pytest.raises(RefusedError, match="a master of this cluster itself"):
            own.calls.define_cluster("mirror", own.address)
        with fault("a-cluster-is-its-own-peer"):
            own.calls.define_cluster("mirror", own.address)
        assert [c.name for c in own.calls.clusters()] == ["mirror"], "without R23 it replicates to itself"


def test_a_cluster_with_the_own_name_is_refused(tmp_path: Path) -> None:
    with (
        LocalMaster(init_cluster(tmp_path / "one", "twin", overrides=UNHURRIED)) as one,
        LocalMaster(init_cluster(tmp_path / "two", "twin", overrides=UNHURRIED)) as two,
    ):
        with pytest.raises(RefusedError, match=r"has the name twin, as this one has: give one of them another"):
            one.calls.define_cluster("other", two.address)
        assert not one.calls.clusters()
        with fault("namesakes-are-welcome"):
            one.calls.define_cluster("other", two.address)
        assert [c.name for c in one.calls.clusters()] == ["other"], "without the rule two clusters have one name"


def test_a_cluster_that_a_table_replicates_to_is_not_deleted(world: World, master: Master) -> None:
    world.enable("1", "east")
    with pytest.raises(RefusedError, match="disablereplication -t table-1 --all-loc-groups east"):
        _run(master, "delete_cluster", cluster_args("east", "127.0.0.1:1"))
    world.disable("1", "east")
    _run(master, "delete_cluster", cluster_args("east", "127.0.0.1:1"))
    assert world.config().clusters == {}


def test_the_quorum_of_a_cluster_that_is_deleted_must_be_its_own(world: World, master: Master) -> None:
    with pytest.raises(InvalidInputError, match=r"has the quorum 127\.0\.0\.1:1, not 127\.0\.0\.1:2"):
        _run(master, "delete_cluster", cluster_args("east", "127.0.0.1:2"))
    with pytest.raises(NotFoundError):
        _run(master, "delete_cluster", cluster_args("nowhere", "127.0.0.1:1"))
    assert "east" in world.config().clusters


# ---- enabling and disabling


@pytest.fixture
def enabled(world: World, master: Master, peer: LocalMaster) -> Master:
    """``peer`` is defined, ``table-1`` has the groups g and h."""
    _run(master, "define_cluster", cluster_args("peer", peer.address))
    set_table_groups(world.coordination, "1", [LocalityGroup("g", (b"f",)), LocalityGroup("h", (b"q",))])
    return master


def test_by_default_a_table_replicates_to_the_table_of_its_name(
    world: World, enabled: Master, peer: LocalMaster
) -> None:
    _run(enabled, "enable_replication", enable_args("table-1", [], "peer", ""))
    (target,) = world.config().table("1").targets
    assert (target.remote_table, target.groups) == ("table-1", None)
    assert target.key.remote_table_id == peer.calls.resolve_table("table-1")


def test_enabling_an_enabled_target_changes_nothing(world: World, enabled: Master) -> None:
    for groups in ([], [], ["g"]):
        _run(enabled, "enable_replication", enable_args("table-1", groups, "peer", ""))
    assert _targets(world) == [("table-1", None)]


def test_groups_are_enabled_one_by_one_each_as_an_incarnation_of_its_own(world: World, enabled: Master) -> None:
    for groups in (["g"], ["g", "h"]):
        _run(enabled, "enable_replication", enable_args("table-1", groups, "peer", ""))
    assert _targets(world) == [("table-1", ("g",)), ("table-1", ("h",))]
    numbers = [target.key.incarnation for target in world.config().table("1").targets]
    assert len(set(numbers)) == 2


def test_disabling_removes_groups_and_the_last_one_removes_the_target(world: World, enabled: Master) -> None:
    _run(enabled, "enable_replication", enable_args("table-1", [], "peer", ""))
    before = world.config().table("1").targets[0].key
    _run(enabled, "disable_replication", disable_args("table-1", ["g"], "peer"))
    assert _targets(world) == [("table-1", ("default", "h"))]
    assert world.config().table("1").targets[0].key == before
    _run(enabled, "disable_replication", disable_args("table-1", ["default", "h"], "peer"))
    assert _targets(world) == []
    _run(enabled, "disable_replication", disable_args("table-1", [], "peer"))


def test_a_target_that_is_enabled_again_is_a_new_one(world: World, enabled: Master) -> None:
    seen = []
    for _ in range(2):
        _run(enabled, "enable_replication", enable_args("table-1", [], "peer", ""))
        seen.append(world.config().table("1").targets[0].key)
        _run(enabled, "disable_replication", disable_args("table-1", [], "peer"))
    assert seen[0] != seen[1]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (enable_args("nothing", [], "peer", ""), "no table nothing"),
        (enable_args("table-1", ["x"], "peer", ""), "no locality group x; it has g, h, default"),
        (enable_args("table-1", [], "nowhere", ""), "define it first: definecluster nowhere"),
        (enable_args("table-1", [], "peer", "absent"), "cluster peer has no table absent: create it there"),
    ],
)
def test_a_refusal_names_the_missing_thing_and_the_next_step(
    world: World, enabled: Master, args: Args, message: str
) -> None:
    with pytest.raises(NotFoundError, match=message):
        _run(enabled, "enable_replication", args)
    assert _targets(world) == []


def test_a_peer_that_does_not_answer_changes_nothing(world: World, master: Master) -> None:
    with pytest.raises(UnavailableError, match="cluster east can't be asked"):
        _run(master, "enable_replication", enable_args("table-1", [], "east", ""))
    assert _targets(world) == []


def test_an_address_of_another_cluster_is_noticed(world: World, master: Master, peer: LocalMaster) -> None:
    define_cluster(world.coordination, PeerCluster("east", peer.address, "east-instance", "east"))
    with pytest.raises(RefusedError, match="was defined as instance east-instance"):
        _run(master, "enable_replication", enable_args("table-1", [], "east", ""))


def test_enabling_names_the_host_that_has_unsealed_logs(world: World, enabled: Master) -> None:
    session = world.tserver()
    homes = enabled.tservers.homes
    assert homes is not None
    homes.put(session, LogHome("host2", "disk-2"))
    world.kill(session)
    running = enabled.fate.submit("enable_replication", enable_args("table-1", [], "peer", ""))
    enabled.run_fate()
    assert f"{session}: dead, its logs are not sealed yet: they lie on host host2; start it" in running.note
    homes.remove(session)
    world.clock.jump(1_000)
    enabled.run_fate()
    assert running.ended, "the loss of its disk is accepted, so no log of it can be read"


def test_enabling_returns_when_every_live_tserver_has_confirmed_and_dead_ones_are_sealed(
    world: World, enabled: Master
) -> None:
    session = world.tserver()
    world.log(session, 3)
    running = enabled.fate.submit("enable_replication", enable_args("table-1", [], "peer", ""))
    enabled.run_fate()
    assert (running.step, running.ended) == ("confirm", False)
    assert session in running.note
    world.kill(session)
    world.clock.jump(1_000)
    enabled.run_fate()
    assert "its logs are not sealed yet" in running.note
    enabled.recovery.run_once(enabled.recovery.tservers.sessions())
    world.clock.jump(1_000)
    enabled.run_fate()
    assert running.ended


def test_without_confirmation_enabling_returns_while_a_tserver_writes_as_before(world: World, enabled: Master) -> None:
    world.tserver()
    with fault("all-are-confirmed"):
        _run(enabled, "enable_replication", enable_args("table-1", [], "peer", ""))
    assert _targets(world), "without R14 the next write of that tserver is lost for the peer"


# ---- streams


def _received(world: World, number: int) -> StreamKey:
    stream = StreamKey("source", f"source/{number}", "1", "1", 1)
    cell = keys.recv_cell(stream)
    world.table.put([RowPut(cell.key, {cell.column: Received(9).encode()})], keys.recv_rank(9, False))
    return stream


def test_an_ended_stream_is_retained_for_longer_than_any_message_lives(world: World, master: Master) -> None:
    stream = _received(world, 1)
    running = master.fate.submit("forget_streams", forget_streams_args([stream]))
    master.run_fate()
    assert running.step == "grace"
    assert world.table.get(keys.recv_cell(stream).key) is not None
    successor = world.depose(master)
    world.clock.jump(59_000)
    successor.run_fate()
    assert world.table.get(keys.recv_cell(stream).key) is not None, "each master counts anew"
    world.clock.jump(61_000)
    successor.run_fate()
    assert world.table.get(keys.recv_cell(stream).key) is None


def test_without_the_grace_a_late_message_is_applied_again(world: World, master: Master) -> None:
    stream = _received(world, 1)
    master.fate.submit("forget_streams", forget_streams_args([stream]))
    with fault("streams-are-forgotten-at-once"):
        master.run_fate()
    assert world.table.get(keys.recv_cell(stream).key) is None, "without R20 it is applied twice"


def test_every_live_tserver_drops_its_high_waters(world: World, master: Master) -> None:
    stream = _received(world, 1)
    world.tserver()
    running = master.fate.submit("forget_streams", forget_streams_args([stream]))
    world.clock.jump(100_000)
    master.run_fate()
    for _ in range(3):
        world.clock.jump(100_000)
        master.run_fate()
    assert (running.step, running.ended) == ("forget", False)
    assert "can't be reached" in running.note


def test_a_stream_is_named_by_the_whole_target() -> None:
    target = TargetKey("east", "r1", "1", 7)
    assert stream_of("west", "w", target) == StreamKey("west", "w", "1", "r1", 7)
