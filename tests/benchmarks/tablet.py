"""A tablet's data under load: apply, flush, sequential scans, short scans and point reads.

The records have about 150 bytes (16-byte row, 100-byte value). Each figure stands beside the same work done by plain
pyarrow in the same run, so that a busy machine slows both.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bookkeeper.client.scanner import PAGE_BYTES, page_after
from bookkeeper.model import MUTATION_SCHEMA, Extent
from bookkeeper.storage.tablet.segments.locality_groups import GroupMap
from bookkeeper.storage.tablet.tablet_data import TabletData
from tests.benchmarks.figure import Figure
from tests.support.volumes import MACHINE, name_at

BLOCK_RECORDS = 4096
ROW_BYTES = 16
VALUE_BYTES = 100
SHORT_PAGE_BYTES = 100 * 160
SAMPLES = 400
SEGMENT_RECORDS = (1_000_000, 3_000_000)
LARGE_SEGMENT_RECORDS = (*SEGMENT_RECORDS, 10_000_000)
SEGMENTS = 10
LATENCY_ROUNDS = 3
"""The round with the least p99 counts: the load of other processes is not the tablet's."""
ROW_SPACE = 10**12


def _fixed(bytes_of_each: npt.NDArray[np.uint8]) -> pa.Array:
    count, width = bytes_of_each.shape
    offsets = (np.arange(count + 1) * width).astype(np.int32)
    return pa.Array.from_buffers(
        pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(bytes_of_each.tobytes())]
    )


