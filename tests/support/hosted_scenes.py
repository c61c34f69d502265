"""Operations on tables with replicas on hosts, as in :mod:`tests.support.operation_scenes`. The scene plays the
placement; each host holds what the books name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from msgspec.structs import replace

from bookkeeper.coordination.config_changes import set_table_properties
from bookkeeper.master.fate.engine import Args
from bookkeeper.master.index.snapshot import TabletView, tablet_view
from bookkeeper.master.operations.export import copy_args
from bookkeeper.master.operations.hosts.change_store import change_store_args
from bookkeeper.master.operations.hosts.lost_disks import FORGET_HOST_KIND, forget_host_args
from bookkeeper.master.operations.hosts.replica_moves import MOVE_KIND
from bookkeeper.master.operations.split_merge import MERGE_KIND, SPLIT_KIND, STORE_KIND
from bookkeeper.master.operations.table_lifecycle import create_table_args
from bookkeeper.metadata import keys
from bookkeeper.metadata.metadata_table import RowPut
from bookkeeper.metadata.values import VOTER, ReplicaCell
from bookkeeper.rpc.contract.messages import CopyRequest, HeldReplicaInfo, ReplicaPlacement
from bookkeeper.storage.replicas.file_checks import extended
from tests.support import move_scenes
from tests.support.operation_scenes import (
    NAME,
    Play,
    Scene,
    delete_table,
    executed,
    forget_logs,
    hold_tablets,
    import_from_export,
    import_from_files,
    merge_tablets,
    split_tablets,
)
from tests.support.scripted_tserver import ScriptedTServer

TWO = {"table.replicas": "2"}


def table_id_of(scene: Scene) -> str:
    """The id of the table :data:`NAME`."""
    return scene.world.config().table_named(NAME).table_id


def views_of(scene: Scene) -> list[TabletView]:
    """The table's tablets."""
    section = keys.table_section(table_id_of(scene))
    rows = scene.world.table.scan(*section, ("tablet", "location", keys.REPLICA_FAMILY))
    return [tablet_view(row) for row in rows if keys.is_tablet(row)]


def start_hosts(scene: Scene, *names: str) -> None:
    """Hosts that live; the first one is the tserver."""
    scene.tserver, *_ = [scene.start_host(name) for name in names]


def replicate(scene: Scene, *names: str) -> None:
    """New hosts hold the named state of each tablet of the table, whose property says as many replicas."""
    start_hosts(scene, *names)
    set_table_properties(scene.world.coordination, table_id_of(scene), {"table.replicas": f"{len(names)}"})
    cells = {keys.replica_column(name): ReplicaCell(f"p-{name}", f"disk-{name}", VOTER).encode() for name in names}
    views = views_of(scene)
    scene.world.table.put([RowPut(view.row, cells) for view in views], 1)
    for host, name in zip(scene.hosts, names, strict=True):
        placement = ReplicaPlacement(name, f"p-{name}", f"disk-{name}")
        host.holds = [held(view, placement) for view in views]


def held(view: TabletView, placement: ReplicaPlacement, *, is_leader: bool = False) -> HeldReplicaInfo:
    """A replica that has the named state of a tablet, and no other state."""
    states, root = ((view.flush_rank,), view.flush_rank) if view.flush_rank else ((), None)
    return HeldReplicaInfo(
        view.extent, view.directory, placement, "LIVE", 1, None, is_leader, root, states, files=2, bytes=2
    )


def lead(scene: Scene, host: ScriptedTServer, *ends: bytes | None) -> None:
    """A host leads the tablets that end there."""
    for end in ends:
        scene.world.locate(keys.tablet_row(table_id_of(scene), end), host.session)
    host.holds = [replace(info, is_leader=info.extent.end_row in ends) for info in host.holds]


# ---- what is there before, and what is asked for


def _create(scene: Scene) -> Args:
    start_hosts(scene, "h1", "h2", "h3")
    return create_table_args(NAME, [b"m"], [], TWO)


def _delete(scene: Scene) -> Args:
    args = delete_table(scene)
    replicate(scene, "h1", "h2")
    return args


def _split(scene: Scene) -> Args:
    """Placement gives the new tablets to the first host."""
    args = split_tablets(scene)
    replicate(scene, "h1", "h2")
    return args


def _merge(scene: Scene) -> Args:
    """The hosts have all files of each tablet."""
    args = merge_tablets(scene)
    replicate(scene, "h1", "h2")
    return args


def _to_hosts(scene: Scene) -> Args:
    """Two tablets on the Volume; the table is to have two replicas, and three hosts live."""
    hold_tablets(scene, b"m")
    start_hosts(scene, "h1", "h2", "h3")
    set_table_properties(scene.world.coordination, table_id_of(scene), TWO)
    return change_store_args(NAME)


