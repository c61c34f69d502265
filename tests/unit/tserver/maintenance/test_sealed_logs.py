"""Recovery of many tablets from one log: the log is walked once, and each tablet gets its own blocks (R15)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bookkeeper.errors import CorruptionError
from bookkeeper.model import Extent
from bookkeeper.storage.wal.blocks.block_pb2 import FileHeader
from bookkeeper.storage.wal.reading.block_reader import read_headers
from bookkeeper.storage.wal.reading.log_formats import BlockAt
from bookkeeper.storage.wal.writing.wal_writer import WalWriter
from bookkeeper.tserver.maintenance.sealed_logs import SealedLogs
from bookkeeper.tserver.tablets.load_plan import LogToRead
from tests.support.faults import fault
from tests.support.volumes import MACHINE, name_at, path_of
from tests.support.wal_files import Spec, block

ENDS = [b"d", b"h", b"m", None]
TABLETS = [Extent("1", end, prev) for end, prev in zip(ENDS, [None, *ENDS[:-1]], strict=True)]


def _log(path: Path, blocks: int) -> str:
    """Blocks of one record, of the tablets in turn."""
    writer = WalWriter.create(MACHINE, name_at(path), FileHeader(instance_id="i", session_id="s", created_time_ms=1))
    for offset in range(1, blocks + 1):
        made = block(Spec([b"row"], table_id="1"), offset)
        end = ENDS[(offset - 1) % len(ENDS)]
        if end is not None:
            made.header.end_row = end
        writer.append([made])
    writer.sync()
    writer.seal()
    return writer.name


class _Walks:
    def __init__(self) -> None:
        self.walked: list[str] = []

    def __call__(self, name: str) -> Iterator[BlockAt]:
        self.walked.append(name)
        return read_headers(MACHINE, name)


@pytest.fixture
def walks() -> _Walks:
    return _Walks()


def _offsets(logs: SealedLogs, tablet: Extent, name: str, after: int = 0) -> list[int]:
    return [at.load().last_offset for at in logs.missing_blocks(tablet, LogToRead(name, after))]


def test_each_tablet_gets_the_blocks_it_lacks_and_the_log_is_walked_once(tmp_path: Path, walks: _Walks) -> None:
    name, logs = _log(tmp_path / "000001.wal", 12), SealedLogs(MACHINE, walks)
    for place, tablet in enumerate(TABLETS):
        assert _offsets(logs, tablet, name) == [place + 1, place + 5, place + 9]
        assert _offsets(logs, tablet, name, after=place + 1) == [place + 5, place + 9]
    assert _offsets(logs, Extent("1", b"zz", None), name) == []
    assert _offsets(logs, Extent("2", None, None), name) == []
    assert walks.walked == [name]


def test_halves_do_not_take_what_the_whole_had_flushed(tmp_path: Path, walks: _Walks) -> None:
    name = _log(tmp_path / "000001.wal", 4)
    with fault("logs-of-parents-are-replayed"):
        assert _offsets(SealedLogs(MACHINE, walks), TABLETS[0], name) == [1, 2, 3, 4]
    assert _offsets(SealedLogs(MACHINE, walks), TABLETS[0], name) == [1]


def test_memory_is_bounded_by_forgetting_the_logs_used_longest_ago(tmp_path: Path, walks: _Walks) -> None:
    first, second, third = (_log(tmp_path / f"00000{number}.wal", 8) for number in (1, 2, 3))
    logs = SealedLogs(MACHINE, walks, blocks_max=16)
    for name in (first, second, first, third, first, second):
        _offsets(logs, TABLETS[0], name)
    assert walks.walked == [first, second, third, second]
    tight = SealedLogs(MACHINE, walks, blocks_max=1)
    walks.walked.clear()
    for _ in range(2):
        _offsets(tight, TABLETS[0], first)
    assert walks.walked == [first], "one log is always remembered"


def test_a_damaged_log_is_an_error_each_time_and_is_walked_again_when_it_was_restored(
    tmp_path: Path, walks: _Walks
) -> None:
    name, logs = _log(tmp_path / "000001.wal", 8), SealedLogs(MACHINE, walks)
    whole = path_of(name).read_bytes()
    at = list(read_headers(MACHINE, name))[2].position
    path_of(name).write_bytes(whole[:at] + bytes(8) + whole[at + 8 :])
    for _ in range(2):
        with pytest.raises(CorruptionError):
            _offsets(logs, TABLETS[3], name)
    path_of(name).write_bytes(whole)
    assert _offsets(logs, TABLETS[3], name) == [4, 8]


def test_a_log_that_shrank_behind_our_back_is_damage(tmp_path: Path, walks: _Walks) -> None:
    name, logs = _log(tmp_path / "000001.wal", 8), SealedLogs(MACHINE, walks)
    assert _offsets(logs, TABLETS[3], name) == [4, 8]
    whole = path_of(name).read_bytes()
    path_of(name).write_bytes(whole[: len(whole) - 40])
    with pytest.raises(CorruptionError):
        _offsets(logs, TABLETS[3], name)
