"""``python -m bookkeeper.replay DIR``: the replay process of the cluster in DIR.

Ends with 0 on SIGTERM, 70 when the JVM died, a job hangs or the lease is lost, 1 when it can't start, 2 on wrong usage.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading

from bookkeeper.clock import SystemClock
from bookkeeper.config.file import load_settings
from bookkeeper.errors import BookkeeperError
from bookkeeper.replay.process import serve
from bookkeeper.replay.service import EXIT_BROKEN
from bookkeeper.runtime.log_lines import begin_log
from bookkeeper.security.private_files import keep_private

EXIT_FAILED = 1
EXIT_USAGE = 2


def main(arguments: list[str]) -> int:
    """Run until a stop signal; returns the exit code."""
    if len(arguments) != 1:
        print("usage: python -m bookkeeper.replay DIR", file=sys.stderr)
        return EXIT_USAGE
    keep_private()
    begin_log()
    logging.getLogger("py4j").setLevel(logging.WARNING)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    log = logging.getLogger(__name__)
    try:
        return serve(load_settings(arguments[0]), stop, SystemClock())
    except (BookkeeperError, OSError) as error:
        log.error("the replay process ends: %s", error)
        return EXIT_FAILED
    except BaseException:
        log.critical("the replay process failed unexpectedly", exc_info=True)
        return EXIT_BROKEN


if __name__ == "__main__":
    code = main(sys.argv[1:])
    logging.shutdown()
    os._exit(code)  # without a wait for threads whose job hangs; the JVM ends with this process
