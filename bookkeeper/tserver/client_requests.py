"""Writes and scans of clients, in the thread of the call.

Records are decoded, checked and routed here; then the commit threads take over (``write.commit_path``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from msgspec import Struct

from bookkeeper.coordination.coordination_protocol import Session
from bookkeeper.errors import CorruptionError, InvalidInputError, NotServingError, UnavailableError
from bookkeeper.model import Extent
from bookkeeper.rpc.contract.messages import Condition, ScanPage, ScanRequest, WriteBatch, WriteResult
from bookkeeper.storage.tablet.scans.cell_versions import VersionFilter
from bookkeeper.storage.tablet.scans.scan import ScanPage as DataPage
from bookkeeper.storage.tablet.tablet_data import TabletData
from bookkeeper.storage.tablet.tablet_settings import BatchLimits
from bookkeeper.storage.wal.blocks.block import encode_batch
from bookkeeper.tserver.authorizations import authorizations_for
from bookkeeper.tserver.commit.submission import Durability
from bookkeeper.tserver.maintenance.flusher import Flusher
from bookkeeper.tserver.maintenance.stale_reads import StaleReads
from bookkeeper.tserver.replicas.file_repair import Resolve
from bookkeeper.tserver.tablets.tablet import ServedTablet, TabletRecords
from bookkeeper.tserver.tablets.tablet_registry import Registry
from bookkeeper.tserver.write import request_dedup
from bookkeeper.tserver.write.client_write import ClientWrite
from bookkeeper.tserver.write.commit_path import CommitPath
from bookkeeper.tserver.write.conditional_write import (
    ConditionalWrite,
    check_conditional,
    holds_now,
    refuse_conditional_write,
)
from bookkeeper.tserver.write.decompression import DecompressionBudget
from bookkeeper.tserver.write.request_decoder import decode_labelled, records_for_tablet
from bookkeeper.tserver.write.request_dedup import Attempt

REPAIR_WAIT_MS = 3_000
"""ms that a read waits for a sound copy of a damaged file; then its client tries again."""


class RequestLimits(Struct, frozen=True):
    """Bounds of requests: ``page_bytes_max`` in bytes; ``batch``: see there."""

    batch: BatchLimits
    page_bytes_max: int


def requested_durability(name: str) -> Durability | None:
    """None: the tables' own. Raises InvalidInputError."""
    if name == "default":
        return None
    try:
        return Durability.parse(name)
    except ValueError as error:
        raise InvalidInputError(f"{error}, or default for the table's own") from error


