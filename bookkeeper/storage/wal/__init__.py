"""Write-ahead logs: blocks of records in files, group commit, range reads, recovery.

Arrives: drafts of blocks from tablets (``GroupCommitter``). Leaves: blocks of any range of a log, as Arrow batches
(``read_blocks``, or ``WalView`` for whatever is there), and what the master needs to know of a log (``recover``,
``read_seal``, ``file_summary``).
Survives a crash: every block whose sync was acknowledged, up to the seal. Reading order: ``block.proto``,
``block``, ``frame``, ``writer``, ``submission``, ``committer``, ``reader``, ``recovery``,
``inspect``.
"""

from bookkeeper.runtime.process_exit import end_process
from bookkeeper.storage.wal.block import Block, DraftBlock, PlacedBlock, decode_batch, encode_batch
from bookkeeper.storage.wal.block_pb2 import BlockHeader, FileHeader, Group, Predecessor
from bookkeeper.storage.wal.committer import GroupCommitter
from bookkeeper.storage.wal.convert import (
    origin_from_pb,
    origin_to_pb,
    shares_from_pb,
    stamp_from_pb,
    stamp_to_pb,
    stream_from_pb,
    stream_to_pb,
    target_from_pb,
)
from bookkeeper.storage.wal.files import FileOps, path_of, uri_of
from bookkeeper.storage.wal.formats import BlockAt
from bookkeeper.storage.wal.group import MergeLimits
from bookkeeper.storage.wal.inspect import Tail, WalView
from bookkeeper.storage.wal.limits import CommitLimits
from bookkeeper.storage.wal.reader import read_blocks, read_headers, read_headers_at, whole_behind
from bookkeeper.storage.wal.recovery import (
    FileSummary,
    Promise,
    TabletSummary,
    delete_log,
    file_summary,
    last_shares,
    recover,
)
from bookkeeper.storage.wal.seal import read_seal
from bookkeeper.storage.wal.submission import Durability, Listener, Seal, Submission
from bookkeeper.storage.wal.writer import WalWriter

__all__ = [
    "Block",
    "BlockAt",
    "BlockHeader",
    "CommitLimits",
    "DraftBlock",
    "Durability",
    "FileHeader",
    "FileOps",
    "FileSummary",
    "Group",
    "GroupCommitter",
    "Listener",
    "MergeLimits",
    "PlacedBlock",
    "Predecessor",
    "Promise",
    "Seal",
    "Submission",
    "TabletSummary",
    "Tail",
    "WalView",
    "WalWriter",
    "decode_batch",
    "delete_log",
    "encode_batch",
    "end_process",
    "file_summary",
    "last_shares",
    "origin_from_pb",
    "origin_to_pb",
    "path_of",
    "read_blocks",
    "read_headers",
    "read_headers_at",
    "read_seal",
    "recover",
    "shares_from_pb",
    "stamp_from_pb",
    "stamp_to_pb",
    "stream_from_pb",
    "stream_to_pb",
    "target_from_pb",
    "uri_of",
    "whole_behind",
]
