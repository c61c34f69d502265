"""The logs and records that a query reads, beside a model: all records of the logs, filtered one by one."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.fs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.errors import CorruptionError, InvalidInputError, NotFoundError
from bookkeeper.replay.spark import wal_scan
from bookkeeper.replay.spark.wal_scan import SCAN_SCHEMA, RecordFilter, list_logs, plan, plan_log, read_part
from bookkeeper.storage.volume import file_uris
from bookkeeper.storage.volume.given_files import GivenFiles
from bookkeeper.storage.wal.blocks.block_pb2 import FileHeader
from bookkeeper.storage.wal.reading.block_reader import read_headers
from bookkeeper.storage.wal.reading.wal_recovery import recover
from bookkeeper.storage.wal.writing.wal_writer import WalWriter
from tests.support.volumes import MACHINE, name_at, path_of, uri_at
from tests.support.wal_files import Spec, append, write_wal

SPECS = [
    Spec([b"%04d" % n for n in range(first, first + size)], table_id=table, compression=compression)
    for first, size, table, compression in [
        (1, 3, "t1", ""),
        (4, 1, "t2", "lz4"),
        (5, 60, "t1", "zstd"),
        (65, 2, "t2", ""),
        (67, 30, "t1", ""),
    ]
]
LAST = 96


@pytest.fixture(scope="module", params=["sealed", "open"])
def log(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    return uri_at(write_wal(tmp_path_factory.mktemp("wal") / "1.wal", SPECS, seal=request.param == "sealed"))


def read(uris: list[str], wanted: RecordFilter | None = None, part_bytes: int = 1 << 30) -> pa.Table:
    batches = [batch for part in plan(uris, wanted or RecordFilter(), part_bytes) for batch in read_part(part)]
    return pa.Table.from_batches(batches, SCAN_SCHEMA)


def model(uri: str, wanted: RecordFilter) -> list[tuple[int, bytes, str, str]]:
    """Every record that meets the exact conditions: offset, row, table, file."""
    found, offset = [], 0
    for spec in SPECS:
        for row in spec.rows:
            offset += 1
            if (
                offset >= wanted.first
                and (wanted.last is None or offset <= wanted.last)
                and (wanted.tables is None or spec.table_id in wanted.tables)
            ):
                found.append((offset, row, spec.table_id, uri))
    return found


def seen(table: pa.Table) -> list[tuple[int, bytes, str, str]]:
    return list(zip(*(table.column(name).to_pylist() for name in ("offset", "row", "table_id", "file")), strict=True))


offsets = st.integers(1, LAST + 2)


@given(
    first=offsets,
    last=st.none() | offsets,
    tables=st.none() | st.frozensets(st.sampled_from(["t1", "t2", "t3"])),
    part_bytes=st.sampled_from([1, 700, 2000, 1 << 30]),
)
def test_exact_conditions_and_any_cut_give_exactly_the_wanted_records(
    log: str, first: int, last: int | None, tables: frozenset[str] | None, part_bytes: int
) -> None:
    wanted = RecordFilter(first, last, tables)
    assert seen(read([log], wanted, part_bytes)) == model(log, wanted)


def test_parts_begin_and_end_with_blocks_and_keep_to_their_size(log: str) -> None:
    parts = plan_log(log, RecordFilter(), 1000)
    positions = {at.position for at in read_headers(GivenFiles(), log)}
    assert len(parts) > 1
    assert {part.position for part in parts} <= positions
    assert [part.position for part in parts[1:]] == [part.end_position for part in parts[:-1]]
    assert parts[-1].end_position == file_uris.path_of(log).stat().st_size


def test_a_log_below_the_size_is_one_part_and_its_headers_are_not_walked(
    log: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bookkeeper.storage.wal.reading.wal_view.WalView.headers", lambda *_: pytest.fail("walked"))
    assert len(plan([log], RecordFilter(tables=frozenset(["t1"])), 1 << 20)) == 1


def test_small_blocks_come_in_common_batches_of_bounded_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = uri_at(write_wal(tmp_path / "1.wal", [Spec([b"%04d" % n]) for n in range(100)]))
    monkeypatch.setattr(wal_scan, "BATCH_RECORDS_MAX", 30)
    sizes = [batch.num_rows for part in plan([uri], RecordFilter(), 1 << 20) for batch in read_part(part)]
    assert sizes == [30, 30, 30, 10]
    monkeypatch.setattr(wal_scan, "BATCH_BYTES_MAX", 1)
    sizes = [batch.num_rows for part in plan([uri], RecordFilter(), 1 << 20) for batch in read_part(part)]
    assert sizes == [1] * 100


def test_a_part_read_twice_is_the_same_though_the_log_grows_and_is_sealed(tmp_path: Path) -> None:
    writer = WalWriter.create(MACHINE, name_at(tmp_path / "1.wal"), FileHeader())
    append(writer, SPECS[:2])
    parts = plan([uri_at(writer.name)], RecordFilter(), 1 << 20)
    before = [batch for part in parts for batch in read_part(part)]
    append(writer, SPECS[2:])
    assert [batch for part in parts for batch in read_part(part)] == before
    assert read([uri_at(writer.name)]).num_rows == LAST
    writer.seal()
    assert [batch for part in parts for batch in read_part(part)] == before


def test_a_torn_tail_ends_the_data_and_a_seal_holds(tmp_path: Path) -> None:
    path = path_of(write_wal(tmp_path / "1.wal", SPECS))
    path.write_bytes(path.read_bytes()[:-8])
    before = seen(read([str(path)]))
    assert len(before) == 66
    recover(MACHINE, name_at(path))
    path.write_bytes(path.read_bytes() + b"behind the seal")
    assert seen(read([str(path)])) == before


def test_a_newborn_log_has_no_records(tmp_path: Path) -> None:
    (tmp_path / "1.wal").write_bytes(b"")
    (tmp_path / "2.wal").write_bytes(b"\x89BK")
    assert read([str(tmp_path)]).num_rows == 0


@pytest.mark.parametrize("seal", [True, False])
def test_damage_is_an_error_that_names_file_and_byte(tmp_path: Path, seal: bool) -> None:
    name = write_wal(tmp_path / "1.wal", SPECS, seal=seal)
    uri, raw = uri_at(name), bytearray(path_of(name).read_bytes())
    third = list(read_headers(MACHINE, name))[2]
    raw[third.end_position - 12] ^= 1
    path_of(name).write_bytes(raw)
    with pytest.raises(CorruptionError, match=rf"1\.wal is damaged at byte {third.position}"):
        read([uri])
    assert read([uri], RecordFilter(last=4)).num_rows == 4


def test_a_directory_is_every_log_below_it_and_nothing_else(tmp_path: Path) -> None:
    for name in ("s-2/1.wal", "s-1/2.wal", "s-1/1.wal"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        write_wal(tmp_path / name, SPECS[:1], seal=True)
    (tmp_path / "s-1" / "1.wal.fence").touch()
    names = ["s-1/1.wal", "s-1/2.wal", "s-2/1.wal"]
    assert list_logs([str(tmp_path)]) == [(tmp_path / name).as_uri() for name in names]
    assert read([str(tmp_path)]).num_rows == 9
    two = (tmp_path / names[1]).as_uri()
    assert list_logs([str(tmp_path), two]) == [(tmp_path / name).as_uri() for name in names]


def test_every_spelling_of_a_place_gives_one_uri(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = uri_at(write_wal(tmp_path / "a b.wal", SPECS[:1]))
    monkeypatch.chdir(tmp_path)
    path = str(tmp_path / "a b.wal")
    java = "file:" + uri.removeprefix("file://")
    assert [list_logs([place]) for place in (uri, path, "a b.wal", java)] == [[uri]] * 4


def test_a_place_of_another_filesystem_is_listed_through_arrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("s/1.wal", "2.wal", "notes.txt"):
        (tmp_path / "logs" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "logs" / name).write_bytes(b"")
    filesystem = pyarrow.fs.SubTreeFileSystem(str(tmp_path), pyarrow.fs.LocalFileSystem())

    class Elsewhere:
        """Finds the one filesystem under any URI."""

        @staticmethod
        def from_uri(uri: str) -> tuple[pyarrow.fs.FileSystem, str]:
            return filesystem, uri.removeprefix("far://")

    monkeypatch.setattr(pyarrow.fs, "FileSystem", Elsewhere)
    assert list_logs(["far://logs/"]) == ["far://logs/2.wal", "far://logs/s/1.wal"]
    assert list_logs(["far://logs/2.wal"]) == ["far://logs/2.wal"]
    with pytest.raises(NotFoundError):
        list_logs(["far://nothing"])


def test_what_names_no_log_is_said(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"9\.wal"):
        read([str(tmp_path / "9.wal")])
    with pytest.raises(InvalidInputError, match="http"):
        read(["http://host/x"])
    assert read([str(tmp_path)]).num_rows == 0
