"""The layout of a change log: which records go into which file. Pure; it makes the log exact.

::

    ROOT/_bookkeeper.json                                             the identity of the peer
    ROOT/_unfinished/<random>.tmp                                     temporary files, which no reader opens
    ROOT/table_name=T/day=2026-11-22/stream=<hash>/<first>.parquet    records of one stream, of one day

A file has consecutive blocks of one stream (those with records for the target) whose write times lie in one day (UTC),
and its name is the offset of its first block. The day of a block and its records for the target are facts of the source
file, so every sender gives a file that begins with this block the same name. Files appear completely, a name is never
taken twice, and a sender adds a file only when it knows that all earlier ones are there. Hence the files of a stream
are, at any moment, its beginning, each record once, after any crash and with any number of senders.

Where a name can be taken exclusively (a local filesystem), a file holds as many blocks as a message has (``runs``).
Where the last writer wins (object stores), a file holds one block (``blocks``): then two writers of a name write the
same records. Rules R18 and R19; see ``bookkeeper.peers.protocol``.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from msgspec import Struct

from bookkeeper.errors import IncompatibleError, InvalidInputError
from bookkeeper.model import StreamKey
from bookkeeper.peers.protocol import BlockFacts, Message, MessageBlock

IDENTITY_FILE = "_bookkeeper.json"
UNFINISHED = "_unfinished"
SUFFIX = ".parquet"

_TABLE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,254}")
_FILE_NAME = re.compile(r"([0-9]{20})\.parquet")


class Part(Struct, frozen=True):
    """A block with its facts."""

    block: MessageBlock
    facts: BlockFacts

    @property
    def day(self) -> str:
        """The day, UTC, on which the source wrote the block."""
        return datetime.fromtimestamp(self.facts.write_time_ms / 1000, UTC).date().isoformat()


class Run(Struct, frozen=True):
    """The content of one file: all records for its target in the source file from ``first`` to ``to_offset``."""

    day: str
    parts: tuple[Part, ...]
    to_offset: int

    @property
    def first(self) -> int:
        """Offset of the first block."""
        return self.parts[0].block.first_offset

    @property
    def records(self) -> int:
        """Records in the file."""
        return sum(part.block.record_count for part in self.parts)


def check_table(name: str) -> str:
    """The name, if it can be part of a path; raises InvalidInputError."""
    if _TABLE_NAME.fullmatch(name) is None:
        raise InvalidInputError(
            f"{name!r} can't be the name of a table in a directory: use letters, digits, '_', '.' and '-', or name "
            "another with --remote-table"
        )
    return name


def stream_id(stream: StreamKey) -> str:
    """A stream's part of a path: a hash that no two streams share, and that does not look like a number."""
    return "s" + hashlib.sha256(stream.encode().encode()).hexdigest()[:32]


def table_directory(table: str) -> str:
    """The directory of a table's days."""
    return f"table_name={check_table(table)}"


def stream_directory(stream: StreamKey, day: str) -> str:
    """The directory of a stream's files with blocks of one day."""
    return f"{table_directory(stream.target_table_id)}/day={day}/stream={stream_id(stream)}"


def file_name(first: int) -> str:
    """The name of the file whose first block begins at ``first``; names sort like offsets."""
    return f"{first:020d}{SUFFIX}"


def last_file(names: Iterable[str]) -> str | None:
    """The last file of a stream, by its name; other names in the directory are ignored."""
    return max((name for name in names if _FILE_NAME.fullmatch(name)), default=None)


def parts_of(message: Message) -> list[Part]:
    """The blocks of a message with their facts; raises IncompatibleError when the sender has none."""
    if len(message.facts) != len(message.blocks):
        raise IncompatibleError(
            f"a message with {len(message.blocks)} blocks has the write times of {len(message.facts)}: "
            "a change log needs them all"
        )
    return [Part(block, facts) for block, facts in zip(message.blocks, message.facts, strict=True)]


def first_run(parts: Sequence[Part], to_offset: int, one_block: bool) -> Run:
    """The file that begins with the first of ``parts``, which are all blocks for the target up to ``to_offset``.

    It ends before the first block of another day, or behind one block. ``to_offset`` then is that of its last block.
    """
    day = parts[0].day
    length = 1 if one_block else next((n for n, part in enumerate(parts) if part.day != day), len(parts))
    ends_message = length == len(parts) and not one_block
    return Run(day, tuple(parts[:length]), to_offset if ends_message else parts[length - 1].block.last_offset)
