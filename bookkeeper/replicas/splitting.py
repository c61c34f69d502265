"""Splits: who may begin one, when it ends, and when a replica of the parent may go (E-55 to E-66)."""

from __future__ import annotations

from dataclasses import replace

from bookkeeper.replicas.chain import entries_to_send
from bookkeeper.replicas.placements import Phase, TabletRow
from bookkeeper.replicas.rules import Rules
from bookkeeper.replicas.values import KeyRange, Placement, ProtocolError, Replica, Stage, is_acked


def split_begun(row: TabletRow, leader: Replica, at: str) -> tuple[TabletRow, KeyRange, KeyRange]:
    """SPLIT: the parent splits at a key; with the ranges of both children. Only the leader begins it (E-57)."""
    if not leader.is_leader:
        raise ProtocolError(f"{leader.host} does not lead tablet {row.tablet}: only the leader begins a split")
    if row.phase is not Phase.SERVING:
        raise ProtocolError(f"tablet {row.tablet} is {row.phase.value}: wait until it serves, then split it")
    if not row.key_range.has(at) or at == row.key_range.begin:
        raise ProtocolError(f"tablet {row.tablet} can't split at {at!r}: name a key inside its range")
    low, high = KeyRange(row.key_range.begin, at), KeyRange(at, row.key_range.end)
    return replace(row, phase=Phase.SPLITTING, split_head=leader.root), low, high


def lacking_targets(leader: Replica, head: int | None, children: tuple[Placement, ...], rules: Rules) -> list[str]:
    """The placements of child leaders that have not confirmed each segment up to the head.

    Segments that come after the head do not put off the end of the split (E-62).
    """
    entries = entries_to_send(leader, rules)
    ids = [entry.segment.id for entry in entries]
    needed = entries[: ids.index(head) + 1] if head in ids else entries

    def has_all(child: Placement) -> bool:
        return all(is_acked(entry, child, rules.p10_incarnation) for entry in needed)

    return [child.id for child in children if not has_all(child)]


def may_finalize_split(leader: Replica, head: int | None, children: tuple[Placement, ...], rules: Rules) -> bool:
    """The split gate: all new leaders have confirmed (E-61)."""
    return not lacking_targets(leader, head, children, rules)


def split_finalized(row: TabletRow) -> TabletRow:
    """SPLIT_FINALIZE: the children serve, and the parent's replicas go into UNLOAD (E-64). May be repeated."""
    if row.phase is Phase.SERVING:
        raise ProtocolError(f"tablet {row.tablet} does not split: begin a split first")
    return replace(row, phase=Phase.SPLIT, leader=None)


def travels(row_count: int, rules: Rules) -> bool:
    """Whether a segment goes to a child: also one without rows in the child's range, for it is in the chain (P14)."""
    return row_count > 0 or rules.p14_send_empty


def may_drop_parent(replica: Replica, child_copies: tuple[int, ...], child_copies_min: int, rules: Rules) -> bool:
    """Whether a replica of the parent may go: it is in UNLOAD_FINAL, and each child's leader has its copies (P7)."""
    if replica.stage is not Stage.UNLOAD_FINAL:
        return False
    return not rules.p7_unload_to_leader or all(copies >= child_copies_min for copies in child_copies)
