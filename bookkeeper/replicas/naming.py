"""Which state a leader may write into the books as the tablet's: ``tablet:flush``."""

from __future__ import annotations

from bookkeeper.replicas.chain import files_of, live_chain
from bookkeeper.replicas.events import NameDue
from bookkeeper.replicas.instructions import Decision, Name
from bookkeeper.replicas.placements import Phase, TabletRow
from bookkeeper.replicas.rules import Rules
from bookkeeper.replicas.values import Entry, Placement, Replica, has_positions, import_source, is_acked

UNLIMITED = 2**63 - 1
"""The offset up to which peers may have a log that no tablet holds back."""


def holders_of(replica: Replica, state_id: int, voters: tuple[Placement, ...], rules: Rules) -> tuple[Placement, ...]:
    """The voters that hold each file of a leader's state, durably: the leader, unless a file is damaged here, and those
    that said so.
    """
    entry = replica.held(state_id)
    is_sound = replica.damaged.isdisjoint(files_of(replica, state_id, rules))
    return tuple(
        voter
        for voter in voters
        if (is_sound if voter == replica.placement else is_acked(entry, voter, rules.p10_incarnation))
    )


def may_name(replica: Replica, entry: Entry, event: NameDue, rules: Rules) -> bool:
    """Whether a state may be named: it has what the term has replayed (N1), and enough copies exist (N3)."""
    if rules.n1_name_what_was_replayed and not has_positions(entry.segment.logs, replica.replayed):
        return False
    return (
        not rules.n3_copies_min or len(holders_of(replica, entry.segment.id, event.voters, rules)) >= event.copies_min
    )


def name_due(replica: Replica, event: NameDue, rules: Rules) -> tuple[Replica, Decision]:
    """Name the newest state of the chain that may be named and is above the named one. Only a leader names."""
    if not replica.is_leader:
        return replica, ()
    for segment in live_chain(replica, rules):
        if event.named_id is not None and segment.id <= event.named_id:
            break
        if may_name(replica, replica.held(segment.id), event, rules):
            return replica, (Name(segment.id, files_of(replica, segment.id, rules), segment.logs, replica.led),)
    return replica, ()


def settled(row: TabletRow, named: Name | None) -> Name | None:
    """The named state, if the newest term has named it.

    A late name of an older term may lie beside the chain of the newest one, which began from the state in front of it.
    """
    return named if named is not None and named.term == row.term else None


def has_import(row: TabletRow, named: Name | None, number: int) -> bool:
    """Whether an import has ended: a state that the newest term has named has it."""
    state = settled(row, named)
    if state is None or row.phase is Phase.LOADING:
        return False
    return has_positions(state.logs, ((import_source(number), 1),))


def shippable(end: int, named: int, is_on_host: bool) -> int:
    """Rule R15: up to which offset of a log a peer may get a tablet's records: never more than what is as durable as
    the table asks. ``named`` is the offset up to which the tablet's named state has them, 0 = none.

    A log on a shared Volume is durable to its end; one on a host's own disk only as far as a named state has it.
    """
    return min(end, named) if is_on_host else end
