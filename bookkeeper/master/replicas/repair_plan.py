"""The repair of replicas: which cell of a tablet's row changes next, and why. Pure.

A host that is away for too long, or whose disk was wiped, or that is drained, is *bad*: its replica is replaced. The
steps of a replacement are writes of one cell each, at most one for a tablet in one plan:

========  ===========================================================================================================
join      a new placement on another host, which gets the tablet's segments and does not count
finalize  it holds the leader's newest state (E-54): it votes; if that state is about to be named, then after its name
demote    a replica too many votes no more; enough others in sync are left
leave     it goes, a time later: a state that its leader named while it still voted has arrived in the books by then
          (R4), and enough voters hold that state, too
========  ===========================================================================================================

Each step may be repeated, and a crash between two of them leaves a row that the next master goes on with: the row has
all that a plan needs. The plan never leaves fewer voters in sync than ``table.copies_min``: N3 counts on them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

from msgspec import Struct
from msgspec.structs import replace

from bookkeeper.master.index.tablet_replicas import TabletReplica, replica_on
from bookkeeper.master.replicas.repair_state import (
    Demote,
    Finalize,
    HostState,
    Join,
    Lead,
    Leave,
    RepairLimits,
    Step,
    TabletState,
)


class Loads(Struct, frozen=True):
    """The load of each host: its share of the replicas and of their bytes, each 1 on average."""

    score: Mapping[str, float]
    replica_weight: float
    byte_weight: float

    @classmethod
    def of(cls, hosts: Mapping[str, HostState]) -> Loads:
        """The loads of hosts, by name."""
        able = [host for host in hosts.values() if host.is_alive and not host.is_draining]
        replicas, size_bytes = sum(host.replicas for host in able), sum(host.size_bytes for host in able)
        replica_weight = len(able) / replicas if replicas else 0.0
        byte_weight = len(able) / size_bytes if size_bytes else 0.0
        score = {host.name: host.replicas * replica_weight + host.size_bytes * byte_weight for host in hosts.values()}
        return cls(score, replica_weight, byte_weight)

    def weight(self, tablet: TabletState) -> float:
        """The load that one replica of a tablet adds to its host."""
        return self.replica_weight + tablet.size_bytes * self.byte_weight

    def plus(self, host: str, load: float) -> Loads:
        """The loads after a host got this much more, or less."""
        return replace(self, score={**self.score, host: self.score.get(host, 0.0) + load})

    def without(self, host: str, tablet: TabletState) -> float:
        """The load of a host besides this tablet."""
        held = replica_on(tablet.replicas, host) is not None
        return self.score.get(host, 0.0) - (self.weight(tablet) if held else 0.0)


def why_bad(replica: TabletReplica, hosts: Mapping[str, HostState], limits: RepairLimits) -> str | None:
    """Why a replica has to be replaced; None for one that is good, also while its host is away for a short time."""
    host = hosts.get(replica.host)
    if host is None:
        return f"{replica.host} is unknown"
    if host.is_alive and host.incarnation != replica.cell.incarnation:
        return f"the disk of {replica.host} was wiped"
    if not host.is_alive and host.away_ms > limits.repair_after_ms:
        return f"{replica.host} is away for {host.away_ms / 1000:.0f} s"
    return f"{replica.host} is drained" if host.is_draining else None


def is_in_sync(replica: TabletReplica, tablet: TabletState, hosts: Mapping[str, HostState]) -> bool:
    """Whether a voter's host lives and holds the named state."""
    host, held = hosts.get(replica.host), tablet.held.get(replica.host)
    is_here = host is not None and host.incarnation == replica.cell.incarnation
    return replica.is_voter and is_here and (tablet.named == 0 or (held is not None and held.has(tablet.named)))


def has_newest(replica: TabletReplica, tablet: TabletState, hosts: Mapping[str, HostState]) -> bool:
    """E-54: whether a live joiner holds the newest state of the leader."""
    host, held = hosts.get(replica.host), tablet.held.get(replica.host)
    leader = tablet.held.get(tablet.leader or "")
    is_here = host is not None and host.incarnation == replica.cell.incarnation
    return is_here and held is not None and leader is not None and held.has(leader.root)


