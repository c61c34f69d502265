"""Write-ahead logs: blocks of records in files, range reads, recovery.

Rooms: ``blocks`` (the bytes), ``writing`` (from drafts to a sync and a seal), ``reading`` (ranges, tools, recovery).
All of them reach files through a Volume (``bookkeeper.storage.volume``). A log keeps every block whose sync was
acknowledged, up to its seal.
"""

from bookkeeper.storage.wal.blocks.block import Block, DraftBlock, PlacedBlock, decode_batch, encode_batch
from bookkeeper.storage.wal.blocks.block_messages import (
    block_target_from_pb,
    block_target_to_pb,
    origin_from_pb,
    origin_to_pb,
    shares_from_pb,
    stream_from_pb,
    stream_to_pb,
    target_from_pb,
)
from bookkeeper.storage.wal.blocks.block_pb2 import BlockHeader, FileHeader, Group, Predecessor
from bookkeeper.storage.wal.blocks.target_shares import LogShares
from bookkeeper.storage.wal.reading.block_reader import first_block_behind, read_blocks, read_headers, read_headers_at
from bookkeeper.storage.wal.reading.log_formats import BlockAt
from bookkeeper.storage.wal.reading.wal_recovery import (
    BooksClaim,
    FileSummary,
    TabletSummary,
    delete_log,
    file_summary,
    last_shares,
    recover,
)
from bookkeeper.storage.wal.reading.wal_view import Tail, WalView
from bookkeeper.storage.wal.writing.block_merge import MergeLimits, check_draft, form_blocks
from bookkeeper.storage.wal.writing.seal import Seal, log_exists, read_seal
from bookkeeper.storage.wal.writing.wal_writer import WalWriter

__all__ = [
    "Block",
    "BlockAt",
    "BlockHeader",
    "BooksClaim",
    "DraftBlock",
    "FileHeader",
    "FileSummary",
    "Group",
    "LogShares",
    "MergeLimits",
    "PlacedBlock",
    "Predecessor",
    "Seal",
    "TabletSummary",
    "Tail",
    "WalView",
    "WalWriter",
    "block_target_from_pb",
    "block_target_to_pb",
    "check_draft",
    "decode_batch",
    "delete_log",
    "encode_batch",
    "file_summary",
    "first_block_behind",
    "form_blocks",
    "last_shares",
    "log_exists",
    "origin_from_pb",
    "origin_to_pb",
    "read_blocks",
    "read_headers",
    "read_headers_at",
    "read_seal",
    "recover",
    "shares_from_pb",
    "stream_from_pb",
    "stream_to_pb",
    "target_from_pb",
]
