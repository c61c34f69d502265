"""The warm Spark session of the replay process.

A small job takes about a tenth of a second in it. A process can't replace its dead JVM, so the process ends with the
JVM; and the JVM ends with the process, because it watches the pipe of its standard input.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, cast

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from bookkeeper.config.sections import Settings
from bookkeeper.errors import NO_JAVA, NotFoundError
from bookkeeper.replay.spark import class_archive

LOOPBACK = "127.0.0.1"
JAVA_OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:+ExitOnOutOfMemoryError"
SINGLE_THREADED = {"OPENBLAS_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}
"""Makes numpy and Arrow start no threads at import: the daemon forks its workers afterwards."""

SCRATCH = "replay"
"""Directory of Spark's files below the cluster's; a start empties it, because a killed JVM leaves its files."""

SOCKET_DIRECTORY_BYTES_MAX = 60
"""The path of a Unix socket has 107 bytes at most, and Spark's names of sockets 42."""


def start_session(settings: Settings, java_options: str | None = None) -> SparkSession:
    """Start the JVM and the session, which takes seconds; once in a process. ``java_options`` are further options of
    the JVM; None = those of the class archive. Raises NotFoundError when there is no Java.
    """
    if class_archive.java_binary() is None:
        raise NotFoundError(f"{NO_JAVA} at JAVA_HOME or on the PATH; install Java 17: make system-deps")
    scratch = fresh_scratch(settings.directory)
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = LOOPBACK
    os.environ["PYTHONPATH"] = _python_path()
    os.environ.update(SINGLE_THREADED)
    builder = SparkSession.builder.master(spark_master(settings)).appName(f"{settings.instance.name} replay")
    options = class_archive.java_options() if java_options is None else java_options
    for key, value in session_conf(settings, scratch, options).items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def spark_master(settings: Settings) -> str:
    """The master URL; ``local[*]`` gets the configured slots, because a slot waits for a peer more than for a core. A
    task that follows has two of them, because the next one begins before it ends.
    """
    replay = settings.replay
    master, slots = replay.spark_master, replay.tasks_max + 2 * replay.followers_max
    return f"local[{slots}]" if master in ("local", "local[*]") else master


def is_local(settings: Settings) -> bool:
    """Whether the workers run on this machine, below the JVM of this process."""
    return spark_master(settings).startswith("local")


def session_conf(settings: Settings, scratch: Path, java_options: str = "") -> dict[str, str]:
    """All Spark settings that differ from the defaults."""
    return {
        "spark.driver.host": LOOPBACK,
        "spark.driver.bindAddress": LOOPBACK,
        "spark.driver.memory": f"{settings.replay.heap_mib}m",
        # The first compiler only: the JVM handles descriptors only, and starts in half the time on two busy cores.
        "spark.driver.extraJavaOptions": f"{JAVA_OPTIONS} {java_options}".strip(),
        "spark.local.dir": str(scratch),
        # pyspark's daemon forks for each connection, before any secret; so only this user may connect.
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.unix.domain.socket.dir": str(scratch),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.sql.catalogImplementation": "in-memory",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.ui.retainedJobs": "10",
        "spark.ui.retainedStages": "10",
        "spark.ui.retainedTasks": "100",
        "spark.sql.ui.retainedExecutions": "10",
        "spark.log.level": "ERROR",
        # Its ports need a secret that Spark creates; in a cluster of Spark its administrator decides.
        **({"spark.authenticate": "true"} if is_local(settings) else {}),
        # Runs of several peers work in parallel, and no task runs twice at the same time.
        "spark.scheduler.mode": "FAIR",
        "spark.speculation": "false",
        "spark.python.daemon.module": "bookkeeper.replay.spark.daemon",
        "spark.python.worker.reuse": "true",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # One record batch is one partition: a table of few rows must not be cut again, across streams.
        "spark.sql.execution.arrow.localRelationThreshold": "0",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
    }


def jvm_process(spark: SparkSession) -> subprocess.Popen[bytes]:
    """The JVM behind the session."""
    gateway: Any = spark.sparkContext._gateway  # noqa: SLF001 - pyspark offers no other way
    return cast("subprocess.Popen[bytes]", gateway.proc)


def ask_jvm(spark: SparkSession) -> None:
    """Return once the JVM has answered a trivial call; raises Py4JError or OSError when it has ended."""
    view: Any = spark.sparkContext._jvm  # noqa: SLF001 - pyspark offers no other way
    view.java.lang.System.nanoTime()


def expect_end(spark: SparkSession) -> None:
    """Prepare for the end of the JVM: stop the logs of both sides about broken tasks and connections. Does nothing to a
    JVM that has ended.
    """
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger("bookkeeper").setLevel(logging.getLogger("bookkeeper").getEffectiveLevel())
    logging.getLogger().setLevel(logging.CRITICAL)  # py4j also uses the root logger
    with contextlib.suppress(Py4JError, OSError):
        spark.sparkContext.setLogLevel("OFF")
    server: Any = spark.sparkContext._accumulatorServer  # noqa: SLF001 - pyspark offers no other way
    server.handle_error = _log_nothing


def _log_nothing(_request: object, _client: object) -> None:
    """Replaces a traceback on standard error at the end of a connection."""


def fresh_scratch(directory: Path) -> Path:
    """An empty directory for Spark's files, which only this user can enter. It lies in the cluster's ``directory``.
    Where that path is too long for a socket, or has a comma, which divides a list of Spark's, it lies among the
    temporary files, and a link leads there. The files of the process before go.
    """
    scratch = directory / SCRATCH
    drop_scratch(scratch)
    if len(os.fsencode(scratch)) <= SOCKET_DIRECTORY_BYTES_MAX and "," not in str(scratch):
        scratch.mkdir(0o700, parents=True)
        return scratch
    elsewhere = Path(tempfile.mkdtemp(prefix="bookkeeper-spark-"))
    scratch.symlink_to(elsewhere)
    return elsewhere


def drop_scratch(scratch: Path) -> None:
    """Delete Spark's files; no JVM may use them."""
    if scratch.is_symlink():
        shutil.rmtree(scratch.readlink(), ignore_errors=True)
        scratch.unlink()
    shutil.rmtree(scratch, ignore_errors=True)


def _python_path() -> str:
    """An import path with this package, installed or not, for the task processes."""
    root = str(Path(__file__).resolve().parents[3])
    return os.pathsep.join(dict.fromkeys([root, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]))
