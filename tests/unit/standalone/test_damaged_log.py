"""``bookkeeper wal seal``: an operator gives up the records behind the damage of a dead tablet server's log."""

from __future__ import annotations

from pathlib import Path

import pytest

from bookkeeper.config.sections import Settings
from bookkeeper.coordination.connect import open_coordination
from bookkeeper.standalone.directory import init_cluster
from bookkeeper.storage.volume.local_volume import LocalVolume
from bookkeeper.storage.wal.blocks.block_pb2 import FileHeader
from bookkeeper.storage.wal.writing.seal import Seal, read_seal
from bookkeeper.storage.wal.writing.wal_writer import WalWriter
from shell.failures import ExitCode
from tests.support.shell import quick
from tests.support.wal_files import Spec, append, block

NAME = "wal/tserver-3-e41aed3c/000001.wal"
SPECS = [Spec([b"a", b"b"]), Spec([b"c"]), Spec([b"d"])]


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    return init_cluster(tmp_path / "west", "west")


def damaged_log(root: Path, name: str = NAME, *, is_proven: bool = False) -> int:
    """A log with a first block, and a damage before a whole block; returns where the first one ends."""
    writer = WalWriter.create(LocalVolume(root), name, FileHeader(session_id=name.split("/")[1]))
    append(writer, SPECS[:1])
    end = writer.position
    if is_proven:
        append(writer, SPECS[1:2])
        append(writer, SPECS[2:])
    else:
        writer.append([block(spec, first) for spec, first in zip(SPECS[1:], (3, 4), strict=True)])
    writer.abandon()
    raw = bytearray((root / name).read_bytes())
    raw[end + 20] ^= 1
    (root / name).write_bytes(raw)
    return end


@pytest.mark.parametrize("place", ["cluster", "host"])
def test_the_log_ends_before_the_damage_and_a_copy_of_the_file_stays(settings: Settings, place: str) -> None:
    root = settings.directory if place == "cluster" else settings.replicas_dir
    end = damaged_log(root)
    whole = (root / NAME).read_bytes()
    said = quick("wal", "seal", str(settings.directory), NAME)
    copy = Path("wal-tserver-3-e41aed3c-000001.wal")
    assert said.code == ExitCode.OK
    assert said.out == f"{NAME} ends with record 2 now; {copy} is a copy of the whole file\n"
    assert read_seal(LocalVolume(root), NAME) == Seal(2, end)
    assert (copy.read_bytes(), copy.stat().st_mode & 0o777) == (whole, 0o600)
    again = quick("wal", "seal", str(settings.directory), NAME, "--json")
    assert (again.code, again.json["offset"]) == (ExitCode.OK, 2)


def test_the_log_of_a_live_tablet_server_is_left_alone(settings: Settings) -> None:
    coordination = open_coordination(settings)
    try:
        session = coordination.open_session("tserver", "127.0.0.1:1")
        name = f"wal/{session.session_id}/000001.wal"
        damaged_log(settings.directory, name)
        said = quick("wal", "seal", str(settings.directory), name)
    finally:
        coordination.close()
    assert said.code == ExitCode.FAILED
    assert "lives and writes it" in said.err
    assert read_seal(LocalVolume(settings.directory), name) is None
    assert list(Path().iterdir()) == []


def test_records_that_were_durable_are_not_given_up(settings: Settings) -> None:
    damaged_log(settings.directory, is_proven=True)
    said = quick("wal", "seal", str(settings.directory), NAME)
    assert said.code == ExitCode.FAILED
    assert "proves that this was durable" in said.err
    assert list(Path().iterdir()) == [], "nothing was given up, so no copy is needed"


@pytest.mark.parametrize("name", ["wal/s/000009.wal", "metadata.db", f"{NAME}.seal", "../west/x"])
def test_a_name_that_is_no_log_here_is_refused(settings: Settings, name: str) -> None:
    said = quick("wal", "seal", str(settings.directory), name)
    assert said.code == ExitCode.FAILED
    assert "no log" in said.err


def test_an_older_copy_is_not_written_over(settings: Settings) -> None:
    damaged_log(settings.directory)
    Path("wal-tserver-3-e41aed3c-000001.wal").write_text("mine")
    said = quick("wal", "seal", str(settings.directory), NAME)
    assert said.code == ExitCode.FAILED
    assert "move it away" in said.err
    assert read_seal(LocalVolume(settings.directory), NAME) is None
