"""The hosts of a new table's replicas, what leaders have made and the books do not name yet, a refusal, and waits.

A host is chosen once, and the choice is part of the operation's state: a repeated step writes the same replicas.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import cast

from msgspec import Struct, field

from bookkeeper.clock import Clock
from bookkeeper.config.table_properties import TableProperties, parse_properties
from bookkeeper.coordination.config_tree import TableConfig
from bookkeeper.coordination.coordination_protocol import SessionInfo
from bookkeeper.errors import RefusedError
from bookkeeper.master.calls.hosted_files import live_hosts_of
from bookkeeper.master.fate.engine import State
from bookkeeper.master.index.snapshot import TabletView
from bookkeeper.master.index.tablet_replicas import TabletReplica, replicas_of
from bookkeeper.master.operations.context import Context
from bookkeeper.master.operations.volume_need import MORE_REPLICAS, refuse_without_volume
from bookkeeper.metadata import keys
from bookkeeper.metadata.metadata_table import Row, RowPut
from bookkeeper.metadata.values import VOTER, Json, ReplicaCell
from bookkeeper.model import HostIdentity

REPLICA_PROPERTIES = ("table.replicas", "table.copies_min")


COPIES_WAIT_MS = 15_000
"""An operation waits so long for hosts that are away: a lost lease, a restart and a late name take less."""


class HostWaits(Struct, frozen=True):
    """For how long operations of one kind have waited for hosts, by the boot clock. A new master begins anew."""

    _since: dict[str, tuple[str, int]] = field(default_factory=dict)

    def waited_ms(self, txid: str, clock: Clock, reason: str = "") -> float:
        """For how long an operation has waited for this reason; with another one it begins to wait anew."""
        now_ns = clock.boot_ns()
        known, since_ns = self._since.get(txid, (reason, now_ns))
        if known != reason:
            since_ns = now_ns
        self._since[txid] = reason, since_ns
        return (now_ns - since_ns) / 1e6

    def end(self, txid: str) -> None:
        """The operation waits no longer."""
        self._since.pop(txid, None)


class FailedHosts(Struct, frozen=True):
    """Live hosts that could not do their part lately, by the boot clock. A new master forgets them."""

    _until_ns: dict[str, int] = field(default_factory=dict)

    def add(self, hosts: Iterable[str], clock: Clock, period_ms: float) -> None:
        """Remember these hosts for a while."""
        until_ns = clock.boot_ns() + int(period_ms * 1e6)
        self._until_ns.update(dict.fromkeys(hosts, until_ns))

    def names(self, clock: Clock) -> set[str]:
        """The hosts that are remembered."""
        now_ns = clock.boot_ns()
        return {host for host, until_ns in self._until_ns.items() if now_ns < until_ns}


def hosts_for(context: Context, replicas: int) -> list[HostIdentity]:
    """The live hosts that may hold replicas, those with the fewest first. Raises RefusedError when there are fewer than
    ``replicas``.
    """
    draining = context.config().draining
    live = live_hosts(context.tservers.sessions())
    able = [host for host in live.values() if host.name not in draining]
    if len(able) < replicas:
        out = sorted(draining & live.keys())
        drained = f"; {', '.join(out)} {'is' if len(out) == 1 else 'are'} being drained" if out else ""
        raise RefusedError(
            f"table.replicas is {replicas}, and the cluster has {len(able)} live hosts for them"
            f"{named(able)}{drained}: start more hosts (bookkeeper init --join), or choose fewer replicas"
        )
    rows = context.stores.table.scan(keys.TABLETS_START, keys.TABLETS_STOP, (keys.REPLICA_FAMILY,))
    held = replica_counts(rows)
    return sorted(able, key=lambda host: (held[host.name], host.name))


def live_hosts(sessions: Iterable[SessionInfo]) -> dict[str, HostIdentity]:
    """The hosts of live sessions, by name."""
    return {info.host.name: info.host for info in sessions if info.alive and info.host is not None}


def destroyed(replicas: Iterable[TabletReplica], sessions: Collection[SessionInfo]) -> list[TabletReplica]:
    """The replicas on disks that are gone for ever: their hosts live, and with other disks."""
    live = {(info.host.name, info.host.incarnation) for info in sessions if info.alive and info.host is not None}
    names = {name for name, _ in live}
    return [one for one in replicas if one.host in names and (one.host, one.cell.incarnation) not in live]


def replica_counts(rows: Iterable[Row]) -> Counter[str]:
    """The replicas of each host in rows that were read with the family ``replica``."""
    return Counter(replica.host for row in rows for replica in replicas_of(row))


def named(hosts: Sequence[HostIdentity]) -> str:
    """Hosts in brackets; empty without any."""
    return f" ({', '.join(sorted(host.name for host in hosts))})" if hosts else ""


def first_replicas(rows: Sequence[bytes], hosts: Sequence[HostIdentity], replicas: int, operation: str) -> list[RowPut]:
    """The replicas of new tablets: each on ``replicas`` distinct hosts, in as many zones as there are.
    Hosts take turns, and all vote, because an empty tablet has nothing to copy.
    """
    given: Counter[str] = Counter()
    puts = []
    for row in rows:
        chosen = spread(hosts, replicas, given)
        given.update(host.name for host in chosen)
        # Each placement has its host's name: a sender forgets what one placement acknowledged (E-37), and must not
        # forget the others with it.
        cells = {host.name: ReplicaCell(f"{operation}-{host.name}", host.incarnation, VOTER) for host in chosen}
        puts.append(RowPut(row, {keys.replica_column(host): cell.encode() for host, cell in cells.items()}))
    return puts


def spread(hosts: Sequence[HostIdentity], replicas: int, given: Mapping[str, int]) -> list[HostIdentity]:
    """Distinct hosts for a tablet: those of other zones first, then those that were given the fewest, then in order. A
    host without a zone is one of its own. Pure.
    """
    chosen: list[HostIdentity] = []
    for _ in range(replicas):
        chosen.append(_next_host(chosen, [host for host in hosts if host not in chosen], given))
    return chosen


def _next_host(chosen: Sequence[HostIdentity], left: Sequence[HostIdentity], given: Mapping[str, int]) -> HostIdentity:
    zones = {host.zone for host in chosen if host.zone}
    return min(left, key=lambda host: (host.zone in zones, given.get(host.name, 0)))


def encode_hosts(hosts: Sequence[HostIdentity]) -> list[Json]:
    """Hosts as JSON of an operation's state."""
    return [[host.name, host.incarnation, host.zone] for host in hosts]


