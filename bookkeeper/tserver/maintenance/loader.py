"""Loads and unloads tablets: the order of steps, each safe to repeat.

Arrives: orders of the master. Leaves: served tablets, or tablets whose every record is in segments. Survives a crash:
the books. Loading: the row must give the tablet to this session; take the next serial; read the logs that the row
names, which must be sealed; serve. Unloading: take no more writes; flush; serve no longer. What to read and what
follows from it is decided in ``load_plan``. Rules: R1, R15, R18 and R24.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from bookkeeper.bulk import segment_ref
from bookkeeper.coordination.coordination_protocol import Session
from bookkeeper.errors import BookkeeperError, CorruptionError, NotLeaderError, UnavailableError
from bookkeeper.metadata import keys
from bookkeeper.metadata.metadata_table import CellKey, MetadataTable, RowPut
from bookkeeper.model import Extent
from bookkeeper.rpc.contract.messages import TabletAssignment
from bookkeeper.storage.tablet import BlockCache, TabletData, TabletSettings
from bookkeeper.storage.wal import Block, path_of, read_headers, read_seal
from bookkeeper.tserver.books.received_index import indexed_streams
from bookkeeper.tserver.books.wal_bookkeeper import WalBookkeeper
from bookkeeper.tserver.maintenance.containment import contained
from bookkeeper.tserver.maintenance.flusher import Flusher
from bookkeeper.tserver.maintenance.sealed_logs import SealedLogs
from bookkeeper.tserver.origins.origin_marks import announced_logs, ended_logs
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
    spent_logs,
)
from bookkeeper.tserver.tablets.tablet import ServedTablet, Tenure
from bookkeeper.tserver.tablets.tablet_registry import Registry
from bookkeeper.tserver.write.barriers import CloseTablet
from bookkeeper.tserver.write.commit_path import CommitPath

LOG = logging.getLogger(__name__)


class Loader:
    """Executes assignments, one at a time for each tablet."""

    def __init__(
        self,
        registry: Registry,
        path: CommitPath,
        keeper: WalBookkeeper,
        flusher: Flusher,
        metadata: MetadataTable,
        session: Session,
        tables_dir: Path,
        table_view: Callable[[str], TableView],
        sort_later: Callable[[Callable[[], None]], None],
        books_flight_ms: float,
    ) -> None:
        """``table_view``: a table's configuration in force. ``sort_later``: sorts beside the commit thread.
        ``books_flight_ms``: how long a write to the books may be on its way (R4).
        """
        self._registry = registry
        self._path = path
        self._keeper = keeper
        self._flusher = flusher
        self._metadata = metadata
        self._session = session
        self._tables_dir = tables_dir
        self._table_view = table_view
        self._sort_later = sort_later
        self._books_flight_ms = books_flight_ms
        self._sealed_logs = SealedLogs(lambda uri: read_headers(uri))
        self._cache = BlockCache(TabletSettings().cache_bytes_max)
        self._lock = threading.Lock()
        self._busy: dict[bytes, threading.Lock] = {}
        self._epoch = 0

    # ---- orders

    def load(self, assignment: TabletAssignment) -> None:
        """Serve a tablet; nothing to do when it is served already. Raises NotLeaderError for an older master,
        RefusedError when the books give the tablet to another session, TransientError when a log is not sealed yet,
        CorruptionError for a tablet that can't be served as it is.
        """
        self._check_epoch(assignment.epoch)
        with self.only_one(assignment.extent) as row, contained(assignment.extent, "a load"):
            current = self._registry.find(assignment.extent)
            if current is not None and current.accepting:
                return
            if current is not None:
                self._leave(current)
            tablet = self._open(assignment.extent, row)
            self._registry.add(tablet)
            view = self._table_view(tablet.extent.table_id)
            tablet.data.configure(view.groups, view.properties)  # of now: served ones are told
            LOG.info("tablet %s is served", assignment.extent)

    def unload(self, extent: Extent, epoch: int, discard: bool) -> None:
        """Serve a tablet no longer; ``discard`` (its table is deleted) without a flush. Nothing to do when it is not
        here. Raises NotLeaderError, TransientError: then it takes no writes any more and the order is to be repeated.
        """
        self._check_epoch(epoch)
        with self.only_one(extent):
            tablet = self._registry.find(extent)
            if tablet is None:
                return
            self._path.cross(CloseTablet(tablet))
            if discard:
                with tablet.flushes.lock:
                    self._registry.remove(tablet)
                self._keeper.forget(tablet.key)
            else:
                self._leave(tablet)
            LOG.info("tablet %s is served no longer%s", extent, ", its data is dropped" if discard else "")

    def settle(self) -> None:
        """Return when the orders that are under way now are carried out, or have failed."""
        with self._lock:
            busy = list(self._busy.values())
        for lock in busy:
            with lock:
                pass

    def unload_all(self) -> None:
        """Unload every tablet, for a clean end; what can't be flushed now is left to recovery."""
        for tablet in self._registry.all():
            try:
                with contained(tablet.extent, "a last flush"):
                    self._path.cross(CloseTablet(tablet))
                    self._leave(tablet)
            except BookkeeperError as error:
                LOG.warning("tablet %s could not be flushed, its log will be replayed: %s", tablet.extent, error)

    def _leave(self, tablet: ServedTablet) -> None:
        """Flush a tablet that takes no writes any more, and let it go."""
        self._flusher.empty(tablet)
        with tablet.flushes.lock:
            self._registry.remove(tablet)

    def _check_epoch(self, epoch: int) -> None:
        with self._lock:
            if is_deposed(epoch, self._epoch):
                raise NotLeaderError(f"an order of epoch {epoch}, but a master of epoch {self._epoch} leads already")
            self._epoch = epoch

    @contextmanager
    def only_one(self, extent: Extent) -> Iterator[bytes]:
        """Orders for one tablet wait for each other."""
        row = keys.tablet_row(extent.table_id, extent.end_row)
        with self._lock:
            lock = self._busy.setdefault(row, threading.Lock())
        with lock:
            yield row

    # ---- loading

    def _open(self, extent: Extent, row_key: bytes) -> ServedTablet:
        if self._keeper.has_used_current(tablet_key(extent)):
            self._path.roll()  # a tablet comes to each log once, and its first block there says after what (R24)
        row = self._without_void_uses(self._claim(extent, row_key))
        logs = recovery_plan(row)
        for log in logs:
            check_sealed(log.uri)
        blocks = partial(wanted_blocks, self._sealed_logs, extent)
        found = replay_order((log.uri, block) for log in logs for block in blocks(log))
        recovered = Recovered.start(row.flush)
        data = self._new_data(row)
        for uri, block in found:
            data.apply(block.batch(), recovered.absorb(uri, block))
        replayed = {uri for uri, _ in found}
        recovered.log_uses.update(load_plan.all_uses(replayed))
        self._drop_spent(row_key, load_plan.all_uses(spent_logs(row.logs, replayed)))
        tenure = Tenure(row.placed, next_serial(row))
        tablet = ServedTablet(extent, data, recovered, tenure, self._books_flight_ms)
        sources = {stream.source_instance_id for stream in tablet.received.high_water}
        for stream in forgotten_streams(recovered.high_water, indexed_streams(self._metadata, sources)):
            tablet.received.forget_stream(stream)
        held = {root.log for root in recovered.held}
        tablet.received.forget_roots(
            ended_logs(held, announced_logs(self._metadata, {log.instance_id for log in held}))
        )
        self._session.check()
        return tablet

    def _claim(self, extent: Extent, row_key: bytes) -> TabletRow:
        """Check that the tablet is this session's and take the next serial, before anything is served."""
        self._session.check()
        cells = self._metadata.get(row_key, TABLET_FAMILIES)
        found = parse_tablet(cells) if cells is not None and keys.is_tablet(cells) else None
        row = check_assignment(found, extent, self._session.session_id)
        serial = next_serial(row)
        self._metadata.put([RowPut(row_key, {keys.SERIAL: keys.SERIAL_VALUE})], serial)
        self._session.check()
        return row

    def _without_void_uses(self, row: TabletRow) -> TabletRow:
        """The row without logs that were collected before their `log:` cell came."""
        void = {uri for uri in row.logs if load_plan.is_void_use(path_of(uri).exists(), partial(self._is_marked, uri))}
        for uri in void:
            LOG.info("%s: the use of %s came after nobody needed it any more, and is passed over", row.extent, uri)
        return replace(row, logs=tuple(uri for uri in row.logs if uri not in void)) if void else row

    def _is_marked(self, uri: str) -> bool:
        row = self._metadata.get(keys.del_row(uri), ("del",))
        return row is not None and keys.DEL in row.cells

    def _new_data(self, row: TabletRow) -> TabletData:
        table_id = row.extent.table_id
        view = self._table_view(table_id)
        segments = [segment_ref(uri, entry) for uri, entry in live_segments(row).items()]
        directory = self._tables_dir / table_id / row.directory
        return TabletData(
            row.extent,
            view.groups,
            directory,
            segments,
            cache=self._cache,
            later=self._sort_later,
            properties=view.properties,
        )

    def _drop_spent(self, row_key: bytes, spent: dict[str, int]) -> None:
        for uri, through in spent.items():
            self._metadata.delete([CellKey(row_key, keys.log_column(uri))], keys.log_delete_rank(through))


