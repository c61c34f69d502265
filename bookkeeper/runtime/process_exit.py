"""The end of a process that must not go on.

Arrives: a reason. Leaves: its last words, and exit code :data:`EXIT_CODE`. Rule: R15.
"""

from __future__ import annotations

import logging
import os
import threading

EXIT_CODE = 70
"""Of a process that must not go on: no lease, or a log that can't be trusted."""

_LAST_WORDS_S = 2.0
_log = logging.getLogger(__name__)


def end_process(reason: str) -> None:
    """Say why and end at once, without cleaning up: nothing may be acknowledged or written after this.

    The process also ends when nobody reads its last words, and when it has no memory or thread left for them.
    """
    try:
        late = threading.Timer(_LAST_WORDS_S, os._exit, (EXIT_CODE,))
        late.daemon = True
        late.start()
        _log.critical("this process ends: %s", reason)
        logging.shutdown()
    finally:
        os._exit(EXIT_CODE)
