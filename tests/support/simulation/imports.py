"""Imports in a simulated world: real files, real segments and logs, of which the ledger hears when a tablet takes them.

Arrives: logs that imports write, tablets that take files. Leaves: in the ledger, the records of logs that count from
then on, at the places that they have in their tablet, and what came to a tablet as files.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import field
from msgspec.structs import replace

from bookkeeper.bulk.booked_segment import segment_ref
from bookkeeper.master.index.log_files import IMPORT_SESSION
from bookkeeper.metadata import keys
from bookkeeper.metadata.metadata_table import Column
from bookkeeper.metadata.values import FlushState, SegmentEntry
from bookkeeper.model import StreamKey
from bookkeeper.peers.extensions import SegmentTransfer
from bookkeeper.peers.segment_files import missing_parts
from bookkeeper.rpc.contract.messages import AdoptRequest, SegmentPart
from bookkeeper.storage.volume.volume_protocol import Volume
from bookkeeper.storage.wal.blocks.block import Block
from bookkeeper.storage.wal.writing.wal_writer import WalWriter
from bookkeeper.tserver.bulk.bulk_loader import Follow
from bookkeeper.tserver.bulk.segment_uploads import Upload
from bookkeeper.tserver.tablets.tablet import ServedTablet
from tests.support.simulation.host_disk import is_of_host
from tests.support.simulation.ledger import LoggedBlock, logged_block
from tests.support.simulation.primitives import SimLock, kernel
from tests.support.simulation.replicas import tablet_of
from tests.support.simulation.tablets import Entry, SimTabletData, entries_in
from tests.support.simulation.wal import Watch

if TYPE_CHECKING:
    from tests.support.simulation.cluster import Cluster

PART_BYTES = 2_048

GIVEN = "given"
"""The directory, in the world's, of files that operators import."""


class Newborns:
    """Logs that an import has written and that no tablet has taken yet."""

    blocks: dict[str, list[Block]] = {}  # noqa: RUF012 - one world at a time


class NewbornWriter(WalWriter):
    """The product's writer of an import's logs; no law sees a log before a tablet takes it."""

    def append(self, blocks: Sequence[Block]) -> None:
        super().append(blocks)
        Newborns.blocks.setdefault(self.name, []).extend(blocks)


class NotedFollow(Follow):
    """Made when the books have an import of a tablet on the Volume: its log counts from now on, and so does what it
    brought.
    """

    def __init__(self, tablet: ServedTablet, state: FlushState, request: AdoptRequest) -> None:
        super().__init__(tablet, state, request)
        data: object = tablet.data
        assert isinstance(data, SimTabletData)
        if is_of_host(data.volume):
            return  # the row of a tablet with replicas has told of it: see ``named_in``
        here = {entry.value: entry for entry in data.entries()}
        instance = Watch.instance_of(data.volume)
        if request.log is not None:
            found = [placed(request.log.name, block, here) for block in Newborns.blocks.pop(request.log.name)]
            Watch.ledger.named(request.log.name, instance, Watch.machine_of(data.volume, request.log.name), found)
        elif request.through is not None:
            Watch.ledger.took(instance, block_of(data.volume, tablet, request))


def named_in(cluster: Cluster, key: bytes, columns: Collection[Column]) -> None:
    """The row of a tablet with replicas has the logs of imports: a log counts as soon as the named state has all of its
    records, whether its leader lives to see that or not.
    """
    logs = [log for log in Newborns.blocks if keys.repl_column(log) in columns]
    tablet = tablet_of(cluster.table.row(key)) if logs else None
    if tablet is None:
        return
    here = {entry.value: entry for entry in cluster.replicas.named_entries(tablet)}
    for log in logs:
        if all(entry.value in here for block in Newborns.blocks[log] for entry in logged_block(log, block).entries):
            found = [placed(log, block, here) for block in Newborns.blocks.pop(log)]
            cluster.world.ledger.named(log, cluster.instance, f"{cluster.name}/{IMPORT_SESSION}", found)


def placed(name: str, block: Block, here: dict[bytes, Entry]) -> LoggedBlock:
    """A block of an import's log, its records with the numbers that they have in their tablet."""
    logged = logged_block(name, block)
    return replace(logged, entries=tuple(here[entry.value] for entry in logged.entries))


def block_of(volume: Volume, tablet: ServedTablet, request: AdoptRequest) -> LoggedBlock:
    """The records that a tablet took as files, as one block."""
    refs = [segment_ref(segment.name, SegmentEntry.decode(segment.entry)) for segment in request.segments]
    entries = [entry for ref in refs for entry in entries_in(volume, ref) if request.extent.contains(entry.row)]
    stream = request.stream
    return LoggedBlock(
        file=stream.file,
        first=1,
        last=len(entries),
        tablet=tablet.key,
        block_targets=frozenset(),
        provenance=(stream.source_instance_id,),
        came_through=(
            stream.source_instance_id, stream.source_table_id, stream.target_table_id, stream.incarnation,
        ),
        groups={},
        entries=tuple(entries),
    )  # fmt: skip


class SimUpload(Upload):
    """Its lock is one of tasks: it is held while tablets take the files."""

    lock: SimLock = field(default_factory=SimLock)  # type: ignore[assignment]


class SimUuid:
    """Stands for the module ``uuid``: names are the kernel's, so that a seed is a schedule."""

    @staticmethod
    def uuid4() -> uuid.UUID:
        return uuid.UUID(int=kernel().rng.getrandbits(128))


def small_parts_of(
    token: str, stream: StreamKey, transfer: SegmentTransfer, held: Sequence[int], part_bytes: int
) -> Iterator[SegmentPart]:
    """Files come in a few parts, though messages hold one block each."""
    del part_bytes
    return missing_parts(token, stream, transfer, held, PART_BYTES)


def write_input(directory: Path, rows: Sequence[dict[str, object]]) -> None:
    """A directory as ``importdirectory`` takes it."""
    directory.mkdir(parents=True)
    names = ("row", "family", "qualifier", "value")
    columns = {name: pa.array([row[name] for row in rows], pa.binary()) for name in names}
    pq.write_table(pa.table(columns), directory / "given.parquet")
