"""A task that follows: what it asks, what it ships, and how it ends."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

from bookkeeper.config.file import new_settings
from bookkeeper.errors import UnavailableError
from bookkeeper.model import BlockTarget
from bookkeeper.peers.registry import Registry
from bookkeeper.replay.ranges import (
    RANGE_SCHEMA,
    RESULT_SCHEMA,
    Range,
    RangeResult,
    decode_table,
    encode_table,
    ranges_to_table,
    results_from_table,
)
from bookkeeper.replay.stream.following import Ended, follow
from bookkeeper.replay.stream.range_shipping import Sessions, Shipper
from bookkeeper.storage.volume.local_volume import LocalVolume
from tests.support.memory_peer import MemoryPeer, MemorySystem
from tests.support.ranges import a_range
from tests.support.wal_files import EAST, TO_EAST, Spec, write_wal

OVER = b""


class Tserver:
    """Answers polls with what a test has laid out; an error is raised."""

    def __init__(self, *answers: Sequence[Range] | bytes | UnavailableError) -> None:
        self._answers = list(answers)
        self.came: list[list[tuple[int, int]]] = []

    def poll(self, results: bytes) -> bytes:
        rows = results_from_table(decode_table(results, RESULT_SCHEMA))
        self.came.append([(row.range_id, row.acked_offset) for row in rows])
        answer = self._answers.pop(0)
        if isinstance(answer, UnavailableError):
            raise answer
        return answer if isinstance(answer, bytes) else encode_table(ranges_to_table(answer).to_batches(), RANGE_SCHEMA)


def scene(directory: Path) -> tuple[Callable[[Sequence[Range]], Iterable[RangeResult]], MemoryPeer, str]:
    """A shipper to a peer in memory, and a log with five records in two blocks."""
    peer = MemoryPeer(EAST)
    specs = [
        Spec([b"%d" % n for n in offsets], block_targets=[BlockTarget(TO_EAST, None)])
        for offsets in (range(1, 3), range(3, 6))
    ]
    settings = new_settings(directory, "west")
    sessions = Sessions(Registry({"memory": lambda: MemorySystem({"east": peer})}), settings)
    return (
        partial(Shipper(sessions, LocalVolume(directory), settings).ship, budget_ms=60_000),
        peer,
        write_wal(directory / "w", specs, root=directory),
    )


def test_a_task_ships_what_it_gets_and_brings_the_results_with_the_next_poll(tmp_path: Path) -> None:
    ship, peer, file = scene(tmp_path)
    tserver = Tserver([a_range(file, 1, 2, range_id=7)], [], [a_range(file, 3, 5, range_id=8)], OVER)
    assert follow(ship, tserver.poll) == Ended()
    assert tserver.came == [[], [(7, 2)], [], [(8, 5)]]
    assert peer.rows == [b"1", b"2", b"3", b"4", b"5"]
    assert peer.opened == 1, "one session for all ranges of a stream"


def test_a_tserver_that_can_not_be_asked_ends_the_task_and_what_it_may_lack_is_told(tmp_path: Path) -> None:
    ship, _, file = scene(tmp_path)
    away = UnavailableError("it is away")
    assert follow(ship, Tserver([], away).poll) == Ended("the tserver can't be asked: it is away")
    one, two = a_range(file, 1, 2, range_id=7), a_range(file, 3, 5, range_id=8)
    ended = follow(ship, Tserver([one], [], [two], away).poll)
    assert ended.ranges == (one, two)
    assert [(row.range_id, row.acked_offset) for row in ended.results] == [(7, 2), (8, 5)]


def test_an_error_is_a_row_and_the_task_stays(tmp_path: Path) -> None:
    ship, peer, file = scene(tmp_path)

    def away(_message: object) -> frozenset[int]:
        raise UnavailableError("east is away")

    peer.trouble = away
    tserver = Tserver([a_range(file, 1, 2, range_id=7)], OVER)
    assert follow(ship, tserver.poll) == Ended()
    assert tserver.came == [[], [(7, 0)]]
