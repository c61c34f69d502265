"""Any interleaving of puts, deletes and purges, in every store, against a model of a few lines."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bookkeeper.metadata.metadata_table import (
    CLOSED_RANK,
    MAX_RANK,
    CellKey,
    Column,
    MetadataTable,
    RowPut,
    prefix_stop,
)
from bookkeeper.metadata.opening import sqlite_url
from tests.support.books import made_books
from tests.support.hbase import HBaseInstance
from tests.support.metadata_model import MetadataModel
from tests.support.metadata_stores import hbase_url

CELLS = st.builds(
    CellKey,
    st.sampled_from([b"a", b"a\x00", b"b", b"\xff"]),
    st.builds(Column, st.sampled_from(["repl", "log"]), st.sampled_from([b"", b"\x00"])),
)
RANKS = st.integers(1, 5) | st.sampled_from([CLOSED_RANK, CLOSED_RANK + 1, MAX_RANK])
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["put", "put", "delete", "purge"]), st.lists(CELLS, min_size=1, max_size=4, unique=True), RANKS
    ),
    max_size=12,
)
Steps = list[tuple[str, list[CellKey], int]]


def _apply(target: MetadataTable | MetadataModel, steps: Steps, prefix: bytes) -> None:
    for kind, cells, rank in steps:
        named = [CellKey(prefix + cell.key, cell.column) for cell in cells]
        if kind == "put":
            keys = sorted({cell.key for cell in named})
            values = {key: {c.column: b"%d" % rank for c in named if c.key == key} for key in keys}
            target.put([RowPut(key, values[key]) for key in keys], rank)
        elif kind == "delete":
            target.delete(named, rank)
        else:
            target.purge(named)


def _check_against_model(table: MetadataTable, steps: Steps, prefix: bytes) -> None:
    model = MetadataModel()
    _apply(table, steps, prefix)
    _apply(model, steps, prefix)
    rows = list(table.scan(prefix, prefix_stop(prefix)))
    assert {CellKey(row.key, column): cell for row in rows for column, cell in row.cells.items()} == model.visible()
    assert [row.key for row in rows] == sorted({cell.key for cell in model.visible()})
    assert all(table.get(row.key) == row for row in rows)


@pytest.fixture(scope="module")
def sqlite_table(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MetadataTable]:
    table = made_books(sqlite_url(tmp_path_factory.mktemp("model") / "metadata.db"))
    yield table
    table.close()


@pytest.fixture(scope="module")
def hbase_table(hbase: HBaseInstance) -> Iterator[MetadataTable]:
    table = made_books(hbase_url(hbase))
    yield table
    table.close()


_examples = itertools.count()


@given(STEPS)
@settings(deadline=None)
def test_any_interleaving_ends_as_the_model_says_in_sqlite(sqlite_table: MetadataTable, steps: Steps) -> None:
    _check_against_model(sqlite_table, steps, b"example-%06d-" % next(_examples))


@pytest.mark.hbase
@pytest.mark.integration
@given(STEPS)
@settings(deadline=None, max_examples=15, suppress_health_check=[HealthCheck.too_slow])
def test_any_interleaving_ends_as_the_model_says_in_hbase(hbase_table: MetadataTable, steps: Steps) -> None:
    _check_against_model(hbase_table, steps, b"example-%06d-" % next(_examples))
