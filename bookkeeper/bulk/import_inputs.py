"""The files of an import: Parquet and CSV, read as checked batches of records.

Batches have MUTATION_SCHEMA, in the order of the files' names, with every timestamp set. A file that does not fit is an
InvalidInputError with the file and the reason. No file changes, and no record becomes a Python object. Law: L7.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from bookkeeper.errors import InvalidInputError, UnavailableError
from bookkeeper.model import MUTATION_SCHEMA
from bookkeeper.security.file_roots import FileRoots
from bookkeeper.storage.columns import slices_within
from bookkeeper.storage.tablet.batch_routing import check_times, validate_batch
from bookkeeper.storage.tablet.scans.visibility import check_labels
from bookkeeper.storage.tablet.tablet_settings import BatchLimits

REQUIRED = ("row", "family", "qualifier", "value")
OPTIONAL = ("visibility", "timestamp")
"""Without these columns, records have no visibility, and the time of the import."""

BINARY = ("row", "family", "qualifier", "visibility", "value")
PARQUET, CSV = ".parquet", ".csv"
BATCH_RECORDS = 1 << 16
CSV_BLOCK_BYTES = 16 << 20
SLICE_BYTES = 32 << 20
"""Decoded bytes of a batch, at most, unless one record has more."""


def find_inputs(directory: Path) -> list[Path]:
    """The files to import, by name; names that begin with a dot or an underscore are left out, as ``_SUCCESS``.

    Raises InvalidInputError when there is none, or one of another kind.
    """
    try:
        names = sorted(path for path in directory.iterdir() if not path.name.startswith((".", "_")))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise InvalidInputError(f"{directory} is no directory on the master's machine") from error
    except OSError as error:
        raise InvalidInputError(f"{directory} can't be listed: {error.strerror}") from error
    unusable = [path for path in names if path.suffix not in (PARQUET, CSV) or not path.is_file()]
    if unusable:
        raise InvalidInputError(f"{unusable[0]} is no {PARQUET} and no {CSV} file; put nothing else in the directory")
    if not names:
        raise InvalidInputError(f"{directory} has no {PARQUET} and no {CSV} file: there is nothing to import")
    return names


def read_inputs(
    directory: Path,
    time_ms: int,
    limits: BatchLimits,
    roots: FileRoots,
    latest_ms: int | None = None,
    report: Callable[[int], None] = lambda left: None,  # noqa: ARG005
) -> Iterator[pa.RecordBatch]:
    """The records of all files, at least one a batch; those without a timestamp get ``time_ms``, and none may have one
    above ``latest_ms``. Before each batch ``report`` gets the bytes of the files that are left behind it, about. Raises
    RefusedError for a path below none of the roots, InvalidInputError, also while iterating; UnavailableError when a
    file can't be read.
    """
    roots.resolve(directory)
    paths = find_inputs(directory)
    sizes = [_size(path) for path in paths]
    for number, path in enumerate(paths):
        later = sum(sizes[number + 1 :])
        try:
            with roots.opened(path) as opened:
                for batch, part in _batches(path, opened):
                    if batch.num_rows:
                        report(later + round(sizes[number] * (1 - part)))
                        yield _checked(path, to_mutations(path, batch, time_ms), limits, latest_ms)
        except pa.ArrowException as error:
            raise InvalidInputError(f"{path} can't be read: {_one_line(error)}") from error
        except (PermissionError, FileNotFoundError) as error:
            raise InvalidInputError(f"{path} can't be read: {_one_line(error)}") from error
        except OSError as error:
            raise UnavailableError(f"{path} can't be read: {_one_line(error)}") from error


def _size(path: Path) -> int:
    """The size of a file; 0 while it can't be read, which the reader finds out, too."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _batches(path: Path, opened: Path) -> Iterator[tuple[pa.RecordBatch, float]]:
    """The batches of a file, each with the part of the file that ends with it, from 0 to 1. ``path`` names the file in
    errors and has its kind; ``opened`` is the same file, even if the name is reused.
    """
    if path.suffix == PARQUET:
        with pq.ParquetFile(str(opened)) as file:
            _check_columns(path, file.schema_arrow.names)
            metadata, repeated = file.metadata, _dictionary_columns(file.metadata)
        with pq.ParquetFile(str(opened), metadata=metadata, read_dictionary=repeated) as file:
            done = 0
            for batch in file.iter_batches(BATCH_RECORDS):
                decoded_ends = np.cumsum(sum(map(_sizes, batch.columns), np.zeros(batch.num_rows, np.int64)))
                for piece in slices_within(batch, decoded_ends, SLICE_BYTES, BATCH_RECORDS):
                    done += piece.num_rows
                    yield piece, done / metadata.num_rows
        return
    with (
        pa.OSFile(str(opened)) as source,
        pa.csv.open_csv(
            source,
            read_options=pa.csv.ReadOptions(block_size=CSV_BLOCK_BYTES),
            parse_options=pa.csv.ParseOptions(newlines_in_values=True),
            convert_options=pa.csv.ConvertOptions(
                column_types={**dict.fromkeys(BINARY, pa.binary()), "timestamp": pa.int64()},
                null_values=[""],
                strings_can_be_null=False,
            ),
        ) as reader,
    ):
        _check_columns(path, reader.schema.names)
        for batch in reader:
            part = source.tell() / max(1, source.size())  # the reader reads ahead of its batches
            for first in range(0, batch.num_rows, BATCH_RECORDS):
                yield batch.slice(first, BATCH_RECORDS), min(1.0, part)


