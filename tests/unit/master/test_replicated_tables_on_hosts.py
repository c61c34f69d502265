"""Tables with several replicas: their hosts, what is refused about them, and what a deletion leaves."""

from __future__ import annotations

import pytest

from bookkeeper.coordination.config_changes import set_draining
from bookkeeper.errors import InvalidInputError, RefusedError
from bookkeeper.master.fate.engine import Args
from bookkeeper.master.index.snapshot import tablet_view
from bookkeeper.master.operations.properties import change_properties_args
from bookkeeper.master.operations.replica_hosts import replica_counts, spread
from bookkeeper.master.operations.table_lifecycle import create_table_args
from bookkeeper.metadata import keys
from bookkeeper.metadata.values import VOTER
from bookkeeper.model import HostIdentity
from tests.support.master_world import Master, World


@pytest.fixture
def master(world: World) -> Master:
    """The leader of a cluster with the live hosts h1 to h4."""
    for number in range(1, 5):
        world.tserver(host=HostIdentity(f"h{number}", f"disk-{number}"))
    return world.master()


def run(master: Master, kind: str, args: Args) -> object:
    """The result of an operation that needs no tserver."""
    running = master.fate.submit(kind, args)
    master.run_fate()
    return master.fate.wait(running, 0)


def created(master: Master, name: str, replicas: int, splits: list[bytes]) -> str:
    """The id of a new table, whose tablets have no tserver yet."""
    args = create_table_args(name, splits, [], {"table.replicas": f"{replicas}"})
    master.fate.submit("create_table", args)
    master.run_fate()
    return master.world.config().table_named(name).table_id


def end_all_sessions(world: World, master: Master) -> None:
    """No tserver lives, so no operation waits for one."""
    for session in list(world.sessions):
        world.kill(session)
    world.clock.jump(1_000)
    master.run_fate()


def test_the_replicas_of_each_tablet_lie_on_distinct_live_hosts_and_all_hosts_have_as_many(
    world: World, master: Master
) -> None:
    table_id = created(master, "copied", 3, [b"%02d" % number for number in range(7)])
    rows = list(world.table.scan(*keys.table_section(table_id), ("tablet", keys.REPLICA_FAMILY)))
    views = [tablet_view(row) for row in rows]
    assert len(views) == 8
    for view in views:
        assert len({replica.host for replica in view.replicas}) == 3
        assert len({replica.cell.placement for replica in view.replicas}) == 3, "two replicas share a placement"
        for replica in view.replicas:
            assert replica.cell.role == VOTER
            assert replica.cell.incarnation == replica.host.replace("h", "disk-")
    assert replica_counts(rows) == dict.fromkeys(("h1", "h2", "h3", "h4"), 6)


def test_the_replicas_of_a_new_tablet_lie_in_different_zones_while_there_are_enough(world: World) -> None:
    for number, zone in enumerate(("a", "a", "a", "b", "c"), 1):
        world.tserver(host=HostIdentity(f"h{number}", f"disk-{number}", zone))
    table_id = created(world.master(), "copied", 3, [b"%02d" % number for number in range(5)])
    rows = list(world.table.scan(*keys.table_section(table_id), (keys.REPLICA_FAMILY,)))
    for row in rows:
        names = {replica.host for replica in tablet_view(row).replicas}
        assert {"h4", "h5"} < names, "two replicas share zone a"
        assert len(names) == 3
    counts = replica_counts(rows)
    assert [counts[f"h{number}"] for number in (1, 2, 3)] == [2, 2, 2], "the hosts of a zone do not take turns"


def test_more_replicas_than_zones_share_one() -> None:
    hosts = [HostIdentity(f"h{number}", "d", "ab"[number % 2]) for number in range(4)]
    assert [host.name for host in spread(hosts, 3, {"h0": 5})] == ["h1", "h2", "h3"]
    bare = [HostIdentity(f"h{number}", "d") for number in range(3)]
    assert [host.name for host in spread(bare, 2, {})] == ["h0", "h1"], "a host without a zone is one of its own"


