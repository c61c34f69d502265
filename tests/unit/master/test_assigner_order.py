"""Both assigners keep each tablet's order, and ``sequential`` hands out the oldest log first (R24)."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bookkeeper.master.cycle import assigner
from bookkeeper.master.cycle.assigner import PeerQueue, PlanInput, WorkRange, next_range, plan_peer, work_key
from bookkeeper.master.index import barriers as rules
from bookkeeper.master.index.barriers import FileBarrier, necessary_barriers
from bookkeeper.master.index.outstanding import Outstanding
from bookkeeper.master.index.shipments import Flight
from tests.support.faults import fault
from tests.support.master_values import EAST, by_name, entry, name, plan_world, report

SESSIONS = ("s1", "s2", "s3")
Place = tuple[bytes, int]


@dataclass
class History:
    """Logs as tablets wrote them that moved between tservers, which rolled their logs. ``written``: for each tablet,
    its records in order.
    """

    files: Outstanding = field(default_factory=Outstanding)
    written: dict[int, list[Place]] = field(default_factory=dict)


def history(rng: random.Random, tablets: int = 4, moments: int = 60) -> History:
    """A random one. The name of a log tells nothing of its age, but among those of one tserver."""
    made, number = History(), dict.fromkeys(SESSIONS, 1)
    length: dict[bytes, int] = {}
    created: dict[bytes, int] = {}
    barriers: dict[bytes, list[FileBarrier]] = {}
    home: dict[int, str] = {}
    for moment in range(moments):
        tablet, session = rng.randrange(tablets), rng.choice(SESSIONS)
        if rng.random() < 0.3:
            home[tablet] = session
        if rng.random() < 0.2:
            number[session] += 1
        file = name(home.setdefault(tablet, session), number[home[tablet]])
        created.setdefault(file, moment)
        length[file] = length.get(file, 0) + 1
        records = made.written.setdefault(tablet, [])
        if records and records[-1][0] != file:
            barriers.setdefault(file, []).append(FileBarrier(length[file], *records[-1]))
        records.append((file, length[file]))
    made.files = by_name(*(
        entry(file, length[file], barriers=_as_kept(file, barriers.get(file, ())), created=created[file], closed=True)
        for file in length
    ))  # fmt: skip
    return made


def _as_kept(file: bytes, found: Sequence[FileBarrier]) -> tuple[FileBarrier, ...]:
    return rules.coarser_barriers(file, necessary_barriers(found))


def judge(world: PlanInput, work: WorkRange, sequential: bool) -> None:
    """The laws at the moment at which a range is handed out."""
    flight = world.shipping.shipment((work.file, EAST)).flight
    stretched = flight is not None and (flight.session, flight.first) == (work.session, work.first)
    assert flight is None or stretched, "one range of a log at a time"
    assert work.first == assigner.finished_of(world.files[work.file], EAST, world.shipping) + 1, "a gap"
    if not sequential:
        return
    for other in world.files.values():
        older = other.created_ms() < world.files[work.file].created_ms()
        flying = world.shipping.shipment((other.file, EAST)).flight is not None
        assert not older or flying or next_range(other, EAST, world.files, world.shipping) is None, "an older one waits"


def ship_everything(made: History, rng: random.Random, sequential: bool, peer_max: int) -> list[bytes]:
    """Hand out and finish ranges, in any order, until nothing is left; the logs as they were handed out."""
    world = plan_world(made.files, SESSIONS, peer_max=peer_max)
    queue = PeerQueue(1_000)
    for file in made.files.values():
        queue.add(assigner.queue_key(file, EAST, sequential))
    flying: dict[bytes, WorkRange] = {}
    order: list[bytes] = []
    while True:
        for work in plan_peer(world, "east", queue):
            judge(world, work, sequential)
            world.shipping.hand_out(work_key(work), Flight(work.session, "t", work.first, work.last, 0))
            flying[work.file] = work
            order.append(work.file)
        assert len(flying) <= peer_max
        if not flying:
            break
        done = flying.pop(rng.choice(sorted(flying)))
        world.shipping.report(report(done.file, done.last, session=done.session, txid="t"), 0)
        for records in made.written.values():
            arrived = [at <= assigner.finished_of(made.files[file], EAST, world.shipping) for file, at in records]
            assert arrived == sorted(arrived, reverse=True), "a later record of a tablet arrived before an earlier one"
    assert all(assigner.finished_of(e, EAST, world.shipping) == e.needed for e in made.files.values()), (
        "nothing is left"
    )
    return order


@pytest.mark.parametrize("sequential", [True, False], ids=["sequential", "unordered"])
@given(seed=st.integers(0, 2**32), peer_max=st.sampled_from([1, 2, 100]))
def test_each_tablets_records_arrive_in_order_once_and_all(sequential: bool, seed: int, peer_max: int) -> None:
    rng = random.Random(seed)
    ship_everything(history(rng), rng, sequential, peer_max)


@pytest.mark.parametrize("sequential", [True, False], ids=["sequential", "unordered"])
@given(seed=st.integers(0, 2**32), peer_max=st.sampled_from([1, 100]))
@settings(max_examples=30)
def test_so_do_those_of_many_tablets_whose_barriers_are_coarser(sequential: bool, seed: int, peer_max: int) -> None:
    rng = random.Random(seed)
    ship_everything(history(rng, tablets=20, moments=120), rng, sequential, peer_max)


@pytest.mark.parametrize("switch", ["older-logs-are-not-waited-for", "barriers-beyond-a-few-are-dropped"])
def test_a_switch_of_coarser_barriers_breaks_the_order(switch: str) -> None:
    with fault(switch), pytest.raises(AssertionError, match="a later record of a tablet arrived before an earlier one"):
        _ship_many(range(200))


def _ship_many(seeds: Iterable[int]) -> None:
    for seed in seeds:
        rng = random.Random(seed)
        ship_everything(history(rng, tablets=20, moments=120), rng, False, 100)


def ages(sequential: bool) -> list[int]:
    """A backlog of three tservers, one range at a time: when the logs were made, as they are handed out."""
    rng = random.Random(7)
    files = [entry(name(s, n), 5, created=rng.randrange(10_000)) for s in SESSIONS for n in range(1, 5)]
    made = History(by_name(*files), {n: [(file.file, 5)] for n, file in enumerate(files)})
    return [made.files[file].created_ms() for file in ship_everything(made, rng, sequential, 1)]


def test_sequential_drains_a_backlog_from_its_old_end_and_unordered_does_not() -> None:
    assert ages(True) == sorted(ages(True))
    assert ages(False) != sorted(ages(False))
    assert sorted(ages(False)) == ages(True), "all the same"


@pytest.mark.parametrize("sequential", [True, False], ids=["sequential", "unordered"])
def test_without_barriers_neither_keeps_the_order(sequential: bool) -> None:
    rng = random.Random(1)
    with (
        fault("barriers-do-not-hold"),
        pytest.raises(AssertionError, match="a later record of a tablet arrived before an earlier one"),
    ):
        ship_everything(history(rng), rng, sequential, 100)


def test_without_a_check_of_their_age_older_logs_wait() -> None:
    with fault("the-age-of-logs-does-not-count"), pytest.raises(AssertionError, match="an older one waits"):
        ages(True)
