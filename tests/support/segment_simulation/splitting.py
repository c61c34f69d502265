"""Splits and merges of the schedules: in place, to other hosts by the letter of the document, and the end of a parent.

A split to other hosts with UNLOAD (E-58 to E-66) is played here alone. Tservers split in place and move the new tablets
by joins and leaves (``master.operations.hosts.replica_moves``).
"""

from __future__ import annotations

from collections.abc import Collection

from msgspec.structs import replace

from bookkeeper.replicas.chain import entries_to_send
from bookkeeper.replicas.instructions import Name
from bookkeeper.replicas.placements import Phase, TabletRow, stage_of
from bookkeeper.replicas.rules import Rules
from bookkeeper.replicas.values import (
    KeyRange,
    Placement,
    ProtocolError,
    Replica,
    Stage,
    has_positions,
    is_acked,
)

Holders = tuple[Placement, ...]


def split_begun(row: TabletRow, leader: Replica, at: str) -> tuple[TabletRow, KeyRange, KeyRange]:
    """SPLIT: the parent splits at a key; with the ranges of both children. Only the leader begins it (E-57)."""
    if not leader.is_leader:
        raise ProtocolError(f"{leader.host} does not lead tablet {row.tablet}: only the leader begins a split")
    low, high = _ranges_at(row, at)
    return replace(row, phase=Phase.SPLITTING, split_head=leader.root), low, high


def _ranges_at(row: TabletRow, at: str) -> tuple[KeyRange, KeyRange]:
    if row.phase is not Phase.SERVING:
        raise ProtocolError(f"tablet {row.tablet} is {row.phase.value}: wait until it serves, then split it")
    if row.parent is not None:
        raise ProtocolError(f"tablet {row.tablet} still takes the data of {row.parent}: wait until that one is gone")
    if not row.key_range.has(at) or at == row.key_range.begin:
        raise ProtocolError(f"tablet {row.tablet} can't split at {at!r}: name a key inside its range")
    return KeyRange(row.key_range.begin, at), KeyRange(at, row.key_range.end)


def lacking_targets(leader: Replica, head: int | None, children: tuple[Placement, ...], rules: Rules) -> list[str]:
    """The placements of child leaders that have not confirmed each segment up to the head.

    Segments that come after the head do not put off the end of the split (E-62). A major that came after the head and
    folded it takes its place.
    """
    needed = []
    for entry in entries_to_send(leader, rules):
        needed.append(entry)
        if head is not None and entry.segment.id >= head:
            break

    def has_all(child: Placement) -> bool:
        return all(is_acked(entry, child, rules.p10_incarnation) for entry in needed)

    return [child.id for child in children if not has_all(child)]


def may_finalize_split(leader: Replica, head: int | None, children: tuple[Placement, ...], rules: Rules) -> bool:
    """The split gate: all new leaders have confirmed (E-61)."""
    return not lacking_targets(leader, head, children, rules)


def closed_at(row: TabletRow, leader: Replica, named: Name | None, given_up: Collection[int]) -> Name:
    """The last state of a tablet that ends: its leader takes no more writes, and the books name all that it has.

    ``given_up`` has the terms of logs that the books still count as given up. So each record of the tablet's logs is in
    this state, and the tablet's row alone decides what becomes of it. Raises ProtocolError: the replica does not lead
    the newest term, or a step has to come first.
    """
    if not leader.is_leader or leader.host != row.leader or leader.led != row.term:
        raise ProtocolError(f"{leader.host} does not lead tablet {row.tablet}: ask the leader of term {row.term}")
    if given_up:
        raise ProtocolError(f"tablet {row.tablet} has a given-up log: wait until its host is back and it is merged")
    if leader.has_memory or named is None or named.state_id != leader.root:
        raise ProtocolError(f"tablet {row.tablet} has more than its named state: flush, replicate and name first")
    return named


