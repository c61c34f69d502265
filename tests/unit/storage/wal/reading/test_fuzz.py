"""The log's parser under anything: declared errors only, no record that was not written, nothing whole cut off."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bookkeeper.errors import BookkeeperError, CorruptionError, IncompatibleError, NotFoundError, TransientError
from bookkeeper.storage.wal.blocks.frame import BLOCK_MAGIC, FILE_MAGIC, FramePosition, pack_frame
from bookkeeper.storage.wal.reading.block_reader import read_blocks, read_headers
from bookkeeper.storage.wal.reading.wal_recovery import file_summary, recover
from bookkeeper.storage.wal.reading.wal_view import WalView
from bookkeeper.storage.wal.writing.seal import Seal, read_seal
from tests.support.damage import damaged
from tests.support.faults import fault
from tests.support.must_raise import must_raise
from tests.support.volumes import MACHINE, name_at, path_of
from tests.support.wal_files import Spec, lay_out, write_wal

SPECS = [
    Spec([b"a", b"b"]),
    Spec([b"c" * 200], compression="zstd"),
    Spec([b"%d" % index for index in range(40)]),
    Spec([b"d"], table_id="t2"),
]
OTHERS = [Spec([b"x", b"y"]), Spec([b"z" * 190], compression="zstd"), Spec([b"w%d" % index for index in range(50)])]
LAST = sum(len(spec.rows) for spec in SPECS)
DECLARED = (CorruptionError, IncompatibleError, NotFoundError, TransientError)


class Bench:
    """A whole log, one of another session, and the place where a damaged one is laid out."""

    def __init__(self, home: Path) -> None:
        name = write_wal(home / "whole" / "log" / "1.wal", SPECS, seal=True)
        self.whole, self.seal = path_of(name).read_bytes(), path_of(name + ".seal").read_bytes()
        self.starts = [(at.position, at.end_position) for at in read_headers(MACHINE, name)]
        self.foreign = path_of(write_wal(home / "log" / "2.wal", OTHERS, seal=True)).read_bytes()
        self._place = lay_out(home / "laid", b"")

    def lay(self, log: bytes, seal: bytes | None) -> str:
        for left in self._place.parent.iterdir():
            left.unlink()
        self._place.write_bytes(log)
        if seal is not None:
            self._place.with_name("1.wal.seal").write_bytes(seal)
        return name_at(self._place)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(tmp_path_factory.mktemp("fuzz"))


def read_all(name: str) -> None:
    """Every record, or an error."""
    for block in read_blocks(MACHINE, name, 1, LAST):
        block.batch()


def rows_until_an_error(name: str, last: int = LAST) -> list[bytes]:
    """All rows that a reader gets, to the end or to the first declared error."""
    found: list[bytes] = []
    try:
        for block in read_blocks(MACHINE, name, 1, last) if last else ():
            found += block.batch().column("row").to_pylist()
    except DECLARED:
        pass
    return found


ROWS = [row for spec in SPECS for row in spec.rows]


@settings(max_examples=80)
@given(st.data())
def test_whatever_becomes_of_a_sealed_log_a_reader_gets_what_was_written_or_an_error(
    bench: Bench, data: st.DataObject
) -> None:
    log = data.draw(damaged(bench.whole, bench.foreign))
    name = bench.lay(log, bench.seal)
    assert rows_until_an_error(name) == ROWS[: len(rows_until_an_error(name))]
    if log[: len(bench.whole)] != bench.whole:
        with pytest.raises((CorruptionError, IncompatibleError)):
            read_all(name)
    try:
        file_summary(MACHINE, name)
        view = WalView(MACHINE, name)
        assert all(view.batch(at) is not None for at in view.headers())
    except DECLARED:
        pass


def attempt(act: Callable[[str], Seal | None], name: str) -> tuple[Seal | None, BookkeeperError]:
    """The seal, or the declared error; any other error is a failure of the test."""
    try:
        return act(name), BookkeeperError("no error")
    except (CorruptionError, IncompatibleError) as error:
        return None, error


def check_recovery_cuts_nothing_whole(bench: Bench, log: bytes) -> None:
    """Recovery ends a log behind the last whole block that was written to it."""
    name = bench.lay(log, None)
    seal, problem = attempt(partial(recover, MACHINE), name)
    if seal is None:
        assert problem.details["file"] == name
        assert problem.details["reason"] in problem.message
        assert read_seal(MACHINE, name) is None, "nothing was changed"
        return
    assert rows_until_an_error(name, seal.offset) == ROWS[: seal.offset]
    blocks_behind = [
        start
        for start, end in bench.starts
        if start >= max(seal.position, 1) and log[start:end] == bench.whole[start:end]
    ]
    head = bench.starts[0][0]
    assert not blocks_behind or log[:head] != bench.whole[:head], "a whole block behind damage is cut off"


@settings(max_examples=80)
@given(st.data())
def test_whatever_becomes_of_an_open_log_recovery_cuts_nothing_whole(bench: Bench, data: st.DataObject) -> None:
    check_recovery_cuts_nothing_whole(bench, data.draw(damaged(bench.whole, bench.foreign)))


def test_another_log_in_the_place_of_one_is_not_read_as_it(bench: Bench) -> None:
    def check() -> None:
        name = bench.lay(bench.foreign, None)
        with must_raise(
            CorruptionError,
            "another log is read in the place of this one",
            match=r"it is another log, .*/log/2\.wal, in the place of this one",
        ):
            recover(MACHINE, name)
        assert read_seal(MACHINE, name) is None
        assert rows_until_an_error(name) == []

    check()
    with fault("any-log-will-do"), pytest.raises(AssertionError, match="another log is read in the place of this one"):
        check()


def test_without_a_look_behind_damage_it_does(bench: Bench) -> None:
    start, _ = bench.starts[1]
    log = bench.whole[: start + 40] + bytes(8) + bench.whole[start + 48 :]
    check_recovery_cuts_nothing_whole(bench, log)
    with fault("damage-is-a-torn-tail"), pytest.raises(AssertionError, match="a whole block behind damage is cut off"):
        check_recovery_cuts_nothing_whole(bench, log)


@settings(max_examples=60)
@given(file_header=st.binary(max_size=40), block_header=st.binary(max_size=80), payload=st.binary(max_size=200))
def test_frames_that_are_whole_and_hold_garbage_are_declared_errors(
    bench: Bench, file_header: bytes, block_header: bytes, payload: bytes
) -> None:
    """Checksums hold, so other software wrote it: bytes that parse by chance are a block, of records or of an error."""
    head = b"".join(map(bytes, pack_frame(FILE_MAGIC, file_header, pa.py_buffer(b""), FramePosition(0, 0, 0))))
    place = FramePosition(int.from_bytes(head[28:32], "little"), len(head), 0)
    log = head + b"".join(map(bytes, pack_frame(BLOCK_MAGIC, block_header, pa.py_buffer(payload), place)))
    name = bench.lay(log, None)
    for act in (
        rows_until_an_error,
        partial(recover, MACHINE),
        partial(file_summary, MACHINE),
        lambda name: [WalView(MACHINE, name).tail()],
    ):
        try:
            act(name)
        except DECLARED:
            continue


@given(st.binary(max_size=60) | st.text('0123456789[]{}:,"abcdefst e-.', max_size=60).map(str.encode))
def test_bytes_beside_a_log_are_a_seal_or_corruption(bench: Bench, seal: bytes) -> None:
    name = bench.lay(bench.whole, seal)
    found, problem = attempt(partial(read_seal, MACHINE), name)
    assert found == Seal(LAST, len(bench.whole)) if found else "seal" in problem.message
