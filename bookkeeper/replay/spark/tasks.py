"""Divides the ranges of a run among tasks; pure.

In the Arrow table each task is one record batch. The ranges of a file and a peer stay in one task and in order.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from bookkeeper.replay.ranges import RANGE_SCHEMA, TASK_FIELD, Range, ranges_to_table
from bookkeeper.replay.stream.range_shipping import files_of

_TASK_SCHEMA = RANGE_SCHEMA.insert(0, TASK_FIELD)


def task_table(ranges: Sequence[Range], tasks: int) -> pa.Table:
    """All ranges with the number of their task; each task is one record batch, which becomes one partition."""
    batches: list[pa.RecordBatch] = []
    for number, share in enumerate(split_tasks(ranges, tasks)):
        table = ranges_to_table(share)
        numbers = pa.array([number] * len(share), TASK_FIELD.type)
        batches += table.add_column(0, TASK_FIELD, numbers).combine_chunks().to_batches()
    return pa.Table.from_batches(batches, schema=_TASK_SCHEMA)


def split_tasks(ranges: Sequence[Range], tasks: int) -> list[list[Range]]:
    """At most ``tasks`` lists with about the same number of records. The ranges of one file for one peer stay together
    and in order: a task reads a file once for all its targets, and a stream has one sender.
    """
    files = files_of(ranges)
    shares: list[list[Range]] = [[] for _ in range(min(tasks, len(files)))]
    loads = [0] * len(shares)
    for file in sorted(files, key=_records, reverse=True):
        least = loads.index(min(loads))
        shares[least] += file
        loads[least] += _records(file)
    return shares


def _records(ranges: Sequence[Range]) -> int:
    return sum(max(0, r.last - r.first + 1) for r in ranges)
