"""A crash between any two steps of every operation: the next master finishes it, and it is done once.

Each operation is cut at its first write of a step, at its second, and so on, before the write (the step was executed
and nobody knows) and behind it; then a new leader takes over.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.coordination.config_changes import define_cluster, delete_cluster, set_read_only
from bookkeeper.coordination.config_tree import PeerCluster
from bookkeeper.master.fate import Args
from bookkeeper.master.operations.borders import add_splits_args, merge_args
from bookkeeper.master.operations.bulk_import import import_args
from bookkeeper.master.operations.clusters import cluster_args
from bookkeeper.master.operations.properties import change_properties_args
from bookkeeper.master.operations.quarantine import range_args
from bookkeeper.master.operations.read_only import read_only_args
from bookkeeper.master.operations.replication import disable_args, enable_args
from bookkeeper.master.operations.streams import forget_streams_args, stream_done_args
from bookkeeper.master.operations.tables import create_table_args, set_groups_args
from bookkeeper.master.operations.users import set_authorizations_args
from bookkeeper.master.quarantine import RangeKey, scan_rows, write_rows
from bookkeeper.metadata import keys
from bookkeeper.metadata.table import Column, RowPut
from bookkeeper.metadata.values import FateStep, Quarantined, Received
from bookkeeper.model import BlockRange, Extent, LocalityGroup, RowRange, StreamKey, TargetKey
from bookkeeper.rpc.messages import ImportRequest, WorkItem, WorkReport
from bookkeeper.standalone.directory import init_cluster
from tests.support.border_world import ends_of
from tests.support.master_world import LATE_MS, UNHURRIED, Master, World
from tests.support.masters import LocalMaster
from tests.support.scripted_tserver import ScriptedTServer, scripted


class Crash(Exception):  # noqa: N818
    """The process is gone."""


@dataclass
class Scene:
    """One cluster, and a peer with a table ``remote`` that answers."""

    world: World
    peer: LocalMaster
    master: Master
    group: LocalityGroup = field(default_factory=lambda: LocalityGroup("g", (b"f",)))
    stack: ExitStack = field(default_factory=ExitStack)
    tserver: ScriptedTServer | None = None

    def table_id(self, name: str) -> str:
        return self.world.config().table_named(name).table_id

    def run(self, kind: str, args: Args) -> None:
        running = self.master.fate.submit(kind, args)
        self.finish()
        self.master.fate.wait(running, 0)

    def finish(self) -> None:
        while any(not running.ended for running in self.master.fate.pending()):
            self.world.clock.jump(LATE_MS)
            self.master.fate.step_once()

    def define_peer(self, alias: str) -> None:
        for known in self.world.config().clusters.values():
            if known.instance_id == self.peer.settings.instance.instance_id:
                delete_cluster(self.world.coordination, known.alias)
        instance = self.peer.settings.instance
        found = PeerCluster(alias, self.peer.address, instance.instance_id, instance.name)
        define_cluster(self.world.coordination, found)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """Shared by all cuts: each uses names of its own."""
    home: Path = tmp_path_factory.mktemp("operations")
    world = World.at(home / "west")
    world.create_table("1")
    with LocalMaster(init_cluster(home / "peer", "peer", overrides=UNHURRIED)) as peer:
        peer.calls.create_table("remote", [], [], {})
        yield Scene(world, peer, world.master())
        peer.leadership.stop()
    world.close()


@dataclass(frozen=True)
class Plan:
    """``prepare`` gives the arguments of try ``n``, ``check`` looks at the outcome and cleans up."""

    prepare: Callable[[Scene, int], Args]
    check: Callable[[Scene, int], None]


PROPERTIES = {"table.custom.key": "value"}


def _create(_scene: Scene, n: int) -> Args:
    return create_table_args(f"made-{n}", [b"m"], [LocalityGroup("g", (b"f",))], PROPERTIES)


def _created(scene: Scene, n: int) -> None:
    table = scene.world.config().table_named(f"made-{n}")
    assert (table.state, [g.name for g in table.groups], dict(table.properties)) == ("online", ["g"], PROPERTIES)
    rows = [row.key for row in scene.world.table.scan(*keys.table_section(table.table_id))]
    assert rows == [keys.tablet_row(table.table_id, b"m"), keys.tablet_row(table.table_id, None)]
    same_name = [t for t in scene.world.config().tables.values() if t.name == f"made-{n}"]
    assert len(same_name) == 1


def _delete(scene: Scene, n: int) -> Args:
    scene.run("create_table", create_table_args(f"old-{n}", [], [], {}))
    row = keys.tablet_row(scene.table_id(f"old-{n}"), None)
    scene.world.table.put([RowPut(row, {Column("segment", f"file:///old-{n}".encode()): b"{}"})], 7)
    return {"name": f"old-{n}"}


def _deleted(scene: Scene, n: int) -> None:
    assert all(table.name != f"old-{n}" for table in scene.world.config().tables.values())
    assert scene.world.table.get(keys.del_row(f"file:///old-{n}")) is not None
    scene.run("create_table", create_table_args(f"old-{n}", [], [], {}))
    (row,) = scene.world.table.scan(*keys.table_section(scene.table_id(f"old-{n}")))
    assert not row.family("segment"), "the name is free, and what was there is not"


def _regroup(scene: Scene, n: int) -> Args:
    scene.run("create_table", create_table_args(f"groups-{n}", [], [], {}))
    return set_groups_args(f"groups-{n}", [scene.group])


def _regrouped(scene: Scene, n: int) -> None:
    assert scene.world.config().table_named(f"groups-{n}").groups == (scene.group,)


def _change_properties(scene: Scene, n: int) -> Args:
    scene.run("create_table", create_table_args(f"changed-{n}", [], [], {"table.versions.max": "3"}))
    return change_properties_args(f"changed-{n}", PROPERTIES, ["table.versions.max"])


def _changed_properties(scene: Scene, n: int) -> None:
    assert dict(scene.world.config().table_named(f"changed-{n}").properties) == PROPERTIES


def _import(scene: Scene, n: int) -> Args:
    scene.run("create_table", create_table_args(f"filled-{n}", [b"m"], [], {}))
    directory = scene.world.settings.directory / f"input-{n}"
    directory.mkdir()
    (directory / "a.csv").write_text("row,family,qualifier,value\nz,f,q,1\na,f,q,2\n")
    table_id = scene.table_id(f"filled-{n}")
    tserver = scene.tserver = scene.stack.enter_context(scripted(scene.world))
    for end in (b"m", None):
        scene.world.locate(keys.tablet_row(table_id, end), tserver.session)
    return import_args(ImportRequest(f"{n:032x}", f"filled-{n}", str(directory), None))


def _imported(scene: Scene, n: int) -> None:
    scene.stack.close()
    assert scene.tserver is not None
    table_id = scene.table_id(f"filled-{n}")
    (taken,) = [taken for stream, taken in scene.tserver.adopted.items() if stream.target_table_id == table_id]
    assert taken == {Extent(table_id, b"m", None): [b"a"], Extent(table_id, None, b"m"): [b"z"]}
    assert not list((scene.world.settings.tables_dir / table_id).iterdir())
    assert not list(scene.world.table.scan(*keys.recv_section(scene.world.settings.instance.instance_id)))


def _close_to_users(_scene: Scene, n: int) -> Args:
    return read_only_args(n % 4 < 2)


def _closed_to_users(scene: Scene, n: int) -> None:
    assert scene.world.config().read_only is (n % 4 < 2)
    set_read_only(scene.world.coordination, False)


def _allow(_scene: Scene, n: int) -> Args:
    return set_authorizations_args(f"user-{n}", ["B", "A"])


def _allowed(scene: Scene, n: int) -> None:
    assert scene.world.config().users[f"user-{n}"] == ("A", "B")


def _define(scene: Scene, n: int) -> Args:
    scene.define_peer("nobody")
    delete_cluster(scene.world.coordination, "nobody")
    return cluster_args(f"peer-{n}", scene.peer.address)


def _defined(scene: Scene, n: int) -> None:
    peer = scene.world.config().cluster(f"peer-{n}")
    assert (peer.quorum, peer.instance_id, peer.name) == (
        scene.peer.address,
        scene.peer.settings.instance.instance_id,
        "peer",
    )


def _undefine(scene: Scene, n: int) -> Args:
    scene.world.define(f"gone-{n}")
    return cluster_args(f"gone-{n}", "127.0.0.1:1")


def _undefined(scene: Scene, n: int) -> None:
    assert f"gone-{n}" not in scene.world.config().clusters


def _enable(scene: Scene, n: int) -> Args:
    scene.define_peer("peer")
    scene.run("create_table", create_table_args(f"on-{n}", [], [], {}))
    return enable_args(f"on-{n}", [], "peer", "remote")


def _enabled(scene: Scene, n: int) -> None:
    (target,) = scene.world.config().table_named(f"on-{n}").targets
    remote_id = scene.peer.calls.resolve_table("remote")
    assert (target.key.cluster, target.key.remote_table_id, target.groups) == ("peer", remote_id, None)
    assert target.peer_instance_id == scene.peer.settings.instance.instance_id
    scene.run("disable_replication", disable_args(f"on-{n}", [], "peer"))


def _disable(scene: Scene, n: int) -> Args:
    args = _enable(scene, n + 1_000)
    scene.run("enable_replication", args)
    return disable_args(f"on-{n + 1_000}", [], "peer")


def _disabled(scene: Scene, n: int) -> None:
    assert scene.world.config().table_named(f"on-{n + 1_000}").targets == ()


def _say_done(scene: Scene, n: int) -> Args:
    scene.define_peer("peer")
    target = TargetKey("peer", "r1", "1", n + 1)
    file = scene.world.uri("gone", n + 1)
    scene.world.ship(file, target, 5)
    return stream_done_args("peer", [(file, target)])


def _said_done(scene: Scene, n: int) -> None:
    file = scene.world.uri("gone", n + 1)
    assert scene.world.done(file) == {}
    told = [
        stream
        for running in scene.peer.leadership.fate.pending()
        if running.op.type == "forget_streams"
        for stream in map(str, list_of(running.op.args["streams"]))
    ]
    assert any(StreamKey.decode(stream).file == file for stream in told)


def _held(scene: Scene, target: TargetKey, n: int, last: int) -> RangeKey:
    """A range in quarantine whose queue has gone past it."""
    key = RangeKey(scene.world.uri("held", n + 1), target, 3)
    entry = Quarantined(BlockRange(3, last, 30, 50), "corruption", "damaged", 1)
    write_rows(scene.world.table, scene.master.reign, {key: entry})
    scene.world.ship(key.file, target, last)
    return key


def _skip(scene: Scene, n: int) -> Args:
    return range_args(_held(scene, TargetKey("nobody", "r1", "1", n + 1), n, 4))


def _skipped(scene: Scene, n: int) -> None:
    assert scan_rows(scene.world.table) == {}
    assert n >= 0


def _retry(scene: Scene, n: int) -> Args:
    """A tserver that ships whatever it gets is there until the check."""
    scene.run("enable_replication", _enable(scene, n + 2_000))
    (target,) = scene.world.config().table_named(f"on-{n + 2_000}").targets
    key = _held(scene, target.key, n, 4)
    tserver = scene.stack.enter_context(scripted(scene.world))

    def ship(item: WorkItem) -> None:
        done = WorkReport(item.txid, item.file, item.target, item.last_offset, 2, 20, 0, 0, None, False, 0)
        tserver.reports.append(replace(done, run_id=item.run_id))

    tserver.on_work = ship
    scene.tserver = tserver
    return range_args(key)


def _retried(scene: Scene, n: int) -> None:
    assert scan_rows(scene.world.table) == {}
    assert scene.tserver is not None
    items = {(item.first_offset, item.last_offset, item.passed, item.run_id) for item in scene.tserver.items}
    assert items == {(3, 4, (BlockRange(1, 2, 0, 30),), "quarantine-3")}
    scene.stack.close()
    told = [
        StreamKey.decode(str(stream))
        for running in scene.peer.leadership.fate.pending()
        if running.op.type == "forget_streams"
        for stream in list_of(running.op.args["streams"])
    ]
    assert any(stream.file == scene.world.uri("held", n + 1) and stream.run_id == "quarantine-3" for stream in told)
    scene.run("disable_replication", disable_args(f"on-{n + 2_000}", [], "peer"))


def list_of(value: Any) -> list[Any]:
    assert isinstance(value, list)
    return value


def _stream(n: int) -> StreamKey:
    return StreamKey("source", f"file:///source/{n}", "1", "1", 1)


def _forget(scene: Scene, n: int) -> Args:
    cell = keys.recv_cell(_stream(n))
    scene.world.table.put([RowPut(cell.key, {cell.column: Received(9).encode()})], keys.recv_rank(9, False))
    return forget_streams_args([_stream(n)])


def _forgotten(scene: Scene, n: int) -> None:
    assert scene.world.table.get(keys.recv_cell(_stream(n)).key) is None


def _split(scene: Scene, n: int) -> Args:
    scene.run("create_table", create_table_args(f"split-{n}", [b"m"], [], {}))
    return add_splits_args(f"split-{n}", [b"c", b"t"])


def _was_split(scene: Scene, n: int) -> None:
    assert _ends(scene, f"split-{n}") == [b"c", b"m", b"t", None]


def _merge(scene: Scene, n: int) -> Args:
    scene.run("create_table", create_table_args(f"merged-{n}", [b"c", b"m", b"t"], [], {}))
    return merge_args(f"merged-{n}", RowRange(b"c", None))


def _was_merged(scene: Scene, n: int) -> None:
    assert _ends(scene, f"merged-{n}") == [b"c", None]


def _ends(scene: Scene, name: str) -> list[bytes | None]:
    return ends_of(list(scene.world.table.scan(*keys.table_section(scene.table_id(name)), ("tablet",))))


PLANS = {
    "create_table": Plan(_create, _created),
    "delete_table": Plan(_delete, _deleted),
    "set_groups": Plan(_regroup, _regrouped),
    "add_splits": Plan(_split, _was_split),
    "merge_tablets": Plan(_merge, _was_merged),
    "change_properties": Plan(_change_properties, _changed_properties),
    "import_directory": Plan(_import, _imported),
    "set_read_only": Plan(_close_to_users, _closed_to_users),
    "set_authorizations": Plan(_allow, _allowed),
    "define_cluster": Plan(_define, _defined),
    "delete_cluster": Plan(_undefine, _undefined),
    "enable_replication": Plan(_enable, _enabled),
    "disable_replication": Plan(_disable, _disabled),
    "skip_range": Plan(_skip, _skipped),
    "retry_range": Plan(_retry, _retried),
    "stream_done": Plan(_say_done, _said_done),
    "forget_streams": Plan(_forget, _forgotten),
}


def _cut_at(master: Master, write: int, behind: bool) -> None:
    """Let the process die at its ``write``-th write of a step or end, before or behind it."""
    store, count = master.fate.store, itertools.count()
    reach, end = store.reach, store.end

    def dying(act: Callable[[Any], None]) -> Callable[[Any], None]:
        def write_or_die(argument: Any) -> None:
            dies = next(count) == write
            if behind or not dies:
                act(argument)
            if dies:
                raise Crash

        return write_or_die

    def reach_or_die(steps: Mapping[str, FateStep]) -> None:
        dying(reach)(steps)

    def end_or_die(txids: Iterable[str]) -> None:
        dying(end)(list(txids))

    store.reach, store.end = reach_or_die, end_or_die  # type: ignore[method-assign]


def test_every_kind_of_operation_is_cut(scene: Scene) -> None:
    assert set(PLANS) == set(scene.master.fate.kinds)


@pytest.mark.parametrize("behind", [False, True], ids=["before it is known", "behind it"])
@pytest.mark.parametrize("kind", PLANS)
def test_the_next_master_finishes_what_a_crash_cut(scene: Scene, kind: str, behind: bool) -> None:
    plan = PLANS[kind]
    for write in itertools.count():
        n = 2 * write + behind
        args = plan.prepare(scene, n)
        _cut_at(scene.master, write, behind)
        running = scene.master.fate.submit(kind, args)
        try:
            scene.finish()
            survived = True
        except Crash:
            survived = False
        scene.master = scene.world.depose(scene.master)
        scene.finish()
        failed = [r.error for r in scene.master.fate.pending() if r.txid == running.txid]
        assert not failed
        assert scene.world.table.get(keys.fate_row(running.txid)) is None
        plan.check(scene, n)
        if survived:
            assert write > 0
            return
