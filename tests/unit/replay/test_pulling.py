"""A peer that fetches its records: it needs the books and logs alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import combiners
from bookkeeper.metadata import keys, values
from bookkeeper.metadata.metadata_table import MetadataTable, RowPut
from bookkeeper.replay.stream.filters import Selection, decide
from bookkeeper.storage.wal.reading.block_reader import read_blocks
from bookkeeper.storage.wal.writing.seal import read_seal
from combiners import ReplicationStatus
from tests.support.books import sqlite_books
from tests.support.volumes import MACHINE
from tests.support.wal_files import EAST, TO_EAST, WEST, Spec, write_wal


@pytest.fixture
def books(tmp_path: Path) -> Iterator[MetadataTable]:
    with closing(sqlite_books(tmp_path / "metadata.db")) as table:
        yield table


def status_of(books: MetadataTable, file: str) -> ReplicationStatus:
    """Both sides of the target's cells, folded as every reader does."""
    row = books.get(keys.repl_row(file))
    assert row is not None
    columns = (keys.needed_column(TO_EAST), keys.done_column(TO_EAST))
    return combiners.combine(values.decode_status(row.cells[c].value) for c in columns if c in row.cells)


def pull(books: MetadataTable, file: str) -> list[bytes]:
    """The work of a pulling peer: read the open range, and write its own progress."""
    status = status_of(books, file)
    open_range = combiners.range_needing_replication(status)
    if open_range is None:
        return []
    blocks = list(read_blocks(MACHINE, file, *open_range))
    wanted = [block for block in blocks if decide(block.header, TO_EAST, EAST).selection is Selection.WHOLE]
    done = ReplicationStatus(replication_finished_offset=open_range[1])
    put = RowPut(keys.repl_row(file), {keys.done_column(TO_EAST): values.encode_status(done)})
    books.put([put], keys.done_rank(open_range[1]))
    return [row for block in wanted for row in block.batch().column("row").to_pylist()]


def test_a_peer_that_pulls_needs_books_and_logs_only(books: MetadataTable, tmp_path: Path) -> None:
    specs = [Spec([b"a", b"b"]), Spec([b"loop"], provenance=[EAST]), Spec([b"old"], block_targets=[])]
    file = write_wal(tmp_path / "1.wal", [*specs, Spec([b"c"], provenance=[WEST])], seal=True)
    seal = read_seal(MACHINE, file)
    assert seal is not None
    for rank, state in enumerate(
        [
            ReplicationStatus(replication_needed_offset=2),
            ReplicationStatus(replication_needed_offset=seal.offset, state=combiners.CLOSED),
        ],
        1,
    ):
        put = RowPut(keys.repl_row(file), {keys.needed_column(TO_EAST): values.encode_status(state)})
        books.put([put], keys.master_rank(1, rank))
        assert pull(books, file) == ([b"a", b"b"] if rank == 1 else [b"c"])
        assert pull(books, file) == [], "nothing twice"
    assert combiners.is_fully_replicated(status_of(books, file))
