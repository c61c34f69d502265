"""Opens a tablet for serving: waits for the seals of the logs that its row names, takes its next serial, and replays
the logs.

``load_plan`` decides which blocks to replay and which state follows; this module reads and writes. The row survives a
crash, and opening again gives the same tablet. Rules: R1, R4, R15, R18, R20 and R22.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial

from msgspec.structs import replace

from bookkeeper.bulk.booked_segment import segment_ref
from bookkeeper.coordination.coordination_protocol import Session
from bookkeeper.errors import CorruptionError, UnavailableError
from bookkeeper.metadata import keys
from bookkeeper.metadata.lost_logs import renewed
from bookkeeper.metadata.metadata_table import CellKey, MetadataTable, RowPut
from bookkeeper.model import Extent
from bookkeeper.storage.tablet.segments.block_cache import BlockCache
from bookkeeper.storage.tablet.segments.segment_format import SegmentRef
from bookkeeper.storage.tablet.tablet_data import TabletData
from bookkeeper.storage.tablet.tablet_resources import TabletResources
from bookkeeper.storage.tablet.tablet_settings import TabletSettings
from bookkeeper.storage.volume.names import tablet_directory
from bookkeeper.storage.volume.volume_protocol import Volume
from bookkeeper.storage.wal.blocks.block import Block
from bookkeeper.storage.wal.reading.block_reader import read_headers
from bookkeeper.storage.wal.writing.seal import log_exists, read_seal
from bookkeeper.tserver.books.received_index import indexed_streams
from bookkeeper.tserver.leading.terms import Candidacy, Terms
from bookkeeper.tserver.maintenance.sealed_logs import SealedLogs
from bookkeeper.tserver.origins.origin_marks import announced_logs
from bookkeeper.tserver.tablets import load_plan
from bookkeeper.tserver.tablets.block_targets import TableView
from bookkeeper.tserver.tablets.load_plan import (
    TABLET_FAMILIES,
    LogToRead,
    Recovered,
    TabletRow,
    check_assignment,
    forgotten_streams,
    live_segments,
    next_serial,
    parse_tablet,
    recovery_plan,
    replay_order,
    unneeded_logs,
)
from bookkeeper.tserver.tablets.tablet import ServedTablet, Tenure
from bookkeeper.tserver.write.server_times import ServerTimes

LOG = logging.getLogger(__name__)


class TabletMaker:
    """Makes a tablet's objects, with the resources that all tablets of this tserver share."""

    def __init__(
        self,
        volume: Volume,
        table_view: Callable[[str], TableView],
        sort_later: Callable[[Callable[[], None]], None],
        books_flight_ms: float,
    ) -> None:
        """``table_view``: a table's configuration in force. ``sort_later``: sorts beside the commit thread.
        ``books_flight_ms``: how long a write to the books may be on its way (R4).
        """
        self._volume = volume
        self._table_view = table_view
        self._resources = TabletResources(cache=BlockCache(TabletSettings().cache_bytes_max), sort_later=sort_later)
        self._books_flight_ms = books_flight_ms

    def data(self, row: TabletRow, volume: Volume | None = None) -> TabletData:
        """The data of a tablet: the segments of its row, and an empty memtable. ``volume``: where its segments lie;
        None = on the cluster's.
        """
        segments = [segment_ref(name, entry) for name, entry in live_segments(row).items()]
        return self.data_of(row.extent, row.directory, segments, volume or self._volume)

    def data_of(self, extent: Extent, directory: str, segments: Sequence[SegmentRef], volume: Volume) -> TabletData:
        """The data of a tablet that consists of these segments, and an empty memtable."""
        view = self._table_view(extent.table_id)
        return TabletData(
            extent,
            view.groups,
            volume,
            tablet_directory(extent.table_id, directory),
            segments,
            self._resources,
            properties=view.properties,
        )

    def tablet(self, row: TabletRow, data: TabletData, recovered: Recovered) -> ServedTablet:
        """The tablet as its next holder serves it."""
        tenure = Tenure(row.location_rank, next_serial(row), bool(row.replicas))
        return ServedTablet(row.extent, data, recovered, tenure, self._books_flight_ms)

    def configure(self, tablet: ServedTablet) -> None:
        """Give the tablet the configuration of its table that is in force now."""
        view = self._table_view(tablet.extent.table_id)
        tablet.data.configure(view.groups, view.properties)


