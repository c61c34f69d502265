"""The batch writer: groups many mutations into few calls of tservers, and keeps the order of each row's mutations.

One thread locates tablets, one thread for each tserver sends. Memory is bounded, so :meth:`BatchWriter.add` waits when
tservers are slower than the caller. The writer sends a write again when its answer is lost: a mutation without a
timestamp may then be written twice, with two times or one, but never behind a later mutation of its row. Acknowledged
writes survive a crash as their durability says.
"""

from __future__ import annotations

import itertools
import logging
import random
import threading
from collections.abc import Callable, Iterable
from itertools import islice
from types import TracebackType
from typing import Literal, Self

import pyarrow as pa
from msgspec import Struct

from bookkeeper.client.mutation import Changes, Mutation, conform, slice_between_rows
from bookkeeper.client.retry import pause_ms
from bookkeeper.client.tablet_extents import TableMap, UnservableTracker
from bookkeeper.client.tablet_queues import UNLOCATED, Flight, TabletQueues
from bookkeeper.clock import Clock
from bookkeeper.errors import BookkeeperError, InvalidInputError, PermanentError, TransientError, UnavailableError
from bookkeeper.model import Extent
from bookkeeper.rpc.contract.messages import WriteBatch
from bookkeeper.rpc.rpc_pool import RpcPool
from bookkeeper.storage.tablet.scans.visibility import check_labels
from bookkeeper.storage.wal.blocks.block import encode_batch

LOG = logging.getLogger(__name__)

GROUP = 100
"""Mutations that :meth:`BatchWriter.add_all` adds under one lock."""

LATE_MS = 500
"""A call that takes longer than this is late: as often, the writer asks the master whether the tablets are still there,
and sends the records to the place where they are by now. A machine that lost its power never answers.
"""

DurabilityName = Literal["default", "sync", "flush", "log", "none"]


class WriterOptions(Struct, frozen=True):
    """Settings of a :class:`BatchWriter`; :meth:`Client.writer` takes these fields."""

    durability: DurabilityName = "default"
    """When a write is acknowledged: ``sync`` once the log is synced to disk, ``flush`` once the operating system has
    it, ``log`` once it is queued for the log, ``none`` without a log. ``default`` is the table's ``table.durability``,
    which is ``sync`` unless it was changed. A table that is replicated logs everything.
    """

    batch_bytes: int = 2 * 1024 * 1024
    """Bytes of added mutations, of all tablets together, at which the writer queues them (approximate)."""

    request_bytes: int = 4 * 1024 * 1024
    """Approximate size of one call of a tserver, bytes; it may hold batches of several tablets."""

    records_max: int = 100_000
    """Maximum records of one batch."""

    memory_bytes_max: int = 64 * 1024 * 1024
    """Maximum bytes that are not acknowledged; above it :meth:`BatchWriter.add` waits."""

    deadline_ms: int = 120_000
    """Milliseconds for which the writer tries to write the records of a tablet before it gives up."""

    call_timeout_ms: int = 10_000
    """Time-out of one call, ms."""


class _StuckTablet(Struct):
    """A tablet whose records can't leave: since when (boot clock), and how often the writer tried to locate it."""

    since_ns: int
    attempts: int = 0

    def count_attempt(self) -> int:
        """The number of attempts, including this one."""
        self.attempts += 1
        return self.attempts


