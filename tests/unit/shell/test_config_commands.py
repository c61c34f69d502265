"""``bookkeeper config``: its output for a settings file, good or bad, without a running cluster."""

from __future__ import annotations

import json
import shutil
import socket
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.clock import SystemClock
from bookkeeper.config.file import SETTINGS_FILE
from bookkeeper.config.sections import Sections
from bookkeeper.config.setting import explain
from bookkeeper.standalone import books
from bookkeeper.standalone.directory import init_cluster
from shell import config_commands
from shell.failures import ExitCode, run
from shell.main import bookkeeper
from tests.support.locked_database import locked_by_another


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    init_cluster(tmp_path / "west", "west", overrides={"master.scan_interval_ms": 9})
    return tmp_path / "west"


def config(capsys: pytest.CaptureFixture[str], *words: str | Path) -> tuple[int, list[str], str]:
    code = run(bookkeeper, ["config", *map(str, words)], as_json="--json" in words)
    captured = capsys.readouterr()
    return code, captured.out.splitlines(), captured.err


def config_json(capsys: pytest.CaptureFixture[str], *words: str | Path) -> tuple[int, Any]:
    code, (line,), _ = config(capsys, *words, "--json")
    return code, json.loads(line)


def test_a_good_file_has_no_problem(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = directory / SETTINGS_FILE
    before = sorted(directory.rglob("*"))
    assert config(capsys, "check", directory) == (ExitCode.OK, [f"{file}: no problem"], "")
    assert config_json(capsys, "check", directory) == (ExitCode.OK, {"file": str(file), "problems": []})
    assert sorted(directory.rglob("*")) == before


def assert_problem(directory: Path, capsys: pytest.CaptureFixture[str], key: str, reason: str) -> None:
    code, (line,), _ = config(capsys, "check", directory)
    assert code == ExitCode.FAILED
    assert line.startswith(f"{directory / SETTINGS_FILE}: {key}: ")
    assert reason in line
    assert len(line.split("; ")) > 1, "the line names the next step"


def test_an_hbase_that_hangs_is_named_while_an_operator_still_waits(
    directory: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file, clock = directory / SETTINGS_FILE, SystemClock()
    for module in (config_commands, books):
        monkeypatch.setattr(module, "RETRY_MS", 300)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"hbase://127.0.0.1:{silent.getsockname()[1]}/west"
        file.write_text(file.read_text().replace("sqlite:///metadata.db", url))
        began_ns = clock.boot_ns()
        assert_problem(directory, capsys, "metadata.url", "does not answer: TimeoutError")
        assert clock.boot_ns() - began_ns < 5_000_000_000, "an operator waits for the time of a request"


def test_the_stores_of_a_good_file_are_checked(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    books, store = directory / "metadata.db", directory / "coordination" / "coordination.db"
    init_cluster(directory.parent / "east", "east")
    shutil.copy(directory.parent / "east" / "metadata.db", books)
    assert_problem(directory, capsys, "metadata.url", "holds the books of instance")
    books.unlink()
    assert_problem(directory, capsys, "metadata.url", "does not exist or is empty")
    assert not books.exists(), "check makes no file"
    store.unlink()
    assert_problem(directory, capsys, "coordination.url", "there is no coordination store")
    assert not store.exists()


def test_books_that_another_process_keeps_locked_are_a_problem(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with locked_by_another(directory / "metadata.db", "BEGIN EXCLUSIVE") as holder:
        code, (line,), _ = config(capsys, "check", directory)
    assert code == ExitCode.FAILED
    assert f": process {holder} (python" in line
    assert line.endswith(" keeps it locked; end its transaction, or that process")
    assert config(capsys, "check", directory)[0] == ExitCode.OK


def test_every_problem_is_a_line_with_file_key_reason_and_next_step(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = directory / SETTINGS_FILE
    file.write_text(file.read_text().replace("scan_interval_ms", "scan_intervall_ms").replace("heap_mib = 512", ""))
    with file.open("a") as out:
        out.write("[replya]\nheap_mib = 1\n")
    code, lines, err = config(capsys, "check", directory)
    assert (code, err) == (ExitCode.FAILED, "")
    assert lines == [
        (
            f"{file}: master.scan_intervall_ms: unknown setting, did you mean master.scan_interval_ms?; "
            "rename it or take it out"
        ),
        f"{file}: replya: unknown setting, did you mean replay?; rename it or take it out",
    ]
    code, found = config_json(capsys, "check", directory)
    assert code == ExitCode.FAILED
    assert [problem["key"] for problem in found["problems"]] == ["master.scan_intervall_ms", "replya"]
    assert {frozenset(problem) for problem in found["problems"]} == {frozenset(("file", "key", "reason", "next_step"))}


def test_a_missing_file_is_a_problem_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, (line,), _ = config(capsys, "check", tmp_path)
    assert (code, "bookkeeper init" in line) == (ExitCode.FAILED, True)
    assert config_json(capsys, "check", tmp_path)[1]["problems"][0]["key"] is None
    code, lines, err = config(capsys, "show", tmp_path)
    assert (code, lines, "bookkeeper init" in err) == (ExitCode.FAILED, [], True)


def test_show_prints_changed_settings_or_all(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, (header, *lines), err = config(capsys, "show", directory)
    assert (code, err) == (ExitCode.OK, "")
    assert header.split() == ["SETTING", "VALUE", "UNIT", "DEFAULT", "MEANING"]
    assert ["master.scan_interval_ms", "9", "ms", "5000", "Time"] in [line.split()[:5] for line in lines]
    assert not any("tserver.wal_roll_bytes" in line for line in lines)
    code, rows = config_json(capsys, "show", directory, "--all")
    assert (code, [row["setting"] for row in rows]) == (ExitCode.OK, [facts.name for facts in explain(Sections)])
    (roll,) = (row for row in rows if row["setting"] == "tserver.wal_roll_bytes")
    assert {**roll, "meaning": "", "why": ""} == {
        "setting": "tserver.wal_roll_bytes",
        "value": 1_073_741_824,
        "unit": "bytes",
        "default": 1_073_741_824,
        "meaning": "",
        "why": "",
        "least": 1,
        "most": 2**40,
        "choices": None,
    }
