"""Reads at a host that does not lead the tablet: pages of its newest state, with a stated age.

A state has every write up to the time of its last record, which is of its leader's wall clock, and up to the time that
its leader confirmed since; so a page is at most as old as it says, and usually younger. It names its state, and a scan
asks that no later page is of an older one. While a page is read, the files of its state stay (P15); between pages they
may go. Only the replica that the tablet's row names answers: after a merge and a split with the same borders a host may
still have the replica of the tablet before.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from msgspec import Struct

from bookkeeper.bulk.booked_segment import segment_ref
from bookkeeper.clock import Clock
from bookkeeper.errors import CorruptionError, NotServingError
from bookkeeper.metadata.values import FlushState, SegmentEntry
from bookkeeper.model import Extent
from bookkeeper.storage.replicas.manifest import Manifest, ReplicaKey
from bookkeeper.storage.tablet.segments.segment_format import SegmentRef
from bookkeeper.storage.tablet.tablet_data import TabletData
from bookkeeper.tserver.replicas.held_replica import HeldReplica
from bookkeeper.tserver.replicas.held_replicas import HeldReplicas
from bookkeeper.tserver.replicas.offer_checks import ReplicaRow, is_ahead

ROW_MS = 1_000
"""ms for which the row of a tablet counts as read: each page needs it, and few change."""

ROWS_MAX = 10_000
"""Rows that are remembered; then they are read anew."""

ReadRow = Callable[[Extent], ReplicaRow | None]
"""Reads the row of a tablet in the books; None when there is none. Raises TransientError."""

MakeData = Callable[[Manifest, Sequence[SegmentRef]], TabletData]
"""Makes the data of a tablet from the segments of one state on this host."""


def reason_against(state_id: int, as_of_ms: int, now_ms: int, stale_ms: int, least_state: int | None) -> str:
    """Why a page of this state does not do; empty = it does."""
    if least_state is not None and state_id < least_state:
        return f"has state {state_id}, and an earlier page was of state {least_state}"
    if is_ahead(as_of_ms, now_ms):
        return f"is of a time {as_of_ms - now_ms} ms ahead of this host's clock, so its age is not known"
    if now_ms - as_of_ms > stale_ms:
        return f"is {now_ms - as_of_ms} ms old, and {stale_ms} ms were asked for"
    return ""


class _Opened(Struct):
    """One state of a replica, opened for pages."""

    held: HeldReplica
    state_id: int
    data: TabletData
    pages: int = 0

    def begin(self) -> None:
        """A page begins; the first one protects the files."""
        if not self.pages:
            self.held.add_reader(self.data.names_in_use)
        self.pages += 1

    def end(self) -> None:
        """A page ends."""
        self.pages -= 1
        if not self.pages:
            self.held.remove_reader(self.data.names_in_use)


class StaleData(Struct, frozen=True):
    """A state to read: its id, its age, its data."""

    state_id: int
    as_of_ms: int
    data: TabletData


class StaleReads:
    """Thread-safe."""

    def __init__(self, replicas: HeldReplicas, read_row: ReadRow, make_data: MakeData, clock: Clock) -> None:
        self._replicas = replicas
        self._read_row = read_row
        self._make_data = make_data
        self._clock = clock
        self._lock = threading.Lock()
        self._opened: dict[ReplicaKey, _Opened] = {}
        self._rows: dict[Extent, tuple[int, ReplicaRow | None]] = {}
        """Rows of the books with the time at which each was read (boot clock, ns)."""

    @contextmanager
    def open(self, extent: Extent, stale_ms: int, least_state: int | None) -> Iterator[StaleData]:
        """The newest state of a tablet here, while a page is read. ``least_state``: of the page before.

        Raises NotServingError when this host has no state that does, CorruptionError for facts that do not parse,
        TransientError.
        """
        held = self._named_replica(extent)
        if held is None:
            raise NotServingError(f"this host has no replica of tablet {extent}: ask its leader")
        opened = self._begin(held)
        try:
            state = state_of(held.manifest, opened.state_id)
            now_ms = self._clock.wall_ms()
            as_of_ms = max(state.last_time_ms, held.confirmed_ms(opened.state_id))
            reason = reason_against(opened.state_id, as_of_ms, now_ms, stale_ms, least_state)
            if opened.data.names_in_use() & held.replica.damaged:
                reason = "has a damaged file"
            if reason:
                raise NotServingError(f"the replica of tablet {extent} on this host {reason}: ask its leader")
            yield StaleData(opened.state_id, as_of_ms, opened.data)
        finally:
            with self._lock:
                opened.end()

    def _named_replica(self, extent: Extent) -> HeldReplica | None:
        """The replica on this host that the tablet's row names, None when there is none that can be read."""
        row = self._row(extent)
        if row is None or row.extent != extent:
            return None
        named = row.replicas.get(self._replicas.host.name)
        try:
            held = self._replicas.find(ReplicaKey(extent.table_id, row.directory))
        except CorruptionError:
            return None
        return held if held is not None and named is not None and named.placement == held.placement else None

    def _row(self, extent: Extent) -> ReplicaRow | None:
        """The row of the books, at most ``ROW_MS`` old."""
        now_ns = self._clock.boot_ns()
        with self._lock:
            found = self._rows.get(extent)
        if found is not None and now_ns - found[0] < ROW_MS * 1_000_000:
            return found[1]
        row = self._read_row(extent)
        with self._lock:
            if len(self._rows) >= ROWS_MAX:
                self._rows.clear()
            self._rows[extent] = now_ns, row
        return row

    def _begin(self, held: HeldReplica) -> _Opened:
        """The newest state, protected. Its files are there, because the root is asked again after the protection."""
        with self._lock:
            while True:
                manifest = held.manifest
                opened = self._opened.get(held.key)
                if opened is None or opened.held is not held or opened.state_id != manifest.replica.root:
                    opened = self._opened[held.key] = self._open(held, manifest)
                opened.begin()
                if held.replica.root == opened.state_id:
                    return opened
                opened.end()

    def _open(self, held: HeldReplica, manifest: Manifest) -> _Opened:
        entry = manifest.replica.entry(manifest.replica.root)
        if entry is None:
            raise NotServingError(f"the replica of tablet {manifest.extent} on this host has no state yet")
        refs = [segment_ref(name, SegmentEntry.decode(manifest.files[name].entry)) for name in entry.segment.list]
        return _Opened(held, entry.segment.id, self._make_data(manifest, refs))


def state_of(manifest: Manifest, state_id: int) -> FlushState:
    """The facts about a state. Raises NotServingError when they are gone, CorruptionError."""
    raw = manifest.states.get(state_id)
    if raw is None:
        raise NotServingError(f"state {state_id} of tablet {manifest.extent} was replaced meanwhile: read again")
    state = FlushState.decode(raw)
    if state.flush_id != state_id:
        raise CorruptionError(f"the facts of state {state_id} of tablet {manifest.extent} are of {state.flush_id}")
    return state
