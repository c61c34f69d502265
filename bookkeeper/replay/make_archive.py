"""``python -m bookkeeper.replay.make_archive``: makes the class archive for this Java and this pyspark, once.

The archive (about 150 MB, see :mod:`bookkeeper.replay.spark.class_archive`) comes from a JVM that runs a job like the
replay process; it takes most of a minute. The command does nothing when the archive exists or there is no Java. One
process at a time may run it. It exits with 0, or with 1 and a message when it fails: without the archive Spark starts
slower. A crash leaves a file that no process uses and that the next run overwrites. The output of the JVM is on
standard error.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from pathlib import Path

from bookkeeper.replay.spark.class_archive import SILENT, archive_directory, archive_key, find_archive, install_archive

LIMIT_S = 600
"""Time limit for the end of the JVM, which writes the archive then."""


def main() -> int:
    """Create a missing archive; returns the exit code."""
    directory, key = archive_directory(), archive_key()
    if key is None or find_archive(directory, key) is not None:
        return 0
    print("preparing Spark's classes, so that it starts in half the time", flush=True)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        written = directory / ".spark.jsa"
        written.unlink(missing_ok=True)
        with tempfile.TemporaryDirectory(prefix="bookkeeper-classes-") as scratch:
            wait_for_end(train(Path(scratch), f"-XX:ArchiveClassesAtExit={shlex.quote(str(written))} {SILENT}"))
        install_archive(written, directory, key)
    except (OSError, subprocess.SubprocessError) as error:
        print(f"Spark's classes can't be prepared, it starts slower without: {error}", flush=True)
        return 1
    return 0


def train(directory: Path, java_options: str) -> subprocess.Popen[bytes]:
    """Start a session and run a job without records, as the replay process does at its start; returns the JVM.

    Raises SubprocessError when Spark fails. The import of Spark is here, so that a run with nothing to do is fast.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    from bookkeeper.config.file import new_settings
    from bookkeeper.replay.service import one_line, warm_up_ranges
    from bookkeeper.replay.spark.spark_job import run_job
    from bookkeeper.replay.spark.spark_session import expect_end, jvm_process, start_session

    settings = new_settings(directory, "archive")
    try:
        spark = start_session(settings, java_options)
        run_job(spark, warm_up_ranges(settings, 2), 2, settings)
    except (PySparkException, Py4JError) as error:
        raise subprocess.SubprocessError(one_line(error)) from error
    expect_end(spark)
    return jvm_process(spark)


def wait_for_end(jvm: subprocess.Popen[bytes]) -> None:
    """Wait until the JVM ends; raises SubprocessError when it does not end, or fails."""
    assert jvm.stdin is not None
    jvm.stdin.close()
    try:
        code = jvm.wait(LIMIT_S)
    except subprocess.TimeoutExpired:
        jvm.kill()
        raise
    if code:
        raise subprocess.CalledProcessError(code, "java")


if __name__ == "__main__":
    result = main()
    os._exit(result)  # pyspark's exit handlers would call the JVM that has ended
