"""A gate for what is done under the configuration of its begin: whoever changed that waits until all of it is through.

Arrives: threads that look at the configuration behind the gate. Leaves: the word that those who came before are done.
Survives a crash: nothing. Rule: R14, for what no block in the log says.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from bookkeeper.errors import UnavailableError


class ConfigBarrier:
    """Thread-safe."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._numbers = itertools.count()
        self._inside: set[int] = set()

    @contextmanager
    def passing(self) -> Iterator[None]:
        """Read the configuration inside: who changed it before is seen, who changes it later waits."""
        with self._changed:
            number = next(self._numbers)
            self._inside.add(number)
        try:
            yield
        finally:
            with self._changed:
                self._inside.discard(number)
                self._changed.notify_all()

    def settle(self, timeout_ms: float) -> None:
        """Wait for all that are inside now. Raises UnavailableError when they take longer."""
        with self._changed:
            before = set(self._inside)
            if not self._changed.wait_for(lambda: not before & self._inside, timeout_ms / 1000):
                raise UnavailableError(f"what was begun before is not done within {timeout_ms:.0f} ms: ask again")
