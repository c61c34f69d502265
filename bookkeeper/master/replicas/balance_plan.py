"""The balance of replicas between hosts: which tablets join another host, so that all have about as much. Pure.

The load of a host is its share of the replicas and of their bytes. A move begins only when the loads differ by more
than :data:`SLACK` of the mean, and when it makes the two hosts more even: so each move lessens the sum of the squared
loads, and none comes back. It begins with a join, whose cell names the placement that leaves in the end. The repair
ends it, because the tablet then has a replica too many. No move leaves a tablet in fewer zones than before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bookkeeper.master.index.tablet_replicas import replica_on
from bookkeeper.master.replicas.repair_plan import Loads, is_healthy, is_in_sync, zone_of
from bookkeeper.master.replicas.repair_state import HostState, Join, RepairLimits, TabletState

SLACK = 0.1
"""Part of the mean load by which two hosts may differ."""

LEAST_GAIN = 1e-6
"""A move that evens out less than this is not worth the copy."""


def plan_balance(tablets: Sequence[TabletState], hosts: Mapping[str, HostState], limits: RepairLimits) -> list[Join]:
    """Joins from the most loaded hosts to the least loaded ones; none while any tablet has a step of a repair to come,
    because the loads are not settled then.
    """
    able = {name: host for name, host in hosts.items() if host.is_alive and not host.is_draining}
    if len(able) < 2 or not all(is_ready(tablet, hosts, limits) for tablet in tablets):
        return []
    loads = Loads.of(hosts)
    score = {name: loads.score[name] for name in able}
    moves: dict[bytes, Join] = {}
    while len(moves) < limits.joins_max:
        found = _best_move([tablet for tablet in tablets if tablet.row not in moves], score, loads, hosts)
        if found is None:
            break
        tablet, source, target = found
        weight = loads.weight(tablet)
        score[source] -= weight
        score[target] += weight
        reason = f"{source} has more than its share of the replicas"
        leaving = replica_on(tablet.replicas, source)
        in_place_of = "" if leaving is None else leaving.cell.placement
        moves[tablet.row] = Join(tablet.row, target, able[target].incarnation or "", reason, in_place_of)
    return list(moves.values())


def is_ready(tablet: TabletState, hosts: Mapping[str, HostState], limits: RepairLimits) -> bool:
    """Whether a tablet needs no repair, has a leader, and each of its replicas is in sync."""
    return (
        tablet.leader is not None
        and is_healthy(tablet, hosts, limits)
        and all(is_in_sync(one, tablet, hosts) for one in tablet.replicas)
    )


def keeps_zones(tablet: TabletState, source: str, target: str, hosts: Mapping[str, HostState]) -> bool:
    """Whether a tablet is in as many zones as before when a replica moves between two hosts."""
    others = {zone_of(one.host, hosts) for one in tablet.replicas if one.host != source}
    return len(others | {zone_of(target, hosts)}) >= len(others | {zone_of(source, hosts)})


def _best_move(
    tablets: Sequence[TabletState], score: Mapping[str, float], loads: Loads, hosts: Mapping[str, HostState]
) -> tuple[TabletState, str, str] | None:
    """The heaviest replica that fits between the two hosts that differ most and share none; None when all is even."""
    mean = sum(score.values()) / len(score)
    pairs = [(score[source] - score[target], source, target) for source in score for target in score]
    for gap, source, target in sorted(pairs, reverse=True):
        if gap <= SLACK * mean:
            return None
        fitting = [
            tablet
            for tablet in tablets
            if not tablet.chosen
            and loads.weight(tablet) < gap - LEAST_GAIN
            and replica_on(tablet.replicas, source) is not None
            and replica_on(tablet.replicas, target) is None
            and keeps_zones(tablet, source, target, hosts)
        ]
        if fitting:
            return max(fitting, key=lambda tablet: (loads.weight(tablet), tablet.row)), source, target
    return None
