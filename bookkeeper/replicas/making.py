"""Segments that a replica makes itself: flushes, compactions, and the major that begins a term."""

from __future__ import annotations

from msgspec.structs import replace

from bookkeeper.replicas.chain import files_of, live_chain
from bookkeeper.replicas.events import Adopted, Compacted, Flushed
from bookkeeper.replicas.rules import Rules
from bookkeeper.replicas.values import (
    Entry,
    Positions,
    ProtocolError,
    Replica,
    Segment,
    Stage,
    has_positions,
    import_source,
    joined_positions,
    state_id,
)


def next_id(replica: Replica) -> int:
    """The id of the next segment that this replica makes."""
    return state_id(replica.led, replica.made)


def appended(replica: Replica, segment: Segment) -> Replica:
    """The replica after it made a segment: files, entry, root, in this order (E-13)."""
    return replace(
        replica,
        files=replica.files | set(segment.files),
        entries=(*replica.entries, Entry(segment)),
        root=segment.id,
        made=replica.made + 1,
    )


def flushed(replica: Replica, event: Flushed, rules: Rules) -> Replica:
    """Memory becomes a segment on the root (E-2, E-13). The first one has no base and is major (E-14)."""
    if replica.stage in (Stage.UNLOAD, Stage.UNLOAD_FINAL) and not replica.has_memory:
        raise ProtocolError(f"{replica.host} is in {replica.stage.value} and has no memory to flush")
    segment = Segment(
        id=next_id(replica) if event.segment_id is None else event.segment_id,
        base=replica.root,
        is_major=replica.root is None,
        files=event.files,
        retained=files_of(replica, replica.root, rules) if rules.n2_list_is_written else (),
        logs=event.logs,
    )
    return replace(appended(replica, segment), has_memory=False)


def adopted(replica: Replica, event: Adopted, rules: Rules) -> Replica:
    """The leader takes the files of an import as a segment on its root; memory stays. A state has an import once.

    While a parent still hands its data on, the import waits: the parent may have taken it.
    """
    if not replica.is_leader or replica.stage is not Stage.LIVE:
        raise ProtocolError(f"{replica.host} can't take import {event.number}: offer it to the leader of a LIVE tablet")
    base = replica.entry(replica.root)
    logs: Positions = base.segment.logs if base is not None else ()
    source = ((import_source(event.number), 1),)
    if has_positions(joined_positions(logs, replica.replayed), source):
        return replica
    segment = Segment(
        id=next_id(replica) if event.segment_id is None else event.segment_id,
        base=replica.root,
        is_major=replica.root is None,
        files=event.files,
        retained=files_of(replica, replica.root, rules) if rules.n2_list_is_written else (),
        logs=joined_positions(logs, source),
    )
    return appended(replica, segment)


def history(replica: Replica, inputs: tuple[Segment, ...], rules: Rules) -> tuple[int, ...]:
    """The ids that a major lists as folded: its inputs, what they list (P12), what was merged (P3); newest first."""
    found = [segment.id for segment in inputs]
    if rules.p3_merged_in_majors:
        found += replica.merged
    if rules.p12_transitive_history:
        found += [folded for segment in inputs for folded in segment.included]
    return tuple(dict.fromkeys(found))[: rules.max_history]


def compacted(replica: Replica, event: Compacted, rules: Rules) -> Replica:
    """Segments of the chain become a major (E-15, E-16). The leader alone compacts (E-18); old files stay (E-17)."""
    if not replica.is_leader:
        raise ProtocolError(f"{replica.host} does not lead: only the leader compacts")
    inputs = tuple(segment for segment in live_chain(replica, rules) if segment.id in event.inputs)
    if not inputs or len(inputs) != len(set(event.inputs)):
        raise ProtocolError(f"{replica.host} can compact only segments from its root down to the newest major")
    if not (rules.n2_list_is_written or inputs[-1] is live_chain(replica, rules)[-1]):
        raise ProtocolError(f"{replica.host} needs a list of files for each state, to leave its oldest segments out")
    base = replica.root if rules.p11_base_is_root else inputs[0].id
    folded = _folded(inputs) if event.replaced is None else set(event.replaced)
    lacking = sorted(folded - set(files_of(replica, base, rules))) if event.replaced is not None else []
    if lacking:
        raise ProtocolError(f"{replica.host} can't replace {lacking[0]}: its root does not list it")
    segment = Segment(
        id=next_id(replica) if event.segment_id is None else event.segment_id,
        base=base,
        is_major=True,
        included=history(replica, inputs, rules),
        files=event.files,
        retained=tuple(name for name in files_of(replica, base, rules) if name not in folded),
        logs=replica.held(base).segment.logs if base is not None else (),
    )
    return replace(appended(replica, segment), merged=())


def _folded(inputs: tuple[Segment, ...]) -> set[str]:
    """All files that compacted segments brought or took over."""
    retained = inputs[-1].retained if inputs[-1].is_major else ()
    return {name for segment in inputs for name in segment.files} | set(retained)


def with_empty_major(replica: Replica, rules: Rules) -> Replica:
    """The replica with a major without files on its root: it begins a term (N5) or ends a livelock (P1).

    Without memory its list has all that the term has replayed, so the major says so.
    """
    base = replica.entry(replica.root)
    logs: Positions = base.segment.logs if base is not None else ()
    if not (replica.has_memory or has_positions(logs, replica.replayed)):
        logs = joined_positions(logs, replica.replayed)
    included = live_chain(replica, rules)
    segment = Segment(
        id=next_id(replica),
        base=replica.root,
        is_major=True,
        included=history(replica, included, rules),
        retained=files_of(replica, replica.root, rules),
        logs=logs,
    )
    return replace(appended(replica, segment), merged=())


def may_forget_deletes(replica: Replica, taken: tuple[int, ...], awaits_older: bool, rules: Rules) -> bool:
    """Whether a compaction may drop deletes (P17): ``taken`` has, for each placement that is not removed, the term
    of the newest state that it took; ``awaits_older`` says whether a given-up log is open, or a tablet that split
    still hands its data on. An older segment that a merge applies could bring deleted rows back.
    """
    if not rules.p17_deletes_outlive:
        return True
    return not awaits_older and all(term >= replica.led for term in taken)
