"""Conditional writes of a client: one row at a time, never sent twice unless nobody can have taken it.

Arrives: a mutation and conditions on cells of its row. Leaves: whether it was written. A call whose answer was lost is
not repeated: had it been written, its own conditions would hold no more, and "not written" would be a lie. Survives a
crash of the client: what was answered.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count

import tenacity

from bookkeeper.client import location_cache
from bookkeeper.client.location_cache import TablePlaces
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
from bookkeeper.storage.wal import encode_batch

CALL_TIMEOUT_MS = 35_000
"""A little more than a tserver waits for its disk: what it answers by then is known."""


def equals(family: bytes, qualifier: bytes, value: bytes, visibility: bytes = b"") -> Condition:
    """A condition for :meth:`Client.write_if`: the newest version of the cell has exactly this value."""
    return Condition(family, qualifier, visibility, value)


def absent(family: bytes, qualifier: bytes, visibility: bytes = b"") -> Condition:
    """A condition for :meth:`Client.write_if`: the cell does not exist. It was never written, was deleted, or is older
    than the table keeps cells.
    """
    return Condition(family, qualifier, visibility, None)


@dataclass(frozen=True, slots=True)
class ConditionalWriter:
    """Of one table. ``retry`` bounds how long a tserver is looked for that can be reached and serves the tablet."""

    tablets: TablePlaces
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
            place = located.index_of(mutation.row)
            extent, address = located.extents[place], located.addresses[place]
            unservable.note(located, (extent,))
            if address is None:
                raise NotServingError(f"nobody serves tablet {extent} now")
            tserver = self.pool.tserver(address, CALL_TIMEOUT_MS)
            try:
                return tserver.write_if(extent, list(conditions), records, durability)
            except TransientError as error:
                if was_not_taken(error, address):
                    raise
                raise _UnknownError(error) from error

        try:
            taken = self._as_remembered(mutation.row, attempt)
            return self._as_asked(mutation.row, attempt) if taken is None else taken
        except _UnknownError as unknown:
            reason = unknown.reason.message
            raise UnavailableError(
                f"it is not known whether row {mutation.row!r} was written: {reason}; read it", {"unknown": "yes"}
            ) from unknown

    def _as_remembered(self, row: bytes, attempt: Callable[[TableMap], bool]) -> bool | None:
        """None: nobody is remembered who takes it."""
        located = self.tablets.remembered()
        if located is None:
            return None
        try:
            return attempt(located)
        except BookkeeperError as error:
            if not location_cache.is_stale_location(error):
                raise
            self.tablets.doubt(located.extents[located.index_of(row)])
            return None

    def _as_asked(self, row: bytes, attempt: Callable[[TableMap], bool]) -> bool:
        attempts = count()

        def ask_and_attempt() -> bool:
            located = self.tablets.ask(row, again=next(attempts) > 0)
            try:
                return attempt(located)
            except TransientError:
                self.tablets.doubt(located.extents[located.index_of(row)])
                raise

        return self.retry(ask_and_attempt)


class _UnknownError(PermanentError):
    """Carries the reason past those who try transient errors again."""

    def __init__(self, reason: BookkeeperError) -> None:
        super().__init__(reason.message)
        self.reason = reason


def was_not_taken(error: TransientError, address: str) -> bool:
    """Nothing was written for sure: the tserver said so before it committed, or was never reached."""
    return isinstance(error, NotServingError | OverloadedError) or error.details.get(UNREACHED) == address
