"""The process from which Spark forks its Python workers: everything is imported before the fork.

pyspark's own daemon runs a full garbage collection after each task of a reused worker, which walks every imported
module: 48 ms of CPU a task. Here all that a task needs is imported once and frozen, so that the collection finds
nearly nothing (3 ms), and a new worker is ready as soon as it is forked. Named by ``spark.python.daemon.module``.
Nothing survives a crash; when the JVM dies, this process and its workers end (their standard input closes).
"""

from __future__ import annotations

import gc

import pyarrow as pa
import pyspark.worker  # noqa: F401 - imported for the forked workers
from pyspark import daemon

import bookkeeper.peers.registry
import bookkeeper.replay.job  # noqa: F401 - imported for the forked workers


def main() -> None:
    """Serve until standard input closes."""
    pa.array([b""])  # pyarrow loads pandas with the first list it converts: once here, not in every worker
    gc.collect()
    gc.freeze()
    daemon.manager()


if __name__ == "__main__":
    main()
