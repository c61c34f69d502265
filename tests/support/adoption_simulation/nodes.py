"""The processes: tservers, which serve tablets and receive files, and masters, which collect and run operations."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from msgspec.structs import replace

from bookkeeper.bulk.adoption import INCOMING
from bookkeeper.bulk.booked_segment import segment_ref
from bookkeeper.bulk.import_log import TAKEN_PREFIX
from bookkeeper.bulk.log_segments import Lengths, name_log_segments
from bookkeeper.clock import SteadyWall
from bookkeeper.coordination.masters import MasterFinder
from bookkeeper.errors import BookkeeperError, LeaseLostError, TransientError, UnavailableError
from bookkeeper.master.calls.peer_masters import PeerMasters
from bookkeeper.master.calls.tservers import TServers
from bookkeeper.master.fate.engine import FateLimits, Operation
from bookkeeper.master.fate.fate_store import FateStore
from bookkeeper.master.gc.gc_runner import GcRunner
from bookkeeper.master.gc.orphan_files import OrphanFiles
from bookkeeper.master.origins.origin_parts import OriginParts
from bookkeeper.master.reign.books_proof import Rounds
from bookkeeper.master.reign.leader import campaign
from bookkeeper.master.reign.reign_stores import ReignStores
from bookkeeper.metadata import keys
from bookkeeper.metadata.metadata_table import RowPut
from bookkeeper.metadata.values import FlushState, SegmentEntry
from bookkeeper.model import StreamKey
from bookkeeper.rpc.contract.messages import (
    PROTOCOL_VERSION,
    AdoptRequest,
    Hello,
    ImportedLog,
    ImportedSegment,
    SegmentPart,
)
from bookkeeper.runtime.session_retries import SessionRetries
from bookkeeper.security.file_roots import FileRoots
from bookkeeper.storage.tablet.segments.locality_groups import GroupMap
from bookkeeper.storage.tablet.segments.segment_format import ENDING, SegmentRef, merged_prefix
from bookkeeper.storage.volume.names import log_directory, tablet_directory
from bookkeeper.storage.wal.writing.seal import SEAL_SUFFIX
from bookkeeper.tserver.bulk.bulk_loader import adopted_state, shifted, with_log
from bookkeeper.tserver.bulk.segment_offers import OfferedFile
from bookkeeper.tserver.bulk.segment_uploads import SegmentUploads
from bookkeeper.tserver.bulk.session_holds import SessionHolds
from bookkeeper.tserver.tablets.load_plan import (
    TABLET_FAMILIES,
    first_flush_id,
    live_segments,
    next_serial,
    parse_tablet,
)
from bookkeeper.tserver.tablets.tablet_segments import (
    SEGMENT_FAMILIES,
    dead_segments,
    has_cells_of_others,
    merged_state,
    segments_put,
)
from tests.support.adoption_simulation.cluster import FLIGHT_MS, TABLE, Cluster, content_of, entry_of
from tests.support.simulation.imports import SimUuid
from tests.support.simulation.kernel import Process
from tests.support.simulation.network import SimPool
from tests.support.simulation.patches import SimFateEngine
from tests.support.simulation.primitives import SimFuture, SimLock, kernel
from tests.support.simulation.tree import SimSession

CALL_MS = 3_000
"""How long a call waits for its answer; the callee goes on."""


def call(node: TServer, name: str, act: Callable[[], object]) -> None:
    """Call a tserver. Raises its error, and UnavailableError when no answer comes."""
    future = SimFuture()

    def run() -> None:
        try:
            future.set_result(act())
        except BookkeeperError as error:
            future.set_exception(error)

    kernel().spawn(node.process, name, run)
    try:
        future.result(CALL_MS / 1_000)
    except TimeoutError as error:
        raise UnavailableError("no answer") from error


@dataclass(eq=False)
class Served:
    """A tablet in a tserver's memory. ``refs``: its segments."""

    key: bytes
    directory: str
    serial: int
    state: FlushState | None
    refs: list[SegmentRef]
    next_flush_id: int
    lock: SimLock = field(default_factory=SimLock)

    def take_flush_id(self) -> int:
        """See ``tserver.tablets.tablet_flushes``."""
        self.next_flush_id += 1
        return self.next_flush_id - 1

    @property
    def next_seq(self) -> int:
        """The sequence number of the next record."""
        return 1 if self.state is None else self.state.last_seq + 1


