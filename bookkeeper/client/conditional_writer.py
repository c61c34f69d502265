"""Conditional writes of one row: a mutation that is written only if conditions on cells of its row hold.

The client does not repeat a call whose answer is lost: if the first call wrote the mutation, the conditions no longer
hold, and the second answer "not written" would be wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count

import tenacity
from msgspec import Struct

from bookkeeper.client import location_cache
from bookkeeper.client.location_cache import TableLocations
from bookkeeper.client.mutation import Changes, Mutation
from bookkeeper.client.tablet_extents import TableMap, UnservableTracker
from bookkeeper.clock import Clock
from bookkeeper.errors import (
    BookkeeperError,
    NotServingError,
    OverloadedError,
    PermanentError,
    TransientError,
    UnavailableError,
)
from bookkeeper.rpc.contract.messages import Condition
from bookkeeper.rpc.rpc_pool import UNREACHED, RpcPool
from bookkeeper.storage.wal.blocks.block import encode_batch

CALL_TIMEOUT_MS = 35_000
"""A little more than a tserver waits for its disk, so that its answer still arrives."""


def equals(family: bytes, qualifier: bytes, value: bytes, visibility: bytes = b"") -> Condition:
    """A condition for :meth:`Client.write_if`: the newest version of the cell has exactly this value."""
    return Condition(family, qualifier, visibility, value)


def absent(family: bytes, qualifier: bytes, visibility: bytes = b"") -> Condition:
    """A condition for :meth:`Client.write_if`: the cell does not exist. It was never written, was deleted, or is older
    than the table keeps cells.
    """
    return Condition(family, qualifier, visibility, None)


class ConditionalWriter(Struct, frozen=True):
    """Conditional writes of one table. ``retry`` bounds the time to find a reachable tserver that serves the tablet."""

    tablets: TableLocations
    pool: RpcPool
    retry: tenacity.Retrying
    clock: Clock

    def write_if(self, mutation: Mutation, conditions: Sequence[Condition], durability: str) -> bool:
        """See :meth:`Client.write_if`."""
        changes = Changes()
        changes.add(mutation)
        records = encode_batch(changes.encode())
        unservable = UnservableTracker(self.clock)

        def attempt(located: TableMap) -> bool:
            index = located.index_of(mutation.row)
            extent, address = located.extents[index], located.addresses[index]
            unservable.check(located, (extent,))
            if address is None:
                raise NotServingError(f"no tserver serves tablet {extent} now")
            tserver = self.pool.tserver(address, CALL_TIMEOUT_MS)
            try:
                return tserver.write_if(extent, list(conditions), records, durability)
            except TransientError as error:
                if was_not_taken(error, address):
                    raise
                raise _UnknownError(error) from error

        try:
            written = self._use_cached_tablets(mutation.row, attempt)
            return self._use_located_tablets(mutation.row, attempt) if written is None else written
        except _UnknownError as unknown:
            reason = unknown.reason.message
            raise UnavailableError(
                f"it is not known whether row {mutation.row!r} was written: {reason}; read it", {"unknown": "yes"}
            ) from unknown

    def _use_cached_tablets(self, row: bytes, attempt: Callable[[TableMap], bool]) -> bool | None:
        """None: no tserver is cached, or it does not serve the tablet."""
        located = self.tablets.cached()
        if located is None:
            return None
        try:
            return attempt(located)
        except BookkeeperError as error:
            if not location_cache.is_stale_location(error):
                raise
            self.tablets.invalidate(located.extents[located.index_of(row)])
            return None

    def _use_located_tablets(self, row: bytes, attempt: Callable[[TableMap], bool]) -> bool:
        attempts = count()

        def locate_and_attempt() -> bool:
            located = self.tablets.locate(row, again=next(attempts) > 0)
            try:
                return attempt(located)
            except TransientError:
                self.tablets.invalidate(located.extents[located.index_of(row)])
                raise

        return self.retry(locate_and_attempt)


class _UnknownError(PermanentError):
    """Wraps a transient error, so that the retry does not repeat the call."""

    def __init__(self, reason: BookkeeperError) -> None:
        super().__init__(reason.message)
        self.reason = reason


def was_not_taken(error: TransientError, address: str) -> bool:
    """Whether the mutation is certainly not written: the tserver refused it before the commit, or was not reached."""
    return isinstance(error, NotServingError | OverloadedError) or error.details.get(UNREACHED) == address
