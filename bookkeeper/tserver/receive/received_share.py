"""The values that the steps of receiving hand on: a message's share of one tablet, and its outcome there."""

from __future__ import annotations

from dataclasses import dataclass

from bookkeeper.errors import BookkeeperError
from bookkeeper.model import StreamKey
from bookkeeper.tserver.receive.receiving_tablets import Located
from bookkeeper.tserver.tablets.tablet import ReceivedBlock


@dataclass(frozen=True, slots=True)
class ReceivedRange:
    """One tablet's share of ``(after, to]`` of a source file."""

    stream: StreamKey
    provenance: tuple[str, ...]
    acked: int
    after: int
    to: int
    blocks: tuple[ReceivedBlock, ...]


@dataclass(frozen=True, slots=True)
class TabletShare:
    """A tablet and its part of a message's blocks."""

    tablet: Located
    blocks: tuple[ReceivedBlock, ...]


@dataclass(frozen=True, slots=True)
class FailedShare:
    """A share that its tablet did not take, and the reason."""

    share: TabletShare
    error: BookkeeperError


@dataclass(frozen=True, slots=True)
class Applied:
    """The outcome of a share at its tablet: records written now, and records that were here already."""

    high_water: int
    applied: int
    dropped: int
