"""A process that dies at one of its writes, or gets no answer to each of them once.

Arrives: a world, which write, and whether it dies before the write or behind it. Leaves: :class:`Crash`, raised there.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pytest

from bookkeeper.errors import UnavailableError
from bookkeeper.metadata import keys
from bookkeeper.metadata.metadata_table import CellKey, RowPut
from bookkeeper.metadata.values import FateStep
from tests.support.master_world import World

DOUBTS_MAX = 200
"""Far more different writes than an operation has."""


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

    with _each_write(world, lambda _, act: dying(act)):
        yield lambda: bool(died)


@contextmanager
def unanswered_once(world: World, landed: bool) -> Iterator[list[str]]:
    """Each write to the books or to the configuration gets no answer when it is made first, and is done only if
    ``landed``; when it is repeated, it succeeds. Lists the writes without an answer.
    """
    doubted: list[str] = []

    def doubtful(name: str, act: Callable[..., object]) -> Callable[..., object]:
        def write_or_raise(*arguments: object) -> object:
            what = f"{name} {_target_of(arguments[0])}"
            if what in doubted:
                return act(*arguments)
            if landed:
                act(*arguments)
            doubted.append(what)
            assert len(doubted) <= DOUBTS_MAX, f"an operation does not end: {doubted[-3:]}"
            raise UnavailableError(f"no answer to {what}")

        return write_or_raise

    with _each_write(world, doubtful):
        yield doubted


def _target_of(changed: object) -> str:
    """The cells or the path that a write changes, the same in each attempt of a step; of an operation's step also its
    name.
    """
    if isinstance(changed, str):
        return changed
    assert isinstance(changed, Sequence)
    names = []
    for one in changed:
        if isinstance(one, CellKey):
            names.append(f"{one.key!r} {one.column}")
        else:
            assert isinstance(one, RowPut)
            steps = [FateStep.decode(raw).step for column, raw in one.values.items() if column == keys.FATE_STEP]
            names.append(f"{one.key!r} {sorted(one.values)} {steps}")
    return re.sub(r"[0-9a-f]{32}", "ATTEMPT", f"{sorted(names)}")


@contextmanager
def _each_write(world: World, changed: Callable[[str, Callable[..., object]], Callable[..., object]]) -> Iterator[None]:
    """Each function that writes is replaced by ``changed`` of its name and itself."""
    with pytest.MonkeyPatch.context() as patch:
        for store, names in ((world.table, ("put", "delete", "purge")), (world.coordination, ("put", "delete"))):
            for name in names:
                patch.setattr(store, name, changed(name, getattr(store, name)))
        yield
