"""Waits for operations that read an earlier configuration and write no block.

Rule: R14.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from bookkeeper.errors import UnavailableError


class ConfigBarrier:
    """The operations that run now. Thread-safe."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._numbers = itertools.count()
        self._running: set[int] = set()

    @contextmanager
    def passing(self) -> Iterator[None]:
        """An operation that reads the configuration inside this block: it sees every earlier change, and :meth:`settle`
        after a later change waits for it.
        """
        with self._changed:
            number = next(self._numbers)
            self._running.add(number)
        try:
            yield
        finally:
            with self._changed:
                self._running.discard(number)
                self._changed.notify_all()

    def settle(self, timeout_ms: float) -> None:
        """Wait for all operations that run now. Raises UnavailableError when they take longer."""
        with self._changed:
            before = set(self._running)
            if not self._changed.wait_for(lambda: not before & self._running, timeout_ms / 1000):
                raise UnavailableError(f"earlier operations did not end within {timeout_ms:.0f} ms: ask again")
