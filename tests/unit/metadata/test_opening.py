"""URLs of metadata tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from bookkeeper.errors import InvalidInputError, NotFoundError, UnavailableError
from bookkeeper.metadata.metadata_table import Column, RowPut
from bookkeeper.metadata.opening import make_metadata, open_metadata, sqlite_url


@pytest.mark.parametrize("name", ["metadata.db", "a b.db", "50%.db", "what?.db", "#1.db", "ü.db"])
def test_any_path_has_a_url(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    make_metadata(sqlite_url(path), "w", Path("/elsewhere"))
    table = open_metadata(sqlite_url(path), "w", Path("/elsewhere"))
    table.put([RowPut(b"1<", {Column("repl", b"f"): b"v"})], 5)
    table.close()
    assert path.is_file()


def test_a_relative_path_starts_at_the_directory(tmp_path: Path) -> None:
    (tmp_path / "books").mkdir()
    make_metadata("sqlite:///books/metadata.db", "w", tmp_path)
    open_metadata("sqlite:///books/metadata.db", "w", tmp_path).close()
    assert (tmp_path / "books" / "metadata.db").is_file()
    assert sqlite_url(Path("books/metadata.db")) == "sqlite:///books/metadata.db"


@pytest.mark.parametrize(
    "url",
    [
        "",
        "metadata.db",
        "sqlite:",
        "sqlite:///",
        "sqlite://host/metadata.db",
        "sqlite:///a.db?mode=ro",
        "sqlite:///a.db#x",
        "hbase://",
        "hbase:///west",
        "hbase://host:9090",
        "hbase://host:9090/",
        "hbase://host:9090/a/b",
        "hbase://host:port/west",
        "hbase://host:99999/west",
        "postgres://host/west",
    ],
)
def test_other_urls_are_refused(tmp_path: Path, url: str) -> None:
    for use in (open_metadata, make_metadata):
        with pytest.raises(InvalidInputError):
            use(url, "w", tmp_path)


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        open_metadata("sqlite:///none/metadata.db", "w", tmp_path)


def test_an_hbase_that_does_not_answer_is_unavailable() -> None:
    with pytest.raises(UnavailableError, match=r"127\.0\.0\.1:1 does not answer"):
        open_metadata("hbase://127.0.0.1:1/west", "w", retry_for_ms=0)
