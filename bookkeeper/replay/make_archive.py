"""``python -m bookkeeper.replay.make_archive``: makes the class archive for this Java and this pyspark, once.

Arrives: nothing. Leaves: the archive (about 150 MB, see :mod:`bookkeeper.replay.spark.class_archive`), made by a JVM
that did once what the replay process does; or nothing to do, when it is there or there is no Java. Takes most of a
minute. Survives a crash: nothing but a file that no one uses and that the next one overwrites. One at a time. Ends with
0, or 1 and a line when it can't be made: all works without, and starts slower. What the JVM says is on standard error.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from pathlib import Path

from bookkeeper.replay.spark.class_archive import SILENT, archive_directory, archive_key, find_archive, keep_archive

LIMIT_S = 600
"""For the JVM to end: it writes the archive then."""


def main() -> int:
    """Make what is missing; returns the exit code."""
    directory, key = archive_directory(), archive_key()
    if key is None or find_archive(directory, key) is not None:
        return 0
    print("preparing Spark's classes, so that it starts in half the time", flush=True)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        written = directory / ".spark.jsa"
        written.unlink(missing_ok=True)
        with tempfile.TemporaryDirectory(prefix="bookkeeper-classes-") as scratch:
            end_well(train(Path(scratch), f"-XX:ArchiveClassesAtExit={shlex.quote(str(written))} {SILENT}"))
        keep_archive(written, directory, key)
    except (OSError, subprocess.SubprocessError) as error:
        print(f"Spark's classes can't be prepared, it starts slower without: {error}", flush=True)
        return 1
    return 0


def train(directory: Path, java_options: str) -> subprocess.Popen[bytes]:
    """Start a session and let it ship nothing, as the replay process does when it starts; returns the JVM.

    Raises SubprocessError when Spark fails. Spark is imported here: when there is nothing to do, it takes no time.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    from bookkeeper.config import new_settings
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


def end_well(jvm: subprocess.Popen[bytes]) -> None:
    """Let the JVM end by itself; raises SubprocessError when it does not, or fails."""
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
    os._exit(result)  # pyspark's exit handlers would talk to the JVM that has ended
