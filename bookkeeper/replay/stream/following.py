"""A task that stays: it asks a tserver for ranges, ships them, brings the results, and asks again.

Arrives: ranges, as soon as there are some. Leaves: messages to the peer, as in a run of ranges, and result rows for the
tserver. An answer without ranges means that there is nothing to ship yet, no answer at all that the task is over. A
poll that fails ends the task: the tserver takes what was under way as not shipped.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct

from bookkeeper.errors import BookkeeperError
from bookkeeper.replay.ranges import (
    RANGE_SCHEMA,
    RESULT_SCHEMA,
    Range,
    RangeResult,
    decode_table,
    encode_table,
    ranges_from_table,
    results_to_batch,
)

POLL_MS = 10_000
"""A tserver answers a poll within this time, with or without ranges."""


RECENT_MAX = 256
"""Batches whose results are remembered: the tserver may have got them, and die before the journal has them."""


class Ended(Struct, frozen=True):
    """Why a task is over: "" = the tserver ended it. ``ranges`` and ``results``: of the last batches, when the tserver
    can't be asked any more.
    """

    error: str = ""
    ranges: tuple[Range, ...] = ()
    results: tuple[RangeResult, ...] = ()


def follow(ship: Callable[[Sequence[Range]], Iterable[RangeResult]], poll: Callable[[bytes], bytes]) -> Ended:
    """Follow until the tserver ends it, or until it can't be asked. ``poll`` brings results to the tserver and returns
    its answer; raises BookkeeperError.
    """
    recent: deque[tuple[list[Range], list[RangeResult]]] = deque(maxlen=RECENT_MAX)
    results: list[RangeResult] = []
    while True:
        try:
            answer = poll(encode_table([results_to_batch(results)], RESULT_SCHEMA))
        except BookkeeperError as error:
            return Ended(
                f"the tserver can't be asked: {error.message}",
                tuple(r for ranges, _ in recent for r in ranges),
                tuple(result for _, found in recent for result in found),
            )
        if not answer:
            return Ended()
        ranges = ranges_from_table(decode_table(answer, RANGE_SCHEMA))
        results = list(ship(ranges)) if ranges else []
        if results:
            recent.append((ranges, results))