@dataclass(eq=False)
class TServer:
    """A tserver: the product's holds and uploads, and a model of tablets with the product's puts."""

    cluster: Cluster
    name: str
    find: Callable[[bytes], TServer | None]
    """The tserver that serves a tablet now, as the books say."""
    tablets: dict[bytes, Served] = field(default_factory=dict)
    session: SimSession | None = None

    def __post_init__(self) -> None:
        self.process = Process(self.name, "west")

    @property
    def is_up(self) -> bool:
        """Whether it lives and others know nothing else."""
        return not self.process.dead and self.session is not None and not self.session.dead

    def boot(self) -> None:
        """Begin to work."""
        cluster = self.cluster
        session = cluster.coordination.open_session("tserver", self.name)
        self.retries = SessionRetries(session, cluster.clock, random.Random(1))
        self.holds = SessionHolds(cluster.table, self.retries, session.session_id)
        cluster.volume.create(f"{log_directory(session.session_id)}/000001.wal", ()).close()  # as each tserver has one
        directory = f"{INCOMING}/{session.session_id}"
        self.uploads = SegmentUploads(cluster.volume, self.holds, directory, cluster.clock, 4_000, kernel().die)
        self.session = session

    # ---- tablets

    def load(self, key: bytes) -> None:
        """Serve a tablet, whose holder before is dead."""
        table = self.cluster.table
        self.retries.check()
        before = table.get(key, TABLET_FAMILIES)
        assert before is not None
        serial = next_serial(parse_tablet(before))
        table.put([RowPut(key, {keys.SERIAL: keys.SERIAL_VALUE})], serial)
        self.retries.check()
        row = table.get(key, TABLET_FAMILIES)
        assert row is not None
        parsed = parse_tablet(row)
        refs = [segment_ref(name, entry) for name, entry in live_segments(parsed).items()]
        self.cluster.content([ref.name for ref in refs])
        directory = tablet_directory(TABLE, parsed.directory)
        self.tablets[key] = Served(key, directory, serial, parsed.flush, refs, first_flush_id(serial))

    def _put(self, tablet: Served, state: FlushState, put: RowPut, refs: list[SegmentRef]) -> None:
        """Put a state; the process ends when it can't know whether the books have it."""
        try:
            self.retries.retry("a state", lambda: self.cluster.table.put([put], state.flush_id))
        except BookkeeperError as error:
            kernel().die(error.message)
        tablet.state, tablet.refs = state, refs

    def compact(self, key: bytes) -> None:
        """Make one segment of all, then delete the dead cells."""
        tablet = self.tablets.get(key)
        if tablet is None:
            return
        with tablet.lock:
            if len(tablet.refs) > 1 or (tablet.refs and kernel().rng.random() < 0.5):
                self._merge(tablet)
            self._clear(tablet)

    def _merge(self, tablet: Served) -> None:
        content = self.cluster.content([ref.name for ref in tablet.refs])
        raw = json.dumps(sorted(content.elements())).encode()
        prefix = merged_prefix(first_flush_id(tablet.serial))
        name = f"{tablet.directory}/{prefix}-{SimUuid.uuid4().hex}{ENDING}"
        self.cluster.volume.create(name, [raw]).close()
        flush_id = tablet.take_flush_id()
        last = max(ref.last_seq + ref.shift for ref in tablet.refs)
        new = SegmentRef(name, "default", 1, len(raw), b"a", b"z", 1, last, flush_id)
        state = merged_state(tablet.state, flush_id, [new], 0)
        self._put(tablet, state, segments_put(tablet.key, state, [new]), [new])
        self.cluster.counts["compactions"] += 1

    def _clear(self, tablet: Served) -> None:
        table = self.cluster.table
        row = table.get(tablet.key, SEGMENT_FAMILIES)
        if has_cells_of_others(row, tablet.serial, {ref.name for ref in tablet.refs}):
            state = merged_state(tablet.state, tablet.take_flush_id(), tablet.refs, 0)
            self._put(tablet, state, segments_put(tablet.key, state, ()), tablet.refs)
            row = table.get(tablet.key, SEGMENT_FAMILIES)
        dead = dead_segments(row, tablet.serial)
        if dead is not None:
            self.retries.check()
            table.put(dead.marks(), keys.ONCE_RANK)
            table.delete(dead.cells, dead.rank)

    def adopt(self, key: bytes, request: AdoptRequest) -> None:
        """As ``BulkLoader.adopt``."""
        tablet = self.tablets.get(key)
        if tablet is None:
            raise UnavailableError("the tablet is not served here")
        with tablet.lock:
            if tablet.state is not None and request.stream in tablet.state.high_water:
                return
            refs = [segment_ref(part.name, SegmentEntry.decode(part.entry)) for part in request.segments]
            names = [ref.name for ref in refs]
            with self.holds.taking(names) as taking:
                for name in names:
                    if not self.cluster.volume.exists(name):
                        raise UnavailableError(f"{name} is gone")
                log = request.log
                if log is None and self.cluster.has_targets:
                    log = self._relay(refs)
                flush_id = tablet.take_flush_id()
                new = shifted(refs, tablet.next_seq, flush_id)
                every, last_seq = [*tablet.refs, *new], max(ref.last_seq + ref.shift for ref in new)
                state = adopted_state(tablet.state, flush_id, every, last_seq, replace(request, log=log))
                taking.begin_put()
                self._put(tablet, state, with_log(segments_put(key, state, new), log, new, (), ()), every)
                taking.put_done()
                self._follow()
            if log is not None and log is not request.log:
                self.cluster.volume.create(log.name + SEAL_SUFFIX, ()).close()
            self.cluster.counts["adoptions"] += 1

    def _follow(self) -> None:
        """As the commit thread does before anybody sees the state: it ends the process when the session is over (R15).
        The next holder may have read the row before the put.
        """
        try:
            self.retries.check()
        except LeaseLostError as error:
            kernel().die(error.message)

    def _relay(self, refs: Sequence[SegmentRef]) -> ImportedLog:
        """A log of this cluster for files of another one; the collector deletes it unless a tablet names it."""
        assert self.session is not None
        log = f"{log_directory(self.session.session_id)}/{TAKEN_PREFIX}{SimUuid.uuid4().hex}.wal"
        name_files(self.cluster, log, self.holds.beside, refs)
        return ImportedLog(log, len(refs), 7, 1)

    # ---- files of another cluster

    def receive(self, stream: StreamKey, labels: Sequence[str]) -> None:
        """All steps of a transfer. Raises TransientError when it has to be tried again."""
        contents = [content_of(label) for label in labels]
        files = [OfferedFile(entry_of(content), hashlib.sha256(content).hexdigest()) for content in contents]
        here = self.uploads.begin(stream, len(files), files, lambda name, offered: None)  # noqa: ARG005
        for number, content in enumerate(contents):
            for start in range(here[number], len(content), 1 + len(content) // 2):
                part = content[start : start + 1 + len(content) // 2]
                self.uploads.put(SegmentPart("token", stream, number, start, part))
        with self.uploads.complete(stream) as upload:
            parts = tuple(ImportedSegment(n, entry_of(c).encode()) for n, c in zip(upload.names, contents, strict=True))
            order(self.cluster, self.find, stream, parts, lambda key: None, through=len(files))  # noqa: ARG005

    def expire_uploads(self) -> None:
        """As its thread does."""
        self.uploads.expire()


def name_files(cluster: Cluster, log: str, hold: Callable[[str, Any], None], refs: Sequence[SegmentRef]) -> None:
    """A new log, and the names of its files beside it."""
    cluster.volume.create(log, [b"records"]).close()
    name_log_segments(cluster.volume, hold, log, len(refs), refs, GroupMap({}), Lengths())
    cluster.beside[log] = [ref.name for ref in refs]


def order(
    cluster: Cluster,
    find: Callable[[bytes], TServer | None],
    stream: StreamKey,
    parts: tuple[ImportedSegment, ...],
    log_of: Callable[[bytes], ImportedLog | None],
    through: int | None = None,
) -> None:
    """Have each tablet take the files. Raises UnavailableError unless all have them."""
    lacking = []
    for key in cluster.rows:
        node = find(key)
        row = cluster.table.row(key)
        assert row is not None
        extent = parse_tablet(row).extent
        request = AdoptRequest(extent, stream, parts, log_of(key), through)
        try:
            if node is None:
                raise UnavailableError("no tserver")
            call(node, "adopt", partial(node.adopt, key, request))
        except TransientError as error:
            lacking.append(error.message)
    if lacking:
        raise UnavailableError(lacking[0])


@dataclass(eq=False)
class Master:
    """A master: the product's collector, search for orphan files and engine of operations, with model operations."""

    cluster: Cluster
    name: str
    kinds: Callable[[ReignStores], dict[str, Operation]]
    session: SimSession | None = None
    fate: SimFateEngine | None = None

    def __post_init__(self) -> None:
        self.process = Process(self.name, "west")

    @property
    def leads(self) -> bool:
        """Whether it believes to lead, and does."""
        return self.fate is not None and not self.process.dead and self.session is not None and not self.session.lapsed

    def main(self) -> None:
        """Campaign, then lead."""
        cluster = self.cluster
        self.session = cluster.coordination.open_session("master", self.name)
        while (reign := campaign(cluster.coordination, self.session)) is None:
            kernel().wait("campaign again", lambda: False, 500_000_000)
        hello = Hello(PROTOCOL_VERSION, "id-west", "west", "master")
        pool: Any = SimPool(hello)
        tservers = TServers(cluster.coordination, pool, cluster.volume)
        stores = ReignStores(cluster.table, reign, cluster.coordination)
        peers = PeerMasters(pool, "id-west", FileRoots.of(cluster.settings), MasterFinder(cluster.clock))
        store = FateStore(cluster.table, reign)
        fate = SimFateEngine(store, self.kinds(stores), cluster.clock, random.Random(1), FateLimits())
        fate.resume(store.load())
        age_clock = SteadyWall(cluster.clock)
        origins = OriginParts.of(stores, cluster.clock, age_clock, tservers, peers, fate, "id-west", 60_000)
        rounds = Rounds(cluster.table, cluster.coordination, reign, "id-west", "books")
        collector = GcRunner(stores, rounds, cluster.clock, tservers, fate, origins.gc, FLIGHT_MS)
        orphans = OrphanFiles(stores, rounds, cluster.clock, cluster.volume, tservers.live, FLIGHT_MS)
        self.fate = fate
        self._loop("gc", lambda: (orphans.run_once(), collector.run_once()), 500)
        self._loop("fate", fate.step_once, 300)

    def _loop(self, name: str, act: Callable[[], object], interval_ms: int) -> None:
        def run() -> None:
            while True:
                try:
                    act()
                except LeaseLostError as error:
                    kernel().die(error.message)
                except TransientError as error:
                    kernel().note(f"{name}: {error.message}")
                kernel().wait(f"the next {name}", lambda: False, interval_ms * 1_000_000)

        kernel().spawn(self.process, name, run)
