"""Every kind of FATE operation on a small cluster: what is there before it, its arguments, and what came of it.

Arrives: a directory and a peer that answers. Leaves: :class:`Scene`, one cluster with one master; :data:`SCENES`, by
kind; :func:`end_state`, everything that an operation leaves in the books, in the configuration, on disk, at tservers
and at the peer, without what may differ from run to run (ranks of reigns, numbers that were taken and not used).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from msgspec.structs import replace

from bookkeeper.coordination.config_changes import define_cluster
from bookkeeper.coordination.config_tree import PeerCluster
from bookkeeper.master.cycle import replicate_file
from bookkeeper.master.cycle.assigner import WorkRange
from bookkeeper.master.fate.engine import Args
from bookkeeper.master.operations.bulk_import import import_args
from bookkeeper.master.operations.clusters import cluster_args
from bookkeeper.master.operations.export import copy_args
from bookkeeper.master.operations.hosts.lost_disks import FORGET_HOST_KIND, forget_host_args
from bookkeeper.master.operations.properties import change_properties_args
from bookkeeper.master.operations.quarantine import range_args
from bookkeeper.master.operations.read_only import read_only_args
from bookkeeper.master.operations.replicated_tables import disable_args, enable_args
from bookkeeper.master.operations.split_merge import (
    MERGE_KIND,
    SPLIT_KIND,
    add_splits_args,
    merge_args,
)
from bookkeeper.master.operations.streams import stream_done_args
from bookkeeper.master.operations.table_lifecycle import create_table_args, set_groups_args
from bookkeeper.master.operations.user_changes import set_authorizations_args
from bookkeeper.master.origins.end_origins import END_KIND
from bookkeeper.master.quarantine.quarantined_ranges import RangeKey, write_rows
from bookkeeper.metadata import keys
from bookkeeper.metadata.metadata_table import Column, RowPut
from bookkeeper.metadata.values import LogHome, Quarantined
from bookkeeper.model import BlockRange, HostIdentity, LocalityGroup, RowRange, StreamKey, Target, TargetKey
from bookkeeper.rpc.contract.messages import CopyRequest, ImportRequest, WorkItem, WorkReport
from tests.support.border_world import held_row, hold, segment
from tests.support.exports import PROPERTIES, make_export
from tests.support.master_world import LATE_MS, Master, World
from tests.support.masters import LocalMaster
from tests.support.root_scenes import gone_log, log_of_another, stream_of_another
from tests.support.scripted_tserver import ScriptedTServer, scripted

GROUP = LocalityGroup("g", (b"f",))
NAME = "it"
"""The table, user or peer that an operation is about."""

FILE = ("gone-1", 1)
"""Session and number of a log that only the books know."""

WAITS_MAX = 500
"""Far more than operations wait until their end."""


@dataclass
class Scene:
    """One cluster, its master, and a peer with a table ``remote`` that answers."""

    world: World
    peer: LocalMaster
    master: Master
    stack: ExitStack
    tserver: ScriptedTServer | None = None
    hosts: list[ScriptedTServer] = field(default_factory=list)
    waits: int = 0
    late_ms: float = LATE_MS
    """How much time passes while something waits."""

    @property
    def file(self) -> str:
        """See :data:`FILE`."""
        return self.world.name(*FILE)

    def run(self, kind: str, args: Args) -> None:
        """Begin an operation and see it end."""
        running = self.master.fate.submit(kind, args)
        self.finish()
        self.master.fate.wait(running, 0)

    def finish(self) -> None:
        """Go on until every operation has ended, well or not."""
        while any(not running.ended for running in self.master.fate.pending()):
            self.wait()
            self.master.fate.step_once()

    def wait(self) -> None:
        """Time passes. Raises AssertionError when an operation does not end."""
        self.waits += 1
        ends = ", ".join(f"{one.op.type} at {one.step}" for one in self.master.fate.pending() if not one.ended)
        assert self.waits < WAITS_MAX, f"something does not end: {ends or 'the repair'}"
        self.world.clock.jump(self.late_ms)

    def create_table(self, *splits: bytes) -> str:
        """The table :data:`NAME`; its id."""
        self.run("create_table", create_table_args(NAME, splits, [], {"table.versions.max": "3"}))
        return self.world.config().table_named(NAME).table_id

    def define_peer(self) -> str:
        """The peer by the alias ``peer``; its instance."""
        known = self.peer.settings.instance
        define_cluster(self.world.coordination, PeerCluster("peer", self.peer.address, known.instance_id, known.name))
        return known.instance_id

    def enable(self) -> Target:
        """The table, replicated to the peer."""
        self.define_peer()
        self.create_table()
        self.run("enable_replication", enable_args(NAME, [], "peer", "remote"))
        (target,) = self.world.config().table_named(NAME).targets
        return target

    def start_tserver(self) -> ScriptedTServer:
        """A tserver that does what it is told."""
        self.tserver = self.stack.enter_context(scripted(self.world))
        return self.tserver

    def start_host(self, name: str) -> ScriptedTServer:
        """A tserver as the one of a host."""
        self.hosts.append(self.stack.enter_context(scripted(self.world, HostIdentity(name, f"disk-{name}"))))
        return self.hosts[-1]

    def taken(self) -> list[str]:
        """The parts of imports that the tserver has loaded, and the tablets for which each host has linked files."""
        taking = self.hosts if self.hosts or self.tserver is None else [self.tserver]
        found = [parts for tserver in taking for parts in tserver.adopted.values()]
        divided = [f"{number}: {extent}" for number, host in enumerate(self.hosts) for extent in host.divided]
        adopted = [f"{tablet.end_row!r}: {rows}" for parts in found for tablet, rows in parts.items()]
        copied = [f"{number}: {copy}" for number, host in enumerate(self.hosts) for copy in host.copied]
        return sorted([*divided, *adopted, *copied])

    def told(self) -> list[str]:
        """Streams of this cluster that the peer was told are over."""
        encoded = (
            str(stream)
            for running in self.peer.leadership.fate.pending()
            if running.op.type == "forget_streams"
            for stream in _items(running.op.args["streams"])
        )
        own = self.world.settings.instance.instance_id
        return sorted({stream for stream in encoded if StreamKey.decode(stream).source_instance_id == own})


def _items(value: Any) -> list[Any]:
    assert isinstance(value, list)
    return value


@contextmanager
def scene_at(directory: Path, peer: LocalMaster) -> Iterator[Scene]:
    """A new cluster in ``directory``."""
    world = World.at(directory)
    with ExitStack() as stack:
        stack.callback(world.close)
        yield Scene(world, peer, world.master(), stack)


# ---- what is there before, and what is asked for


def delete_table(scene: Scene) -> Args:
    """A table of two tablets, one with a file."""
    table_id = scene.create_table(b"m")
    row = keys.tablet_row(table_id, None)
    scene.world.table.put([RowPut(row, {Column("segment", b"s/1"): b"{}"})], 7)
    return {"name": NAME}


def _regroup(scene: Scene) -> Args:
    scene.create_table()
    return set_groups_args(NAME, [GROUP])


def _change_properties(scene: Scene) -> Args:
    scene.create_table()
    return change_properties_args(NAME, {"table.custom.key": "value"}, ["table.versions.max"])


def import_from_files(scene: Scene) -> Args:
    """Both tablets are served, and a file has a row of each."""
    table_id = scene.create_table(b"m")
    directory = scene.world.settings.directory / "input"
    directory.mkdir()
    (directory / "a.csv").write_text("row,family,qualifier,value\nz,f,q,1\na,f,q,2\n")
    tserver = scene.start_tserver()
    for end in (b"m", None):
        scene.world.locate(keys.tablet_row(table_id, end), tserver.session)
    return import_args(ImportRequest("0" * 32, NAME, str(directory), None))


def import_from_export(scene: Scene, replicas: int = 1) -> Args:
    """The exported table had as many replicas."""
    properties = {**PROPERTIES, "table.replicas": f"{replicas}"}
    make_export(scene.world.settings.directory / "given", properties=properties)
    return copy_args(CopyRequest("1" * 32, NAME, str(scene.world.settings.directory / "given")))


def _export_table(scene: Scene) -> Args:
    scene.run("import_table", import_from_export(scene))
    table_id = scene.world.config().table_named(NAME).table_id
    tserver = scene.start_tserver()
    for end in (b"m", None):
        scene.world.locate(keys.tablet_row(table_id, end), tserver.session)
    return copy_args(CopyRequest("2" * 32, NAME, str(scene.world.settings.directory / "exported")))


def hold_tablets(scene: Scene, *splits: bytes, are_own: bool = False) -> None:
    """The table's tablets have data, and no tserver ever loaded them; ``are_own``: in files of their own directories,
    as on hosts.
    """
    table_id = scene.create_table(*splits)
    starts = [b"`", *splits]
    for number, (start, end) in enumerate(zip(starts, [*splits, None], strict=True), 1):
        first, last = bytes([start[0] + 1]), end or b"z"
        directory = f"tables/{table_id}/t-{number - 1:05d}" if are_own else f"s/{number}"
        segments = {f"{directory}/{part}": segment(*span)
                    for part, span in (("whole", (first, last)), ("first", (first, first)))}  # fmt: skip
        row = keys.tablet_row(table_id, end)
        hold(scene.world.table, held_row(row, segments, 10 * number, (scene.file, 10 * number)))


def split_tablets(scene: Scene) -> Args:
    """Two tablets become five."""
    hold_tablets(scene, b"m")
    return add_splits_args(NAME, [b"c", b"h", b"t"])


def merge_tablets(scene: Scene) -> Args:
    """The last three of four tablets become one."""
    hold_tablets(scene, b"c", b"m", b"t")
    return merge_args(NAME, RowRange(b"c", None))


def forget_logs(scene: Scene) -> Args:
    """A tablet needs a log of a lost disk and goes on without another one; a log on another disk stays."""
    table_id = scene.create_table(b"m")
    homes = {"gone-1": LogHome(NAME, "lost"), "gone-2": LogHome("other", "here")}
    for session, home in homes.items():
        scene.world.table.put([RowPut(keys.home_row(session), {keys.HOME: home.encode()})], keys.ONCE_RANK)
    row, logs = keys.tablet_row(table_id, None), [scene.world.name("gone-1", 2), scene.world.name("gone-2", 1)]
    scene.world.table.put([RowPut(row, {keys.log_column(log): b"{}" for log in logs})], 1)
    lost = {keys.SERIAL: keys.SERIAL_VALUE, keys.lost_column(scene.file): homes["gone-1"].encode()}
    scene.world.table.put([RowPut(row, lost)], 1)
    return forget_host_args(NAME, homes, ())


def _define(scene: Scene) -> Args:
    return cluster_args(NAME, scene.peer.address)


def _undefine(scene: Scene) -> Args:
    scene.world.define(NAME)
    return cluster_args(NAME, "127.0.0.1:1")


def _enable(scene: Scene) -> Args:
    scene.define_peer()
    scene.create_table()
    return enable_args(NAME, [], "peer", "remote")


def _disable(scene: Scene) -> Args:
    scene.enable()
    return disable_args(NAME, [], "peer")


def _say_done(scene: Scene) -> Args:
    scene.define_peer()
    target = TargetKey("peer", "r1", "1", 1)
    scene.world.ship(scene.file, target, 5)
    return stream_done_args("peer", [(scene.file, target)])


def _held(scene: Scene, target: TargetKey) -> Args:
    """A range in quarantine whose queue has gone past it."""
    key = RangeKey(scene.file, target, 3)
    entry = Quarantined(BlockRange(3, 4, 30, 50), "corruption", "damaged", 1)
    write_rows(scene.world.table, scene.master.reign, {key: entry})
    scene.world.ship(key.file, target, 4)
    return range_args(key)


def _skip(scene: Scene) -> Args:
    return _held(scene, TargetKey("nobody", "r1", "1", 1))


def _retry(scene: Scene) -> Args:
    """A tserver that ships every range."""
    args = _held(scene, scene.enable().key)
    tserver = scene.start_tserver()

    def ship(item: WorkItem) -> None:
        assert (item.first_offset, item.last_offset, item.run_id) == (3, 4, "quarantine-3")
        done = WorkReport(item.txid, item.file, item.target, item.last_offset, 2, 20, 0, 0, None, False, 0)
        tserver.reports.append(replace(done, run_id=item.run_id))

    tserver.on_work = ship
    return args


PREPARE: Mapping[str, Callable[[Scene], Args]] = {
    "create_table": lambda _: create_table_args(NAME, [b"m"], [GROUP], {"table.custom.key": "value"}),
    "delete_table": delete_table,
    "set_groups": _regroup,
    "change_properties": _change_properties,
    "set_read_only": lambda _: read_only_args(True),
    FORGET_HOST_KIND: forget_logs,
    "set_authorizations": lambda _: set_authorizations_args(NAME, ["B", "A"]),
    SPLIT_KIND: split_tablets,
    MERGE_KIND: merge_tablets,
    "import_directory": import_from_files,
    "import_table": import_from_export,
    "export_table": _export_table,
    "define_cluster": _define,
    "delete_cluster": _undefine,
    "enable_replication": _enable,
    "disable_replication": _disable,
    "retry_range": _retry,
    "skip_range": _skip,
    "stream_done": _say_done,
    "forget_streams": lambda scene: stream_of_another(scene.world),
    END_KIND: lambda scene: gone_log(scene.world, scene.file, scene.define_peer()),
    "forget_roots": lambda scene: log_of_another(scene.world),
}


# ---- how it runs


@dataclass(frozen=True)
class Play:
    """``prepare`` puts in place what the operation needs; ``run`` is what the first master does, ``go_on`` what one
    does that took over. ``kind``: of the operation that it begins with. ``is_repeated``: it has several operations, so
    its user repeats the command at the next master.
    """

    kind: str
    prepare: Callable[[Scene], Args]
    run: Callable[[Scene, Args], None]
    go_on: Callable[[Scene], None] = Scene.finish
    is_repeated: bool = False


def executed(kind: str, prepare: Callable[[Scene], Args], go_on: Callable[[Scene], None] = Scene.finish) -> Play:
    """The play of one operation."""

    def run(scene: Scene, args: Args) -> None:
        scene.master.fate.submit(kind, args)
        go_on(scene)

    return Play(kind, prepare, run, go_on)


def _ship_file(scene: Scene, args: Args) -> None:
    """The acts of the cycle on a file: an operation, a tserver, another tserver, the end."""
    files = replicate_file.ReplicateFiles(scene.master.fate.store, scene.world.clock)
    file, target = str(args["file"]).encode(), Target(TargetKey("east", "r1", "1", 1), None, "", "east-instance")
    for session in ("one", "two"):
        files.ensure([WorkRange(file, target, 1, 2, session)])
    files.end([file])


def _end_files(scene: Scene) -> None:
    """The file is outstanding no more when the next master looks."""
    files = replicate_file.ReplicateFiles(scene.master.fate.store, scene.world.clock)
    files.adopt(scene.master.fate.store.load())
    files.end_all_but([])


SCENES: Mapping[str, Play] = {
    **{kind: executed(kind, prepare) for kind, prepare in PREPARE.items()},
    replicate_file.KIND: Play(replicate_file.KIND, lambda scene: {"file": scene.file}, _ship_file, _end_files),
}


# ---- what came of it


@dataclass
class EndState:
    """Row and column, or path, to value, comparable between two worlds."""

    books: dict[str, str] = field(default_factory=dict)
    configuration: dict[str, str] = field(default_factory=dict)
    elsewhere: list[str] = field(default_factory=list)
    """Files, what a tserver took, and what the peer was told."""


def end_state(scene: Scene) -> EndState:
    """Everything that is there now."""
    world = scene.world
    names = {table.table_id: table.name for table in world.config().tables.values()}
    incarnations = sorted(t.key.incarnation for table in world.config().tables.values() for t in table.targets)

    def same(raw: object) -> str:
        text = raw.decode(errors="backslashreplace") if isinstance(raw, bytes) else str(raw)
        for directory in (world.settings.directory.as_posix(), quote(world.settings.directory.as_posix(), safe="")):
            text = text.replace(directory, "DIR")
        for number, host in enumerate(scene.hosts, 1):
            text = text.replace(host.session, f"HOST {number}")
        if scene.tserver is not None:
            text = text.replace(scene.tserver.session, "TSERVER")
        for table_id, name in names.items():
            text = text.replace(f"tables/{table_id}/", f"tables/{name}/")
        text = re.sub(r"(?<=imported)-[0-9a-f]{32}", "", text)  # so are the copies of an import
        text = re.sub(r"(?<![0-9a-f])[0-9a-f]{16}(?=-)", "TXID", text)
        text = re.sub(r'"placement":"p[0-9a-f]+"', '"placement":"NEW"', text)  # named for the rank of its write
        text = re.sub(r"x[0-9a-f]{8}-(?=\d{6}\.parquet)", "", text)  # files of an export are named for an attempt
        return text.replace(world.settings.instance.instance_id, "SELF")

    def tidy(value: Any) -> Any:
        """A record of the configuration without numbers of its own."""
        if isinstance(value, dict):
            return {key: _number(key, item, names, incarnations) or tidy(item) for key, item in value.items()}
        return [tidy(item) for item in value] if isinstance(value, list) else value

    state = EndState()
    for row in world.table.scan():
        key = same(_tablet_name(row.key, names) or row.key)
        for column, cell in row.cells.items():
            rank = cell.rank if column.family in ("tablet", "segment") else ""
            state.books[f"{key} {same(column)}"] = same(cell.value) + f" at {rank}"
    for path, versioned in world.coordination.children("/").items():
        if path.startswith("/counters/"):
            continue
        parts = [names.get(part, part) if path.startswith("/tables/") else part for part in path.split("/")]
        raw = versioned.value.decode()
        value = names.get(raw, raw) if path.startswith("/names/") else json.dumps(tidy(json.loads(raw)), sort_keys=True)
        state.configuration["/".join(parts)] = same(value)
    files = sorted(path.as_posix() for path in world.settings.tables_dir.glob("*/*"))
    exported = sorted(path.as_posix() for path in world.settings.directory.glob("exported/*"))
    manifests = sorted(path.read_bytes() for path in world.settings.directory.glob("exported/*.json"))
    state.elsewhere = list(map(same, [*files, *exported, *manifests, *scene.taken(), *scene.told()]))
    return state


def _tablet_name(key: bytes, names: Mapping[str, str]) -> str | None:
    if not keys.TABLETS_START <= key < keys.TABLETS_STOP:
        return None
    table_id, end_row = keys.parse_tablet_row(key)
    return f"{names.get(table_id, table_id)} {end_row!r}"


def _number(key: str, value: Any, names: Mapping[str, str], incarnations: list[int]) -> str | None:
    """The text for a number that a cut may have skipped."""
    if key == "id" and value in names:
        return names[value]
    return f"incarnation {incarnations.index(value)}" if key == "incarnation" else None
