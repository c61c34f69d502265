"""Range reads beside a model: a list of blocks."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow.fs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bookkeeper.errors import (
    CorruptionError,
    IncompatibleError,
    InvalidInputError,
    NotFoundError,
    TransientError,
    UnavailableError,
)
from bookkeeper.storage.volume import file_uris, given_files
from bookkeeper.storage.volume.given_files import GivenFiles
from bookkeeper.storage.volume.sources import MAPPED_WINDOW_BYTES, map_file, open_remote, open_source
from bookkeeper.storage.volume.volume_protocol import Source
from bookkeeper.storage.wal.blocks.block import Block
from bookkeeper.storage.wal.blocks.block_pb2 import FileHeader
from bookkeeper.storage.wal.reading import log_formats as formats
from bookkeeper.storage.wal.reading.block_reader import read_blocks, read_headers
from bookkeeper.storage.wal.writing.seal import Seal, read_seal, write_seal
from bookkeeper.storage.wal.writing.wal_writer import WalWriter
from tests.support.faults import fault
from tests.support.volumes import MACHINE, name_at, path_of
from tests.support.wal_files import Spec, append, write_wal

SPECS = [
    Spec([b"a", b"b", b"c"]),
    Spec([b"d" * 1000], compression="lz4"),
    Spec([b"%d" % index for index in range(100)]),
    Spec([b"e"], table_id="t2"),
    Spec([b"f", b"g"]),
]
LAST = sum(len(spec.rows) for spec in SPECS)


def expected(first: int, last: int) -> list[list[bytes]]:
    """The model: whole blocks that touch the range."""
    found, offset = [], 0
    for spec in SPECS:
        begin, offset = offset + 1, offset + len(spec.rows)
        if begin <= last and offset >= first:
            found.append(list(spec.rows))
    return found


def rows(blocks: list[Block]) -> list[list[bytes]]:
    return [block.batch().column("row").to_pylist() for block in blocks]


@pytest.fixture(scope="module", params=["sealed", "open"])
def log(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_wal(tmp_path_factory.mktemp("wal") / "1.wal", SPECS, seal=request.param == "sealed")


ranges = st.tuples(st.integers(1, LAST), st.integers(1, LAST)).map(sorted)


@given(ranges)
def test_a_range_gives_the_whole_blocks_that_touch_it(log: str, wanted: list[int]) -> None:
    first, last = wanted
    assert rows(list(read_blocks(MACHINE, log, first, last))) == expected(first, last)


@given(ranges, st.data())
def test_any_hint_gives_the_same(log: str, wanted: list[int], data: st.DataObject) -> None:
    first, last = wanted
    positions = [at.position for at in read_headers(MACHINE, log)]
    hint = data.draw(st.sampled_from(positions) | st.integers(-5, positions[-1] + 5000))
    assert rows(list(read_blocks(MACHINE, log, first, last, hint))) == expected(first, last)


def test_the_end_of_one_read_is_the_hint_of_the_next(log: str) -> None:
    hint, seen = None, []
    for first, last in ((1, 4), (5, 104), (105, 107)):
        blocks = list(read_blocks(MACHINE, log, first, last, hint))
        seen += rows(blocks)
        hint = blocks[-1].end_position
    assert seen == expected(1, LAST)
    assert hint == path_of(log).stat().st_size


def test_headers_tell_where_blocks_lie(log: str) -> None:
    found = list(read_headers(MACHINE, log))
    assert [at.header.record_count for at in found] == [len(spec.rows) for spec in SPECS]
    assert [at.position for at in found[1:]] == [at.end_position for at in found[:-1]]
    assert found[-1].last_offset == LAST
    assert [at.header for at in read_headers(MACHINE, log, found[2].position)] == [at.header for at in found[2:]]
    assert rows([found[2].load()]) == [list(SPECS[2].rows)]
    assert all(at.position % 8 == 0 for at in found)


def test_payloads_lie_where_arrow_wants_them_and_are_not_copied(log: str) -> None:
    blocks = list(read_blocks(MACHINE, log, 1, LAST))
    assert all(block.payload.address % 8 == 0 for block in blocks)
    span = blocks[-1].payload.address - blocks[0].payload.address
    assert 0 < span < path_of(log).stat().st_size, "all in one mapping of the file"


@pytest.mark.parametrize(("first", "last"), [(0, 1), (5, 4), (-1, 3)])
def test_an_impossible_range_is_refused(log: str, first: int, last: int) -> None:
    with pytest.raises(InvalidInputError):
        read_blocks(MACHINE, log, first, last)


def test_beyond_the_seal_there_is_nothing_for_ever(tmp_path: Path) -> None:
    name = write_wal(tmp_path / "1.wal", SPECS, seal=True)
    with pytest.raises(NotFoundError, match="ends at 107"):
        read_blocks(MACHINE, name, 1, LAST + 1)


def test_beyond_the_end_of_an_open_log_there_is_nothing_yet(tmp_path: Path) -> None:
    writer = WalWriter.create(MACHINE, name_at(tmp_path / "1.wal"), FileHeader())
    with pytest.raises(TransientError):
        list(read_blocks(MACHINE, writer.name, 1, 1))
    append(writer, SPECS[:1])
    seen: list[Block] = []
    with pytest.raises(TransientError):
        seen.extend(read_blocks(MACHINE, writer.name, 1, 4))
    append(writer, SPECS[1:2])
    assert rows(list(read_blocks(MACHINE, writer.name, 1, 4))) == expected(1, 4)
    assert [at.last_offset for at in read_headers(MACHINE, writer.name)] == [3, 4]
    writer.abandon()


def test_a_frame_that_is_still_being_written_is_not_there_yet(tmp_path: Path) -> None:
    whole = write_wal(tmp_path / "1.wal", [Spec([b"a"])])
    content = path_of(whole).read_bytes()
    part = path_of(whole)
    for length in range(len(content)):
        part.write_bytes(content[:length])
        with pytest.raises(TransientError):
            list(read_blocks(MACHINE, name_at(part), 1, 1))


def check_reader_stops_at_the_seal(directory: Path) -> None:
    """A late owner writes on behind the seal: no reader ever sees that."""
    writer = WalWriter.create(MACHINE, name_at(directory / "1.wal"), FileHeader())
    append(writer, SPECS[:1])
    write_seal(MACHINE, writer.name, Seal(writer.offset, writer.position))
    append(writer, SPECS[1:])
    writer.abandon()
    assert [at.last_offset for at in read_headers(MACHINE, writer.name)] == [3], (
        "R15: a reader shows what lies behind the seal"
    )
    with pytest.raises(NotFoundError):
        read_blocks(MACHINE, writer.name, 1, 4)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"9\.wal"):
        read_blocks(MACHINE, name_at(tmp_path / "9.wal"), 1, 1)


@pytest.mark.parametrize("name", ["http://example.org/x", "", "no-scheme"])
def test_a_strange_uri_is_refused(name: str) -> None:
    with pytest.raises(InvalidInputError):
        read_blocks(GivenFiles(), name, 1, 1)


def test_a_store_that_does_not_answer_is_unavailable() -> None:
    with pytest.raises(UnavailableError, match=r"the store of hdfs://127\.0\.0\.1:1/x can't be reached"):
        read_blocks(GivenFiles(), "hdfs://127.0.0.1:1/x", 1, 1)


@pytest.mark.parametrize("name", ["file:relative", "file://host/p"])
def test_a_file_uri_that_names_no_path_is_no_given_file(name: str) -> None:
    with pytest.raises(InvalidInputError, match="does not name a local file"):
        read_blocks(GivenFiles(), name, 1, 1)


def test_uris_and_paths_map_both_ways(tmp_path: Path) -> None:
    for name in ("plain", "with space", "per%cent", "ü", "a#b?c"):
        assert file_uris.path_of(file_uris.uri_of(tmp_path / name)) == tmp_path / name


@pytest.mark.parametrize("content", [b"PWAL" + bytes(100), b"#!/bin/sh\n" * 10, b"\x89BKB" + bytes(60), b"x"])
def test_a_foreign_file_is_called_one(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "1.wal"
    path.write_bytes(content)
    with pytest.raises(CorruptionError, match="does not start like a log") as caught:
        read_blocks(MACHINE, name_at(path), 1, 1)
    assert caught.value.details["file"] == name_at(path)
    assert caught.value.details["position"] == "0"


@pytest.mark.parametrize("content", [b"", b"\x89BK", bytes(4096)])
def test_a_log_without_its_header_is_not_there_yet(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "1.wal"
    path.write_bytes(content)
    with pytest.raises(TransientError):
        read_blocks(MACHINE, name_at(path), 1, 1)


def test_another_format_says_which_side_is_newer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = write_wal(tmp_path / "1.wal", SPECS, seal=True)
    for known, told in ((0, "reads up to 0: upgrade"), (4, "reads 4 only: let the version that wrote it")):
        monkeypatch.setattr(formats, "FORMAT_VERSION", known)
        with pytest.raises(IncompatibleError, match=f"has format 3, this version {told}"):
            list(read_blocks(MACHINE, name, 1, 1))


def test_formats_are_chosen_by_magic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = write_wal(tmp_path / "1.wal", SPECS, seal=True)
    seal = read_seal(MACHINE, ours)
    foreign = path_of(ours)
    foreign.write_bytes(b"PWAL" + foreign.read_bytes())

    class Prefixed(formats.BlockLog):
        """Another format with the same blocks out: ours behind four bytes."""

        def __init__(self, name: str, source: Source, _seal: Seal | None) -> None:
            shutil.copyfileobj(
                pyarrow.BufferReader(source.read(4, source.size - 4)), (tmp_path / "inner.wal").open("wb")
            )
            inner = open_source((tmp_path / "inner.wal").as_uri())
            super().__init__(name, inner, seal)

    monkeypatch.setitem(formats.FORMATS, b"PWAL", Prefixed)
    assert rows(list(read_blocks(MACHINE, name_at(foreign), 4, 104))) == expected(4, 104)


def test_other_filesystems_are_read_through_arrow(log: str, monkeypatch: pytest.MonkeyPatch) -> None:
    filesystem = pyarrow.fs.LocalFileSystem()
    monkeypatch.setattr(given_files, "open_source", lambda name: open_remote(filesystem, str(path_of(name))))
    assert rows(list(read_blocks(GivenFiles(), log, 1, LAST))) == expected(1, LAST)
    assert rows(list(read_blocks(GivenFiles(), log, 105, 105))) == expected(105, 105)
    with pytest.raises(NotFoundError):
        open_remote(filesystem, "/no/such/file")


def test_a_remote_file_that_gives_less_than_it_promised_is_asked_again(tmp_path: Path) -> None:
    path = tmp_path / "1.wal"
    path.write_bytes(bytes(100))
    source = open_remote(pyarrow.fs.LocalFileSystem(), str(path))
    path.write_bytes(bytes(10))
    with pytest.raises(UnavailableError, match="10 of 100 bytes"):
        source.read(0, 50)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(1, LAST))
def test_payloads_before_the_range_are_not_looked_at(tmp_path: Path, first: int) -> None:
    """Damage in a payload before the range does not matter to the range."""
    name = write_wal(tmp_path / f"{len(list(tmp_path.iterdir()))}.wal", SPECS, seal=True)
    path = path_of(name)
    content = bytearray(path.read_bytes())
    skipped = [at for at in read_headers(MACHINE, name) if at.last_offset < first]
    for at in skipped:
        content[at.end_position - 16] ^= 1
    path.write_bytes(content)
    assert rows(list(read_blocks(MACHINE, name, first, LAST))) == expected(first, LAST)
    if skipped:
        with pytest.raises(CorruptionError):
            list(read_blocks(MACHINE, name, 1, LAST))


def test_readers_stop_at_the_seal(tmp_path: Path) -> None:
    check_reader_stops_at_the_seal(tmp_path)


def test_a_reader_that_passes_the_seal_would_ship_what_is_not_there(tmp_path: Path) -> None:
    with fault("read-past-the-seal"), pytest.raises(AssertionError, match="a reader shows what lies behind the seal"):
        check_reader_stops_at_the_seal(tmp_path)


def mapped_bytes(path: Path) -> int:
    """How much of a mapped file is in this process's memory."""
    _, _, rest = Path("/proc/self/smaps").read_text().partition(str(path))
    return next(int(line.split()[1]) * 1024 for line in rest.splitlines() if line.startswith("Rss:"))


@pytest.mark.parametrize("windows_back", [0, 3])
def test_a_long_log_does_not_fill_the_memory_of_whoever_reads_through_it(tmp_path: Path, windows_back: int) -> None:
    """Nor does a reader that looks back, as for a message that is sent after later ones were read."""
    path, step = tmp_path / "long", MAPPED_WINDOW_BYTES // 4
    size = 8 * MAPPED_WINDOW_BYTES
    with path.open("wb") as file:
        for at in range(0, size, step):
            file.write(at.to_bytes(8, "big") * (step // 8))
    source, first = map_file(path), None
    for at in range(0, size, step):
        read = source.read(at, step)
        first = first or read
        assert read.to_pybytes() == at.to_bytes(8, "big") * (step // 8)
        if (back := at - windows_back * MAPPED_WINDOW_BYTES) > 0:
            assert source.content.slice(back, step).to_pybytes() == back.to_bytes(8, "big") * (step // 8)
        assert mapped_bytes(path) <= (4 if windows_back else 3) * MAPPED_WINDOW_BYTES + 2 * step
    assert first is not None
    assert first.to_pybytes() == bytes(step), "a buffer that is still in use keeps its bytes"
