"""A view of a log in any state gives its whole blocks, and tells damage from a torn tail."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.errors import CorruptionError, IncompatibleError, InvalidInputError, NotFoundError
from bookkeeper.storage.volume.local_volume import raise_fence
from bookkeeper.storage.wal.blocks.block_pb2 import FileHeader
from bookkeeper.storage.wal.reading import log_formats as formats
from bookkeeper.storage.wal.reading.block_reader import read_headers
from bookkeeper.storage.wal.reading.wal_recovery import find_end, recover
from bookkeeper.storage.wal.reading.wal_view import WalView
from bookkeeper.storage.wal.writing.seal import Seal, write_seal
from bookkeeper.storage.wal.writing.wal_writer import WalWriter
from tests.support.volumes import MACHINE, name_at, path_of
from tests.support.wal_files import WEST, Spec, append, write_wal

SPECS = [Spec([b"a", b"b", b"c"]), Spec([b"d" * 500], compression="lz4"), Spec([b"e", b"f"], table_id="t2")]


def rows_of(view: WalView, first: int = 1) -> list[bytes]:
    found: list[bytes] = []
    for at in view.headers(first):
        batch = view.batch(at)
        if batch is None:
            break
        found += batch.column("row").to_pylist()
    return found


ROWS = [row for spec in SPECS for row in spec.rows]


@pytest.mark.parametrize("seal", [True, False])
def test_a_whole_log_is_seen_whole_and_has_no_tail(tmp_path: Path, seal: bool) -> None:
    view = WalView(MACHINE, write_wal(tmp_path / "1.wal", SPECS, seal=seal))
    assert rows_of(view) == ROWS
    assert view.tail().length == 0
    assert view.tail().reason == ""
    assert (view.seal is not None) is seal
    assert view.end_position == view.size
    assert view.file_header is not None
    assert view.file_header.instance_id == WEST


@pytest.mark.parametrize(("first", "rows"), [(1, ROWS), (2, ROWS), (4, ROWS[3:]), (6, ROWS[4:]), (7, [])])
def test_a_view_from_an_offset_begins_with_the_block_that_holds_it(
    tmp_path: Path, first: int, rows: list[bytes]
) -> None:
    assert rows_of(WalView(MACHINE, write_wal(tmp_path / "1.wal", SPECS)), first) == rows


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return path_of(write_wal(tmp_path_factory.mktemp("whole") / "1.wal", SPECS))


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("copy") / "1.wal"


@given(data=st.data())
def test_cut_anywhere_it_gives_the_whole_blocks_and_says_what_is_left(
    whole: Path, copy: Path, data: st.DataObject
) -> None:
    headers = list(read_headers(MACHINE, name_at(whole)))
    length = data.draw(st.integers(0, whole.stat().st_size))
    zeros = data.draw(st.sampled_from([0, 1, 4096])) if length >= headers[0].position else 0
    content = whole.read_bytes()
    cut = content[:length] + bytes(zeros)
    copy.write_bytes(cut)
    view = WalView(MACHINE, name_at(copy))
    alike = next(
        (at for at, (a, b) in enumerate(zip(content, cut, strict=False)) if a != b), min(len(content), len(cut))
    )
    blocks = sum(at.end_position <= alike for at in headers)
    assert rows_of(view) == [row for spec in SPECS[:blocks] for row in spec.rows]
    tail = view.tail()
    assert tail.position + tail.length == length + zeros
    assert bool(tail.reason) == bool(tail.length)


@given(data=st.data())
def test_it_ends_where_recovery_seals_and_refuses_what_recovery_refuses(
    whole: Path, copy: Path, data: st.DataObject
) -> None:
    raw = bytearray(whole.read_bytes())
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    copy.write_bytes(raw)
    try:
        expected: Seal | None = find_end(name_at(copy), MACHINE.open(name_at(copy)))
    except CorruptionError:
        expected = None
    if expected is None:
        with pytest.raises(CorruptionError) as caught:
            rows_of(WalView(MACHINE, name_at(copy)))
        assert caught.value.details["file"] == name_at(copy)
        return
    view = WalView(MACHINE, name_at(copy))
    assert rows_of(view) == ROWS[: expected.offset]
    assert view.end_position == expected.position


def test_a_log_that_grows_is_seen_as_long_as_it_was_when_opened(tmp_path: Path) -> None:
    writer = WalWriter.create(MACHINE, name_at(tmp_path / "1.wal"), FileHeader())
    append(writer, SPECS[:1])
    early = WalView(MACHINE, writer.name)
    append(writer, SPECS[1:])
    assert rows_of(early) == list(SPECS[0].rows)
    assert rows_of(WalView(MACHINE, writer.name)) == ROWS
    writer.abandon()


@pytest.mark.parametrize("content", [b"", b"\x89BK", bytes(4096)])
def test_a_log_whose_header_is_not_whole_has_no_blocks(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "1.wal"
    path.write_bytes(content)
    view = WalView(MACHINE, name_at(path))
    assert rows_of(view) == []
    assert view.file_header is None
    assert view.tail().length == len(content)


def test_behind_the_seal_there_is_nothing_to_see(tmp_path: Path) -> None:
    writer = WalWriter.create(MACHINE, name_at(tmp_path / "1.wal"), FileHeader())
    append(writer, SPECS[:1])
    sealed = writer.position
    write_seal(MACHINE, writer.name, Seal(writer.offset, writer.position))
    append(writer, SPECS[1:])
    writer.abandon()
    view = WalView(MACHINE, writer.name)
    assert rows_of(view) == list(SPECS[0].rows)
    tail = view.tail()
    assert (tail.position, tail.length, tail.reason) == (sealed, view.size - sealed, "behind the seal")


def test_a_sealed_log_may_not_end_early(tmp_path: Path) -> None:
    name = write_wal(tmp_path / "1.wal", SPECS, seal=True)
    raw = bytearray(path_of(name).read_bytes())
    raw[-12] ^= 1
    path_of(name).write_bytes(raw)
    with pytest.raises(CorruptionError, match="checksum") as caught:
        rows_of(WalView(MACHINE, name))
    assert caught.value.details["position"] == str(list(read_headers(MACHINE, name))[-1].position)


def test_a_recovery_that_has_begun_is_seen(tmp_path: Path) -> None:
    name = write_wal(tmp_path / "1.wal", SPECS)
    assert not WalView(MACHINE, name).fenced
    raise_fence(path_of(name))
    assert WalView(MACHINE, name).fenced
    assert WalView(MACHINE, name).seal is None
    recover(MACHINE, name)
    assert WalView(MACHINE, name).seal == Seal(len(ROWS), path_of(name).stat().st_size)


def test_what_is_no_log_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NotFoundError, match=r"9\.wal"):
        WalView(MACHINE, name_at(tmp_path / "9.wal"))
    with pytest.raises(InvalidInputError, match="is a directory"):
        WalView(MACHINE, name_at(tmp_path))
    (tmp_path / "x").write_bytes(b"#!/bin/sh\n" * 10)
    with pytest.raises(CorruptionError, match="does not start like a log"):
        WalView(MACHINE, name_at(tmp_path / "x"))
    name = write_wal(tmp_path / "1.wal", SPECS)
    monkeypatch.setattr(formats, "FORMAT_VERSION", 0)
    with pytest.raises(IncompatibleError):
        WalView(MACHINE, name)
