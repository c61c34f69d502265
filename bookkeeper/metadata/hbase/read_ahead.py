"""The next page of a scan is on its way while the caller works on the one before: HBase and the caller work at once.

Arrives: an iterator whose every step asks HBase. Leaves: its items, in the same order, read at most one step early.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor, Future
from itertools import islice
from typing import TypeVar

T = TypeVar("T")


def read_ahead(pages: Iterator[T], executor: Executor, alone: int) -> Iterator[T]:
    """The items of ``pages``, the first ``alone`` of them when the caller asks for them, for callers that may take no
    more. One thread at a time is in the iterator. When all threads of ``executor`` are busy, the caller's own thread
    takes the step, as it does without any.
    """
    yield from islice(pages, alone)
    ahead: Future[list[T]] | None = None
    try:
        while True:
            page = _next(pages) if ahead is None or ahead.cancel() else ahead.result()
            if not page:
                return
            ahead = executor.submit(_next, pages)
            yield page[0]
    finally:
        if ahead is not None:
            ahead.cancel()


def _next(pages: Iterator[T]) -> list[T]:
    """The next item, alone in a list, or an empty list: StopIteration can't leave a future."""
    return list(islice(pages, 1))
