"""Runs one tserver from its start to its end: ``python -m bookkeeper.tserver DIR``, once ``__main__`` has set the
allocator.

Ends with 0 on SIGTERM, 70 when the lease or the log is lost, 1 when it can't start, 2 on wrong usage.
"""

from __future__ import annotations

import logging
import signal
import sys
import threading

import pyarrow as pa

from bookkeeper.clock import SystemClock
from bookkeeper.config.file import load_settings
from bookkeeper.coordination.connect import open_coordination
from bookkeeper.errors import BookkeeperError
from bookkeeper.metadata.opening import open_metadata
from bookkeeper.metadata.owner import ROUND_NAME
from bookkeeper.runtime.log_lines import begin_log
from bookkeeper.security.private_files import keep_private
from bookkeeper.tserver.process import TServerProcess

EXIT_FAILED = 1
EXIT_USAGE = 2


def use_retaining_allocator() -> None:
    """Let Arrow use the allocator that ``__main__`` configured to retain freed pages."""
    if "jemalloc" in pa.supported_memory_backends():
        pa.set_memory_pool(pa.jemalloc_memory_pool())


def main(arguments: list[str]) -> int:
    """Run until a signal to stop; returns the exit code."""
    if len(arguments) != 1:
        print("usage: python -m bookkeeper.tserver DIR", file=sys.stderr)
        return EXIT_USAGE
    keep_private()
    begin_log()
    use_retaining_allocator()
    pa.array([b""])  # pyarrow loads pandas with the first list it converts: now, not in a user's first write
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        settings = load_settings(arguments[0])
        clock = SystemClock()
        coordination = open_coordination(settings, clock)
        metadata = open_metadata(
            settings.metadata_url, settings.instance.instance_id, least_round=coordination.number(ROUND_NAME)
        )
        process = TServerProcess(settings, coordination, metadata, clock)
        process.start()
        stop.wait()
        process.stop()
        metadata.close()
        coordination.close()
    except (BookkeeperError, OSError) as error:
        logging.getLogger(__name__).error("the tserver can't go on: %s", error)
        return EXIT_FAILED
    return 0
