"""Imports whose files the test's own process reads: a matrix of crashes needs no process for each import.

The process of its own has tests in ``tests/unit/bulk/test_input_process.py``, and clusters of real processes run it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from bookkeeper.bulk.import_inputs import read_inputs
from bookkeeper.bulk.input_process import InputJob, read_apart
from bookkeeper.master.operations import bulk_import
from bookkeeper.security.file_roots import FileRoots
from tests.support.replacement import Binding, replaced

APART = Binding(bulk_import, read_apart)


def read_here(job: InputJob, report: Callable[[int], None]) -> Iterator[pa.RecordBatch]:
    """What the process would send."""
    roots = FileRoots(tuple(map(Path, job.roots)))
    return read_inputs(Path(job.directory), job.time_ms, job.limits, roots, job.latest_ms, report)


@contextmanager
def inputs_read_here() -> Iterator[None]:
    """Masters of this process read the files of imports by themselves."""
    with replaced(APART, read_here):
        yield
