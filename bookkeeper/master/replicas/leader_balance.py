"""The balance of leaders: which tablets move to another of their voters, so that all hosts lead about as many. Pure.

A tablet moves only to a voter that holds the leader's newest state, so no segment crosses the network; it is away for
the time of a flush and a load. Where no tablet of the busiest host can go to the idlest one, several tablets move along
a chain of hosts: each host between the two ends gives one away and gets one.

Each chain makes two hosts more even and changes no other, so the sum of the squared loads falls, and no leader comes
back. A tablet moves at most once in ``lead_min_ms``, also when its new host refuses it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise

from bookkeeper.master.index.tablet_replicas import replica_on
from bookkeeper.master.replicas.repair_plan import has_newest, is_in_sync, why_bad
from bookkeeper.master.replicas.repair_state import HostState, Lead, RepairLimits, TabletState

SLACK = 0.1
"""Part of the mean by which two hosts may differ in the tablets that they lead."""

MOVES_MAX = 8
"""Leaders that move at once, but for the rest of a chain."""

Ways = dict[str, dict[str, TabletState]]
"""Host to the hosts that a tablet of it may move to, each with one such tablet."""


def plan_leaders(tablets: Sequence[TabletState], hosts: Mapping[str, HostState], limits: RepairLimits) -> list[Lead]:
    """Moves from the hosts that lead the most tablets to those that lead the fewest, where their voters allow it. None
    while a replica joins: its tablet may get another leader for the end of that.
    """
    able = sorted(name for name, host in hosts.items() if host.is_alive and not host.is_draining)
    leads = Counter(tablet.leader for tablet in tablets if tablet.leader in able)
    loads = {name: leads[name] for name in able}
    if not all(one.is_voter for tablet in tablets for one in tablet.replicas):
        return []
    movable = [tablet for tablet in tablets if may_move(tablet, limits)]
    moves: dict[bytes, Lead] = {}
    while loads and len(moves) < MOVES_MAX and max(loads.values()) - min(loads.values()) > _least_gap(loads):
        ways = _ways([tablet for tablet in movable if tablet.row not in moves], hosts, limits)
        chain = _best_chain(loads, ways)
        if not chain:
            break
        for source, target in pairwise(chain):
            tablet = ways[source][target]
            moves[tablet.row] = Lead(tablet.row, target, f"{chain[0]} leads more than its share of the tablets")
        loads[chain[0]] -= 1
        loads[chain[-1]] += 1
    return list(moves.values())


def may_move(tablet: TabletState, limits: RepairLimits) -> bool:
    """Whether the leader of a tablet may change for the balance alone: it has led for some time, so that no tablet goes
    to and fro.
    """
    return tablet.led_ms >= limits.lead_min_ms


def may_take(tablet: TabletState, host: str, hosts: Mapping[str, HostState], limits: RepairLimits) -> bool:
    """Whether a host can lead a tablet at once: a good voter that holds the named and the newest state."""
    replica = replica_on(tablet.replicas, host)
    return (
        replica is not None
        and why_bad(replica, hosts, limits) is None
        and is_in_sync(replica, tablet, hosts)
        and has_newest(replica, tablet, hosts)
    )


def _ways(tablets: Sequence[TabletState], hosts: Mapping[str, HostState], limits: RepairLimits) -> Ways:
    ways: Ways = {}
    for tablet in tablets:
        for replica in tablet.replicas:
            known = ways.setdefault(tablet.leader or "", {})
            host = replica.host
            if host not in known and host != tablet.leader and may_take(tablet, host, hosts, limits):
                known[host] = tablet
    return ways


def _best_chain(loads: Mapping[str, int], ways: Ways) -> list[str]:
    """The hosts of the shortest chain from the busiest host that has one to the idlest host that it can reach; empty
    when all is even enough.
    """
    least_gap = _least_gap(loads)
    for source in sorted(loads, key=lambda name: (-loads[name], name)):
        chains = _chains_from(source, loads, ways)
        ends = [end for end in chains if loads[source] - loads[end] > least_gap]
        if ends:
            return chains[min(ends, key=lambda end: (loads[end], len(chains[end]), end))]
    return []


def _least_gap(loads: Mapping[str, int]) -> float:
    """Two hosts that differ by no more than this are even."""
    return max(1.0, SLACK * sum(loads.values()) / len(loads))


def _chains_from(source: str, loads: Mapping[str, int], ways: Ways) -> dict[str, list[str]]:
    """The shortest chain to each host that can be reached, in breadth-first order."""
    chains = {source: [source]}
    queue = [source]
    for host in queue:  # grows meanwhile
        for target in sorted(ways.get(host, {}), key=lambda name: (loads.get(name, 0), name)):
            if target in loads and target not in chains:
                chains[target] = [*chains[host], target]
                queue.append(target)
    return chains
