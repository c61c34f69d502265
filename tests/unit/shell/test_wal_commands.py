"""``bookkeeper wal show``: its output for a log in every state, without a cluster or Java."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.model import BlockTarget, Origin, StreamKey
from bookkeeper.storage.wal.blocks.block_messages import origin_to_pb
from bookkeeper.storage.wal.blocks.block_pb2 import FileHeader, Predecessor
from bookkeeper.storage.wal.reading.block_reader import read_headers
from bookkeeper.storage.wal.writing.wal_writer import WalWriter
from shell.failures import ExitCode, run
from shell.main import bookkeeper
from tests.support.volumes import MACHINE, name_at, path_of, uri_at
from tests.support.wal_files import NORTH, TO_EAST, WEST, Spec, append, block, write_wal

SPECS = [
    Spec([b"a", b"b", b"c\xff"], groups=[("geo", [b"f"])]),
    Spec([b"d"], block_targets=[], table_id="t2", provenance=[NORTH]),
    Spec([b"e", b"f"], block_targets=[BlockTarget(TO_EAST, ("geo",))], compression="zstd"),
]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return path_of(write_wal(tmp_path / "1.wal", SPECS, seal=True))


def show(capsys: pytest.CaptureFixture[str], *words: str | Path) -> tuple[int, list[str], str]:
    code = run(bookkeeper, ["wal", "show", *map(str, words)], as_json="--json" in words)
    captured = capsys.readouterr()
    return code, captured.out.splitlines(), captured.err


def show_json(capsys: pytest.CaptureFixture[str], *words: str | Path) -> list[dict[str, Any]]:
    code, lines, _ = show(capsys, *words, "--json")
    assert code == ExitCode.OK
    return [json.loads(line) for line in lines]


def test_each_block_is_a_line_with_the_facts_of_its_header(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, lines, err = show(capsys, log)
    assert (code, err) == (ExitCode.OK, "")
    assert lines[0] == f"{log.as_uri()}: {log.stat().st_size} bytes, sealed at offset 6, byte {log.stat().st_size}"
    assert lines[1].startswith(f"format 3, written by session s of instance {WEST}, created 1970-01-01T00:00:00.001Z")
    assert lines[2].split() == [
        "OFFSETS",
        "RECORDS",
        "TABLE",
        "TABLET",
        "GROUPS",
        "TARGETS",
        "WRITTEN",
        "BYTES",
        "PROVENANCE",
        "ORIGIN",
    ]
    assert lines[3].split()[:6] == ["1-3", "3", "t1", "(last)", "geo=f", "east:r1:t1:1"]
    assert lines[4].split()[:6] == ["4-4", "1", "t2", "(last)", "default=f", "-"]
    assert lines[4].split()[-2:] == [NORTH, "-"]
    assert lines[-1] == "3 blocks, up to offset 6, all complete"


def test_json_has_one_object_a_line(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, *blocks, end = show_json(capsys, log)
    assert (first["kind"], first["sealed_offset"], first["instance_id"], first["session_id"]) == ("file", 6, WEST, "s")
    headers = list(read_headers(MACHINE, name_at(log)))
    assert [(b["first"], b["last"], b["position"], b["end_position"]) for b in blocks] == [
        (at.header.first_offset, at.last_offset, at.position, at.end_position) for at in headers
    ]
    assert [b["targets"] for b in blocks] == [["east:r1:t1:1"], [], ["east:r1:t1:1"]]
    assert [b["target_groups"] for b in blocks] == [[None], [], [["geo"]]]
    assert blocks[0]["groups"] == {"geo": ["f"]}
    assert (blocks[2]["compression"], blocks[0]["max_row"]) == ("zstd", "c\\xff")
    assert end == {"kind": "end", "blocks": 3, "last": 6, "end_position": log.stat().st_size} | {
        "tail_bytes": 0,
        "tail": None,
    }


def test_a_block_shows_its_origin_and_its_predecessors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    writer = WalWriter.create(MACHINE, name_at(tmp_path / "1.wal"), FileHeader())
    made = block(Spec([b"a"]), 1)
    stream = StreamKey(NORTH, "north/7.wal", "t9", "t1", 3)
    made.header.origin.CopyFrom(origin_to_pb(Origin(stream, 20, 40)))
    made.header.after.append(Predecessor(file="w/0.wal", offset=7))
    made.header.end_row = b"m"
    writer.append([made])
    writer.abandon()
    _, found, _ = show_json(capsys, tmp_path / "1.wal")
    assert found["origin"] == {"stream": stream.encode(), "file": "north/7.wal", "after": 20, "to": 40}
    assert found["after"] == [{"file": "w/0.wal", "offset": 7}]
    assert found["end_row"] == "m"
    _, lines, _ = show(capsys, tmp_path / "1.wal")
    assert lines[3].endswith("21-40 of north/7.wal")
    assert "..m" in lines[3]


def test_records_are_printed_like_a_scan_with_their_offsets(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, lines, _ = show(capsys, log, "--records")
    assert code == ExitCode.OK
    assert lines[2:5] == ["1  t1  a f:q [] 1    a", "2  t1  b f:q [] 1    b", "3  t1  c\\xff f:q [] 1    c\\xff"]
    assert len(lines) == 2 + 6 + 1


@pytest.mark.parametrize(
    ("words", "offsets", "ends"),
    [
        (["--from", "3"], [3, 4, 5, 6], True),
        (["--from", "2", "--to", "4"], [2, 3, 4], False),
        (["--to", "99"], [1, 2, 3, 4, 5, 6], True),
        (["--limit", "2"], [1, 2], False),
        (["--from", "3", "--limit", "2"], [3, 4], False),
        (["--from", "7"], [], True),
    ],
)
def test_a_range_of_records_is_exact(
    log: Path, capsys: pytest.CaptureFixture[str], words: list[str], offsets: list[int], ends: bool
) -> None:
    lines = show_json(capsys, log, "--records", *words)
    assert [line["offset"] for line in lines if line["kind"] == "record"] == offsets
    assert (lines[-1]["kind"] == "end") is ends


@pytest.mark.parametrize(
    ("words", "firsts"), [(["--from", "3", "--to", "4"], [1, 4]), (["--limit", "1"], [1]), (["--from", "6"], [5])]
)
def test_a_range_of_blocks_holds_those_that_touch_it(
    log: Path, capsys: pytest.CaptureFixture[str], words: list[str], firsts: list[int]
) -> None:
    lines = show_json(capsys, log, *words)
    assert [line["first"] for line in lines if line["kind"] == "block"] == firsts


def test_a_torn_tail_is_shown_and_is_no_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = path_of(write_wal(tmp_path / "1.wal", SPECS))
    path.write_bytes(path.read_bytes()[:-5])
    code, lines, err = show(capsys, path)
    assert (code, err) == (ExitCode.OK, "")
    assert "not sealed" in lines[0]
    assert lines[-1].startswith("2 blocks, up to offset 4, all complete; torn tail: ")
    tail = show_json(capsys, path)[-1]
    assert tail["tail_bytes"] == path.stat().st_size - tail["end_position"] > 0


def test_bytes_after_the_seal_are_not_part_of_the_log(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log.write_bytes(log.read_bytes() + b"late")
    code, lines, _ = show(capsys, log)
    assert code == ExitCode.OK
    assert lines[-1] == "3 blocks, up to offset 6, all complete; 4 bytes after the seal are not part of the log"


def test_a_log_without_a_complete_header_has_a_torn_tail(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "1.wal").write_bytes(b"\x89BK")
    code, lines, _ = show(capsys, tmp_path / "1.wal")
    assert code == ExitCode.OK
    assert len(lines) == 2
    assert "torn tail: 3 bytes" in lines[1]


def test_damage_is_an_error_after_the_complete_blocks(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    second = list(read_headers(MACHINE, name_at(log)))[1]
    raw = bytearray(log.read_bytes())
    raw[second.end_position - 12] ^= 1
    log.write_bytes(raw)
    code, lines, err = show(capsys, log)
    assert code == ExitCode.FAILED
    assert [line.split()[0] for line in lines[3:]] == ["1-3"]
    assert err == (
        f"error: {log.as_uri()} is damaged at byte {second.position}: the payload does not match its checksum\n"
    )
    code, _, err = show(capsys, log, "--json")
    assert json.loads(err)["error"] == "corruption"


def test_a_missing_file_and_a_wrong_range_have_their_exit_codes(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert show(capsys, log.with_name("9.wal"))[0] == ExitCode.FAILED
    assert show(capsys, log.parent)[0] == ExitCode.FAILED
    assert show(capsys, log, "--from", "3", "--to", "2")[0] == ExitCode.USAGE
    assert show(capsys, log, "--from", "0")[0] == ExitCode.USAGE
    assert show(capsys, log, "--limit", "0")[0] == ExitCode.USAGE


def test_a_uri_names_a_log_even_while_it_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    writer = WalWriter.create(MACHINE, name_at(tmp_path / "1.wal"), FileHeader())
    append(writer, SPECS[:2])
    assert len(show_json(capsys, uri_at(writer.name))) == 4
    append(writer, SPECS[2:])
    assert len(show_json(capsys, uri_at(writer.name))) == 5
    writer.abandon()


def test_neither_a_cluster_nor_spark_is_needed(log: Path) -> None:
    script = (
        "import sys; sys.modules['pyspark'] = None\n"
        "from shell.main import bookkeeper\n"
        f"bookkeeper.main(['wal', 'show', {str(log)!r}], standalone_mode=False)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "all complete" in done.stdout
