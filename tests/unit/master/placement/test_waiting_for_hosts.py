"""Tablets whose logs lie on a host that is away: they wait, and the reason is shown until the host is back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from bookkeeper.errors import AWAY_HOST, UnavailableError
from bookkeeper.master.books.tserver_recovery import ROUNDS_TO_ASK_AGAIN
from bookkeeper.metadata import keys
from bookkeeper.metadata.metadata_table import RowPut
from bookkeeper.metadata.values import LogHome
from tests.support.master_world import World
from tests.support.scripted_tserver import ScriptedTServer, scripted
from tests.support.tservers import wait_until
from tests.unit.master.placement.test_placement import LAST, Placed

ROW = b"1<"


@pytest.fixture
def tserver(world: World) -> Iterator[ScriptedTServer]:
    with ExitStack() as stack:
        yield stack.enter_context(scripted(world))


@pytest.fixture
def placed(world: World, tserver: ScriptedTServer) -> Iterator[Placed]:
    assert tserver.session
    made = Placed(world, world.master())
    made.placement.waiting = made.master.recovery.waiting
    yield made
    made.lanes.stop()


def test_a_tablet_of_a_dead_session_waits_with_its_reason(
    world: World, tserver: ScriptedTServer, placed: Placed
) -> None:
    session = world.tserver()
    home = LogHome("host2", "9f3a").encode()
    world.table.put([RowPut(keys.home_row(session), {keys.HOME: home})], keys.ONCE_RANK)
    world.locate(ROW, session)
    world.kill(session)
    placed.master.recovery.run_once(placed.master.recovery.tservers.sessions())
    placed.place()
    assert "host2, which is away: start it (since " in placed.placement.warnings.get(ROW, ""), "nobody says why"
    assert not tserver.held
    world.table.put([RowPut(keys.home_row(session), {keys.HOME_ENDED: b""})], keys.ONCE_RANK)
    for _ in range(ROUNDS_TO_ASK_AGAIN):
        placed.master.recovery.run_once(placed.master.recovery.tservers.sessions())
    placed.until_held(tserver, LAST)
    wait_until(lambda: ROW not in placed.placement.warnings, "the reason goes when the tablet is served")


def test_a_load_that_waits_for_a_host_says_why(tserver: ScriptedTServer, placed: Placed) -> None:
    tserver.refused[LAST] = UnavailableError("w lies on host host2, which is away: start it", {AWAY_HOST: "host2"})
    placed.until(lambda: "host2" in placed.placement.warnings.get(ROW, ""), "the reason")
    del tserver.refused[LAST]
    placed.until_held(tserver, LAST)
    wait_until(lambda: ROW not in placed.placement.warnings, "the reason goes when the tablet is served")
