"""Small real WALs for tests: a list of block descriptions in, a file written through the real writer out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
from msgspec import Struct

from bookkeeper.model import MUTATION_SCHEMA, BlockTarget, TargetKey
from bookkeeper.storage.volume.local_volume import LocalVolume
from bookkeeper.storage.wal.blocks.block import Block, encode_batch
from bookkeeper.storage.wal.blocks.block_messages import block_target_to_pb
from bookkeeper.storage.wal.blocks.block_pb2 import BlockHeader, FileHeader, Group
from bookkeeper.storage.wal.blocks.frame import ALIGNMENT, frame_bytes
from bookkeeper.storage.wal.reading.block_reader import read_headers
from bookkeeper.storage.wal.writing.wal_writer import WalWriter
from tests.support.volumes import ROOT, name_at, path_of

WEST, EAST, NORTH = "instance-west", "instance-east", "instance-north"
"""Instance ids: west is the source of the files, the others are peers."""

TO_EAST = TargetKey("east", "r1", "t1", 1)
"""The usual target."""


class Spec(Struct, frozen=True):
    """One block: its rows (each record's value is its row), families by record, stamps, provenance."""

    rows: Sequence[bytes]
    families: Sequence[bytes] = ()
    block_targets: Sequence[BlockTarget] = (BlockTarget(TO_EAST, None),)
    provenance: Sequence[str] = ()
    groups: Sequence[tuple[str, Sequence[bytes]]] = ()
    table_id: str = "t1"
    compression: str = ""
    write_time_ms: int = 0
    first_seq: int = 0


def records(rows: Sequence[bytes], families: Sequence[bytes] = ()) -> pa.RecordBatch:
    """One put per row, value = row, family ``f`` unless told."""
    size = len(rows)
    return pa.RecordBatch.from_arrays(
        [
            pa.array(rows, pa.binary()),
            pa.array(families or [b"f"] * size, pa.binary()),
            pa.array([b"q"] * size, pa.binary()),
            pa.array([b""] * size, pa.binary()),
            pa.array([1] * size, pa.int64()),
            pa.array([False] * size, pa.bool_()),
            pa.array(rows, pa.binary()),
        ],
        schema=MUTATION_SCHEMA,
    )


def block(spec: Spec, first_offset: int) -> Block:
    """The block as the committer would make it."""
    families = sorted(set(spec.families)) or [b"f"]
    header = BlockHeader(
        first_offset=first_offset,
        record_count=len(spec.rows),
        table_id=spec.table_id,
        groups=[Group(name=name, families=present) for name, present in spec.groups]
        or [Group(name="default", families=families)],
        block_targets=[block_target_to_pb(block_target) for block_target in spec.block_targets],
        provenance=spec.provenance,
        min_row=min(spec.rows),
        max_row=max(spec.rows),
        compression=spec.compression,
        write_time_ms=spec.write_time_ms,
        first_seq=spec.first_seq,
    )
    return Block(header, encode_batch(records(spec.rows, spec.families), spec.compression))


def write_wal(path: Path, specs: Sequence[Spec], *, seal: bool = False, root: Path = ROOT) -> str:
    """Write the blocks, synced; returns the name on the Volume in ``root``."""
    header = FileHeader(instance_id=WEST, session_id="s", created_time_ms=1)
    writer = WalWriter.create(LocalVolume(root), name_at(path, root), header)
    append(writer, specs)
    if seal:
        writer.seal()
    else:
        writer.abandon()
    return writer.name


def append(writer: WalWriter, specs: Sequence[Spec]) -> None:
    """Append and sync."""
    offset = writer.offset
    blocks = []
    for spec in specs:
        blocks.append(block(spec, offset + 1))
        offset += len(spec.rows)
    writer.append(blocks)
    writer.sync()


def lay_out(directory: Path, raw: bytes | bytearray) -> Path:
    """``log/1.wal`` below a directory: a log says in its header where it lies, so a copy has the same two names."""
    path = directory / "log" / "1.wal"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(raw)
    return path


def damage(name: str, offset: int, *, header: bool = False, root: Path = ROOT) -> None:
    """Turn a byte of the block that holds record ``offset``: in its payload, or in its header."""
    at = next(at for at in read_headers(LocalVolume(root), name) if at.last_offset >= offset)
    place = at.position + frame_bytes(0, 0) if header else at.end_position - ALIGNMENT
    with path_of(name, root).open(
        "r+b"
    ) as log:  # in place: a log that is written over from its start is empty for a moment
        log.seek(place)
        (byte,) = log.read(1)
        log.seek(place)
        log.write(bytes([byte ^ 0xFF]))
