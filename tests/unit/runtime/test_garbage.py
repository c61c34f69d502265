"""No collection while a block runs, and collections afterwards, also when blocks overlap."""

from __future__ import annotations

import gc
from contextlib import ExitStack

import pytest

from bookkeeper.runtime.garbage import without_collections


def test_no_collection_runs_in_the_block_and_they_go_on_behind_it() -> None:
    with without_collections():
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(ZeroDivisionError), without_collections():
        raise ZeroDivisionError
    assert gc.isenabled()


@pytest.mark.parametrize("ends_first", [0, 1])
def test_collections_go_on_when_overlapping_blocks_have_ended(ends_first: int) -> None:
    blocks = [ExitStack(), ExitStack()]
    for block in blocks:
        block.enter_context(without_collections())
    for block in (blocks[ends_first], blocks[1 - ends_first]):
        block.close()
    assert gc.isenabled()
