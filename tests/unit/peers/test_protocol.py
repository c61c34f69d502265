"""The protocol of replica systems is one small module, and a package that imports nothing else of us can be a peer."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from bookkeeper.config.file import new_settings
from bookkeeper.errors import CorruptionError
from bookkeeper.peers import protocol
from bookkeeper.peers.protocol import Acked, BlockFacts, Message, MessageBlock, Peer, StreamKey
from bookkeeper.peers.registry import Registry, retry_limits
from bookkeeper.storage.wal.blocks.block import encode_batch
from tests.support.cluster import THIRD_PARTY
from tests.support.wal_files import WEST, records

FLOOR = {"bookkeeper", "bookkeeper.errors", "bookkeeper.model", "bookkeeper.peers", "bookkeeper.peers.protocol"}
LIBRARIES = {"bookkeeper", "msgspec", "pyarrow", *sys.stdlib_module_names}


def imports_of(source: Path) -> set[str]:
    """The modules that a file imports, by their full names."""
    tree = ast.parse(source.read_text())
    plain = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    return plain | {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}


def test_the_protocol_imports_the_lowest_floor_and_libraries_of_values_only() -> None:
    assert {name.partition(".")[0] for name in imports_of(Path(protocol.__file__))} <= LIBRARIES
    loaded = "import bookkeeper.peers.protocol, json, sys; print(json.dumps(sorted(sys.modules)))"
    names = json.loads(subprocess.run([sys.executable, "-c", loaded], check=True, capture_output=True).stdout)
    assert {name for name in names if name.partition(".")[0] in ("bookkeeper", "combiners")} == FLOOR


def test_the_example_of_a_third_party_imports_the_protocol_only() -> None:
    names = imports_of(Path(THIRD_PARTY) / "ledger_peer.py")
    assert {name for name in names if name.startswith("bookkeeper")} == {"bookkeeper.peers.protocol"}


def test_a_system_that_imports_the_protocol_only_is_shipped_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(THIRD_PARTY)
    system, address = Registry().installed("ledger"), str(tmp_path / "ledger.db")
    peer = Peer("ledger", address, system.prepare(address).instance_id)
    stream = StreamKey(WEST, "w", "1", "ACCOUNT", 1)
    block = MessageBlock(1, 2, encode_batch(records([b"a", b"b"])), 2, b"a", b"b")
    session = system.open(peer, stream, retry_limits(new_settings(tmp_path, "west", instance_id=WEST)))
    message = Message((WEST,), 0, 0, 2, (block,), (BlockFacts(1, 1),))
    assert session.ship(message) == Acked(2, 2, 0)
    assert session.ship(message) == Acked(2, 0, 2)


def test_a_block_gives_its_records_and_says_when_it_is_damaged() -> None:
    batch = records([b"a", b"b"])
    raw = pa.py_buffer(encode_batch(batch))
    assert MessageBlock(1, 2, raw, 2, b"a", b"b").record_batch().equals(batch)
    with pytest.raises(CorruptionError, match="1 to 2"):
        MessageBlock(1, 2, raw.slice(0, 40), 2, b"a", b"b").record_batch()
