"""The log of a process: one line for each event, whatever a caller sent.

Names, rows and reasons of other processes and of strangers come into log lines. A line end in one of them would begin a
line that nobody logged.
"""

from __future__ import annotations

import logging
import re

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"

CHARACTERS_MAX = 2_000
"""Of a text that another process chose."""

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")


class OneLine(logging.Formatter):
    """An event is one line; the traceback of a failure follows in lines of its own."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - a name of logging
        """See :class:`logging.Formatter`."""
        return one_line(super().formatMessage(record))


def one_line(text: str) -> str:
    """The text with an escape for each control character and line end."""
    return _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), text)


def plain_text(text: str) -> str:
    """A text of another process or of a stranger: one line, of bounded length."""
    longer = len(text) - CHARACTERS_MAX
    return one_line(text if longer <= 0 else f"{text[:CHARACTERS_MAX]}... ({longer} more characters)")


def begin_log() -> None:
    """Write events of level INFO and above to the standard error stream."""
    handler = logging.StreamHandler()
    handler.setFormatter(OneLine(FORMAT))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
