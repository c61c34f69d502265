"""The process from which Spark forks its Python workers: everything is imported before the fork.

pyspark's own daemon runs a full garbage collection after each task of a reused worker, which walks every imported
module: 48 ms of CPU a task. Here all that a task needs is imported once and frozen, so that the collection finds
nearly nothing (3 ms), and a new worker is ready as soon as it is forked. Named by ``spark.python.daemon.module``.
Nothing survives a crash; when the JVM dies, this process and its workers end (their standard input closes).

Spark puts an archive of pyspark's sources first on the path. Importing from it compiles every module each time: 1.2 s
of CPU more at each start. So the archive is passed over where pyspark is installed; where it is not, it is used.
"""

from __future__ import annotations

import gc
import importlib
import sys
from collections.abc import Sequence
from importlib.machinery import PathFinder
from pathlib import Path

PRELOADED = ("pyarrow", "pyspark.worker", "bookkeeper.peers.registry", "bookkeeper.replay.spark.spark_job")
"""What tasks need: imported for the forked workers."""


def main() -> None:
    """Serve until standard input closes."""
    sys.path[:] = without_archives(sys.path)
    arrow, *_ = [importlib.import_module(name) for name in PRELOADED]
    arrow.array([b""])  # pyarrow loads pandas with the first list it converts: once here, not in every worker
    daemon = importlib.import_module("pyspark.daemon")
    gc.collect()
    gc.freeze()
    daemon.manager()


def without_archives(path: Sequence[str]) -> list[str]:
    """The import path without Spark's archives, if both packages in them are found without."""
    rest = [entry for entry in path if not is_archive(entry)]
    return rest if all(PathFinder.find_spec(name, rest) for name in ("pyspark", "py4j")) else list(path)


def is_archive(entry: str) -> bool:
    """``pyspark.zip`` or ``py4j-VERSION-src.zip``."""
    name = Path(entry).name
    return name == "pyspark.zip" or (name.startswith("py4j-") and name.endswith(".zip"))


if __name__ == "__main__":
    main()