class BatchWriter:
    """Writes many mutations to one table, from any thread. The end of its ``with`` block writes all of them first, also
    after an Exception, but not after KeyboardInterrupt or SystemExit.

    The writer writes mutations of one row in the order in which they were added. It sends a mutation again when the
    answer is lost: without a timestamp of its own it may be written twice, with two times, but never behind a later
    mutation of its row. An error ends the writer; then every method that writes raises it again, and
    :meth:`unwritten` returns the remaining records.
    """

    def __init__(
        self,
        table: str,
        locate: Callable[[], TableMap],
        pool: RpcPool,
        clock: Clock,
        rng: random.Random,
        options: WriterOptions,
        reasons: Callable[[], str] = str,
    ) -> None:
        """For tests; users call :meth:`Client.writer`. ``reasons`` returns why tablets are not served, "" = unknown."""
        self._table = table
        self._reasons = reasons
        self._locate = locate
        self._pool = pool
        self._clock = clock
        self._rng = rng
        self._options = options
        self._name = f"{rng.getrandbits(128):032x}"
        self._attempts = itertools.count(1)
        self._changes = Changes()
        self._intake = threading.RLock()
        """Protects ``_changes``; a thread holds it while it queues records, so that they keep their order."""
        self._queues = TabletQueues()
        self._changed = threading.Condition()
        self._closed = threading.Event()
        self._is_over = False
        """The writer takes no more mutations, by :meth:`close` or an error; a plain value, read for each mutation."""
        self._error: BookkeeperError | None = None
        self._last_failure: BookkeeperError | None = None
        self._stuck: dict[Extent, _StuckTablet] = {}
        self._located = TableMap((), (), ())
        self._unservable = UnservableTracker(clock)
        self._lanes: dict[str, threading.Thread] = {}
        self._router = threading.Thread(target=self._guarded, args=(self._route,), name=f"route-{table}", daemon=True)
        self._router.start()

    # ---- methods for users

    def add(self, mutation: Mutation) -> None:
        """Add a mutation; later changes of the object do not count. Waits while ``memory_bytes_max`` bytes are not
        acknowledged. Raises the error that ended the writer, and InvalidInputError when it is closed.
        """
        with self._intake:
            if self._is_over:
                self._refuse()
            changes = self._changes
            if changes.add(mutation) >= self._options.batch_bytes or len(changes) >= self._options.records_max:
                self._seal()

    def add_all(self, mutations: Iterable[Mutation]) -> None:
        """Like :meth:`add` for many mutations; faster."""
        groups = iter(mutations)
        while group := list(islice(groups, GROUP)):
            with self._intake:
                if self._is_over:
                    self._refuse()
                changes = self._changes
                if changes.extend(group) >= self._options.batch_bytes or len(changes) >= self._options.records_max:
                    self._seal()

    def add_batch(self, batch: pa.RecordBatch | pa.Table) -> None:
        """Add records in Arrow; the fastest way. Columns by name: ``row``, ``family``, ``qualifier``, ``value``
        (binary); ``visibility`` (binary), ``timestamp`` (int64, milliseconds since 1970, null = the tserver's time) and
        ``delete`` (bool) may be absent. Neighbours with the same row are one mutation. Raises what :meth:`add` raises,
        and InvalidInputError for other columns, types that can't be cast, and nulls.
        """
        batches = [conform(one) for one in (batch.to_batches() if isinstance(batch, pa.Table) else [batch])]
        for one in batches:
            check_labels(one)
        parts = [
            part
            for one in batches
            for part in slice_between_rows(one, self._options.batch_bytes, self._options.records_max)
        ]
        with self._intake:
            self._seal()
            for part in parts:
                self._submit(part)

    def flush(self) -> None:
        """Wait until every mutation that was added before is acknowledged. Raises the error that ended the writer:
        UnavailableError after ``deadline_ms``, ReadOnlyError, NotFoundError, CorruptionError, or another
        PermanentError.
        """
        with self._intake:
            self._seal()
        with self._changed:
            self._changed.wait_for(lambda: self._error is not None or self._queues.is_empty)
            self._raise_error()

    def close(self) -> None:
        """Flush and end. A second call writes nothing. Each call raises the error that ended the writer."""
        with self._intake:
            self._is_over = True
        try:
            if not self._closed.is_set():
                self.flush()
        finally:
            self._end()
        with self._changed:
            self._raise_error()

    def unwritten(self) -> list[pa.RecordBatch]:
        """After an error: the unacknowledged records as batches for :meth:`add_batch` of a new writer, those of a row
        in their order.
        """
        with self._intake, self._changed:
            return [batch for batch in (*self._queues.unwritten(), self._changes.encode()) if batch.num_rows]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        elif isinstance(error, Exception):
            try:
                self.close()
            except BookkeeperError as own:
                error.add_note(f"besides, closing the writer failed: {own}")
        else:  # KeyboardInterrupt or SystemExit: end without writing
            self._end()

    # ---- intake

    def _seal(self) -> None:
        """Encode the added mutations and queue them."""
        if not len(self._changes):
            return
        changes, self._changes = self._changes, Changes()
        for part in slice_between_rows(changes.encode(), self._options.request_bytes, self._options.records_max):
            self._submit(part)

    def _submit(self, batch: pa.RecordBatch) -> None:
        limit = self._options.memory_bytes_max
        size = int(batch.nbytes)
        with self._changed:
            self._changed.wait_for(lambda: self._error is not None or self._has_room(size, limit))
            if self._error is not None or self._closed.is_set():
                self._refuse()
            if self._queues.add(batch, size):
                self._changed.notify_all()

    def _refuse(self) -> None:
        """Raise the error that ended the writer, or InvalidInputError because it is closed."""
        with self._changed:
            self._raise_error()
        raise InvalidInputError(f"the writer of table {self._table} is closed; open another")

    def _has_room(self, size: int, limit: int) -> bool:
        return self._queues.is_empty or self._queues.unwritten_bytes + size <= limit

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error

    # ---- threads

    def _guarded(self, loop: Callable[..., None], *arguments: object) -> None:
        try:
            loop(*arguments)
        except BookkeeperError as error:
            self._fail(error)
        except Exception as error:
            LOG.exception("a thread of the writer of table %s failed", self._table)
            self._fail(PermanentError(f"a thread of the writer failed: {type(error).__name__}: {error}"))

    def _fail(self, reason: BookkeeperError) -> None:
        """End the writer without writing the remaining records."""
        with self._changed:
            if self._error is None:
                records = sum(batch.num_rows for batch in self._queues.unwritten())
                message = f"{records} records of table {self._table} were not written: {reason.message}"
                self._error = type(reason)(message, {**reason.details, "unwritten_records": str(records)})
            self._changed.notify_all()
        self._is_over = True
        self._closed.set()

    def _end(self) -> None:
        self._closed.set()
        with self._changed:
            self._changed.notify_all()
            threads = [self._router, *self._lanes.values()]
        for thread in threads:
            thread.join()

    def _route(self) -> None:
        """Locate the tablets, again and again while records are stuck or late."""
        while True:
            with self._changed:
                self._wait_for_work()
                if self._closed.is_set():
                    return
                attempts = self._count_attempts()
            if attempts > 1 and self._clock.wait(self._closed, pause_ms(attempts - 1, self._rng)):
                return
            self._relocate()

    def _wait_for_work(self) -> None:
        """Wait until records are stuck or late, or the writer ends. Each wakeup looks at every tablet, and there is one
        for each batch, so a look for late records has a time of its own.
        """
        while not self._closed.is_set():
            if self._queues.is_empty:
                self._changed.wait_for(lambda: self._closed.is_set() or not self._queues.is_empty)
            elif self._changed.wait_for(
                lambda: self._closed.is_set() or bool(self._queues.stuck()), LATE_MS / 1_000
            ) or self._queues.has_flight_before(self._clock.boot_ns() - LATE_MS * 1_000_000):
                return

    def _count_attempts(self) -> int:
        """The highest number of attempts to locate a stuck tablet, including this one; raises UnavailableError when a
        tablet is stuck for longer than the deadline, CorruptionError when a tablet needs an operator's help.
        """
        self._unservable.check(self._located, self._queues.stuck())
        now_ns = self._clock.boot_ns()
        current = {*self._queues.extents(), UNLOCATED}
        self._stuck = {extent: stuck for extent, stuck in self._stuck.items() if extent in current}
        attempts = 0
        for extent in self._queues.stuck():
            stuck = self._stuck.setdefault(extent, _StuckTablet(now_ns))
            attempts = max(attempts, stuck.count_attempt())
            if now_ns - stuck.since_ns > self._options.deadline_ms * 1_000_000:
                last = self._last_failure.message if self._last_failure else "no tserver serves the tablet"
                reason = self._reasons() or last
                raise UnavailableError(f"not in {self._options.deadline_ms} ms: {reason}")
        return attempts

    def _relocate(self) -> None:
        asked_ns = self._clock.boot_ns()
        try:
            found = self._locate()
        except TransientError as error:
            self._last_failure = error
            return
        with self._changed:
            self._located = found
            for address in self._queues.give_up(found, asked_ns - LATE_MS * 1_000_000):
                self._lanes.pop(address, None)  # it ends when its call does, and nobody waits for it
            self._queues.relocate(found)
            self._stuck.pop(UNLOCATED, None)
            for address in self._queues.addresses() - set(self._lanes):
                lane = threading.Thread(
                    target=self._guarded, args=(self._send, address), name=f"write-{address}", daemon=True
                )
                self._lanes[address] = lane
                lane.start()
            self._changed.notify_all()

    def _send(self, address: str) -> None:
        """The lane of one tserver: take batches, call, record the result; ends when it serves no tablet any more."""
        while True:
            with self._changed:
                taken = self._take(address)
                if not taken:
                    self._lanes.pop(address, None)
                    return
                lane = self._lanes[address]
            failed, failure = self._call(address, taken)
            with self._changed:
                for flight in taken:
                    if flight.extent in failed:
                        self._queues.failed(flight)
                    elif self._queues.written(flight):
                        self._stuck.pop(flight.extent, None)
                self._last_failure = failure or self._last_failure
                self._changed.notify_all()
                if self._lanes.get(address) is not lane:
                    return

    def _take(self, address: str) -> list[Flight]:
        while not self._closed.is_set() and address in self._queues.addresses():
            taken = self._queues.take(address, self._options.request_bytes, self._clock.boot_ns())
            if taken:
                return taken
            self._changed.wait()
        return []

    def _call(self, address: str, taken: list[Flight]) -> tuple[set[Extent], BookkeeperError | None]:
        """The tablets whose batches are not acknowledged, and why; raises PermanentError."""
        batches = [WriteBatch(flight.extent, encode_batch(flight.batch), flight.placed) for flight in taken]
        tserver = self._pool.tserver(address, self._options.call_timeout_ms)
        try:
            result = tserver.write(batches, self._options.durability, self._name, next(self._attempts))
        except TransientError as error:
            LOG.debug("%s: %s", address, error)
            return {flight.extent for flight in taken}, error
        if result.not_serving:
            return set(result.not_serving), UnavailableError(f"{address} does not serve the tablet")
        return set(), None
