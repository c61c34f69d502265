"""Commands that end with the repair: a drain of a host, a split onto other hosts, another number of replicas.

The repair is the product's own. The scene plays the placement and the hosts: each holds the newest state of the tablets
whose rows name it, and a leader writes files of its own when it is told to compact.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from functools import partial

from msgspec.structs import replace

from bookkeeper.coordination.config_changes import set_draining
from bookkeeper.errors import TransientError
from bookkeeper.master.fate.engine import Args, Running
from bookkeeper.master.index.snapshot import TabletView
from bookkeeper.master.leadership import begin_store_change
from bookkeeper.master.operations.hosts.replica_moves import MOVE_KIND, move_args, moves_under_way
from bookkeeper.master.operations.properties import change_properties_args
from bookkeeper.master.operations.split_merge import SPLIT_KIND, add_splits_args, claimed_rows, merging_rows
from bookkeeper.master.replicas.away_hosts import AwayHosts
from bookkeeper.master.replicas.held_states import HeldStates
from bookkeeper.master.replicas.leader_choice import held_of
from bookkeeper.master.replicas.repair_state import RepairLimits
from bookkeeper.master.replicas.repairer import Repairer
from bookkeeper.master.splits.split_rules import shares_files
from bookkeeper.metadata import keys, values
from bookkeeper.metadata.metadata_table import CellKey, Column, RowPut
from bookkeeper.metadata.values import FlushState
from bookkeeper.model import Extent
from bookkeeper.rpc.contract.messages import ReplicaPlacement
from bookkeeper.storage.volume.names import tablet_directory
from tests.support.border_world import segment
from tests.support.hosted_scenes import TWO, held, lead, replicate, start_hosts, views_of
from tests.support.operation_scenes import NAME, Play, Scene, hold_tablets
from tests.support.scripted_tserver import ScriptedTServer

LIMITS = RepairLimits(repair_after_ms=1_000, joins_max=2, flight_ms=500)

QUIET = 2
"""Cycles in a row without a step after which nothing is left to do."""


# ---- a master with its repair


def _repairer(scene: Scene) -> Repairer:
    """That of the present master."""
    fate, coordination = scene.master.fate, scene.world.coordination
    return Repairer(
        scene.master.books.stores,
        scene.world.clock,
        HeldStates(),
        LIMITS,
        lead=partial(_move_leader, scene),
        moves=lambda: moves_under_way(fate.pending()),
        rewrite=lambda name, view: fate.submit(
            MOVE_KIND, move_args(name, [view.extent.end_row], [one.host for one in view.replicas])
        ),
        away=AwayHosts(coordination, scene.world.clock),
        change_store=partial(begin_store_change, fate),
        meetings=lambda: merging_rows(fate.pending()),
    )


def finish(scene: Scene) -> None:
    """Cycles of the master until all operations have ended and the repair has nothing to do."""
    repairer, quiet = _repairer(scene), 0
    while quiet < QUIET:
        scene.wait()
        acts = 1  # a cycle without its end is not quiet
        with suppress(TransientError):  # the next cycle goes on, as that of a master
            acts = _play_hosts(scene, repairer.held) + _repair(scene, repairer)
        acts += sum(not running.ended for running in scene.master.fate.pending())
        scene.master.run_fate()
        quiet = 0 if acts else quiet + 1


def _wait(scene: Scene, running: Running) -> None:
    """Go on until an operation has ended; no cycle repairs meanwhile."""
    while not running.ended:
        scene.wait()
        with suppress(TransientError):
            _play_hosts(scene, HeldStates())
        scene.master.run_fate()


def _repair(scene: Scene, repairer: Repairer) -> int:
    tablets, sessions = scene.master.read_books().snapshot.tablets, scene.master.tservers.sessions()
    return repairer.run(tablets, scene.world.config(), sessions, claimed_rows(scene.master.fate.pending()))


def _move_leader(scene: Scene, view: TabletView, host: str) -> None:
    scene.world.locate(view.row, _hosts(scene)[host].session, scene.master.reign.next_rank())


def _hosts(scene: Scene) -> dict[str, ScriptedTServer]:
    """By name."""
    names = {info.session_id: info.host.name for info in scene.master.tservers.sessions() if info.host is not None}
    return {names[host.session]: host for host in scene.hosts}


# ---- its hosts


def _play_hosts(scene: Scene, answers: HeldStates) -> int:
    """Play hosts and placement until the next cycle; returns how many tablets that changed."""
    hosts = _hosts(scene)
    changed = sum(_place(scene, hosts, view) for view in views_of(scene))
    changed += sum(_rewrite(scene, extent) for host in scene.hosts for extent in host.compactions)
    views = views_of(scene)
    for name, host in hosts.items():
        host.holds = [
            held(
                view, ReplicaPlacement(name, one.cell.placement, f"disk-{name}"), is_leader=view.session == host.session
            )
            for view in views
            for one in view.replicas
            if one.host == name
        ]
        answers.answer(name, dict(map(held_of, host.holds)))
    return changed


def _place(scene: Scene, hosts: Mapping[str, ScriptedTServer], view: TabletView) -> bool:
    """A tablet without a tserver gets its first voter, or the first host."""
    is_due = view.session is None and view.row not in claimed_rows(scene.master.fate.pending())
    if is_due:
        name = min((one.host for one in view.replicas if one.is_voter), default=min(hosts))
        scene.world.locate(view.row, hosts[name].session, scene.master.reign.next_rank())
    return is_due


def _rewrite(scene: Scene, extent: Extent) -> bool:
    """A tablet that shares files writes its rows into one of its own, and the books name this one alone."""
    table, row = scene.world.table, scene.world.table.get(keys.tablet_row(extent.table_id, extent.end_row))
    if row is None or not keys.is_tablet(row):
        return False
    flush = row.cells[keys.FLUSH]
    state, rank = FlushState.decode(flush.value), flush.rank
    if shares_files(row):
        directory, last = values.decode_dir(row.cells[keys.DIR].value), extent.end_row or b"z"
        own = f"{tablet_directory(extent.table_id, directory)}/own.parquet"
        state, rank = replace(state, flush_id=rank + 1, segments=(own,)), rank + 1
        named = {keys.segment_column(own): segment(last, last).encode(), keys.FLUSH: state.encode()}
        table.put([RowPut(row.key, named)], rank)
    old = [Column("segment", name) for name in row.family("segment") if keys.parse_file(name) not in state.segments]
    if old:
        table.delete([CellKey(row.key, column) for column in old], rank)
    return bool(old)


# ---- the commands


def _on_two(scene: Scene, others: Collection[str]) -> None:
    """Two tablets on h1 and h2, each leads one; other hosts live."""
    hold_tablets(scene, b"m", are_own=True)
    replicate(scene, "h1", "h2")
    for host, end in zip(scene.hosts, (b"m", None), strict=True):
        lead(scene, host, end)
    for name in others:
        scene.start_host(name)
    finish(scene)


def _before_drain(scene: Scene) -> Args:
    _on_two(scene, ["h3"])
    return {"host": "h1"}


def _drain(scene: Scene, args: Args) -> None:
    scene.master.reign.check()
    set_draining(scene.world.coordination, str(args["host"]), True)
    finish(scene)


ONTO = ("h2", "h3")


def _before_split(scene: Scene) -> Args:
    _on_two(scene, ["h3"])
    return add_splits_args(NAME, [b"c"])


def _split_onto(scene: Scene, args: Args) -> None:
    _wait(scene, scene.master.fate.submit(SPLIT_KIND, args))
    scene.master.fate.submit(MOVE_KIND, move_args(NAME, [b"c"], ONTO))
    finish(scene)


def _change(scene: Scene, args: Args) -> None:
    scene.master.fate.submit("change_properties", args)
    finish(scene)


def _before_more(scene: Scene) -> Args:
    hold_tablets(scene, b"m")
    start_hosts(scene, "h1", "h2", "h3")
    finish(scene)
    return change_properties_args(NAME, TWO, ())


def _before_one(scene: Scene) -> Args:
    _on_two(scene, [])
    return change_properties_args(NAME, {"table.replicas": "1"}, ())


DRAIN, SPLIT_ONTO = "host drain", "addsplits --onto"

COMMANDS: Mapping[str, Play] = {
    DRAIN: Play(DRAIN, _before_drain, _drain, finish),
    SPLIT_ONTO: Play(SPLIT_KIND, _before_split, _split_onto, finish, is_repeated=True),
    "table.replicas from 1 to 2": Play("change_properties", _before_more, _change, finish),
    "table.replicas from 2 to 1": Play("change_properties", _before_one, _change, finish),
}
"""By name. Each master has a repair."""
