"""A torn last block, as after a crash when the last block reached the disk in part.

The log's owner is dead, and the log is not recovered yet. It gets the first part of a block behind its last one; its
other bytes stay.
"""

from __future__ import annotations

import random
from pathlib import Path

from bookkeeper.storage.volume.sources import map_file
from bookkeeper.storage.wal.blocks.block import encode_batch
from bookkeeper.storage.wal.blocks.block_pb2 import BlockHeader
from bookkeeper.storage.wal.blocks.frame import BLOCK_MAGIC, FILE_MAGIC, FramePosition, pack_frame, read_frame
from bookkeeper.storage.wal.reading.wal_recovery import find_end
from tests.support.volumes import name_at
from tests.support.wal_files import records

TORN_ROWS = [b"torn-%03d" % number for number in range(50)]
"""Rows of the block that never was: no reader may ever see one."""


def torn_block(path: Path, rng: random.Random) -> bytes:
    """The beginning of a block that fits behind the log's last one; at least one byte of it is missing."""
    source = map_file(path)
    end = find_end(name_at(path), source)
    salt = read_frame(source, FILE_MAGIC, 0, source.size, 0).prefix.prefix_crc
    header = BlockHeader(
        table_id="1",
        first_offset=end.offset + 1,
        record_count=len(TORN_ROWS),
        min_row=TORN_ROWS[0],
        max_row=TORN_ROWS[-1],
    )
    place = FramePosition(salt, end.position, end.position)
    whole = b"".join(
        map(bytes, pack_frame(BLOCK_MAGIC, header.SerializeToString(), encode_batch(records(TORN_ROWS)), place))
    )
    return whole[: rng.randrange(1, len(whole))]


def tear(path: Path, rng: random.Random) -> int:
    """Append it; returns how many bytes. Raises CorruptionError when the log is no log."""
    torn = torn_block(path, rng)
    with path.open("ab") as log:
        log.write(torn)
    return len(torn)