class TabletOpener:
    """Opens tablets."""

    def __init__(
        self,
        metadata: MetadataTable,
        session: Session,
        volume: Volume,
        maker: TabletMaker,
        terms: Terms,
        times: ServerTimes,
        latest_in: Callable[[Collection[str]], int],
    ) -> None:
        """``latest_in``: the highest server time that a log of these hosts may have, 0 = none."""
        self._times = times
        self._latest_in = latest_in
        self._metadata = metadata
        self._session = session
        self._volume = volume
        self._maker = maker
        self._terms = terms
        self._sealed_logs = SealedLogs(volume, lambda name: read_headers(volume, name))

    def configure(self, tablet: ServedTablet) -> None:
        """See :meth:`TabletMaker.configure`."""
        self._maker.configure(tablet)

    def open(self, extent: Extent, row_key: bytes) -> ServedTablet:
        """The tablet with all its records; it is not served yet. Raises NotFoundError, RefusedError, CorruptionError,
        TransientError.
        """
        row, candidacy = self._claim(extent, row_key)
        logs = recovery_plan(row)
        blocks = partial(missing_blocks, self._sealed_logs, extent)
        found = replay_order((log.name, block) for log in logs for block in blocks(log))
        recovered = Recovered.start(row.flush)
        data = self._maker.data(row, None if candidacy is None else candidacy.volume)
        for name, block in found:
            data.apply(block.batch(), recovered.absorb(name, block))
        recovered.go_without(row, self._latest_in({home.host for home in row.lost.values()}))
        self._times.cover(recovered.last_time_ms)
        replayed = {name for name, _ in found}
        recovered.log_uses.update(load_plan.all_uses(replayed))
        self._drop_unneeded(row_key, load_plan.all_uses(unneeded_logs(row, replayed)))
        tablet = self._maker.tablet(row, data, recovered)
        if not tablet.given_up.awaits_tails:
            self._forget_what_ended(tablet, recovered)
        self._session.check()
        if candidacy is not None:
            candidacy.begin(tablet, recovered)
        return tablet

    def _forget_what_ended(self, tablet: ServedTablet, recovered: Recovered) -> None:
        """Rules R20 and R22: streams and roots that ended while no tserver served the tablet."""
        sources = {stream.source_instance_id for stream in tablet.received.high_water}
        for stream in forgotten_streams(recovered.high_water, indexed_streams(self._metadata, sources)):
            tablet.received.forget_stream(stream)
        root_logs = {root.log for root in recovered.origin_intervals}
        announced = announced_logs(self._metadata, {log.instance_id for log in root_logs})  # read after the intervals
        tablet.received.forget_roots(root_logs - announced)

    def _claim(self, extent: Extent, row_key: bytes) -> tuple[TabletRow, Candidacy | None]:
        """Check that the books assign the tablet to this session, that this host may lead it if it has replicas, and
        that its logs are sealed. Then take the next serial, before it is served, and with it the given-up logs. A
        tablet that waits for a log takes no serial.
        """
        self._session.check()
        cells = self._metadata.get(row_key, TABLET_FAMILIES)
        found = parse_tablet(cells) if cells is not None and keys.is_tablet(cells) else None
        assigned = check_assignment(found, extent, self._session.session_id)
        candidacy = self._terms.candidacy(assigned)
        row = self._without_void_uses(assigned)
        for log in recovery_plan(row):
            check_sealed(self._volume, log.name)
        # R1: to check the logs may take long, and meanwhile another holder may have taken the serial that comes next.
        if assigned.logs and cells != self._metadata.get(row_key, TABLET_FAMILIES):
            raise UnavailableError(f"the row of tablet {extent} changed while its logs were checked: load again")
        serial = next_serial(row)
        losses = {} if cells is None else renewed(cells)
        self._metadata.put([RowPut(row_key, {keys.SERIAL: keys.SERIAL_VALUE, **losses})], serial)
        self._session.check()
        return row, candidacy

    def _without_void_uses(self, row: TabletRow) -> TabletRow:
        """The row without logs that were collected before their `log:` cell came (R4): such a cell came after the mark
        that let the log go, and needs no record. Without the mark the log and its records are lost.
        """
        void = {
            name
            for name in sorted(set(row.logs) - set(row.lost))
            if not log_exists(self._volume, name) and self._is_marked(name)
        }
        for name in void:
            LOG.info("tablet %s ignores a late use of %s: that log was not needed any more", row.extent, name)
        return replace(row, logs=tuple(name for name in row.logs if name not in void)) if void else row

    def _is_marked(self, name: str) -> bool:
        row = self._metadata.get(keys.del_row(name), ("del",))
        return row is not None and keys.DEL in row.cells

    def _drop_unneeded(self, row_key: bytes, unneeded: dict[str, int]) -> None:
        for name, through in unneeded.items():
            self._metadata.delete([CellKey(row_key, keys.log_column(name))], keys.log_delete_rank(through))


def check_sealed(volume: Volume, name: str) -> None:
    """Rule R15: a log is read only up to its seal; without one, records may still be added or be lost.

    Raises UnavailableError while there is none, CorruptionError when the log itself does not exist.
    """
    if read_seal(volume, name) is not None:
        return
    if not log_exists(volume, name):
        raise CorruptionError(f"{name} is needed for recovery and does not exist: restore the file", {"file": name})
    raise UnavailableError(f"{name} is needed for recovery and has no seal yet: recover it, then load again")


def missing_blocks(logs: SealedLogs, extent: Extent, log: LogToRead) -> Iterator[Block]:
    """The blocks of a sealed log that the tablet lacks. Raises CorruptionError, NotFoundError, TransientError."""
    for at in logs.missing_blocks(extent, log):
        yield checked_block(extent, at.load())


def checked_block(extent: Extent, block: Block) -> Block:
    """The block. Raises CorruptionError unless all its rows lie in the extent."""
    header = block.header
    if not (extent.contains(header.min_row) and extent.contains(header.max_row)):
        raise CorruptionError(
            f"the block of rows {header.min_row!r} to {header.max_row!r} crosses the border of tablet {extent}"
        )
    return block