def _to_volume(scene: Scene) -> Args:
    """Two tablets on two hosts, and the table is to have one replica."""
    hold_tablets(scene, b"m", are_own=True)
    replicate(scene, "h1", "h2")
    set_table_properties(scene.world.coordination, table_id_of(scene), {"table.replicas": "1"})
    return change_store_args(NAME)


def _export(scene: Scene) -> Args:
    """Each host leads one tablet and has all files; one file of the first host is damaged."""
    hold_tablets(scene, b"m", are_own=True)
    replicate(scene, "h1", "h2")
    for host, end in zip(scene.hosts, (b"m", None), strict=True):
        lead(scene, host, end)
    for row in scene.world.table.scan(*keys.table_section(table_id_of(scene)), ("segment",)):
        for name in map(keys.parse_file, row.family("segment")):
            content = f"rows of {name.rpartition('/')[2]}".encode()
            for host in scene.hosts:
                host.contents[name] = content, extended(0, content)
    damaged = min(scene.hosts[0].contents)
    scene.hosts[0].contents[damaged] = b"others", scene.hosts[1].contents[damaged][1]
    return copy_args(CopyRequest("2" * 32, NAME, str(scene.world.settings.directory / "exported")))


def _export_again(scene: Scene) -> Args:
    """No host has one of the files until a leader flushes its tablet again."""
    args, lost, flushes = _export(scene), max(scene.hosts[0].contents), Counter[str]()
    contents = [host.contents.pop(lost) for host in scene.hosts]

    def look(method: str) -> None:
        flushes[method] += 1
        if flushes["flush_tablet"] > 1:
            for host, content in zip(scene.hosts, contents, strict=True):
                host.contents[lost] = content

    scene.hosts[0].look = look
    return args


def _import(scene: Scene) -> Args:
    """Each of two hosts leads one tablet."""
    args = import_from_files(scene)
    replicate(scene, "h1", "h2")
    for host, end in zip(scene.hosts, (b"m", None), strict=True):
        lead(scene, host, end)
    return args


def _import_table(scene: Scene) -> Args:
    """The exported table had two replicas, and as many hosts live."""
    start_hosts(scene, "h1", "h2")
    return import_from_export(scene, 2)


def _forget(scene: Scene) -> Args:
    """The host of the lost logs is back with another disk; its tablets have replicas on it and on another host."""
    args = forget_logs(scene)
    replicate(scene, NAME, "h2")
    homes = scene.master.tservers.homes
    assert homes is not None
    assert forget_host_args(NAME, homes.all(), scene.master.tservers.sessions()) == args
    return args


# ---- how it runs


def finish(scene: Scene) -> None:
    """Go on until every operation has ended; while one waits for the placement, the first host gets all tablets."""
    assert scene.tserver is not None
    while any(not running.ended for running in scene.master.fate.pending()):
        if any(running.step == "place" and not running.ended for running in scene.master.fate.pending()):
            for view in views_of(scene):
                if view.session is None:
                    scene.world.locate(view.row, scene.tserver.session, scene.master.reign.next_rank())
        scene.wait()
        scene.master.fate.step_once()


def _on_hosts(kind: str, prepare: Callable[[Scene], Args]) -> Play:
    return executed(kind, prepare, finish)


TO_HOSTS, TO_VOLUME = f"{STORE_KIND} to hosts", f"{STORE_KIND} to the Volume"
SPLIT, MERGE = f"{SPLIT_KIND} on hosts", f"{MERGE_KIND} on hosts"
EXPORT_AGAIN = "export_table on hosts, twice"

HOSTED: Mapping[str, Play] = {
    "create_table on hosts": _on_hosts("create_table", _create),
    "delete_table on hosts": _on_hosts("delete_table", _delete),
    SPLIT: _on_hosts(SPLIT_KIND, _split),
    MERGE: _on_hosts(MERGE_KIND, _merge),
    TO_HOSTS: _on_hosts(STORE_KIND, _to_hosts),
    TO_VOLUME: _on_hosts(STORE_KIND, _to_volume),
    "export_table on hosts": _on_hosts("export_table", _export),
    EXPORT_AGAIN: _on_hosts("export_table", _export_again),
    "import_directory on hosts": _on_hosts("import_directory", _import),
    "import_table on hosts": _on_hosts("import_table", _import_table),
    "forget_host on hosts": _on_hosts(FORGET_HOST_KIND, _forget),
    MOVE_KIND: executed(MOVE_KIND, move_scenes.prepare, move_scenes.finish),
}
"""By kind and way."""