def split_in_place(row: TabletRow, at: str, low: str, high: str) -> tuple[TabletRow, TabletRow]:
    """Both children of a split in place: the parent's hosts, under new placement ids; no byte moves.

    The books give each child the parent's last state (:func:`closed_at`), so the first state of a child's leader is a
    major without files.
    """
    below, above = _ranges_at(row, at)
    return _with_hosts_of(row, low, below), _with_hosts_of(row, high, above)


def _with_hosts_of(row: TabletRow, tablet: str, key_range: KeyRange) -> TabletRow:
    replicas = tuple(
        replace(one, placement=Placement(f"{tablet}:{one.placement.id}", one.placement.incarnation))
        for one in row.replicas
    )
    return TabletRow(tablet, replicas, key_range=key_range)


def merged_row(low: TabletRow, high: TabletRow, tablet: str) -> TabletRow:
    """The row of the tablet into which two neighbours merge. Their replicas have to be on the same hosts."""
    ready = all(row.phase is Phase.SERVING and row.parent is None for row in (low, high))
    if not ready or low.key_range.end is None or low.key_range.end != high.key_range.begin:
        raise ProtocolError(f"tablets {low.tablet} and {high.tablet} are no neighbours that serve: they can't merge")
    hosts = [{one.host: (one.role, one.placement.incarnation) for one in row.replicas} for row in (low, high)]
    if hosts[0] != hosts[1]:
        raise ProtocolError(f"tablets {low.tablet} and {high.tablet} are on other hosts: bring them together first")
    return _with_hosts_of(low, tablet, KeyRange(low.key_range.begin, high.key_range.end))


def copies_together(low: TabletRow, high: TabletRow, of_low: Holders, of_high: Holders) -> int:
    """How many hosts hold the last states of both tablets: so many copies the merged tablet has at once (N3)."""
    hosts = [
        {one.host for one in row.replicas if one.placement in held} for row, held in ((low, of_low), (high, of_high))
    ]
    return len(hosts[0] & hosts[1])


def successor_replica(
    held: tuple[Replica, ...], row: TabletRow, host: str, files: frozenset[str], rules: Rules
) -> Replica:
    """The replica of a tablet on a host that held its predecessors: its files are links to theirs, on the same disk.

    A host that was away makes it when it comes back. Files that it lacks come with the first major.
    """
    found = row.replica(host)
    stage = stage_of(row, host, rules)
    if found is None or stage is None:
        raise ProtocolError(
            f"tablet {row.tablet} has no replica on {host}: delete what the host has of its predecessors"
        )
    return Replica(host, found.placement, stage, files=files, term=max(one.term for one in held))


def split_finalized(row: TabletRow) -> TabletRow:
    """SPLIT_FINALIZE: the children serve, and the parent's replicas go into UNLOAD (E-64). May be repeated."""
    if row.phase is Phase.SERVING:
        raise ProtocolError(f"tablet {row.tablet} does not split: begin a split first")
    return replace(row, phase=Phase.SPLIT, leader=None)


def travels(row_count: int, rules: Rules) -> bool:
    """Whether a segment goes to a child: also one without rows in the child's range, for it is in the chain (P14)."""
    return row_count > 0 or rules.p14_send_empty


def may_drop_parent(replica: Replica, final: Name | None, children: tuple[Name | None, ...], rules: Rules) -> bool:
    """Whether a replica of the parent may go: it is in UNLOAD_FINAL, and the books name for each child a state with
    all that the parent's last state has (P7): the children have their copies.
    """
    if replica.stage is not Stage.UNLOAD_FINAL:
        return False
    return not rules.p7_unload_to_leader or is_handed_over(final, children)


def is_handed_over(final: Name | None, children: tuple[Name | None, ...]) -> bool:
    """Whether each child's named state has all that the parent's last state has."""
    return final is None or all(child is not None and has_positions(child.logs, final.logs) for child in children)
