"""The operation that moves replicas of tablets to chosen hosts, as after a split with ``--onto``.

A split is in place: its tablets lie on the same hosts, and share files of the tablet that was split. So this operation
first makes each tablet write its own rows into files of its own: a chosen host gets the rows of its tablet and no
others. Then the repair does the rest, one cell at a time (``replicas.repair_plan``): it joins the chosen hosts, moves
the leader, and lets the other hosts go. The operation only waits, and the repair reads its arguments: so a crash loses
nothing, and a host that comes back late joins late.

=======  ============================================================================================================
rewrite  wait until the books name only files with all their rows in the tablet; order compactions for that
settle   wait until the row names the chosen hosts alone, and all vote. It fails when a chosen host is away for as long
         as a host that the repair replaces, and the tablet is whole without it
=======  ============================================================================================================
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import Enum
from typing import cast

from msgspec import Struct, field

from bookkeeper.coordination.config_tree import ClusterConfig, TableConfig
from bookkeeper.coordination.coordination_protocol import SessionInfo
from bookkeeper.errors import InvalidInputError, NotFoundError, RefusedError, TransientError, UnavailableError
from bookkeeper.master.fate.engine import Args, Call, Done, Failed, Next, Outcome, Step, Wait
from bookkeeper.master.index.snapshot import TabletView, tablet_view
from bookkeeper.master.operations.context import (
    Context,
    encode_bytes,
    online_table,
    text,
    texts,
)
from bookkeeper.master.operations.replica_hosts import live_hosts, replicas_wanted
from bookkeeper.master.operations.split_merge import PendingOperation
from bookkeeper.master.splits.split_rules import shares_files
from bookkeeper.metadata import keys, values
from bookkeeper.metadata.metadata_table import Row
from bookkeeper.metadata.values import Json

MOVE_KIND = "move_replicas"
AGAIN_MS = 500

FAMILIES = ("tablet", "location", "segment", keys.REPLICA_FAMILY)


def move_args(name: str, rows: Iterable[bytes | None], hosts: Collection[str]) -> Args:
    """Arguments of ``move_replicas``: the tablets that end at these rows get their replicas on these hosts."""
    return {"name": name, "rows": [values.encode_row(row) for row in rows], "hosts": [*sorted(set(hosts))]}


def check_hosts(table: TableConfig, hosts: Collection[str], able: Collection[str]) -> None:
    """Raises InvalidInputError unless these are as many hosts as the table has replicas, RefusedError when one of them
    is not among the ``able`` ones.
    """
    wanted, chosen = replicas_wanted(table.properties), sorted(set(hosts))
    if wanted == 1 or len(chosen) != wanted:
        raise InvalidInputError(
            f"table {table.name} has table.replicas = {wanted}: name {wanted} hosts for its tablets"
            if wanted > 1
            else f"table {table.name} has one replica, on the cluster's Volume: it has no hosts to choose"
        )
    missing = [host for host in chosen if host not in able]
    if missing:
        raise RefusedError(
            f"{', '.join(missing)} can't take replicas now (unknown, away or drained); "
            f"the hosts that can are {', '.join(sorted(able))}"
        )


def able_hosts(sessions: Iterable[SessionInfo], config: ClusterConfig) -> set[str]:
    """The hosts that may get replicas now."""
    return live_hosts(sessions).keys() - config.draining


class Moves(Struct, frozen=True):
    """The moves of tablets that operations have ordered: ``chosen``: by row, the hosts that a tablet is to have;
    ``are_prepared``: whether some tablets still write files of their own, and get their hosts then.
    """

    chosen: Mapping[bytes, frozenset[str]] = field(default_factory=dict)
    are_prepared: bool = False


def moves_under_way(operations: Iterable[PendingOperation]) -> Moves:
    """The part of running operations that the repair has to do."""
    moves = [running for running in operations if running.op.type == MOVE_KIND]
    return Moves(
        {
            row: frozenset(texts(running.op.args, "hosts"))
            for running in moves
            if running.step == "settle"
            for row in moved_rows(text(running.state, "table_id"), running.op.args)
        },
        any(running.step == "rewrite" for running in moves),
    )


def moved_rows(table_id: str, args: Args) -> list[bytes]:
    """The rows in the books of the tablets to move."""
    return [keys.tablet_row(table_id, values.decode_row(row)) for row in cast("list[str | None]", args["rows"])]


class Standing(Enum):
    """How far the replicas of a tablet are."""

    THERE = "there"
    MOVING = "moving"
    WITHOUT = "without"
    """It has its replicas, and those chosen hosts that have none of them can't get one."""


