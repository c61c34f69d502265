"""Write-ahead logs: blocks of records in files, group commit, range reads, recovery.

Arrives: drafts of blocks from tablets (``GroupCommitter``). Leaves: blocks of any range of a log, as Arrow batches
(``read_blocks``), and what the master needs to know of a log (``recover``, ``read_seal``, ``file_summary``).
Survives a crash: every block whose sync was acknowledged, up to the seal. Reading order: ``block.proto``,
``block``, ``frame``, ``writer``, ``submission``, ``committer``, ``reader``, ``recovery``.
"""

from bookkeeper.storage.wal.block import Block, DraftBlock, PlacedBlock, decode_batch, encode_batch
from bookkeeper.storage.wal.block_pb2 import BlockHeader, FileHeader, Group, Predecessor
from bookkeeper.storage.wal.convert import (
    origin_from_pb,
    origin_to_pb,
    stamp_from_pb,
    stamp_to_pb,
    stream_from_pb,
    stream_to_pb,
    target_from_pb,
)
from bookkeeper.storage.wal.submission import Durability, Listener, Seal, Submission

__all__ = [
    "Block",
    "BlockHeader",
    "DraftBlock",
    "Durability",
    "FileHeader",
    "Group",
    "Listener",
    "PlacedBlock",
    "Predecessor",
    "Seal",
    "Submission",
    "decode_batch",
    "encode_batch",
    "origin_from_pb",
    "origin_to_pb",
    "stamp_from_pb",
    "stamp_to_pb",
    "stream_from_pb",
    "stream_to_pb",
    "target_from_pb",
]
