"""Walks of a replica's chain: what its root refers to (E-31, E-32), and the list of files that its root has."""

from __future__ import annotations

from collections.abc import Iterator

from bookkeeper.replicas.rules import Rules
from bookkeeper.replicas.values import Entry, Replica, Segment


def chain(replica: Replica, rules: Rules) -> Iterator[Segment]:
    """The segments from the root down by their bases.

    To the letter, the walk goes through the list from new to old and ends at the first entry off the chain (P2).
    """
    wanted = replica.root
    if rules.p2_walk_by_base:
        known = {entry.segment.id: entry.segment for entry in replica.entries}
        while wanted is not None and wanted in known:
            segment = known.pop(wanted)
            yield segment
            wanted = segment.base
        return
    for entry in reversed(replica.entries):
        if entry.segment.id != wanted:
            return
        yield entry.segment
        wanted = entry.segment.base


def is_referenced(replica: Replica, segment_id: int, rules: Rules) -> bool:
    """Whether the root refers to a segment, or to one into which it was folded (E-31)."""
    return any(segment_id in segment.included or segment.id == segment_id for segment in chain(replica, rules))


def is_reference_weak(replica: Replica, segment_id: int, rules: Rules) -> bool:
    """Whether a segment was folded into another one, or lies below a major, or is not on the chain (E-32)."""
    for segment in chain(replica, rules):
        if segment_id in segment.included:
            return True
        if segment.id == segment_id:
            return False
        if segment.is_major:
            return True
    return True


def live_chain(replica: Replica, rules: Rules) -> tuple[Segment, ...]:
    """The segments that count, newest first: from the root to the newest major."""
    found = []
    for segment in chain(replica, rules):
        found.append(segment)
        if segment.is_major:
            break
    return tuple(found)


def files_of(replica: Replica, segment_id: int | None, rules: Rules) -> tuple[str, ...]:
    """The list of a state: as written in its segment (N2), or computed from the entries that are left."""
    entry = replica.entry(segment_id)
    if entry is None:
        return ()
    if rules.n2_list_is_written:
        return entry.segment.list
    found: list[str] = []
    wanted: int | None = entry.segment.id
    known = {held.segment.id: held.segment for held in replica.entries}
    while wanted is not None and wanted in known:
        segment = known.pop(wanted)
        found[:0] = segment.list if segment.is_major else segment.files
        if segment.is_major:
            break
        wanted = segment.base
    return tuple(dict.fromkeys(found))


def entries_to_send(replica: Replica, rules: Rules) -> tuple[Entry, ...]:
    """The entries that a leader offers, old to new, from the newest major that its root refers to (E-34).

    To the letter, entries off the chain are among them. Without such a major there is nothing to offer.
    """
    if rules.p2_walk_by_base:
        on_chain = {segment.id for segment in live_chain(replica, rules)}
        found = {entry.segment.id: entry for entry in replica.entries if entry.segment.id in on_chain}
        return tuple(found[segment.id] for segment in reversed(live_chain(replica, rules)))
    for index in range(len(replica.entries) - 1, -1, -1):
        segment = replica.entries[index].segment
        if segment.is_major and is_referenced(replica, segment.id, rules):
            return replica.entries[index:]
    return ()
