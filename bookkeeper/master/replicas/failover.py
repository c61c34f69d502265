"""Gives up the logs of hosts that stay away, for the tables that allow it: reads rows, and writes what the plan says.

Arrives: tablets, sessions, the configuration, the homes of logs. Leaves: ``tablet:lost:`` cells, and the rows of
tablets that the placement may give to a next holder although their last one's logs can't be sealed. The time without a
host is measured by this reign alone, so it begins anew with a next master. A crash leaves cells, which hold
(``lost_logs``). Rules: R15, R24 and N6.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping

from msgspec import Struct, field

from bookkeeper.clock import Clock
from bookkeeper.config.table_properties import parse_properties
from bookkeeper.coordination.config_tree import ClusterConfig
from bookkeeper.coordination.coordination_protocol import SessionInfo
from bookkeeper.master.index.snapshot import TabletView
from bookkeeper.master.index.tablet_index import TabletIndex
from bookkeeper.master.reign.reign_stores import ReignStores
from bookkeeper.master.replicas.failover_plan import ROW_FAMILIES, AwayHomes, Failover, homes_away, plan_failover
from bookkeeper.metadata.lost_logs import lost_logs
from bookkeeper.metadata.values import LogHome

LOG = logging.getLogger(__name__)


class LogFailover(Struct):
    """The failover of one reign. The master's thread runs it; any thread may read ``released`` and ``losses``."""

    stores: ReignStores
    clock: Clock
    homes: Callable[[], Mapping[str, LogHome]]
    """The homes of all sessions whose logs lie on hosts."""
    is_loaded: Callable[[str, bytes], bool | None]
    """Whether a session serves a tablet, by its latest report; None before its first one."""
    released: frozenset[bytes] = frozenset()
    """Rows of tablets that go to a next holder without the logs of their last one."""
    losses: dict[bytes, str] = field(default_factory=dict)
    """Rows of tablets that are served without a log, and the reason."""
    _away_ns: dict[LogHome, int] = field(default_factory=dict)

    def run(
        self, tablets: TabletIndex, config: ClusterConfig, sessions: Collection[SessionInfo], claimed: Collection[bytes]
    ) -> None:
        """Plan and write for each tablet that has given-up logs, or whose last holder is over. ``claimed``: rows that
        an operation has. Raises TransientError, LeaseLostError, CorruptionError.
        """
        views = [
            view
            for view in tablets.values()
            if view.replicas and view.row not in claimed and view.extent.table_id in config.tables
        ]
        live = {info.session_id for info in sessions if info.alive}
        holders = {view.row: holder for view in views if (holder := self._holder_of(view, live)) is not None}
        if not holders and not any(view.lost for view in views):
            self.released, self.losses, self._away_ns = frozenset(), {}, {}
            return
        away = self._away(sessions)
        if not away.homes and not any(view.lost for view in views):
            self.released, self.losses = frozenset(), {}
            return
        released, losses = set[bytes](), dict[bytes, str]()
        for view in views:
            if not view.lost and view.row not in holders:
                continue
            failover_ms = parse_properties(config.tables[view.extent.table_id].properties).failover_ms
            if self._work(view, failover_ms, away, holders.get(view.row), losses):
                released.add(view.row)
        self.released, self.losses = frozenset(released), losses

    def _holder_of(self, view: TabletView, live: Collection[str]) -> str | None:
        """The last session of a tablet that no live session serves; None for a served one, and one without any."""
        session = view.session or view.parked_at
        if session is None or (session in live and self.is_loaded(session, view.row) is not False):
            return None
        return session

    def _work(
        self,
        view: TabletView,
        failover_ms: int | None,
        away: AwayHomes,
        holder: str | None,
        losses: dict[bytes, str],
    ) -> bool:
        """Carry out the plan of one tablet; returns whether it is released."""
        row = self.stores.table.get(view.row, ROW_FAMILIES)
        if row is None:
            return False
        reasons = [loss_text(loss.log, loss.home, loss.after, loss.is_needed, away) for loss in lost_logs(row)]
        if reasons:
            losses[view.row] = "; ".join(reasons)
        plan = plan_failover(row, failover_ms, away, holder)
        self._write(view, plan)
        return plan.is_released

    def _write(self, view: TabletView, plan: Failover) -> None:
        if plan.put is not None:
            self.stores.reign.check()
            self.stores.table.put([plan.put], plan.rank)
            LOG.warning("tablet %s goes on without %d logs: their host stays away", view.extent, len(plan.put.values))
        for cell, rank in plan.deletes:
            self.stores.reign.check()
            self.stores.table.delete([cell], rank)

    def _away(self, sessions: Collection[SessionInfo]) -> AwayHomes:
        homes = self.homes()
        live = {info.host.name: info.host.incarnation for info in sessions if info.alive and info.host is not None}
        away, replaced = homes_away(homes, live)
        now_ns = self.clock.boot_ns()
        self._away_ns = {home: self._away_ns.get(home, now_ns) for home in away}
        return AwayHomes(homes, {home: (now_ns - ns) / 1e6 for home, ns in self._away_ns.items()}, replaced)


def loss_text(log: str, home: LogHome, after: int, is_needed: bool, away: AwayHomes) -> str:
    """The records that a tablet lacks, where they are, and the next step."""
    lacks = f"records after {after} of {log} are missing" if is_needed else f"peers may lack records of {log}"
    if home in away.replaced:
        return (
            f"{lacks}: they were on a disk of host {home.host} ({home.incarnation}) that was replaced; bring that disk "
            f"back, or accept the loss: host forget {home.host}"
        )
    if home in away.away_ms:
        return (
            f"{lacks}: host {home.host} is away; start it, or accept the loss if its disk is gone: host forget "
            f"{home.host}"
        )
    return f"{lacks}: host {home.host} is back, and the tablet merges them next"
