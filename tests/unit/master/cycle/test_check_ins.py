"""A peer that came back from a backup is noticed, by a number that its own store lost; restarts and crashes are not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from bookkeeper.coordination.connect import open_coordination
from bookkeeper.coordination.coordination_protocol import Coordination
from bookkeeper.coordination.older_peers import note_lost
from bookkeeper.errors import UnavailableError
from bookkeeper.master.calls.keyed_executors import KeyedExecutors
from bookkeeper.master.cycle.check_ins import OLDER, CheckIns, answer, first_written_after, logs_at, newest_targets
from bookkeeper.master.index.outstanding import Outstanding
from bookkeeper.model import TargetKey
from bookkeeper.standalone.directory import init_cluster
from tests.support.faults import fault
from tests.support.master_values import by_name, entry, name
from tests.support.master_world import World
from tests.support.tservers import wait_until
from tests.support.volumes import MACHINE
from tests.support.wal_files import Spec, write_wal


class Peer:
    """The master of the peer: its answers come from a real store, of which there may be a copy."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.store = self._opened("first")
        self.answers = True

    def _opened(self, name: str) -> Coordination:
        return open_coordination(init_cluster(self._directory / name, name))

    def restore(self, number: int) -> None:
        """A backup of the time when it had this number comes back."""
        self.store.close()
        self.store = self._opened(f"restored-{number}")
        self.store.raise_number("check-in:left:west", number)

    def check_in(self, alias: str, quorum: str, instance_id: str, known: int, number: int) -> int:  # noqa: ARG002
        if not self.answers:
            raise UnavailableError("nobody answers")
        return answer(self.store, "west", known, number)


class Source:
    """A master's check-ins, and the peer."""

    def __init__(self, world: World, directory: Path) -> None:
        self.world, self.peer = world, Peer(directory)
        self.lanes = KeyedExecutors()
        self.check_ins = CheckIns(world.coordination, self.peer, self.lanes, world.clock, MACHINE)  # type: ignore[arg-type]

    def call(self) -> None:
        """One check-in."""
        config = self.world.config()
        self.check_ins.check_in(config.clusters["east"], newest_targets(config)["east"])

    def older(self, files: Outstanding | None = None) -> list[tuple[str, int, tuple[tuple[str, int | None], ...]]]:
        """The peers that need a person."""
        found = self.check_ins.older_states(self.world.config(), files or Outstanding())
        return [(one.cluster, one.since_ms, one.logs) for one in found]


@pytest.fixture
def source(world: World, tmp_path: Path) -> Iterator[Source]:
    world.enable("1")
    made = Source(world, tmp_path / "peer")
    yield made
    made.lanes.stop()
    made.peer.store.close()


def check_restored_peer_is_noticed(source: Source) -> None:
    """The law: what was acknowledged after the backup is not done."""
    source.call()
    saved = source.peer.store.number("check-in:left:west")
    for _ in range(3):
        source.world.clock.jump(1_000)
        source.call()
    assert source.older() == []
    source.peer.restore(saved)
    source.call()
    assert source.older() == [("east", saved, ())], "nobody says that the peer lacks acknowledged records"


def test_a_peer_that_came_back_older_is_noticed_and_since_when(source: Source) -> None:
    check_restored_peer_is_noticed(source)
    since = source.older()
    source.call()
    assert source.older() == since, "until an operator acts"


def test_if_a_lower_number_counts_as_any_other_it_is_not_noticed(source: Source) -> None:
    with fault("older-peers-are-believed"), pytest.raises(AssertionError, match="nobody says that the peer lacks"):
        check_restored_peer_is_noticed(source)


def test_a_check_in_does_not_notice_a_backup_that_is_younger_than_the_one_before(source: Source) -> None:
    """It has the number of that check-in. So its answer is that of a peer which forgot nothing, whatever it had
    acknowledged between the backup and its end. A tserver finds that (``bookkeeper.replay.stream.confirmation``).
    """
    for _ in range(3):
        source.world.clock.jump(1_000)
        source.call()
    source.peer.restore(source.peer.store.number("check-in:left:west"))
    source.call()
    assert source.older() == []


