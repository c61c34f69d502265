"""Leading: one at a time, ranks that rise, and the end of a reign. (The lost epoch counter is schedule 8.)"""

from __future__ import annotations

import pytest

from bookkeeper.errors import LeaseLostError
from bookkeeper.master.reign import leader
from bookkeeper.master.reign.leader import RankAboveError, Reign, campaign
from bookkeeper.metadata import keys
from tests.support.master_world import World


def test_of_two_candidates_one_leads_and_the_other_takes_over_with_a_higher_epoch(world: World) -> None:
    sessions = [world.coordination.open_session("master", f"127.0.0.1:{port}") for port in (1, 2)]
    first = campaign(world.coordination, sessions[0])
    assert first is not None
    assert campaign(world.coordination, sessions[1]) is None
    sessions[0].close()
    second = campaign(world.coordination, sessions[1])
    assert second is not None
    assert second.epoch > first.epoch
    assert second.next_rank() > first.epoch << 32


def test_ranks_of_a_reign_rise_and_are_never_given_twice(world: World) -> None:
    reign = world.master().reign
    ranks = [reign.next_rank() for _ in range(50)]
    assert ranks == sorted(set(ranks))
    assert {keys.split_master_rank(rank)[0] for rank in ranks} == {reign.epoch}


def test_when_the_numbers_of_an_epoch_are_used_up_the_epoch_rises(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    reign = world.master().reign
    monkeypatch.setattr(leader, "NUMBER_MAX", 3)
    ranks = [reign.next_rank() for _ in range(10)]
    assert ranks == sorted(set(ranks))
    assert reign.epoch > 3


def test_a_reign_that_is_over_gives_no_rank(world: World) -> None:
    master = world.master()
    assert master.reign.is_valid()
    master.session.close()
    assert not master.reign.is_valid()
    for act in (master.reign.check, master.reign.next_rank, master.cycle):
        with pytest.raises(LeaseLostError):
            act()


def test_a_rank_that_this_reign_gave_out_or_one_below_is_no_surprise(world: World) -> None:
    world.master().session.close()
    reign = world.master().reign
    reign.observe(reign.next_rank())
    reign.observe(keys.master_rank(reign.epoch - 1, 2**32 - 1))
    reign.observe(0)


def test_r8_a_rank_of_the_own_epoch_that_this_reign_did_not_give_out_raises_the_epoch_once(world: World) -> None:
    reign = world.master().reign
    before, met = reign.epoch, reign.next_rank() + 1
    with pytest.raises(RankAboveError):
        reign.observe(met)
    assert reign.epoch == before + 1
    assert reign.next_rank() > met
    reign.observe(met)
    assert reign.epoch == before + 1


def test_a_deposed_leader_that_meets_a_younger_rank_learns_that_it_is_over(world: World) -> None:
    first = world.master()
    second = world.depose(first)
    assert isinstance(first.reign, Reign)
    with pytest.raises(LeaseLostError):
        first.reign.observe(second.reign.next_rank())
