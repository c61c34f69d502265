"""The hosts on which tablets come together before they merge. Pure.

Each plan chooses them again from the rows alone, so no choice has to be remembered. A host of another zone comes first,
then one that has all of the tablets, then one with more of their bytes; so a join makes its host a better choice, and
no later plan undoes it without need. The repair carries the choice out, like that of any operation.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from msgspec.structs import replace

from bookkeeper.master.index.tablet_replicas import replica_on
from bookkeeper.master.replicas.repair_plan import Loads, why_bad, zones_first
from bookkeeper.master.replicas.repair_state import HostState, RepairLimits, TabletState


def is_able(host: HostState, limits: RepairLimits) -> bool:
    """Whether a host may have replicas; one that is away for a short time may."""
    return not host.is_draining and (host.is_alive or host.away_ms <= limits.repair_after_ms)


def meeting_hosts(
    tablets: Sequence[TabletState], hosts: Mapping[str, HostState], limits: RepairLimits
) -> frozenset[str]:
    """The hosts that are to have all of these tablets: as many as each tablet is to have replicas, or all that are
    able, in as many zones as there are.
    """
    loads = Loads.of(hosts)
    good = {
        name: [
            tablet
            for tablet in tablets
            if (one := replica_on(tablet.replicas, name)) is not None and why_bad(one, hosts, limits) is None
        ]
        for name, host in hosts.items()
        if is_able(host, limits)
    }

    def preference(name: str) -> tuple[bool, bool, int, int, float, str]:
        held = good[name]
        lacks_some = len(held) < len(tablets)
        size_bytes = sum(tablet.size_bytes for tablet in held)
        return lacks_some, not hosts[name].is_alive, -size_bytes, -len(held), round(loads.score[name], 9), name

    best = zones_first(sorted(good, key=preference), hosts)
    return frozenset(best[: max(tablet.wanted for tablet in tablets)])


def with_meetings(
    states: Mapping[bytes, TabletState],
    meetings: Collection[Collection[bytes]],
    hosts: Mapping[str, HostState],
    limits: RepairLimits,
) -> dict[bytes, TabletState]:
    """The tablets; those of each meeting have the hosts on which they come together for their chosen ones."""
    found = dict(states)
    for rows in meetings:
        tablets = [states[row] for row in rows if row in states]
        if tablets:
            chosen = meeting_hosts(tablets, hosts, limits)
            found.update((tablet.row, replace(tablet, chosen=chosen)) for tablet in tablets)
    return found
