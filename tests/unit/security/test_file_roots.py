"""Clients reach files below the roots only, through any links; the check is at the opening."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from bookkeeper.config.file import load_settings, new_settings
from bookkeeper.errors import BookkeeperError, InvalidInputError, RefusedError
from bookkeeper.security.file_roots import FileRoots
from bookkeeper.standalone.directory import init_cluster
from tests.support.faults import fault
from tests.support.must_raise import must_raise


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """``open`` is a root, ``closed`` is not; each holds a file, and links lead both ways."""
    for name in ("open", "closed"):
        (tmp_path / name / "deep").mkdir(parents=True)
        (tmp_path / name / "deep" / "file").write_text(name)
    (tmp_path / "open" / "out").symlink_to(tmp_path / "closed")
    (tmp_path / "open" / "out-file").symlink_to(tmp_path / "closed" / "deep" / "file")
    (tmp_path / "open" / "in").symlink_to("deep/file")
    (tmp_path / "closed" / "in").symlink_to(tmp_path / "open")
    (tmp_path / "opened").mkdir()
    os.mkfifo(tmp_path / "open" / "pipe")
    return tmp_path


@pytest.fixture
def roots(place: Path) -> FileRoots:
    return FileRoots((place / "open",), ("s3://bucket/lake/",))


REACHED = ["open", "open/deep/file", "open/in", "closed/in/deep/file", "open/deep/../in", "open//deep/./file"]
OUTSIDE = [
    "closed/deep/file",
    "open/out/deep/file",
    "open/out-file",
    "open/../closed/deep/file",
    "opened",
    "",
    "/etc/passwd",
]


@pytest.mark.parametrize("path", REACHED)
def test_what_is_below_a_root_is_reached_by_whichever_way(path: str, place: Path, roots: FileRoots) -> None:
    assert roots.resolve(place / path).is_relative_to(place / "open")
    with roots.opened(place / path) as opened:
        assert opened.is_dir() or opened.read_text() == "open"


def _refused(use: Callable[[], object]) -> None:
    with must_raise(
        RefusedError,
        "a file outside of the roots is reached",
        match=r"not below a directory .* name its directory in files\.roots",
    ):
        use()


def _nothing_outside_is_reached(place: Path, roots: FileRoots) -> None:
    for path in OUTSIDE:
        _refused(lambda path=path: roots.resolve(place / path))  # type: ignore[misc]
        _refused(lambda path=path: roots.opened(place / path).__enter__())  # type: ignore[misc]


def test_nothing_else_is_reached(place: Path, roots: FileRoots) -> None:
    _nothing_outside_is_reached(place, roots)
    _refused(lambda: roots.resolve(place / "closed" / "new" / "file"))
    assert roots.resolve(place / "open" / "new" / "file") == place / "open" / "new" / "file"


def test_without_its_rule_anything_is_reached(place: Path, roots: FileRoots) -> None:
    with fault("roots-are-everywhere"), pytest.raises(AssertionError, match="a file outside of the roots is reached"):
        _nothing_outside_is_reached(place, roots)


def test_a_link_that_changes_after_it_was_judged_leads_nowhere_else(place: Path, roots: FileRoots) -> None:
    way = place / "open" / "way"
    way.symlink_to(place / "open" / "deep")
    assert roots.resolve(way) == place / "open" / "deep"
    with roots.opened(way) as opened:
        way.unlink()
        way.symlink_to(place / "closed" / "deep")
        assert (opened / "file").read_text() == "open"
        _refused(lambda: roots.opened(way / "file").__enter__())


def test_a_pipe_holds_nobody_up(place: Path, roots: FileRoots) -> None:
    with pytest.raises(RefusedError, match="neither a file nor a directory"), roots.opened(place / "open" / "pipe"):
        pass


@pytest.mark.parametrize("uri", ["s3://bucket/lake", "s3://bucket/lake/", "s3://bucket/lake/a/b"])
def test_uris_below_a_root(uri: str, roots: FileRoots) -> None:
    roots.check_uri(uri)


@pytest.mark.parametrize(
    "uri",
    ["s3://bucket", "s3://bucket/lake2", "s3://bucket/lake/../x", "s3://bucket/lake/%2e%2E/x", "hdfs://bucket/lake"],
)
def test_uris_elsewhere(uri: str, roots: FileRoots) -> None:
    with pytest.raises(BookkeeperError, match=r"not below a directory|has a part"):
        roots.check_uri(uri)


def test_by_default_there_is_one_root_in_the_directory_of_the_cluster(tmp_path: Path) -> None:
    settings = init_cluster(tmp_path / "west", "west")
    roots = FileRoots.of(load_settings(settings.directory))
    assert roots == FileRoots((tmp_path / "west" / "exchange",))
    assert (tmp_path / "west" / "exchange").is_dir()
    _refused(lambda: roots.resolve(tmp_path / "west" / "secrets" / "cluster.secret"))


def test_roots_of_settings(tmp_path: Path) -> None:
    given = {"files.roots": ["mine", "/srv/lake", "s3://bucket/lake"]}
    roots = FileRoots.of(new_settings(tmp_path, "west", overrides=given))
    assert roots == FileRoots((tmp_path / "mine", Path("/srv/lake")), ("s3://bucket/lake",))
    _refused(lambda: FileRoots.of(new_settings(tmp_path, "west", overrides={"files.roots": []})).resolve(tmp_path))
    for wrong in ("", "../up", "a/../../b"):
        with pytest.raises(InvalidInputError, match=r"files\.roots"):
            new_settings(tmp_path, "west", overrides={"files.roots": [wrong]})