def decode_hosts(state: State) -> list[HostIdentity]:
    """Inverse of :func:`encode_hosts`, from the member ``hosts``."""
    return [HostIdentity(*pair) for pair in cast("list[list[str]]", state["hosts"])]


def replicas_wanted(properties: Mapping[str, str]) -> int:
    """How many replicas each tablet of a table is to have."""
    return parse_properties(properties).replicas


def is_elsewhere(view: TabletView, replicas: int) -> bool:
    """Whether a tablet lies on the Volume although its table has several replicas, or on hosts although it has one."""
    return bool(view.replicas) != (replicas > 1)


def newest_states(context: Context, table_id: str) -> dict[str, int]:
    """The newest state of each tablet that a live host leads, by the tablet's directory. Raises TransientError."""
    return {
        info.directory: info.root or 0
        for host in live_hosts_of(context.tservers)
        for info in context.tservers.at(host.address).replicas(table_id, False).replicas
        if info.is_leader
    }


def why_unnamed(tablets: Sequence[TabletView], made: Mapping[str, int]) -> str:
    """Why the books do not name all that the leaders of tablets have made; empty = they do. ``tablets`` were read after
    the leaders were asked; those on the Volume are named at once.
    """
    for tablet in (tablet for tablet in tablets if tablet.replicas):
        if tablet.directory not in made:
            return f"tablet {tablet.extent} has no leader now"
        if made[tablet.directory] > tablet.flush_rank:
            return f"the newest data of tablet {tablet.extent} has too few copies"
    return ""


def check_store(context: Context, table: TableConfig, after: TableProperties) -> None:
    """Raises RefusedError when a change of properties moves a table to hosts, and too few live for its replicas; or to
    the Volume, and there is none.
    """
    if after.replicas == 1:
        refuse_without_volume(context, f"table {table.name} with one replica", MORE_REPLICAS)
    if replicas_wanted(table.properties) == 1 and after.replicas > 1:
        hosts_for(context, after.replicas)
