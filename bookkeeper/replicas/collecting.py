"""What a host may delete: to the letter by weak references, corrected by what the books name (N4)."""

from __future__ import annotations

from collections.abc import Collection

from msgspec.structs import replace

from bookkeeper.replicas.chain import files_of, is_reference_weak, is_referenced, live_chain
from bookkeeper.replicas.events import Collect
from bookkeeper.replicas.instructions import Decision, Delete, Instruction
from bookkeeper.replicas.receiving import is_covered, merged
from bookkeeper.replicas.rules import Rules
from bookkeeper.replicas.values import (
    Entry,
    ProtocolError,
    Replica,
    is_acked,
    term_of,
    with_ack,
    without_entry,
)


def leader_run(replica: Replica, rules: Rules) -> tuple[Replica, Decision]:
    """The leader's own list, from old to new: delete the weak, merge and delete the unreferenced (E-33).

    By N4 the leader deletes nothing here, and by N6 it merges only what its term has not replayed.
    """
    if not replica.is_leader:
        raise ProtocolError(f"{replica.host} does not lead: a follower deletes in its own procedure")
    done: list[Instruction] = []
    for entry in replica.entries:
        segment = entry.segment
        if is_referenced(replica, segment.id, rules):
            if not rules.n4_books_release and is_reference_weak(replica, segment.id, rules):
                replica, then = _without(replica, entry)
                done += then
        elif rules.n4_books_release:
            if not is_covered(replica, segment, rules) and replica.placement not in entry.acked:
                replica, then = merged(replica, segment, rules)
                replica = with_ack(replica, segment.id, replica.placement)
                done += then
        else:
            replica, then = merged(replica, segment, rules)
            done += then
            replica, then = _without(replica, entry)
            done += then
    return replica, tuple(done)


def _without(replica: Replica, entry: Entry) -> tuple[Replica, Decision]:
    before = replica.files
    replica = without_entry(replica, entry.segment.id)
    gone = tuple(sorted(before - replica.files))
    return replica, (Delete(gone),) if gone else ()


def kept_entries(replica: Replica, event: Collect, rules: Rules) -> tuple[Entry, ...]:
    """The entries that stay: those of the chain, those that a later name may need, and those that still have to be
    merged because their term's log was given up.
    """
    on_chain = {segment.id for segment in live_chain(replica, rules)}
    leader = next((target.placement for target in replica.targets if target.host == replica.leader), None)
    leader = replica.placement if replica.is_leader else leader

    def stays(entry: Entry) -> bool:
        if entry.segment.id in on_chain:
            return True
        if not rules.n4_books_release:
            return False
        if event.named_id is None or entry.segment.id >= event.named_id:
            return True
        is_open = term_of(entry.segment.id) in event.given_up
        return is_open and (leader is None or not is_acked(entry, leader, rules.p10_incarnation))

    return tuple(entry for entry in replica.entries if stays(entry))


def collect(replica: Replica, event: Collect, rules: Rules) -> tuple[Replica, Decision]:
    """Delete each file that the newest named state does not list, that this host's root does not list, that no entry
    with a higher id needs, and that no page reads (N4, P15). Entries without a use go, too.
    """
    if rules.n4_books_release and event.named_id is None:
        return replica, ()
    entries = kept_entries(replica, event, rules)
    kept = set(files_of(replica, replica.root, rules))
    kept.update(name for one in replica.incoming for name in one.segment.list)
    kept.update(name for entry in entries for name in entry.segment.files)
    if rules.n4_books_release:
        kept.update(event.named_list)
        kept.update(name for entry in entries for name in _listed_above(replica, entry, event, rules))
    if rules.p15_readers_hold:
        kept |= event.read
    gone = tuple(sorted((replica.files | replica.damaged) - kept))
    replica = replace(replica, entries=entries, files=replica.files & kept, damaged=replica.damaged & kept)
    return replica, (Delete(gone),) if gone else ()


def _listed_above(replica: Replica, entry: Entry, event: Collect, rules: Rules) -> tuple[str, ...]:
    """The whole list of a state that may be named later; of an older one only its own files matter."""
    is_later = event.named_id is not None and entry.segment.id > event.named_id
    return files_of(replica, entry.segment.id, rules) if is_later else ()


def may_delete_log(is_sealed: bool, needed_by: Collection[str]) -> bool:
    """Whether a log may go, which several tablets share: nobody writes it, and no tablet and no peer needs it."""
    return is_sealed and not needed_by