def waits_for_name(replica: TabletReplica, tablet: TabletState, hosts: Mapping[str, HostState]) -> bool:
    """Whether a joiner with the newest state lacks the named one, and the voters can name the newest without it. Its
    vote waits for that name, because a voter without the named state may not lead if all others are lost. With too few
    voters no newer state could be named without the joiner: then it votes at once.
    """
    held, leader = tablet.held.get(replica.host), tablet.held.get(tablet.leader or "")
    if held is None or leader is None or held.has(tablet.named):
        return False
    newest = [one for one in tablet.replicas if one.is_voter and has_newest(one, tablet, hosts)]
    return len(newest) >= tablet.copies_needed


def others_suffice(replica: TabletReplica, tablet: TabletState, hosts: Mapping[str, HostState]) -> bool:
    """Whether enough voters in sync are left without a replica (N3)."""
    others = [one for one in tablet.replicas if one.host != replica.host and is_in_sync(one, tablet, hosts)]
    return len(others) >= tablet.copies_needed


def kept(tablet: TabletState, hosts: Mapping[str, HostState], loads: Loads, limits: RepairLimits) -> set[str]:
    """The hosts that are to have the tablet in the end: as many good ones as are wanted, chosen ones first, then one of
    each zone, then those that no other one replaces, then the least loaded, voters before joiners.
    """
    good = [replica for replica in tablet.replicas if why_bad(replica, hosts, limits) is None]
    # The balance chose what leaves when it chose what joins. Chosen again by the loads of a later moment, when other
    # moves are half done, the joiner itself could leave, and the balance would begin anew, for ever.
    gone = {one.cell.in_place_of for one in good if one.cell.in_place_of}

    def preference(one: TabletReplica) -> tuple[bool, float, bool, str]:
        return one.cell.placement in gone, round(loads.without(one.host, tablet), 9), not one.is_voter, one.host

    names = zones_first([one.host for one in sorted(good, key=preference)], hosts)
    return set(sorted(names, key=lambda name: name not in tablet.chosen)[: tablet.wanted])


def kept_by_row(
    tablets: Sequence[TabletState], hosts: Mapping[str, HostState], loads: Loads, limits: RepairLimits
) -> dict[bytes, set[str]]:
    """:func:`kept` of each tablet. The replicas that a tablet gives away no longer count when the next tablet chooses:
    else many tablets that lose a replica at once all take it from one host.
    """
    keeps: dict[bytes, set[str]] = {}
    for tablet in sorted(tablets, key=lambda one: one.row):
        keeps[tablet.row] = kept(tablet, hosts, loads, limits)
        loads = without_given_away(loads, tablet, keeps[tablet.row])
    return keeps


def without_given_away(loads: Loads, tablet: TabletState, keep: Set[str]) -> Loads:
    """The loads once the hosts that do not keep a tablet have given it away."""
    for one in tablet.replicas:
        if one.host not in keep:
            loads = loads.plus(one.host, -loads.weight(tablet))
    return loads


def zones_first(names: Sequence[str], hosts: Mapping[str, HostState]) -> list[str]:
    """Hosts in their order, but the first one of each zone before all others."""
    firsts = {zone_of(name, hosts): name for name in reversed(names)}
    return sorted(names, key=lambda name: firsts[zone_of(name, hosts)] != name)


def zone_of(name: str, hosts: Mapping[str, HostState]) -> str:
    """The zone of a host, which is one of its own when nothing is known of it."""
    return hosts[name].zone_key if name in hosts else f"host {name}"


