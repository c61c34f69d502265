"""The messages about logs on hosts' disks.

Field names are those of the contract, which describes them.
"""

from __future__ import annotations

from msgspec import Struct

LOG_CONTENT_BYTES_MAX = 1 << 20
"""Most content of one :class:`LogPart`."""

LOG_NAMES_MAX = 10_000
"""Most names in one answer to ``list_logs``."""

LOG_DROPS_MAX = 1_000
"""Most names in one call of ``drop_logs``."""


class LogPart(Struct, frozen=True):
    """A range of a log, or of a file beside one; ``size`` None = there is no such file."""

    size: int | None
    content: bytes


class LogSeal(Struct, frozen=True):
    """The end of a log, for ever."""

    offset: int
    position: int