def _dictionary_columns(metadata: pq.FileMetaData) -> list[str]:
    """The columns with values that the file has once and repeats by number: a batch of them has any size, decoded."""
    return sorted(
        {
            chunk.path_in_schema
            for group in range(metadata.num_row_groups)
            for chunk in map(metadata.row_group(group).column, range(metadata.num_columns))
            if chunk.path_in_schema in BINARY and any("DICTIONARY" in encoding for encoding in chunk.encodings)
        }
    )


def _sizes(column: pa.Array) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The bytes of each value, decoded; a value without bytes of its own counts 8."""
    if pa.types.is_dictionary(column.type):
        lengths = _sizes(column.dictionary)
        indices = pc.fill_null(column.indices, 0).to_numpy(zero_copy_only=False)
        return lengths[indices] if len(lengths) else np.zeros(len(column), np.int64)
    if not _has_bytes(column.type):
        return np.full(len(column), 8, np.int64)
    return np.asarray(pc.fill_null(pc.binary_length(column), 0), np.int64)


def _has_bytes(kind: pa.DataType) -> bool:
    kinds = (
        pa.types.is_binary,
        pa.types.is_large_binary,
        pa.types.is_fixed_size_binary,
        pa.types.is_string,
        pa.types.is_large_string,
    )
    return any(is_kind(kind) for is_kind in kinds)


def _check_columns(path: Path, names: list[str]) -> None:
    missing = [name for name in REQUIRED if name not in names]
    unknown = [name for name in names if name not in (*REQUIRED, *OPTIONAL)]
    repeated = [name for name in names if names.count(name) > 1]
    problem = (
        f"it has no column {missing[0]}"
        if missing
        else f"column {unknown[0]!r} is unknown"
        if unknown
        else f"column {repeated[0]} comes twice"
        if repeated
        else ""
    )
    if problem:
        raise InvalidInputError(
            f"{path} can't be imported: {problem}; the columns are {', '.join(REQUIRED)} and, if you like, "
            f"{', '.join(OPTIONAL)}"
        )


def to_mutations(path: Path, batch: pa.RecordBatch, time_ms: int) -> pa.RecordBatch:
    """A batch of a file in the schema of mutations; ``path`` is for the error. Raises InvalidInputError."""
    count = batch.num_rows
    columns = []
    for field in MUTATION_SCHEMA:
        name = field.name
        if name == "delete":
            columns.append(pa.repeat(pa.scalar(False), count))
        elif name not in batch.schema.names:
            columns.append(
                pa.repeat(pa.scalar(time_ms), count)
                if name == "timestamp"
                else pa.repeat(pa.scalar(b"", pa.binary()), count)
            )
        elif name == "timestamp":
            columns.append(pc.fill_null(_times(path, batch.column(name)), time_ms))
        else:
            columns.append(_bytes(path, name, batch.column(name)))
    return pa.RecordBatch.from_arrays(columns, schema=MUTATION_SCHEMA)


def _bytes(path: Path, name: str, column: pa.Array) -> pa.Array:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if not _has_bytes(column.type):
        raise InvalidInputError(f"column {name} of {path} is of type {column.type}: want text or bytes")
    return column.cast(pa.binary())


def _times(path: Path, column: pa.Array) -> pa.Array:
    """Milliseconds since the epoch."""
    if pa.types.is_timestamp(column.type):
        return column.cast(pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64())
    if not pa.types.is_integer(column.type):
        raise InvalidInputError(f"column timestamp of {path} is of type {column.type}: want whole ms, or a timestamp")
    return column.cast(pa.int64())


def _checked(path: Path, batch: pa.RecordBatch, limits: BatchLimits, latest_ms: int | None) -> pa.RecordBatch:
    try:
        validate_batch(batch, limits)
        check_times(batch, latest_ms)
        check_labels(batch)
    except InvalidInputError as error:
        raise InvalidInputError(f"{path} can't be imported: {error.message}") from error
    return batch


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