def next_step(
    tablet: TabletState,
    hosts: Mapping[str, HostState],
    loads: Loads,
    limits: RepairLimits,
    keep: Set[str],
    may_join: bool,
) -> Step | None:
    """The next step of a tablet that these hosts are to ``keep``; None when nothing is to do, or it has to wait.
    Without a leader it waits: an election comes first.
    """
    if tablet.leader is None:
        return None
    return (
        _lead(tablet, hosts, limits, keep)
        or _finalize(tablet, hosts, keep)
        or _join(tablet, hosts, loads, limits, may_join)
        or _demote(tablet, hosts, limits, keep)
        or _leave(tablet, hosts, limits, keep)
    )


def _lead(tablet: TabletState, hosts: Mapping[str, HostState], limits: RepairLimits, keep: Set[str]) -> Lead | None:
    leader = replica_on(tablet.replicas, tablet.leader or "")
    if leader is None or leader.host in keep:
        return None
    reason = why_bad(leader, hosts, limits) or f"{leader.host} has more than its share"
    able = [one for one in tablet.replicas if one.host in keep and is_in_sync(one, tablet, hosts)]
    enough = len([one for one in tablet.replicas if one.is_voter]) > tablet.wanted
    if not able or not (enough or why_bad(leader, hosts, limits)):
        return None
    best = max(able, key=lambda one: (tablet.held[one.host].root, one.host))
    return Lead(tablet.row, best.host, reason)


def _finalize(tablet: TabletState, hosts: Mapping[str, HostState], keep: Set[str]) -> Finalize | None:
    for replica in tablet.replicas:
        is_ready = has_newest(replica, tablet, hosts) and not waits_for_name(replica, tablet, hosts)
        if not replica.is_voter and replica.host in keep and is_ready:
            return Finalize(tablet.row, replica, f"{replica.host} holds the newest state")
    return None


def _join(
    tablet: TabletState, hosts: Mapping[str, HostState], loads: Loads, limits: RepairLimits, may_join: bool
) -> Join | None:
    bad = [reason for one in tablet.replicas if (reason := why_bad(one, hosts, limits)) is not None]
    missing = missing_chosen(tablet, hosts, limits)
    has_all = len(tablet.replicas) - len(bad) >= tablet.wanted and not missing
    if not may_join or has_all:
        return None
    lost = [one.host for one in tablet.replicas if is_lost(one, hosts)]
    able = missing or [host for host in hosts.values() if may_get(host, tablet, hosts)]
    if not able:
        return None
    zones = {zone_of(one.host, hosts) for one in tablet.replicas if why_bad(one, hosts, limits) is None}
    best = min(
        able, key=lambda host: (host.name not in lost, host.zone_key in zones, loads.score[host.name], host.name)
    )
    reason = "an operation wants it there" if missing else "; ".join(bad) or f"table.replicas is {tablet.wanted}"
    return Join(tablet.row, best.name, best.incarnation or "", reason)


def may_get(host: HostState, tablet: TabletState, hosts: Mapping[str, HostState]) -> bool:
    """Whether a host may get a new replica of a tablet: it has none, or lost the one that it had."""
    held = replica_on(tablet.replicas, host.name)
    return host.is_alive and not host.is_draining and (held is None or is_lost(held, hosts))


def missing_chosen(tablet: TabletState, hosts: Mapping[str, HostState], limits: RepairLimits) -> list[HostState]:
    """The hosts on which an operation wants a tablet, and which may get a replica of it. None once as many of them have
    it as it is to have replicas: the table may have got fewer since the operation began, and a replica on one more
    would leave and join for ever.
    """
    there = [one for one in tablet.replicas if one.host in tablet.chosen and why_bad(one, hosts, limits) is None]
    if len(there) >= tablet.wanted:
        return []
    return [host for name, host in hosts.items() if name in tablet.chosen and may_get(host, tablet, hosts)]


def is_lost(replica: TabletReplica, hosts: Mapping[str, HostState]) -> bool:
    """Whether the host of a replica lives with another disk: what the replica had is gone."""
    host = hosts.get(replica.host)
    return host is not None and host.is_alive and host.incarnation != replica.cell.incarnation


