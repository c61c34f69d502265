"""Reads a range of a log: complete blocks, in order, in place.

Headers lead from block to block, so payloads before the range are never read; the byte position of an earlier read
saves even the headers. Rule: R15.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from bookkeeper.errors import InvalidInputError, NotFoundError, TransientError
from bookkeeper.storage.volume.volume_protocol import ReadableVolume
from bookkeeper.storage.wal.blocks.block import Block
from bookkeeper.storage.wal.reading.log_formats import BlockAt, LogReader, corrupt, open_own

_ANY_OFFSET = 2**64


def read_blocks(
    volume: ReadableVolume,
    name: str,
    first: int,
    last: int,
    position_hint: int | None = None,
    passed: Callable[[], None] | None = None,
) -> Iterator[Block]:
    """The complete blocks that hold the records ``first`` to ``last`` (inclusive), in order, each checked by its CRC.

    ``position_hint`` is a byte position where a block started, from :class:`BlockAt` or ``Block.end_position``; a
    wrong one costs time only. ``passed`` is called for each block, also for those before the range. Blocks of a local
    file share its pages. Raises, also while iterating:

    - InvalidInputError: the range is empty or starts below 1.
    - NotFoundError: there is no such file, or it is sealed and ends before ``last``.
    - TransientError: it is not sealed and has no complete block there yet.
    - CorruptionError: bytes that must parse do not; names file, position and reason.
    """
    if not 1 <= first <= last:
        raise InvalidInputError(f"records {first} to {last} of {name} are no range: offsets count from 1")
    log = open_own(volume, name)
    if log.seal is not None and last > log.seal.offset:
        raise NotFoundError(f"records {first} to {last} are not in {name}: it is sealed and ends at {log.seal.offset}")
    return _cover(name, log, first, last, log.start(position_hint, first), passed)


def _cover(
    name: str, log: LogReader, first: int, last: int, position: int, passed: Callable[[], None] | None
) -> Iterator[Block]:
    for at in log.headers(position):
        if passed is not None:
            passed()
        if at.last_offset >= first:
            yield at.load()
        if at.last_offset >= last:
            return
    if log.seal is None:
        raise TransientError(f"record {last} is not in {name} yet")
    raise corrupt(name, log.seal.position, f"the log ends before record {last}, against its seal {log.seal}")


def first_block_behind(volume: ReadableVolume, name: str, position: int) -> BlockAt | None:
    """The first complete block that begins behind a byte of damage; None when there is none. Raises the errors of
    :func:`read_headers`.
    """
    return open_own(volume, name).first_block_behind(position)


def read_headers(volume: ReadableVolume, name: str, position_hint: int | None = None) -> Iterator[BlockAt]:
    """Headers and positions of all blocks, or of those from a block's position on; payloads are not read.

    Stops at the seal; in a log without one, behind its last complete block. Raises the errors of :func:`read_blocks`.
    """
    log = open_own(volume, name)
    return log.headers(log.start(position_hint, _ANY_OFFSET))


def read_headers_at(volume: ReadableVolume, name: str, positions: Iterable[int]) -> Iterator[BlockAt]:
    """Headers of the blocks at these positions, which come from :func:`read_headers`; opens the log once. Raises the
    errors of :func:`read_blocks`.
    """
    log = open_own(volume, name)
    for position in positions:
        at = next(log.headers(position), None)
        if at is None:
            raise corrupt(name, position, "a block was here, and is gone")
        yield at
