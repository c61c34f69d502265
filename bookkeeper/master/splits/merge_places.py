"""Whether tablets with replicas may merge: they are on the same hosts, and enough of these hold their data. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from bookkeeper.master.index.snapshot import TabletView
from bookkeeper.master.index.tablet_replicas import TabletReplica, replica_on, voters
from bookkeeper.rpc.contract.messages import HeldReplicaInfo


def why_apart(tablets: Sequence[TabletView]) -> str:
    """Why the voters of these tablets are not on the same hosts; empty = they are. A replica that joins or is about to
    leave does not matter: it counts as no copy, and gets its data from the leader of the merged tablet.
    """
    first = tablets[0]
    for tablet in tablets[1:]:
        if _disks(tablet) != _disks(first):
            return (
                f"tablet {first.extent} is on {_hosts(first)} and tablet {tablet.extent} on {_hosts(tablet)}: "
                "replicas are copied"
            )
    return ""


def _disks(tablet: TabletView) -> set[tuple[str, str]]:
    return {(one.host, one.cell.incarnation) for one in voters(tablet.replicas)}


def _hosts(tablet: TabletView) -> str:
    return ", ".join(one.host for one in voters(tablet.replicas))


def has_named_state(tablet: TabletView, replica: TabletReplica, held: Iterable[HeldReplicaInfo]) -> bool:
    """Whether a host holds each file of the state that the books name, by what it says about itself."""
    cell = replica.cell
    return tablet.flush_rank == 0 or any(
        (one.extent.table_id, one.directory) == (tablet.extent.table_id, tablet.directory)
        and (one.placement.placement, one.placement.incarnation) == (cell.placement, cell.incarnation)
        and tablet.flush_rank in one.complete
        for one in held
    )


def hosts_with_all(tablets: Sequence[TabletView], held: Mapping[str, Collection[HeldReplicaInfo]]) -> list[str]:
    """The hosts that hold the named state of each tablet: so many copies the merged tablet has at once (N3)."""
    return [
        host
        for host, infos in sorted(held.items())
        if all(
            (one := replica_on(voters(tablet.replicas), host)) is not None and has_named_state(tablet, one, infos)
            for tablet in tablets
        )
    ]
