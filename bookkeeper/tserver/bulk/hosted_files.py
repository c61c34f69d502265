"""The files of an import on the hosts of a tablet with replicas: copies of a tablet's own, then a state of its leader.

The files lie on the cluster's Volume. The leader copies them to its own disk under names of the tablet, and compares
the checksum of each copy with what it has read. Then they are a state of its chain, durable here, which travels to the
other hosts as each other state. The tablet takes no writes until the books name the state: with it they get the
high-water of the import's stream (R18) and the `repl:` cell of the import's log, in one put. A leader that dies before
leaves files that no named state lists: N4 takes them, and the next leader is asked again. Rules: R18, R24, N2 to N4.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from msgspec.structs import replace

from bookkeeper.errors import InvalidInputError, NotServingError, UnavailableError
from bookkeeper.metadata.metadata_limits import check_puts
from bookkeeper.metadata.metadata_table import RowPut
from bookkeeper.metadata.values import FlushState
from bookkeeper.model import Extent
from bookkeeper.runtime.session_retries import SessionRetries
from bookkeeper.storage.replicas.file_checks import copied_file
from bookkeeper.storage.tablet.segments.block_cache import BlockCache
from bookkeeper.storage.tablet.segments.segment_format import ENDING, SegmentRef, merged_prefix
from bookkeeper.storage.tablet.segments.segment_reader import Segment
from bookkeeper.storage.volume.volume_protocol import Volume
from bookkeeper.tserver.leading.leader_chain import LeaderChain
from bookkeeper.tserver.leading.led_tablets import LedTablets
from bookkeeper.tserver.replicas.offer_checks import FILES_MAX
from bookkeeper.tserver.tablets.load_plan import first_flush_id
from bookkeeper.tserver.tablets.tablet import ServedTablet

NAME_PATIENCE_MS = 2_000
"""ms to wait for the name of a tablet's newest state, before it is closed for an import."""

NAME_LOOK_MS = 1_000
"""ms to wait for the name of an import, before this host looks whether it still leads."""


class HostedFiles:
    """Copies of an import's files, which no state lists yet. Used by one thread."""

    def __init__(
        self, chain: LeaderChain, refs: Sequence[SegmentRef], wake: Callable[[], None], retries: SessionRetries
    ) -> None:
        self._chain = chain
        self._refs = refs
        self._wake = wake
        self._retries = retries
        self._is_listed = False

    @property
    def refs(self) -> Sequence[SegmentRef]:
        """The segments under the names of the copies."""
        return self._refs

    @property
    def is_listed(self) -> bool:
        """Whether a state of the chain may list them, so that N4 alone lets them go."""
        return self._is_listed

    def adopt(self, segments: Sequence[SegmentRef], state: FlushState, put: RowPut) -> FlushState:
        """Make them a state of the tablet, which takes no writes; returns the state when the books name it. ``put``: of
        the import alone, whose cells come with the name. Raises InvalidInputError when the books or another host can't
        take so many files; NotServingError when another host leads the tablet now, LeaseLostError, and UnavailableError
        when this process ends.
        """
        check_puts([put], state.flush_id)
        if len(state.segments) > FILES_MAX:
            raise InvalidInputError(
                f"tablet {self._chain.tablet.extent} would have {len(state.segments)} files, at most {FILES_MAX}: "
                "compact or split it first"
            )
        self._is_listed = True
        cells = {column: value for column, value in put.values.items() if column.family == "repl"}
        made = self._chain.adopted(segments, state, cells)
        self._wake()
        self._retries.retry("the name of an import", self._look, unless=NotServingError)
        return made

    def _look(self) -> None:
        extent = self._chain.tablet.extent
        if self._chain.wait_named(NAME_LOOK_MS):
            return
        if not self._chain.leads:
            raise NotServingError(f"tablet {extent} has another leader: ask again")
        raise UnavailableError(f"too few hosts have the import of tablet {extent} yet")


class HostedImports:
    """Thread-safe for different tablets; one tablet has one import at a time."""

    def __init__(self, volume: Volume, led: LedTablets, retries: SessionRetries) -> None:
        """``volume``: of the cluster, with the files of imports."""
        self._volume = volume
        self._led = led
        self._retries = retries
        self._lock = threading.Lock()
        self._busy: set[Extent] = set()

    @contextmanager
    def turn(self, extent: Extent) -> Iterator[None]:
        """One order for a tablet at a time: copies may take longer than a caller waits, who repeats the order
        meanwhile. Raises UnavailableError for another one.
        """
        with self._lock:
            if extent in self._busy:
                raise UnavailableError(f"tablet {extent} takes an import already: ask again")
            self._busy.add(extent)
        try:
            yield
        finally:
            with self._lock:
                self._busy.remove(extent)

    @contextmanager
    def copies(self, tablet: ServedTablet, wanted: Sequence[SegmentRef]) -> Iterator[HostedFiles]:
        """Copies of files for a tablet that this host leads; they go when the block adopts none. Raises
        NotServingError, InvalidInputError for a file that is not there, CorruptionError, UnavailableError, also while
        the tablet's newest state has too few copies.
        """
        chain = self._led.find(tablet)
        if chain is None:
            raise NotServingError(f"tablet {tablet.extent} has left this server")
        if not chain.wait_named(NAME_PATIENCE_MS):
            raise UnavailableError(
                f"too few hosts have the newest data of tablet {tablet.extent}: it takes an import when they do"
            )
        prefix = f"{tablet.data.directory}/{merged_prefix(first_flush_id(tablet.serial))}-"
        refs = [replace(ref, name=f"{prefix}{uuid.uuid4().hex}{ENDING}") for ref in wanted]
        files = HostedFiles(chain, refs, self._led.changed, self._retries)
        try:
            self._copy(chain.volume, wanted, refs)
            yield files
        finally:
            if not files.is_listed:
                chain.volume.discard([ref.name for ref in refs])

    def _copy(self, target: Volume, wanted: Sequence[SegmentRef], refs: Sequence[SegmentRef]) -> None:
        try:
            for source, ref in zip(wanted, refs, strict=True):
                copied_file(self._volume, source.name, target, ref.name)
                Segment(target, ref, BlockCache(0, readers=0)).check()
        except FileNotFoundError as error:
            raise InvalidInputError(f"an imported segment is not there: {error}") from error
        except OSError as error:
            raise UnavailableError(f"imported segments can't be copied to this host: {error}") from error