def _demote(tablet: TabletState, hosts: Mapping[str, HostState], limits: RepairLimits, keep: Set[str]) -> Demote | None:
    settled = [one for one in tablet.replicas if one.is_voter and one.host in keep]
    if len(settled) < tablet.wanted:
        return None
    for replica in _worst_first(tablet.replicas, hosts, limits):
        if not replica.is_voter or replica.host in keep or replica.host == tablet.leader:
            continue
        if is_lost(replica, hosts) or others_suffice(replica, tablet, hosts):
            reason = why_bad(replica, hosts, limits) or f"{tablet.wanted} others have it"
            return Demote(tablet.row, replica, reason)
    return None


def _leave(tablet: TabletState, hosts: Mapping[str, HostState], limits: RepairLimits, keep: Set[str]) -> Leave | None:
    settled = [one for one in tablet.replicas if one.is_voter and one.host in keep]
    if len(settled) < tablet.wanted:
        return None
    for replica in _worst_first(tablet.replicas, hosts, limits):
        if replica.is_voter or replica.host in keep:
            continue
        # R4: as long as it counts as a voter, a state may still be named that counts on its copy.
        if tablet.joining_ms.get(replica.host, 0) <= limits.flight_ms:
            continue
        if is_lost(replica, hosts) or others_suffice(replica, tablet, hosts):
            reason = why_bad(replica, hosts, limits) or f"{tablet.wanted} others have it"
            return Leave(tablet.row, replica, reason)
    return None


def _worst_first(
    replicas: Sequence[TabletReplica], hosts: Mapping[str, HostState], limits: RepairLimits
) -> list[TabletReplica]:
    return sorted(replicas, key=lambda one: (not is_lost(one, hosts), why_bad(one, hosts, limits) is None, one.host))


def is_healthy(tablet: TabletState, hosts: Mapping[str, HostState], limits: RepairLimits) -> bool:
    """Whether a tablet has exactly the replicas that it is to have, as far as its row tells: no step is due."""
    return (
        len(tablet.replicas) == tablet.wanted
        and all(one.is_voter and why_bad(one, hosts, limits) is None for one in tablet.replicas)
        and not missing_chosen(tablet, hosts, limits)
    )


def plan_repair(tablets: Sequence[TabletState], hosts: Mapping[str, HostState], limits: RepairLimits) -> list[Step]:
    """The next step of each tablet that has one. At most ``joins_max`` replicas join at once; tablets with the fewest
    voters in sync come first. A join counts in the loads by which the next one chooses its host.
    """
    loads = Loads.of(hosts)
    keeps = kept_by_row(tablets, hosts, loads, limits)
    joining = sum(not one.is_voter and one.host in keeps[tablet.row] for tablet in tablets for one in tablet.replicas)
    steps: list[Step] = []
    for tablet in sorted(tablets, key=lambda one: (spare_copies(one, hosts), one.row)):
        step = next_step(tablet, hosts, loads, limits, keeps[tablet.row], joining < limits.joins_max)
        if step is None:
            continue
        if isinstance(step, Join):
            joining += 1
            loads = loads.plus(step.host, loads.weight(tablet))
        steps.append(step)
    return steps


def leaving_by_row(
    tablets: Sequence[TabletState], hosts: Mapping[str, HostState], limits: RepairLimits
) -> dict[bytes, Set[str]]:
    """By row, the hosts whose replica does not vote and goes once enough others do. Its cell says that it joins."""
    keeps = kept_by_row(tablets, hosts, Loads.of(hosts), limits)
    gone = {
        tablet.row: {one.host for one in tablet.replicas if not one.is_voter and one.host not in keeps[tablet.row]}
        for tablet in tablets
    }
    return {row: names for row, names in gone.items() if names}


def spare_copies(tablet: TabletState, hosts: Mapping[str, HostState]) -> int:
    """How many voters in sync a tablet can lose."""
    return sum(is_in_sync(one, tablet, hosts) for one in tablet.replicas) - tablet.copies_needed
