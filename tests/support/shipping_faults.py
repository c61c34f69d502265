"""Fault switches of workers, shipping and replica systems (see ``faults``)."""

from __future__ import annotations

from collections.abc import Collection

from msgspec.structs import replace

from bookkeeper.model import BlockTarget
from bookkeeper.peers import bookkeeper
from bookkeeper.peers.parquet import file_store, layout
from bookkeeper.peers.parquet.layout import first_run as _first_run
from bookkeeper.peers.parquet.system import ParquetSession
from bookkeeper.replay import progress, slots
from bookkeeper.replay.stream import block_stream, filters, segment_transfer
from bookkeeper.replay.stream.block_stream import RangeStream
from bookkeeper.replay.stream.filters import WHOLE
from bookkeeper.tserver.receive import slice_retry
from bookkeeper.tserver.shipping import worker_books, worker_plan
from bookkeeper.tserver.shipping.worker_plan import StreamProgress
from bookkeeper.tserver.shipping.worker_plan import range_to_ship as _range_to_ship
from tests.support.replacement import Fault

_take_answer = RangeStream._take_answer


def take_fact_blindly(session: ParquetSession, acked_offset: int) -> None:
    """Continue behind an acknowledged offset without reading the records of other senders."""
    session.covered_offset, session.has_read_files = max(session.covered_offset, acked_offset), True


def settle_the_newest(stream: RangeStream) -> None:
    """Take the answer to the newest message as if no other message were in flight."""
    stream._in_flight.rotate(1)
    _take_answer(stream)


def _would_loop_with_its_file(
    provenance: Collection[str],
    peer_instance_id: str,
    seen: set[str] = set(),  # noqa: B006
) -> bool:
    """The provenance of one block counts for all later blocks."""
    seen.update(provenance)
    return peer_instance_id in seen


SHIPPING_FAULTS: dict[str, Fault] = {
    "today's-configuration-counts": Fault(
        filters.block_target_for,
        lambda header, target: BlockTarget(target, None),  # noqa: ARG005
        "R13: a block that was written before its target was enabled is shipped",
    ),
    "tablets-are-not-waited-for": Fault(
        slice_retry.is_away,
        lambda error: False,  # noqa: ARG005
        "a killed tserver makes peers send whole messages again, for the shares of its tablets",
    ),
    "progress-is-not-remembered": Fault(
        progress.missing_part,
        lambda r, acked: r,  # noqa: ARG005
        "after a tserver is killed, the next worker ships the records of the last run again",
    ),
    "a-peer-with-less-is-not-believed": Fault(
        progress.is_progress_valid,
        lambda result: True,  # noqa: ARG005
        "R19: records that a peer lost in a restore are never sent again",
    ),
    "streams-have-two-senders": Fault(
        progress.is_free,
        lambda shipping, streams: True,  # noqa: ARG005
        "two runs send the same records at the same time",
    ),
    "incarnations-are-one": Fault(
        filters.block_target_for,
        lambda header, target: next(
            (BlockTarget(target, None) for s in header.block_targets if s.cluster == target.cluster), None
        ),
        "R5: a target that was disabled and enabled again gets records of its earlier incarnation",
    ),
    "files-for-every-target": Fault(
        segment_transfer.wanted_segments,
        lambda r, whole, header: whole.segments,  # noqa: ARG005
        "R13: a target gets groups, or whole imports, that are not for it",
    ),
    "loop-not-seen": Fault(
        filters.would_loop,
        lambda provenance, peer_instance_id: False,  # noqa: ARG005
        "R21: data is sent to a cluster that it has passed",
    ),
    "provenance-is-the-file's": Fault(
        filters.would_loop,
        _would_loop_with_its_file,
        "R21: a cluster's own writes stop travelling once something of the peer lies in the same log",
    ),
    "groups-ignored": Fault(
        filters.decision_of,
        lambda groups, block_target: WHOLE,  # noqa: ARG005
        "R13: groups that are not replicated travel",
    ),
    "sender-leaves-no-trace": Fault(
        filters.provenance_for,
        lambda header, own_instance_id: tuple(header.provenance),  # noqa: ARG005
        "R21: the sender is missing in the provenance, and its data comes back",
    ),
    "hole-behind-the-fact": Fault(
        block_stream.starts_behind,
        lambda current, acked: True,  # noqa: ARG005
        "R19: a range is shipped while records before it are missing",
    ),
    "answers-count-as-they-come": Fault(
        RangeStream._take_answer,
        settle_the_newest,
        "R19: a message is acknowledged, one in front of it never was, and counts as acknowledged, too",
    ),
    "any-cluster-will-do": Fault(
        bookkeeper.expect_instance,
        lambda peer, address, hello: None,  # noqa: ARG005
        "R23: data goes to any server that answers at the address",
    ),
    "sent-counts-as-finished": Fault(
        worker_plan.advance,
        lambda progress, result: StreamProgress(progress.offset + 10, progress.offset + 10, 1),  # noqa: ARG005
        "L2: finished is written before the peer has acknowledged, and the file goes",
    ),
    "shipped-past-the-range": Fault(
        worker_plan.range_to_ship,
        lambda queued, progress, range_id, own: replace(_range_to_ship(queued, progress, range_id, own), last=10**6),
        "R15, R24: records are shipped that are not synced, or before their barrier",
    ),
    "finished-without-rank": Fault(
        worker_books.finished_rank,
        lambda progress: 1,  # noqa: ARG005
        "a worker that lost its work turns the finished offset back",
    ),
    "dead-peers-take-all-slots": Fault(
        slots.grant,
        lambda total, per_peer, held, suspects, peer, wanted: max(  # noqa: ARG005
            0, min(wanted, per_peer - held.get(peer, 0), total - sum(held.values()))
        ),
        "an offline peer delays another",
    ),
    "runs-wait-for-other-tservers": Fault(
        slots.grant,
        lambda total, per_peer, held, suspects, peer, wanted: max(  # noqa: ARG005
            0, min(wanted, per_peer - held.get(peer, 0), total - sum(held.values()))
        ),
        "of three tservers on two cores one ships nothing while the others do",
    ),
    "names-are-used-twice": Fault(
        file_store.take_name,
        lambda temporary, target, ops: temporary.replace(target) is not None,  # noqa: ARG005
        "R18: of two writers of a name in a change log the last one wins",
    ),
    "present-records-are-not-read": Fault(
        ParquetSession._covered,
        lambda self, directory: 0,  # noqa: ARG005
        "R18: a sender takes the change log for empty of its stream",
    ),
    "facts-are-not-verified": Fault(
        ParquetSession._take_fact,
        take_fact_blindly,
        "R18: a sender that learns of other senders does not read their records in the change log",
    ),
    "runs-where-the-last-writer-wins": Fault(
        layout.first_run,
        lambda parts, to_offset, one_block: _first_run(parts, to_offset, False),  # noqa: ARG005
        "R18: two writers of a name in a change log write different records under it",
    ),
}
