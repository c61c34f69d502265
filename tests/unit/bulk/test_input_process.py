"""The files of an import are read by a process of their own, with a limit on its memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from bookkeeper.bulk.import_inputs import SLICE_BYTES
from bookkeeper.bulk.input_process import InputJob, read_apart
from bookkeeper.errors import InvalidInputError, RefusedError
from bookkeeper.storage.tablet.tablet_settings import BatchLimits

NOW_MS = 1_795_321_142_423
ROWS = 4_096


def job_of(directory: Path, root: Path | None = None) -> InputJob:
    return InputJob(str(directory), NOW_MS, BatchLimits(), (str(root or directory),))


def write_repeated(path: Path, value: bytes, rows: int) -> None:
    """A file of a few KB that has the value once, and repeats its number."""
    columns = {name: pa.repeat(pa.scalar(b"x"), rows) for name in ("row", "family", "qualifier")}
    values = pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int32()), rows), pa.array([value]))
    pq.write_table(pa.table({**columns, "value": values}), path, compression="zstd")


def unheard(_left: int) -> None:
    """Nobody looks."""


def children() -> list[psutil.Process]:
    return [one for one in psutil.Process().children() if any("input_process" in word for word in one.cmdline())]


def ended(batches: Iterator[pa.RecordBatch]) -> int:
    """The largest batch, bytes."""
    return max(int(batch.nbytes) for batch in batches)


def test_a_small_file_that_repeats_a_large_value_comes_in_small_batches(tmp_path: Path) -> None:
    write_repeated(tmp_path / "a.parquet", b"v" * 65_536, ROWS)
    assert (tmp_path / "a.parquet").stat().st_size < 10_000
    assert ended(read_apart(job_of(tmp_path), unheard)) <= 1.1 * SLICE_BYTES


def test_the_bytes_that_are_left_fall_to_nothing_with_the_last_batch(tmp_path: Path) -> None:
    for name in ("a.parquet", "b.parquet"):
        write_repeated(tmp_path / name, b"v" * 65_536, ROWS)
    (tmp_path / "c.csv").write_text("row,family,qualifier,value\n" + "r,f,q,v\n" * 20_000)
    whole = sum(path.stat().st_size for path in tmp_path.iterdir())
    heard: list[int] = []
    batches = sum(1 for _ in read_apart(job_of(tmp_path), heard.append))
    assert len(heard) == batches > 4
    assert heard == sorted(heard, reverse=True)
    assert whole > heard[0] > heard[-1] == 0


def test_a_page_that_needs_more_memory_than_the_process_may_take_is_an_error_of_the_input(tmp_path: Path) -> None:
    columns = {name: [b"x"] for name in ("row", "family", "qualifier")} | {"value": [bytes(100 << 20)]}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet", compression="zstd", use_dictionary=False)
    with pytest.raises(InvalidInputError, match=r"can't be (read|imported)"):
        ended(read_apart(replace(job_of(tmp_path), memory_bytes_max=64 << 20), unheard))


def test_errors_of_the_process_are_those_of_the_reader(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="nothing to import"):
        ended(read_apart(job_of(tmp_path), unheard))
    with pytest.raises(RefusedError, match="not below a directory"):
        ended(read_apart(job_of(tmp_path, tmp_path / "elsewhere"), unheard))


def test_a_reader_that_stops_early_leaves_no_process(tmp_path: Path) -> None:
    write_repeated(tmp_path / "a.parquet", b"v" * 65_536, ROWS)
    batches = read_apart(job_of(tmp_path), unheard)
    next(batches)
    assert len(children()) == 1
    batches.close()
    assert children() == []


def test_a_process_that_is_killed_is_an_error_with_its_exit_code(tmp_path: Path) -> None:
    write_repeated(tmp_path / "a.parquet", b"v" * 65_536, ROWS)
    batches = read_apart(job_of(tmp_path), unheard)
    next(batches)
    [child] = children()
    child.kill()
    with pytest.raises(InvalidInputError, match="ended with -9"):
        ended(batches)
