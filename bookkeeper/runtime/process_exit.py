"""Ends a process that must not continue, with a log line and exit code :data:`EXIT_CODE`. Rule: R15."""

from __future__ import annotations

import logging
import os
import threading

EXIT_CODE = 70
"""Exit code of a process that must not continue: it has no lease, or its log is not reliable."""

_LOG_LIMIT_S = 2.0
_log = logging.getLogger(__name__)


def end_process(reason: str) -> None:
    """Log the reason and end the process at once, without cleanup, so that it acknowledges and writes nothing more.

    The process also ends when its log line can't be written within two seconds, or when memory or threads run out.
    """
    try:
        timer = threading.Timer(_LOG_LIMIT_S, os._exit, (EXIT_CODE,))
        timer.daemon = True
        timer.start()
        _log.critical("this process ends: %s", reason)
        logging.shutdown()
    finally:
        os._exit(EXIT_CODE)
