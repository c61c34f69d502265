"""The coordination store was restored from a backup: a reign gets an epoch that another one had (rule R8)."""

from __future__ import annotations

import pytest

from bookkeeper.coordination.coordination_protocol import Session
from bookkeeper.coordination.embedded import EmbeddedCoordination
from bookkeeper.master.fate.fate_store import FateRecord, FateStore
from bookkeeper.master.reign.leader import RankAboveError, Reign, campaign
from bookkeeper.metadata import keys
from bookkeeper.metadata.values import FateOp, FateStep
from tests.support.faults import fault
from tests.support.master_world import World


def put_epoch_back(world: World) -> None:
    """The store of a minute ago."""
    assert isinstance(world.coordination, EmbeddedCoordination)
    with world.coordination._store.writing() as db:
        db.execute("UPDATE leader SET epoch = epoch - 1")


def new_reign(world: World) -> tuple[Session, Reign]:
    session = world.coordination.open_session("master", "h:1")
    reign = campaign(world.coordination, session)
    assert reign is not None
    return session, reign


def take_over(store: FateStore) -> list[FateRecord]:
    """As a master does: it tries again when it met a rank above its own."""
    try:
        return store.load()
    except RankAboveError:
        return store.load()


def a_reign_with_the_epoch_of_another_one_is_above_it(world: World) -> None:
    session, former = new_reign(world)
    books = FateStore(world.table, former)
    assert take_over(books) == []
    (txid,) = books.begin([FateOp("script", {}, 1)])
    for number in range(9):
        books.reach({txid: FateStep(f"step {number}", {})})
    session.close()
    put_epoch_back(world)

    _, later = new_reign(world)
    assert later.epoch == former.epoch
    books = FateStore(world.table, later)
    (record,) = take_over(books)
    assert record.step == "step 8"
    books.reach({txid: FateStep("the next step", {})})
    row = world.table.get(keys.fate_row(txid), ("fate",))
    assert row is not None
    step = FateStep.decode(row.cells[keys.FATE_STEP].value).step
    assert step == "the next step", "a write is hidden under that of another reign with the same epoch"
    assert later.epoch > former.epoch


def test_r8_a_reign_with_the_epoch_of_another_one_is_above_it(world: World) -> None:
    a_reign_with_the_epoch_of_another_one_is_above_it(world)


def test_r8_without_it_a_write_is_hidden(world: World) -> None:
    with fault("equal-epochs-are-own"), pytest.raises(AssertionError, match="is hidden under that of another reign"):
        a_reign_with_the_epoch_of_another_one_is_above_it(world)
