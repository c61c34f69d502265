"""The zones of hosts: which tablets join a host in another zone, because replicas share one. Pure.

Hosts of one zone may be lost together. A tablet whose replicas share a zone, while a host of another zone has none of
it, joins such a host. The repair ends that, because the tablet then has a replica too many: one of those that share a
zone goes. Each such move adds a zone to a tablet, and the balance takes none away: so none comes back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bookkeeper.master.replicas.balance_plan import is_ready
from bookkeeper.master.replicas.repair_plan import Loads, zone_of
from bookkeeper.master.replicas.repair_state import HostState, Join, RepairLimits, TabletState


def plan_zones(tablets: Sequence[TabletState], hosts: Mapping[str, HostState], limits: RepairLimits) -> list[Join]:
    """Joins of tablets without a repair to come, the least loaded hosts first; at most ``joins_max`` replicas join at
    once.
    """
    loads = Loads.of(hosts)
    score = dict(loads.score)
    room = limits.joins_max - sum(not one.is_voter for tablet in tablets for one in tablet.replicas)
    joins: list[Join] = []
    for tablet in sorted(tablets, key=lambda one: one.row):
        if len(joins) >= room:
            break
        shared = shared_zone(tablet, hosts)
        if shared is None or not is_ready(tablet, hosts, limits):
            continue
        used = {zone_of(one.host, hosts) for one in tablet.replicas}
        able = [one for one in hosts.values() if one.is_alive and not one.is_draining and one.zone_key not in used]
        if able:
            best = min(able, key=lambda host: (score[host.name], host.name))
            score[best.name] += loads.weight(tablet)
            joins.append(Join(tablet.row, best.name, best.incarnation or "", f"replicas share {shared}"))
    return joins


def shared_zone(tablet: TabletState, hosts: Mapping[str, HostState]) -> str | None:
    """A zone in which a tablet has two replicas, in words; None when each has its own."""
    seen: set[str] = set()
    for one in tablet.replicas:
        zone = zone_of(one.host, hosts)
        if zone in seen:
            return zone
        seen.add(zone)
    return None
