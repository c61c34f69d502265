"""Fault switches of replication by several paths (see ``faults``)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from bookkeeper import origins
from bookkeeper.master.origins import origin_books, origin_index, origin_termination
from bookkeeper.master.origins.origin_books import recipient_puts as _recipient_puts
from bookkeeper.master.origins.origin_service import OriginService
from bookkeeper.metadata import keys, values
from bookkeeper.model import RowRange
from bookkeeper.origins import Part, Root, RootIntervals, Runs
from bookkeeper.replay.stream import message_origins, segment_transfer
from bookkeeper.storage.wal.blocks.block_origins import Claim
from bookkeeper.tserver.bulk import bulk_loader
from bookkeeper.tserver.origins import origin_dedup, origin_marks
from bookkeeper.tserver.origins.origin_dedup import origins_of_header as _header_descent
from bookkeeper.tserver.origins.origin_marks import OriginMarks
from bookkeeper.tserver.tablets import load_plan
from bookkeeper.tserver.tablets.origin_intervals import OriginIntervals
from tests.support.replacement import Fault


def up_to_here(claim: Claim, held: RootIntervals) -> Part:
    """All records up to the last one count as taken, as with a high-water."""
    del held
    return Part(claim.part.rows, None, Runs.of((1, claim.part.runs.last)))


def one_for_all_rows(tablets: Iterable[Mapping[Root, RootIntervals]]) -> dict[Root, RootIntervals]:
    """The records that one of the merged tablets has count for the rows of all."""
    joined: dict[Root, RootIntervals] = {}
    for tablet in tablets:
        for root, held in tablet.items():
            for part in held.parts:
                whole = replace(part, rows=RowRange(None, None))
                joined[root] = joined.get(root, RootIntervals()).taking(whole, held.last_ms)
    return joined


PATH_FAULTS: dict[str, Fault] = {
    "paths-are-not-compared": Fault(
        origin_dedup.known_records,
        lambda block, block_origins, look: None,  # noqa: ARG005
        "R22: a record that comes by two paths is applied twice",
    ),
    "high-water-for-all-paths": Fault(
        origin_dedup.closed_gaps,
        up_to_here,
        "R22: records that one path left out and another one brings are lost",
    ),
    "files-begin-where-they-were-relayed": Fault(
        segment_transfer.root_in,
        lambda header: None,  # noqa: ARG005
        "R22: a relayed file counts as another file than the one that its origin sends",
    ),
    "enabled-since-ever": Fault(
        message_origins.taken_since,
        lambda since, current: 1,  # noqa: ARG005
        "R22: records that were written while a path was disabled count as brought by it",
    ),
    "path-passes-what-is-set-aside": Fault(
        message_origins.taken_since,
        lambda since, current: since,  # noqa: ARG005
        "R22: a quarantined range of one path counts as brought by it",
    ),
    "crash-forgets-the-paths": Fault(
        load_plan.add_claims,
        lambda held, header, own: None,  # noqa: ARG005
        "R22: after a crash, a tablet takes the records of one path again from another",
    ),
    "flushes-forget-the-paths": Fault(
        OriginIntervals.applied,
        lambda self: {},  # noqa: ARG005
        "R22: a tablet that was flushed and loaded takes records again that came by another path",
    ),
    "merged-rows-hold-the-same": Fault(
        origins.joined_roots,
        one_for_all_rows,
        "R22: the records that one of the merged tablets has from a path count for all of them",
    ),
    "parts-of-the-same-rows-stay-apart": Fault(
        origins.joined_parts,
        lambda parts: parts,
        "R22: of two parts that a split left with the same rows, the next one that is taken drops one",
    ),
    "blocks-hold-all-they-claim": Fault(
        origin_dedup.origins_of_header,
        lambda taken, stream, travels: _header_descent(replace(taken, partial=False), stream, travels),
        "R22: a cluster behind this one counts records as brought that came here in other blocks",
    ),
    "files-say-nothing-to-other-paths": Fault(
        bulk_loader.with_origins,
        lambda state, request, families: state,  # noqa: ARG005
        "R22: a tablet that took a file takes its records again from a relaying cluster",
    ),
    "paths-are-forgotten-at-once": Fault(
        origin_termination.is_over,
        lambda log, said, is_wait_over: True,  # noqa: ARG005
        "R22: records of a slow path are applied again when the fast path has ended",
    ),
    "clusters-are-read-once": Fault(
        origin_termination.has_answered,
        lambda about, streams: about is not None,  # noqa: ARG005
        "R22: a record that moves on while clusters are asked one after another is missed",
    ),
    "senders-are-not-remembered": Fault(
        origin_marks.marks_of,
        lambda sender: {keys.ROOT_HERE: values.EMPTY},  # noqa: ARG005
        "R22: a cluster does not answer the relays that brought it records, and remembers the log for ever",
    ),
    "relays-end-any-log": Fault(
        origin_books.may_end,
        lambda log, row, asking: True,  # noqa: ARG005
        "R22: a relay ends a log that its own cluster's slow path still brings: records are taken twice",
    ),
    "any-cluster-ends-a-log": Fault(
        origin_books.may_ask_about,
        lambda log, row, asking, own_instance_id: True,  # noqa: ARG005
        "R22: a peer ends a log that another peer's slow path still brings: records are taken twice",
    ),
    "a-cluster-with-records-may-be-over": Fault(
        origin_termination.owes_records,
        lambda said, log: False,  # noqa: ARG005
        "R22: a log is called over while a cluster still hands records of it on",
    ),
    "a-receiving-cluster-may-be-over": Fault(
        origin_termination.is_under_way,
        lambda said, log: False,  # noqa: ARG005
        "R22: a log is called over while a message of it waits in a process that was stopped",
    ),
    "received-records-are-not-owed": Fault(
        origin_index.handed_on,
        lambda header: frozenset(),  # noqa: ARG005
        "R22: a relaying cluster says that it owes no record while its log waits for the next cluster",
    ),
    "recipients-are-not-recorded": Fault(
        origin_books.recipient_puts,
        lambda own, origin_index, instances, rows: _recipient_puts(own, (), instances, rows),  # noqa: ARG005
        "R22: a cluster that got records only through others is never told that their log is over",
    ),
    "logs-are-not-announced": Fault(
        OriginMarks.announce,
        lambda self, logs, sender: None,  # noqa: ARG005
        "R22: a tablet that is loaded again counts a log as over whose records it remembers",
    ),
    "asking-is-not-heard": Fault(
        OriginService._record_question,
        lambda self, rows: None,  # noqa: ARG005
        "R22: a log that clusters still ask about is forgotten by time",
    ),
    "loading-keeps-what-is-over": Fault(
        origin_marks.ended_logs,
        lambda held, announced: set(),  # noqa: ARG005
        "R22: a log that ended while its tablet was not served is remembered for ever",
    ),
}