class ClientRequests:
    """Executes the requests of clients. Thread-safe."""

    def __init__(
        self,
        registry: Registry,
        flusher: Flusher,
        path: CommitPath,
        session: Session,
        limits: RequestLimits,
        stale: StaleReads | None,
        resolve: Resolve,
    ) -> None:
        """``stale``: of the replicas on this host; None where another process holds them. ``resolve``: of damaged
        segments on this host.
        """
        self._resolve = resolve
        self._registry = registry
        self._flusher = flusher
        self._path = path
        self._context = path.context
        self._session = session
        self._limits = limits
        self._stale = stale

    def write(self, batches: Sequence[WriteBatch], durability: str, writer: str, attempt: int) -> WriteResult:
        """Whole row mutations for some tablets. ``Durability`` says when it returns, "default" is the tables' own;
        ``request_dedup`` explains ``writer`` and ``attempt``. Raises TransientError, NotFoundError, ReadOnlyError,
        ConflictError.
        """
        requested = requested_durability(durability)
        latest_ms = self._latest_ms()
        writes: list[tuple[ServedTablet, TabletRecords]] = []
        elsewhere: list[Extent] = []
        budget = DecompressionBudget(self._limits.batch)
        for batch in batches:
            tablet = self._registry.find(batch.extent)
            if (
                tablet is None
                or not tablet.accepting
                or request_dedup.is_for_another(batch.placed, tablet.location_rank)
            ):
                elsewhere.append(batch.extent)
                continue
            records = decode_labelled(batch.records, self._limits.batch, latest_ms, budget)
            if records.num_rows:
                writes.append((tablet, records_for_tablet(batch.extent, records)))
                self._flusher.make_room(tablet)
        if writes:
            future = self._path.submit(ClientWrite(self._context, writes, requested, Attempt(writer, attempt)))
            elsewhere += cast("list[Extent]", self._path.wait_for(future, "a write"))
        return WriteResult(tuple(elsewhere))

    def write_if(self, extent: Extent, conditions: Sequence[Condition], records: bytes, durability: str) -> bool:
        """Write one row's records if the conditions on its cells hold; False: they don't, and nothing was written.
        Raises NotServingError, ReadOnlyError, ConditionalRefusedError, InvalidInputError.
        """
        requested = requested_durability(durability)
        tablet = self._registry.serving(extent)
        context = self._context
        checked = records_for_tablet(extent, decode_labelled(records, self._limits.batch, self._latest_ms()))
        check_conditional(conditions, checked)
        refuse_conditional_write(context.view.table(extent.table_id), tablet)
        try:
            holds = holds_now(tablet.data, checked.min_row, conditions, context.clock.wall_ms())
        except CorruptionError as error:
            self._resolve(error, REPAIR_WAIT_MS)
            holds = True  # with the copy that has come, the commit thread judges it
        if not holds:
            self._session.check()
            return False
        self._flusher.make_room(tablet)
        return self._path.judge(ConditionalWrite(context, tablet, checked, conditions, requested)) is True

    def scan(self, request: ScanRequest) -> ScanPage:
        """One page of a tablet. Its records were durable as requested; the lease is checked after reading. With
        ``stale_ms``, a host that does not lead the tablet answers from its own state. Raises
        NotServingError, InvalidInputError, and RefusedError for authorizations that the user does not have.
        """
        tablet = self._registry.find(request.extent)
        if tablet is None and request.stale_ms is not None and self._stale is not None:
            return self._stale_page(request, self._stale, request.stale_ms)
        tablet = tablet or self._registry.serving(request.extent)
        page = self._sound_page(tablet, request)
        self._session.check()
        return ScanPage(encode_batch(page.records), page.next)

    def _sound_page(self, tablet: ServedTablet, request: ScanRequest) -> DataPage:
        """The page; with a damaged file it waits a bounded time until another host has sent a sound copy."""
        until_ns = self._context.clock.boot_ns() + REPAIR_WAIT_MS * 1_000_000
        while True:
            try:
                return self._page_of(tablet.data, request)
            except CorruptionError as error:
                self._session.check()
                if not self._registry.holds(tablet):  # another holder may have replaced its segments
                    raise NotServingError(f"tablet {request.extent} has left this server: locate it again") from None
                self._resolve(error, max(0, until_ns - self._context.clock.boot_ns()) / 1_000_000)

    def _stale_page(self, request: ScanRequest, stale: StaleReads, stale_ms: int) -> ScanPage:
        """A page of the newest state on this host, which does not lead the tablet. No lease is checked: the page says
        how old it is, and nothing can make it younger.
        """
        with stale.open(request.extent, stale_ms, request.least_state) as found:
            try:
                page = self._page_of(found.data, request)
            except CorruptionError as error:
                self._resolve_elsewhere(request.extent, error)
                raise
        return ScanPage(encode_batch(page.records), page.next, found.state_id, found.as_of_ms)

    def _resolve_elsewhere(self, extent: Extent, error: CorruptionError) -> None:
        """A damaged file of this host is no reason to wait for a page that another host can give."""
        try:
            self._resolve(error, 0)
        except UnavailableError:
            raise NotServingError(f"the replica of tablet {extent} on this host is damaged: ask its leader") from error

    def _page_of(self, data: TabletData, request: ScanRequest) -> DataPage:
        if len(request.columns) % 2:
            raise InvalidInputError("columns are pairs of family and qualifier: their number must be even")
        pairs = list(zip(request.columns[::2], request.columns[1::2], strict=True))
        authorizations = authorizations_for(self._context.view.users, request.user, request.authorizations)
        return data.scan_page(
            request.start_row,
            request.stop_row,
            request.families,
            pairs,
            request.resume,
            min(request.page_bytes, self._limits.page_bytes_max),
            VersionFilter(request.versions, request.from_ms, request.to_ms),
            self._context.clock.wall_ms(),
            authorizations,
        )

    def _latest_ms(self) -> int | None:
        return self._limits.batch.latest_ms(self._context.clock.wall_ms())
