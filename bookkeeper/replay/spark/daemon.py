"""The process from which Spark forks its Python workers: it imports all modules before the fork.

pyspark's own daemon runs a full garbage collection after each task of a reused worker, which walks every imported
module: 48 ms of CPU a task. This daemon imports and freezes the modules of a task once, so that the collection takes
3 ms, and a new worker is ready after the fork. ``spark.python.daemon.module`` names this module. When the JVM dies,
this process and its workers end, because their standard input closes. It gives a sign of life with each round of its
loop, which takes a second at most.

Spark puts an archive of pyspark's sources first on the path. An import from it compiles every module each time, which
costs 1.2 s of CPU at each start. So the daemon removes the archive from the path where pyspark is installed.
"""

from __future__ import annotations

import gc
import importlib
import os
import select
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

PRELOADED = ("pyarrow", "pyspark.worker", "bookkeeper.peers.registry", "bookkeeper.replay.spark.spark_job")
"""The modules of a task, imported for the forked workers."""


def main() -> None:
    """Serve until standard input closes."""
    sys.path[:] = without_archives(sys.path)
    arrow, *_ = [importlib.import_module(name) for name in PRELOADED]
    arrow.array([b""])  # pyarrow imports pandas with its first list: once here, not in every worker
    daemon: Any = importlib.import_module("pyspark.daemon")
    vars(daemon)["worker"] = without_broken_pipes(daemon.worker)
    signs: Any = importlib.import_module("bookkeeper.replay.spark.signs_of_life")
    life = signs.LifeFile(Path(os.environ["PYTHON_WORKER_FACTORY_SOCK_DIR"]))
    life.write(signs.Work(parent=True))
    vars(daemon)["select"] = with_sign_of_life(daemon.select, life.touch)
    gc.collect()
    gc.freeze()
    daemon.manager()


def without_broken_pipes(worker: Callable[..., int]) -> Callable[..., int]:
    """The function of a forked worker, which ends in silence when the JVM has ended before it: nobody reads a result.
    pyspark's prints a traceback for each of them.
    """

    def quiet(*arguments: object) -> int:
        try:
            return worker(*arguments)
        except BrokenPipeError:
            return 1

    return quiet


class Poll:
    """The poll object of the daemon's loop: it calls ``sign`` before each round."""

    def __init__(self, poller: select.poll, sign: Callable[[], None]) -> None:
        self._poller = poller
        self._sign = sign
        self.register, self.unregister = poller.register, poller.unregister

    def poll(self, timeout_ms: float | None = None) -> list[tuple[int, int]]:
        """See :func:`select.poll`."""
        self._sign()
        return self._poller.poll(timeout_ms)


def with_sign_of_life(module: ModuleType, sign: Callable[[], None]) -> SimpleNamespace:
    """The module ``select`` for the daemon's loop."""
    return SimpleNamespace(**{**vars(module), "poll": lambda: Poll(module.poll(), sign)})


def without_archives(path: Sequence[str]) -> list[str]:
    """The import path without Spark's archives, if it still has both of their packages."""
    others = [entry for entry in path if not is_archive(entry)]
    return others if all(PathFinder.find_spec(name, others) for name in ("pyspark", "py4j")) else list(path)


def is_archive(entry: str) -> bool:
    """``pyspark.zip`` or ``py4j-VERSION-src.zip``."""
    name = Path(entry).name
    return name == "pyspark.zip" or (name.startswith("py4j-") and name.endswith(".zip"))


if __name__ == "__main__":
    main()
