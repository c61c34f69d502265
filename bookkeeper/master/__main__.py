"""``python -m bookkeeper.master DIR [--port PORT] [--monitor-port PORT]``: one master of the cluster in DIR.

Several masters may run, and one of them leads. Each has its own monitor pages.

Ends with 0 on SIGTERM, 70 when its session is over, 1 when it can't start, 2 on wrong usage.
"""

from __future__ import annotations

import logging
import signal
import sys
import threading
from argparse import ArgumentParser, Namespace

from bookkeeper.clock import SystemClock
from bookkeeper.config.file import load_settings
from bookkeeper.coordination.connect import open_coordination
from bookkeeper.errors import BookkeeperError, LeaseLostError
from bookkeeper.master.monitoring import MasterSource
from bookkeeper.master.process import MasterProcess
from bookkeeper.metadata.opening import open_metadata
from bookkeeper.metadata.owner import ROUND_NAME
from bookkeeper.monitor.web_server import Monitor
from bookkeeper.runtime.log_lines import begin_log
from bookkeeper.runtime.process_exit import EXIT_CODE
from bookkeeper.security.private_files import keep_private
from bookkeeper.security.tls import tls_files
from bookkeeper.security.viewers import viewers_of

EXIT_FAILED = 1


def main(arguments: list[str]) -> int:
    """Run until SIGTERM or SIGINT; returns the exit code."""
    parser = ArgumentParser(prog="python -m bookkeeper.master", description="One master of a cluster.")
    parser.add_argument("directory", metavar="DIR")
    parser.add_argument("--port", type=int, help="another port than that of the settings, for a second master")
    parser.add_argument("--monitor-port", type=int, help="another port for its pages; with --port: any free one")
    options = parser.parse_args(arguments)
    keep_private()
    begin_log()
    log = logging.getLogger("bookkeeper.master")
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        settings = load_settings(options.directory)
        clock = SystemClock()
        coordination = open_coordination(settings, clock)
        table = open_metadata(
            settings.metadata_url, settings.instance.instance_id, least_round=coordination.number(ROUND_NAME)
        )
        master = MasterProcess(settings, coordination, table, clock, port=options.port)
        source = MasterSource(master, settings, coordination, clock)
        viewers, port = viewers_of(settings), monitor_port(options)
        monitor = Monitor(settings.monitor, source, clock, viewers, port, tls_files(settings))
        master.service.publish_monitor(lambda: monitor.url)
        monitor.start()
        master.run(stop)
        monitor.stop()
        table.close()
        coordination.close()
    except LeaseLostError as error:
        log.critical("the session is over, the process ends: %s", error)
        return EXIT_CODE
    except (BookkeeperError, OSError) as error:
        log.error("the master can't go on: %s", error)
        return EXIT_FAILED
    return 0


def monitor_port(options: Namespace) -> int | None:
    """The port of the monitor: None = the settings' port, 0 = any free port, for a second master on the machine."""
    port: int | None = options.monitor_port
    return 0 if port is None and options.port is not None else port


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
