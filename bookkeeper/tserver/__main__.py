"""``python -m bookkeeper.tserver DIR``: one tserver of the cluster in DIR.

Ends with 0 on SIGTERM, 70 when the lease or the log is lost, 1 when it can't start, 2 on wrong usage.
"""

from __future__ import annotations

import importlib
import os
import sys

ALLOCATOR = "JE_ARROW_MALLOC_CONF"
KEEP_FREED_PAGES = "dirty_decay_ms:-1"
"""Sorting and flushing take and give back tens of megabytes each time, and fresh pages took most of the system time:
freed ones stay until the flusher gives them back, when the tserver is at rest.
"""

if __name__ == "__main__":
    os.environ.setdefault(ALLOCATOR, KEEP_FREED_PAGES)  # read when pyarrow is loaded, and so before what needs it
    sys.exit(importlib.import_module("bookkeeper.tserver.run").main(sys.argv[1:]))
