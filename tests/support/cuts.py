"""A process that dies at one of its writes.

Arrives: a world, which write, and whether it dies before the write or behind it. Leaves: :class:`Crash`, raised there.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.support.master_world import World


class Crash(Exception):  # noqa: N818
    """The process is gone."""


@contextmanager
def cut_at(world: World, write: int, behind: bool) -> Iterator[Callable[[], bool]]:
    """The process dies at its ``write``-th write to the books or to the configuration (from 0), before or behind it.
    Tells whether it did.
    """
    count, died = itertools.count(), []

    def dying(act: Callable[..., object]) -> Callable[..., object]:
        def write_or_die(*arguments: object) -> object:
            dies = next(count) == write
            result = act(*arguments) if behind or not dies else None
            if dies:
                died.append(True)
                raise Crash
            return result

        return write_or_die

    with pytest.MonkeyPatch.context() as patch:
        for store, names in ((world.table, ("put", "delete", "purge")), (world.coordination, ("put", "delete"))):
            for name in names:
                patch.setattr(store, name, dying(getattr(store, name)))
        yield lambda: bool(died)
