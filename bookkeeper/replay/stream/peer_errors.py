"""Errors that a peer answers with. It may have made them up, with any text and any details.

A detail says what this side does next: which host is away, where a log is damaged. A peer knows nothing of that, so of
its details only the high-water of a gap stays. A text goes into status and logs, so it is one line of bounded length;
this side's own words may quote the peer.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from bookkeeper.errors import AT_PEER, FAILED_AT, BookkeeperError, GapError, IncompatibleError
from bookkeeper.runtime.log_lines import plain_text

HIGH_WATER = "high_water"
OFFSET_MAX = (1 << 63) - 1


@contextmanager
def errors_of_peer() -> Iterator[None]:
    """Errors of the block failed at the peer. Raises IncompatibleError for a gap whose high-water is no offset."""
    try:
        yield
    except GapError as error:
        text = error.details.get(HIGH_WATER, "")
        if not is_offset(text):
            raise IncompatibleError(
                f"the peer names {text[:40]!r} as its high-water, which is no offset", {FAILED_AT: AT_PEER}
            ) from error
        error.reword(plain_text(error.message), {FAILED_AT: AT_PEER, HIGH_WATER: text})
        raise
    except BookkeeperError as error:
        error.reword(plain_text(error.message), {FAILED_AT: AT_PEER})
        raise


def is_offset(text: str) -> bool:
    """Whether the text is an offset of a log, in decimal digits."""
    return text.isascii() and text.isdigit() and len(text) <= len(str(OFFSET_MAX)) and int(text) <= OFFSET_MAX
