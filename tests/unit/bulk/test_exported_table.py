"""The manifest of an export says exactly what it was given, and nothing else is taken for one."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.bulk.exported_table import Checksum, Exported, parts_of_file
from bookkeeper.bulk.manifest import NAME
from bookkeeper.errors import CorruptionError, InvalidInputError
from bookkeeper.storage.volume.given_directory import read_parts, write_file
from tests.support.exports import GROUPS, PROPERTIES, make_export
from tests.support.volumes import MACHINE, name_at


def test_a_manifest_comes_back_as_it_was(tmp_path: Path) -> None:
    exported = make_export(tmp_path / "e")
    found = Exported.read(MACHINE, name_at(tmp_path / "e"))
    assert found == exported
    assert (found.groups, dict(found.properties), found.records) == (GROUPS, PROPERTIES, 3)
    for name, checksum in found.checksums.items():
        assert hashlib.sha256((tmp_path / "e" / name).read_bytes()).hexdigest() == checksum


def test_a_directory_without_a_manifest_is_no_export(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="nothing was written there, or not to its end"):
        Exported.read(MACHINE, name_at(tmp_path))
    with pytest.raises(InvalidInputError):
        Exported.read(MACHINE, name_at(tmp_path / "nowhere"))


def _without(name: str) -> Any:
    return lambda found: found.pop(name)


def _with_entry(found: Any, **said: Any) -> None:
    """The entry of the first tablet's file says something else."""
    ((name, raw),) = found["tablets"][0]["segments"].items()
    found["tablets"][0]["segments"][name] = json.dumps(json.loads(raw) | said)


SPOILT: list[tuple[str, Any]] = [
    ("no kind", _without("kind")),
    ("another kind", lambda found: found.update(kind="backup")),
    ("a later version", lambda found: found.update(version=2)),
    ("one more field", lambda found: found.update(more=1)),
    ("no tablets", lambda found: found.update(tablets=[])),
    ("a tablet is missing", lambda found: found["tablets"].pop()),
    ("tablets in another order", lambda found: found["tablets"].reverse()),
    ("a tablet without borders", lambda found: found["tablets"][0].pop("end_row")),
    ("a row that is no base64", lambda found: found["tablets"][0].update(end_row="!")),
    ("a file without a checksum", lambda found: found["checksums"].popitem()),
    ("a checksum of no file", lambda found: found["checksums"].update(more="0")),
    ("a segment that is none", lambda found: found["tablets"][0].update(segments={"000000.parquet": "{}"})),
    ("properties that are no text", lambda found: found["properties"].update(more=1)),
    ("a number of which none is behind", lambda found: found["tablets"][0].update(last_seq=2**63 - 1)),
    ("a time of which none is behind", lambda found: found["tablets"][0].update(last_time_ms=2**63 - 1)),
    ("a number below those of its file", lambda found: found["tablets"][0].update(last_seq=1)),
    ("rows of another tablet", lambda found: _with_entry(found, min_row="eg==", max_row="eg==")),
    ("ranges of another tablet", lambda found: _with_entry(found, ranges=[["eg==", None]])),
    ("a shift behind all numbers", lambda found: _with_entry(found, shift=2**62)),
    ("families that are no list", lambda found: found["groups"].update(g="f")),
]


@pytest.mark.parametrize(("what", "spoil"), SPOILT, ids=[what for what, _ in SPOILT])
def test_what_is_not_exactly_a_manifest_is_refused(tmp_path: Path, what: str, spoil: Any) -> None:
    make_export(tmp_path / "e")
    found = json.loads((tmp_path / "e" / NAME).read_bytes())
    spoil(found)
    (tmp_path / "e" / NAME).write_text(json.dumps(found))
    with pytest.raises(CorruptionError):
        Exported.read(MACHINE, name_at(tmp_path / "e"))
    assert what


@pytest.mark.parametrize("name", ["", "..", "../up", "manifest.json"])
def test_files_have_plain_names(tmp_path: Path, name: str) -> None:
    make_export(tmp_path / "e")
    raw = (tmp_path / "e" / NAME).read_text().replace("000000.parquet", name)
    (tmp_path / "e" / NAME).write_text(raw)
    with pytest.raises(CorruptionError, match="checksums of"):
        Exported.read(MACHINE, name_at(tmp_path / "e"))


def test_a_file_is_copied_whole_over_whatever_was_there(tmp_path: Path) -> None:
    content = bytes(range(256)) * 40_000
    (tmp_path / "source").write_bytes(content)
    (tmp_path / "target").write_bytes(content * 2)
    checksum = Checksum()
    write_file(tmp_path / "target", checksum.of(parts_of_file(MACHINE, name_at(tmp_path / "source"))))
    assert checksum.hex() == hashlib.sha256(content).hexdigest()
    assert (tmp_path / "target").read_bytes() == content
    assert b"".join(read_parts(tmp_path / "target")) == content
