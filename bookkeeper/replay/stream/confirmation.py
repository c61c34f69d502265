"""Whether a peer still has the last block that it acknowledged: a peer that came back in an older state does not.

Each of its tservers was started anew then, so the stream is opened anew. No offset shows the loss: the peer believes
the acked offset of a message (R19). The peer looks for the block as if it came again, and takes nothing: so the
question may be repeated, and what the peer has by another path (R22), or waits for, is not missing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from bookkeeper.errors import (
    AT_PEER,
    FAILED_AT,
    BookkeeperError,
    IncompatibleError,
    PeerOlderError,
    PermanentError,
    StreamOverError,
)
from bookkeeper.peers.extensions import ConfirmingSession
from bookkeeper.peers.protocol import Message
from bookkeeper.replay.ranges import Range
from bookkeeper.replay.stream.message_span import record_count
from bookkeeper.replay.stream.peer_errors import errors_of_peer
from bookkeeper.storage.volume.volume_protocol import Volume
from bookkeeper.storage.wal.blocks.block import Block
from bookkeeper.storage.wal.reading.block_reader import read_blocks
from bookkeeper.storage.wal.writing.seal import log_exists

LOG = logging.getLogger(__name__)


class AckedBlock(Struct, frozen=True):
    """The peer acknowledged the block of ``file`` with the record ``first``, which begins at ``position`` or behind."""

    file: str
    first: int
    position: int


def acked_block_of(r: Range) -> AckedBlock | None:
    """The block that a range names; None = it is not known."""
    return AckedBlock(r.confirm_file, r.confirm_first, r.confirm_position) if r.confirm_first else None


def check_peer(
    volume: Volume,
    session: ConfirmingSession,
    at: AckedBlock,
    r: Range,
    message_of: Callable[[Block, Range], Message | None],
) -> None:
    """Raise PeerOlderError when the peer lacks records of the block, TransientError when it does not answer. ``r``: a
    range of its target. ``message_of``: a block as a message of its own, None when nothing of it is for the target.
    """
    try:
        block = next(read_blocks(volume, at.file, at.first, at.first, at.position or None))
        message = message_of(block, replace(r, file=at.file))
    except (BookkeeperError, OSError) as error:
        LOG.info("whether %s has record %d of %s is unknown: %s", r.target.cluster, at.first, at.file, error)
        return
    missing = 0 if message is None else missing_records(volume, session, at, r, message)
    if missing:
        text = f"{r.target.cluster} lacks {missing} records of {at.file} from {at.first} on, which it acknowledged"
        raise PeerOlderError(text, {FAILED_AT: AT_PEER})


def missing_records(volume: Volume, session: ConfirmingSession, at: AckedBlock, r: Range, message: Message) -> int:
    """The records of the message that the peer lacks; 0 also when it does not tell. Raises TransientError."""
    try:
        with errors_of_peer():
            missing = session.missing_records(at.file, message) or 0
        if not 0 <= missing <= record_count(message):
            raise IncompatibleError(f"the peer says that it lacks {missing} of {record_count(message)} records")
    except StreamOverError:
        # The peer is told of the end of a stream when its file is gone: one that is there is no stream that is over.
        return record_count(message) if at.file != r.file and log_exists(volume, at.file) else 0
    except PermanentError as error:
        LOG.info("%s does not say whether it has record %d of %s: %s", r.target.cluster, at.first, at.file, error)
        return 0
    return missing
