"""Which state a leader may write into the books as the tablet's: ``tablet:flush``."""

from __future__ import annotations

from bookkeeper.replicas.chain import files_of, live_chain
from bookkeeper.replicas.events import NameDue
from bookkeeper.replicas.instructions import Decision, Name
from bookkeeper.replicas.rules import Rules
from bookkeeper.replicas.values import Entry, Placement, Replica, has_positions, is_acked


def copies_of(replica: Replica, entry: Entry, voters: tuple[Placement, ...], rules: Rules) -> int:
    """How many of today's voters hold each file of a state's list, durably: the leader, and those that said so."""
    return sum(voter == replica.placement or is_acked(entry, voter, rules.p10_incarnation) for voter in voters)


def may_name(replica: Replica, entry: Entry, event: NameDue, rules: Rules) -> bool:
    """Whether a state may be named: it has what the term has replayed (N1), and enough copies exist (N3)."""
    if rules.n1_name_what_was_replayed and not has_positions(entry.segment.logs, replica.replayed):
        return False
    return not rules.n3_copies_min or copies_of(replica, entry, event.voters, rules) >= event.copies_min


def name_due(replica: Replica, event: NameDue, rules: Rules) -> tuple[Replica, Decision]:
    """Name the newest state of the chain that may be named and is above the named one. Only a leader names."""
    if not replica.is_leader:
        return replica, ()
    for segment in live_chain(replica, rules):
        if event.named_id is not None and segment.id <= event.named_id:
            break
        if may_name(replica, replica.held(segment.id), event, rules):
            return replica, (Name(segment.id, files_of(replica, segment.id, rules), segment.logs),)
    return replica, ()
