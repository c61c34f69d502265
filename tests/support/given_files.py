"""Another cluster's import into its table: a log, segments beside it, and both ways of sending them to a tserver."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
from msgspec import Struct

from bookkeeper.bulk.file_holds import put_holds
from bookkeeper.bulk.import_log import ImportLogs
from bookkeeper.bulk.log_segments import SegmentedLog, name_log_segments, read_segmented_log
from bookkeeper.bulk.segment_conversion import SegmentDirectory, convert
from bookkeeper.metadata import keys
from bookkeeper.model import BlockTarget, Extent, StreamKey, TargetKey
from bookkeeper.origins import Root
from bookkeeper.peers.extensions import SegmentTransfer
from bookkeeper.peers.segment_files import missing_parts, offer_of
from bookkeeper.rpc.contract.messages import AdoptRequest, ImportedSegment, OfferAnswer, ReplicateResult
from bookkeeper.storage.tablet.segments.locality_groups import GroupMap
from bookkeeper.storage.tablet.tablet_settings import TabletSettings
from bookkeeper.storage.volume.volume_protocol import Volume
from bookkeeper.storage.wal.blocks.block_pb2 import FileHeader
from bookkeeper.tserver.bulk.segment_offers import files_of, relay_facts_of, segments_by_tablet
from tests.support.tservers import Ground, Node, blocks_of, replicate_request, source_block
from tests.support.volumes import MACHINE, name_at, path_of, root_of

SOURCE = "east-instance"
RECEIVER = "receiver"
"""The session of the tserver to which the files have come, when a test gives the order itself."""
TARGET = TargetKey("west", "1", "7", 1)


class Given(Struct, frozen=True):
    """An import of a cluster elsewhere, to be sent to table 1 of a ground."""

    log: str
    whole: SegmentedLog
    stream: StreamKey
    root: Root | None = None
    provenance: tuple[str, ...] = (SOURCE,)
    volume: Volume = MACHINE

    @property
    def file(self) -> SegmentTransfer:
        """What its cluster says of it."""
        return SegmentTransfer(self.volume, self.provenance, self.whole, self.root)

    # ---- as files

    def offer(self, west: Ground, node: Node) -> tuple[str, OfferAnswer]:
        """A token, and what the tserver says of the whole file."""
        token = west.tserver(node).open_stream(self.stream)
        return token, west.tserver(node).offer_segments(offer_of(token, self.stream, self.file))

    def put(self, west: Ground, node: Node, token: str, held: Sequence[int], part_bytes: int = 1000) -> None:
        """Send the files."""
        for part in missing_parts(token, self.stream, self.file, held, part_bytes):
            west.tserver(node).put_segment(part)

    def send_whole(self, west: Ground, node: Node) -> OfferAnswer:
        """All steps, as long as the peer wants them."""
        token, answer = self.offer(west, node)
        if answer.state != "wanted":
            return answer
        self.put(west, node, token, answer.received_bytes)
        return west.tserver(node).take_segments(token, self.stream)

    def order(self, west: Ground, node: Node, extent: Extent) -> AdoptRequest:
        """The order that a tablet gets when the files have come: they are on its cluster's Volume."""
        west.tserver(node).open_stream(self.stream)
        offer = offer_of("", self.stream, self.file)
        (parts,) = segments_by_tablet(files_of(offer), [extent]).values()
        names = [came(west, path_of(segment.name, root_of(self.volume))) for segment in self.whole.segments]
        put_holds(west.metadata, keys.arrival_column(RECEIVER), names)
        segments = tuple(ImportedSegment(names[number], entry.encode()) for number, entry in parts.items())
        return AdoptRequest(extent, self.stream, segments, through=self.whole.records, relay=relay_facts_of(offer))

    # ---- as records

    def send_records(self, west: Ground, node: Node, upto: int | None = None) -> ReplicateResult:
        """The blocks of the log, or those up to an offset, from its begin."""
        blocks = [source_block(block.first_offset, block.batch()) for block in blocks_of(self.log, self.volume)]
        wanted = [block for block in blocks if upto is None or block.last_offset <= upto]
        token = west.tserver(node).open_stream(self.stream)
        end = wanted[-1].last_offset
        return west.tserver(node).replicate(replicate_request(token, self.stream, 0, 0, end, wanted))


def came(west: Ground, file: Path) -> str:
    """The file in a directory of this cluster, by name."""
    path = west.settings.tables_dir / "came" / file.name
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        path.write_bytes(file.read_bytes())
    return name_at(path, west.settings.directory)


def given_files(
    place: Path,
    batches: Sequence[pa.RecordBatch],
    groups: GroupMap | None = None,
    stamped: tuple[str, ...] | None = None,
) -> Given:
    """An import of these batches, a block and a segment each, for a target of the groups ``stamped`` (None = all)."""
    groups = groups or GroupMap({})
    extent = Extent("7", None, None)
    made = place / "made"
    made.mkdir(parents=True)
    header = FileHeader(instance_id=SOURCE, session_id="import", created_time_ms=9)
    logs = ImportLogs(
        MACHINE, name_at(place / "import"), "name", header, [extent], groups, [BlockTarget(TARGET, stamped)], [""]
    )
    with patch("bookkeeper.bulk.segment_conversion.CHUNK_RECORDS", 1):
        refs = convert(
            batches,
            [extent],
            groups,
            SegmentDirectory(MACHINE, name_at(made), TabletSettings()),
            lambda: None,
            logs.add,
        )
    log = logs.finish()[extent]
    hold = lambda log, files: None  # noqa: ARG005, E731 - no collector runs there
    name_log_segments(MACHINE, hold, log.name, log.offset, refs, groups, logs.lengths)
    whole = read_segmented_log(MACHINE, log.name)
    assert whole is not None
    return Given(log.name, whole, StreamKey(SOURCE, log.name, "7", "1", 1))