def standing_of(view: TabletView, chosen: Collection[str], able: Collection[str], wanted: int) -> Standing:
    """How far a tablet is. ``able``: hosts that may get replicas now; ``wanted``: replicas of a tablet. Pure."""
    hosts, missing = {one.host for one in view.replicas}, set(chosen) - {one.host for one in view.replicas}
    if not hosts:
        return Standing.THERE  # the table has one replica by now, on the Volume
    if not all(one.is_voter for one in view.replicas) or len(hosts) < wanted:
        return Standing.MOVING
    if hosts <= set(chosen) or (not missing and len(hosts) == wanted):
        return Standing.THERE
    is_whole = len(hosts) == wanted and hosts <= set(able)
    return Standing.WITHOUT if is_whole and not missing & set(able) else Standing.MOVING


class MoveReplicas(Struct, frozen=True):
    """Moves tablets to hosts (:class:`bookkeeper.master.fate.engine.Operation`). A row that ends no tablet is left out,
    because a merge may have come first.
    """

    context: Context
    first: str = "rewrite"
    _without_ns: dict[str, int] = field(default_factory=dict)
    """By operation: since when its tablets are whole without a chosen host; a new master begins anew."""

    @property
    def steps(self) -> Mapping[str, Step]:
        """rewrite, settle."""
        return {"rewrite": self.rewrite, "settle": self.settle}

    def locks(self, args: Args) -> Collection[str]:
        """One move of a table at a time. The table is in use meanwhile, and it may be split, merged or deleted."""
        return (f"replicas of {text(args, 'name')}",)

    def rewrite(self, call: Call) -> Outcome:
        """Order a compaction of each tablet that shares files. Raises NotFoundError when the table is gone."""
        table = online_table(self.context.config(), text(call.args, "name"))
        tickets = cast("dict[str, int]", dict(cast("Mapping[str, Json]", call.state.get("tickets", {}))))
        before, sharing = dict(tickets), 0
        for row in self._tablets(table.table_id, call.args):
            if shares_files(row):
                sharing += 1
                self._order(tablet_view(row), tickets)
        call.report(sharing, "tablets")
        if not sharing:
            return Next("settle", {"table_id": table.table_id})
        if tickets != before:
            return Next("rewrite", {"tickets": cast(Json, tickets)})
        return Wait(f"{sharing} tablets of table {table.name} write their rows into files of their own", AGAIN_MS)

    def _order(self, view: TabletView, tickets: dict[str, int]) -> None:
        """Order a compaction by its ticket: one that is done, and whose state the books do not name yet, is ordered
        again from the next leader. A tserver that does not answer is asked again with the next look.
        """
        address = self.context.tservers.live().get(view.session or "")
        if address is None:
            return
        (name,) = cast("list[str]", encode_bytes([view.row]))
        try:
            ticket = self.context.tservers.at(address).compact_tablet(view.extent, tickets.get(name, 0))
        except TransientError:
            return
        if ticket:
            tickets[name] = ticket

    def settle(self, call: Call) -> Outcome:
        """Wait for the repair. Raises NotFoundError when the table is gone."""
        now_ns = self.context.clock.boot_ns()
        without_ns = self._without_ns.pop(call.txid, now_ns)
        config = self.context.config()
        table, chosen = online_table(config, text(call.args, "name")), texts(call.args, "hosts")
        if table.table_id != text(call.state, "table_id"):  # the repair moves tablets of the id: it would never end
            raise NotFoundError(f"the table {table.name} whose tablets moved is gone; another one has its name now")
        able = able_hosts(self.context.tservers.sessions(), config)
        wanted = replicas_wanted(table.properties)
        views = [tablet_view(row) for row in self._tablets(table.table_id, call.args)]
        standings = [standing_of(view, chosen, able, wanted) for view in views]
        call.report(standings.count(Standing.MOVING), "tablets")
        if Standing.MOVING in standings:
            return Wait(
                f"{standings.count(Standing.MOVING)} of {len(views)} tablets of table {table.name} move to "
                f"{', '.join(chosen)}",
                AGAIN_MS,
            )
        if Standing.WITHOUT in standings:
            return self._without(call.txid, without_ns, now_ns, sorted(set(chosen) - able))
        return Done()

    def _without(self, txid: str, without_ns: int, now_ns: int, away: Sequence[str]) -> Outcome:
        """Wait for chosen hosts for as long as the repair waits for a host."""
        if now_ns - without_ns < self.context.settings.repair_after_ms * 1_000_000:
            self._without_ns[txid] = without_ns
            return Wait(f"{', '.join(away)} can't take replicas now: start these hosts", AGAIN_MS)
        return Failed(
            UnavailableError(
                f"tablets have their replicas on other hosts than the chosen ones, because {', '.join(away)} can't "
                "take them: start these hosts, and repeat the command"
            )
        )

    def _tablets(self, table_id: str, args: Args) -> Sequence[Row]:
        found = (self.context.stores.table.get(row, FAMILIES) for row in moved_rows(table_id, args))
        return [row for row in found if row is not None and keys.is_tablet(row)]