def test_what_a_tserver_found_counts_and_the_earliest_time_is_told(source: Source) -> None:
    source.call()
    (incarnation,) = newest_targets(source.world.config()).values()
    instance_id = source.world.config().clusters["east"].instance_id
    note_lost(source.world.coordination, instance_id, 700, incarnation)
    assert source.older() == [("east", 700, ())]
    note_lost(source.world.coordination, instance_id, 500, incarnation)
    note_lost(source.world.coordination, instance_id, 900, incarnation)
    assert source.older() == [("east", 500, ())], "records that are missing lie before the time that is told"
    check_restored_peer_is_found(source)
    assert source.older() == [("east", 500, ())]
    source.world.disable("1")
    source.world.enable("1")
    assert source.older() == [], "a new target got everything anew"
    note_lost(source.world.coordination, instance_id, 950, newest_targets(source.world.config())["east"])
    assert source.older() == [("east", 950, ())], "the finding about the earlier target is told again"


def check_restored_peer_is_found(source: Source) -> None:
    """By a check-in, too, which tells a later time."""
    saved = source.peer.store.number("check-in:left:west")
    source.world.clock.jump(1_000)
    source.call()
    source.peer.restore(saved)
    source.call()
    assert source.world.coordination.number(OLDER + source.world.config().clusters["east"].instance_id) == saved


def test_it_ends_when_the_target_is_enabled_anew(source: Source) -> None:
    check_restored_peer_is_noticed(source)
    source.world.disable("1")
    assert source.older() == []
    source.world.enable("1")
    assert source.older() == []
    source.call()
    assert source.older() == []


def test_a_peer_that_is_away_is_not_older(source: Source) -> None:
    source.call()
    source.peer.answers = False
    source.call()
    source.peer.answers = True
    source.call()
    assert source.older() == []


def test_a_master_that_dies_between_the_two_stores_raises_no_alarm(source: Source) -> None:
    source.call()
    known = source.peer.store.number("check-in:left:west")
    answer(source.peer.store, "west", known, known + 500)
    source.call()
    assert source.older() == []


def test_a_source_that_was_restored_itself_raises_no_alarm(source: Source) -> None:
    source.call()
    source.peer.restore(10**15)
    source.call()
    source.call()
    assert source.older() == []


def test_the_logs_of_that_time_are_named_the_newest_of_each_tserver() -> None:
    made = [(name("s1", 1), 10), (name("s1", 2), 20), (name("s1", 3), 99), (name("s2", 1), 15)]
    files = by_name(*(entry(file, 9, created=created) for file, created in made))
    assert logs_at(files, "east", 50) == (name("s1", 2).decode(), name("s2", 1).decode())
    assert logs_at(files, "north", 50) == ()


def test_each_peer_with_a_target_has_the_greatest_incarnation(world: World) -> None:
    world.define("north")
    first, second = world.enable("1"), world.enable("1", "north")
    assert isinstance(first, TargetKey)
    assert newest_targets(world.config()) == {"east": first.incarnation, "north": second.incarnation}


BEFORE, THEN, AFTER = 1_000, 2_000, 3_000


def log_of(path: Path, write_times: Sequence[int]) -> str:
    """A log with blocks of ten records, written at these times."""
    blocks = [Spec([b"%d" % n] * 10, write_time_ms=written_ms) for n, written_ms in enumerate(write_times)]
    return write_wal(path, blocks)


def test_the_place_is_the_first_record_that_was_written_after_the_time(tmp_path: Path) -> None:
    log = log_of(tmp_path / "w", [BEFORE, THEN, AFTER, AFTER])
    assert first_written_after(MACHINE, log, THEN) == 21
    assert first_written_after(MACHINE, log, AFTER) == 0, "all were written before"
    assert first_written_after(MACHINE, log, 0) == 1


def test_the_finding_gets_the_place_and_a_log_that_can_not_be_read_stays_named(source: Source, tmp_path: Path) -> None:
    check_restored_peer_is_noticed(source)
    ((_, since_ms, _),) = source.older()
    there = log_of(tmp_path / "w", [since_ms, since_ms + 1])
    gone = str(tmp_path / "gone")
    for log in (there, gone):
        source.check_ins.find_offset(log, since_ms)
    files = by_name(entry(there.encode(), 20, created=since_ms), entry(gone.encode(), 20, created=since_ms))
    ((_, _, logs),) = source.older(files)
    assert set(logs) == {(there, 11), (gone, None)}


def test_a_finding_makes_the_lane_look_for_the_place(source: Source, tmp_path: Path) -> None:
    check_restored_peer_is_noticed(source)
    ((_, since_ms, _),) = source.older()
    log = log_of(tmp_path / "w", [since_ms, since_ms + 1])
    files = by_name(entry(log.encode(), 20, created=since_ms))
    source.check_ins.begin(source.world.config(), {}, files)
    wait_until(lambda: source.older(files)[0][2] == ((log, 11),), "the place")
