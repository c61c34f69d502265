"""A tablet's slice of a message, and its outcome: the values that the steps of receiving pass on."""

from __future__ import annotations

from msgspec import Struct

from bookkeeper.errors import BookkeeperError
from bookkeeper.model import StreamKey
from bookkeeper.tserver.receive.receiving_tablets import Located
from bookkeeper.tserver.tablets.tablet import ReceivedBlock


class ReceivedRange(Struct, frozen=True):
    """The range ``(after, to]`` of a source file, with one tablet's records. ``confirms``: they were acknowledged
    before, and are only looked for.
    """

    stream: StreamKey
    provenance: tuple[str, ...]
    acked: int
    after: int
    to: int
    blocks: tuple[ReceivedBlock, ...]
    confirms: bool = False


class TabletSlice(Struct, frozen=True):
    """A tablet and its slice of a message's blocks."""

    tablet: Located
    blocks: tuple[ReceivedBlock, ...]


class FailedSlice(Struct, frozen=True):
    """A slice that its tablet did not take, and the reason."""

    tablet_slice: TabletSlice
    error: BookkeeperError


class Applied(Struct, frozen=True):
    """The outcome of a slice at its tablet: records written now (of a slice that confirms, records that are missing),
    and records that were here already.
    """

    high_water: int
    applied: int
    dropped: int
