"""The steps of a task, for the watch over its process: a task that takes none hangs.

A wait for a peer is a step of its own with a limit, so a slow peer makes no task hang.
"""

from __future__ import annotations

from typing import Protocol

from bookkeeper.replay.ranges import Range


class Steps(Protocol):
    """Gets each step of one task process."""

    def begin(self, r: Range) -> None:
        """The task goes on with the file and the peer of this range."""

    def step(self, wait_ms: float = 0) -> None:
        """The task has done something; now it waits for another process, for at most ``wait_ms``."""


class Unwatched:
    """The steps of a task that nobody watches. See :class:`Steps`."""

    def begin(self, r: Range) -> None:
        """See :class:`Steps`."""

    def step(self, wait_ms: float = 0) -> None:
        """See :class:`Steps`."""
