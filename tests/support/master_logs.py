"""Logs with books, as the master's schedules begin: written by a tserver, or rolled and flushed."""

from __future__ import annotations

from tests.support.master_world import World

LAST = b"1<"
"""The only tablet of table 1."""


def used(world: World, records: int = 3, *, seal: bool = False) -> tuple[str, str]:
    """A tserver's log with records of table 1, all of them needed; returns session and file."""
    session = world.tserver()
    file = world.log(session, records, seal=seal)
    world.use(LAST, file, records)
    return session, file


def sealed(world: World, records: int = 3) -> str:
    """The same, rolled: CLOSED and flushed."""
    _, file = used(world, records, seal=True)
    world.closed(LAST, file, records)
    world.flushed(LAST, file)
    return file