def test_hosts_with_few_replicas_come_first(world: World, master: Master) -> None:
    first = created(master, "first", 2, [])
    second = created(master, "second", 2, [])
    scans = [world.table.scan(*keys.table_section(table_id), (keys.REPLICA_FAMILY,)) for table_id in (first, second)]
    assert [sorted(replica_counts(rows)) for rows in scans] == [["h1", "h2"], ["h3", "h4"]]


def test_a_table_of_one_replica_names_no_host(world: World, master: Master) -> None:
    table_id = created(master, "single", 1, [b"m"])
    assert not list(world.table.scan(*keys.table_section(table_id), (keys.REPLICA_FAMILY,)))


def test_too_few_hosts_are_refused_and_nothing_is_left_of_the_table(world: World, master: Master) -> None:
    set_draining(world.coordination, "h2", True)
    with pytest.raises(
        RefusedError, match=r"has 3 live hosts for them \(h1, h3, h4\); h2 is being drained: start more"
    ):
        run(master, "create_table", create_table_args("wide", [], [], {"table.replicas": "4"}))
    assert [table.name for table in world.config().tables.values()] == ["table-1"]
    set_draining(world.coordination, "h2", False)
    created(master, "wide", 4, [])


def test_a_repeated_step_writes_the_same_replicas_although_hosts_came_meanwhile(world: World, master: Master) -> None:
    master.fate.submit("create_table", create_table_args("copied", [b"m"], [], {"table.replicas": "2"}))
    master.run_fate(3)  # number, claim, tablets
    before = list(world.table.scan(keys.TABLETS_START, keys.TABLETS_STOP, (keys.REPLICA_FAMILY,)))
    world.tserver(host=HostIdentity("a0", "disk-0"))
    state = next(iter(master.fate.pending())).state
    next_master = world.depose(master)
    next_master.run_fate()
    after = list(world.table.scan(keys.TABLETS_START, keys.TABLETS_STOP, (keys.REPLICA_FAMILY,)))
    assert state["hosts"] == [[f"h{number}", f"disk-{number}", ""] for number in range(1, 5)]
    assert len(before) == 2
    assert [sorted(row.cells) for row in before] == [sorted(row.cells) for row in after]


def test_a_deletion_leaves_no_replica_in_the_books(world: World, master: Master) -> None:
    created(master, "copied", 2, [b"m"])
    end_all_sessions(world, master)
    run(master, "delete_table", {"name": "copied"})
    assert not list(world.table.scan(keys.TABLETS_START, keys.TABLETS_STOP, (keys.REPLICA_FAMILY,)))


def test_what_works_with_one_replica_only_is_refused_in_words(world: World, master: Master) -> None:
    created(master, "copied", 2, [b"m"])
    end_all_sessions(world, master)
    refused: list[tuple[str, Args, str]] = [
        (
            "change_properties",
            change_properties_args("table-1", {"table.replicas": "5"}, ()),
            "table.replicas is 5, and the cluster has 0 live hosts for them",
        ),
    ]
    for kind, args, said in refused:
        with pytest.raises(RefusedError, match=said):
            run(master, kind, args)


def test_properties_are_judged_beside_those_that_the_table_has(world: World, master: Master) -> None:
    created(master, "copied", 3, [])
    created(master, "single", 1, [])
    end_all_sessions(world, master)
    for key, value in (("table.failover", "60000"), ("table.copies_min", "2")):
        run(master, "change_properties", change_properties_args("copied", {key: value}, ()))
        assert world.config().table_named("copied").properties[key] == value
        with pytest.raises(InvalidInputError, match=r"table\.replicas is 1"):
            run(master, "change_properties", change_properties_args("single", {key: value}, ()))
    with pytest.raises(InvalidInputError, match="it must be"):
        change_properties_args("copied", {"table.copies_min": "many"}, ())
