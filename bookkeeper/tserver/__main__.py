"""``python -m bookkeeper.tserver DIR``: one tserver of the cluster in DIR.

Ends with 0 on SIGTERM, 70 when the lease or the log is lost, 1 when it can't start, 2 on wrong usage.
"""

from __future__ import annotations

import importlib
import os
import sys

ALLOCATOR = "JE_ARROW_MALLOC_CONF"
KEEP_FREED_PAGES = "dirty_decay_ms:-1"
"""Freed pages stay with the process until the flusher returns them, while the tserver is idle. Sorting and flushing use
tens of megabytes each time, and fresh pages took most of the system time.
"""

if __name__ == "__main__":
    os.environ.setdefault(ALLOCATOR, KEEP_FREED_PAGES)  # pyarrow reads it when it is loaded
    sys.exit(importlib.import_module("bookkeeper.tserver.run").main(sys.argv[1:]))