def tablet_key(extent: Extent) -> tuple[str, bytes | None]:
    """What tells tablets apart in a log: table id and end row."""
    return extent.table_id, extent.end_row


def is_deposed(epoch: int, known: int) -> bool:
    """Rule R7: a master of a later reign was heard of already."""
    return epoch < known


def check_sealed(uri: str) -> None:
    """Rule R15: a log is read only up to its seal; without one, records may still be added or be lost.

    Raises UnavailableError while there is none, CorruptionError when the log itself does not exist.
    """
    if read_seal(uri) is not None:
        return
    if not path_of(uri).exists():
        raise CorruptionError(f"{uri} is needed for recovery and does not exist: restore the file", {"file": uri})
    raise UnavailableError(f"{uri} is needed for recovery and has no seal yet: recover it, then load again")


def wanted_blocks(logs: SealedLogs, extent: Extent, log: LogToRead) -> Iterator[Block]:
    """The blocks of a sealed log that the tablet lacks. Raises CorruptionError, NotFoundError, TransientError."""
    for at in logs.wanted(extent, log):
        yield whole_block(extent, at.load())


def whole_block(extent: Extent, block: Block) -> Block:
    """The block, whose rows all lie in the extent. Raises CorruptionError when some do not."""
    header = block.header
    if not (extent.contains(header.min_row) and extent.contains(header.max_row)):
        raise CorruptionError(
            f"the block of rows {header.min_row!r} to {header.max_row!r} crosses the border of tablet {extent}"
        )
    return block
