"""Writes the demo's operations in small batches while processes die.

Each batch is acknowledged before the next begins, so a repeated batch can't overtake a later one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bookkeeper.client import BatchWriter, Client, Mutation
from shell.demo.workload import Operation, batches


def mutation_of(operation: Operation) -> Mutation:
    """The mutation of an operation."""
    mutation = Mutation(operation.row)
    for family, qualifier, value in operation.changes:
        if value is None:
            mutation.delete(family, qualifier)
        else:
            mutation.put(family, qualifier, value)
    return mutation


def write(writer: BatchWriter, operations: Sequence[Operation]) -> None:
    """Write operations; they are durable on return."""
    writer.add_all(mutation_of(operation) for operation in operations)
    writer.flush()


def load(
    client: Client, table: str, operations: Sequence[Operation], batch_rows: int, progress: Callable[[int], None]
) -> None:
    """Write all operations; ``progress`` gets the number of written ones after each batch."""
    done = 0
    with client.writer(table) as writer:
        for batch in batches(operations, batch_rows):
            write(writer, batch)
            done += len(batch)
            progress(done)