def _rows(keys: npt.NDArray[np.int64]) -> pa.Array:
    digits = (keys[:, None] // 10 ** np.arange(ROW_BYTES - 5, -1, -1)) % 10 + ord("0")
    prefix = np.tile(np.frombuffer(b"row-", np.uint8), (len(keys), 1))
    return _fixed(np.concatenate([prefix, digits.astype(np.uint8)], axis=1))


def _row(key: int) -> bytes:
    return b"row-%012d" % key


def make_records(keys: npt.NDArray[np.int64], random: np.random.Generator) -> pa.RecordBatch:
    """One column a row, rows from ``keys``."""
    count = len(keys)

    def same(value: bytes) -> pa.Array:
        return _fixed(np.tile(np.frombuffer(value, np.uint8), (count, 1)))

    columns = [
        _rows(keys),
        same(b"family"),
        same(b"qualifier"),
        same(b""),
        pa.array(np.full(count, 1_700_000_000_000)),
        pa.array(np.zeros(count, bool)),
        _fixed(random.integers(0, 256, (count, VALUE_BYTES), dtype=np.uint8)),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=MUTATION_SCHEMA)


def _seconds(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def _millis(work: Callable[[int], object], arguments: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    return np.array([_seconds(lambda argument=argument: work(int(argument))) * 1e3 for argument in arguments])  # type: ignore[misc]


def _scan(tablet: TabletData) -> int:
    """All records, in pages as a client asks for them."""
    records, page_bytes = 0, PAGE_BYTES
    resume: bytes | None = None
    while True:
        page = tablet.scan_page(None, None, (), (), resume, page_bytes)
        records += int(page.records.num_rows)
        if page.next is None:
            return records
        resume, page_bytes = page.next, page_after(page_bytes)


def _short_scan(tablet: TabletData, key: int) -> None:
    page = tablet.scan_page(_row(key), None, (), (), None, SHORT_PAGE_BYTES)
    assert page.records.num_rows >= 90


def _point_read(tablet: TabletData, key: int) -> None:
    page = tablet.scan_page(_row(key), _row(key) + b"\x00", (), (), None, PAGE_BYTES)
    assert page.records.num_rows == 1


def _apply(tablet: TabletData, records: pa.RecordBatch, first_seq: int) -> None:
    for start in range(0, records.num_rows, BLOCK_RECORDS):
        tablet.apply(records.slice(start, BLOCK_RECORDS), first_seq + start)


def _flush(tablet: TabletData, flush_id: int) -> None:
    frozen = tablet.begin_flush()
    assert frozen is not None
    tablet.finish_flush(frozen, tablet.write_segments(frozen, flush_id))


def _rate(name: str, records: int, seconds: float, reference: str, reference_seconds: float, **more: object) -> Figure:
    figure: Figure = {
        "name": name,
        "value": records / seconds,
        "unit": "records/s",
        "reference": records / reference_seconds,
        "reference_name": reference,
        "reference_unit": "records/s",
        "ratio": reference_seconds / seconds,
        "size": records,
    }
    figure.update(more)  # type: ignore[typeddict-item]
    return figure


def _latencies(
    name: str,
    millis: npt.NDArray[np.float64],
    reference: str,
    reference_millis: npt.NDArray[np.float64],
    size: int,
    **more: object,
) -> list[Figure]:
    figures: list[Figure] = []
    for label, quantile in (("p50", 0.5), ("p99", 0.99)):
        value, beside = float(np.quantile(millis, quantile)), float(np.quantile(reference_millis, quantile))
        figure: Figure = {
            "name": f"{name} {label}",
            "value": value,
            "unit": "ms",
            "reference": beside,
            "reference_name": reference,
            "reference_unit": "ms",
            "ratio": value / beside,
            "lower_is_better": True,
            "size": size,
        }
        if label == "p99":
            figure.update(more)  # type: ignore[typeddict-item]
        figures.append(figure)
    return figures


def _row_group_reader(path: Path) -> Callable[[int], object]:
    file = pq.ParquetFile(path)
    return lambda number: file.read_row_group(number % file.num_row_groups, use_threads=False)


def _memory_figures(place: Path, records: pa.RecordBatch, keys: npt.NDArray[np.int64]) -> list[Figure]:
    random = np.random.default_rng(2)
    million = records.num_rows
    tablet = TabletData(Extent("t", None, None), GroupMap({}), MACHINE, name_at(place / "memory"), [])
    sort_seconds = _seconds(lambda: pc.sort_indices(records.column("row")))
    figures = [_rate("apply", million, _seconds(lambda: _apply(tablet, records, 1)), "sort in Arrow", sort_seconds)]
    ordered = records.take(pa.array(np.argsort(keys)))
    starts = random.choice(np.sort(keys)[:-200], SAMPLES)
    slices = _millis(lambda key: ordered.slice(key % (million - 100), 100).take(pa.array(np.arange(100))), starts)
    _short_scan(tablet, int(starts[0]))
    figures += _latencies(
        "100 rows from memory", _millis(lambda k: _short_scan(tablet, k), starts), "take of 100", slices, million
    )
    figures.append(_rate("scan of memory", million, _seconds(lambda: _scan(tablet)), "sort in Arrow", sort_seconds))

    def plain_write() -> None:
        pq.write_table(
            pa.Table.from_batches([ordered]), place / "plain.parquet", compression="lz4", row_group_size=4096
        )

    plain = _seconds(plain_write)
    figures.append(_rate("flush", million, _seconds(lambda: _flush(tablet, 1)), "sorted table to Parquet", plain))
    read = _row_group_reader(place / "plain.parquet")
    figures += _latencies(
        "100 rows from one segment",
        _millis(lambda key: _short_scan(tablet, key), starts),
        "one row group",
        _millis(read, random.integers(0, 240, SAMPLES)),
        million,
    )
    return figures


def _segment_figures(place: Path, records: int, segments: int) -> list[Figure]:
    random = np.random.default_rng(3)
    tablet = TabletData(Extent("t", None, None), GroupMap({}), MACHINE, name_at(place / "segments"), [])
    keys = random.choice(ROW_SPACE, records)
    share = records // segments
    for number in range(segments):
        some = keys[number * share : (number + 1) * share]
        for start in range(0, share, 1 << 18):
            part = some[start : start + (1 << 18)]
            _apply(tablet, make_records(part, random), number * share + start + 1)
        _flush(tablet, number + 1)
    paths = sorted((place / "segments").iterdir())
    read_all = _seconds(lambda: [pq.read_table(path, use_threads=False) for path in paths])
    name = f"{records // 1_000_000} M records in {segments} segments"
    whole = records >= SEGMENT_RECORDS[-1]
    scan_seconds = _seconds(lambda: _scan(tablet))
    figures = [
        _rate(
            f"sequential scan, {name}",
            records,
            scan_seconds,
            "the files read unmerged",
            read_all,
            **({"target": 1e6} if whole else {}),
        )
    ]
    chosen = random.choice(keys, (LATENCY_ROUNDS, SAMPLES))
    groups = random.integers(0, share // BLOCK_RECORDS, (LATENCY_ROUNDS, SAMPLES))
    read = _row_group_reader(paths[0])
    row_group = _least([_millis(read, numbers) for numbers in groups])
    points = _least([_millis(lambda k: _point_read(tablet, k), some) for some in chosen])
    starts = random.choice(np.sort(keys)[:-200], (LATENCY_ROUNDS, SAMPLES))
    scans = _least([_millis(lambda k: _short_scan(tablet, k), some) for some in starts])
    aim = {"target": 5.0} if whole else {}
    figures += _latencies(f"point read, {name}", points, "one row group", row_group, records, **aim)
    figures += _latencies(f"100 rows, {name}", scans, "one row group", row_group, records)
    return figures


def _least(rounds: list[npt.NDArray[np.float64]]) -> npt.NDArray[np.float64]:
    return min(rounds, key=lambda millis: float(np.quantile(millis, 0.99)))


def run(large: bool = False) -> list[Figure]:
    """Half a minute, or a minute and a half; ``BENCH_RECORDS`` sets another number of records for the segments."""
    place = Path(tempfile.mkdtemp(prefix="bench-tablet-"))
    try:
        random = np.random.default_rng(1)
        keys = random.choice(ROW_SPACE, 1_000_000)
        figures = _memory_figures(place, make_records(keys, random), keys)
        sizes_of_run = LARGE_SEGMENT_RECORDS if large else SEGMENT_RECORDS
        sizes = [int(os.environ["BENCH_RECORDS"])] if "BENCH_RECORDS" in os.environ else sizes_of_run
        for size in sizes:
            figures += _segment_figures(place / str(size), size, SEGMENTS)
            shutil.rmtree(place / str(size))
        return figures
    finally:
        shutil.rmtree(place)
