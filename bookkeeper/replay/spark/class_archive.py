"""The classes that Spark's JVM loads, ready to be mapped: half of a start is reading, checking and linking them.

Arrives: nothing. Leaves: the options that make the JVM map an archive (class data sharing), if one was made for this
Java and this pyspark by :mod:`bookkeeper.replay.make_archive`; otherwise none, and all is as without. The archive lies
in the Python environment, since it names the jars there. Survives a crash: the archive, named when it was whole and on
the disk. The JVM passes over an archive that is not its own, but ends on one that was cut short: so the name also says
how long it is.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import sys
from importlib.machinery import PathFinder
from importlib.metadata import version
from pathlib import Path

SILENT = "-Xlog:cds=off -Xlog:cds+dynamic=off"
"""An archive that does not fit is no matter for the log."""


def java_options(prefix: Path | None = None) -> str:
    """Options for the JVM, in the form of ``spark.driver.extraJavaOptions``; empty where there is no archive."""
    archive = find_archive(archive_directory(prefix), archive_key())
    return f"-XX:SharedArchiveFile={shlex.quote(str(archive))} {SILENT}" if archive else ""


def archive_directory(prefix: Path | None = None) -> Path:
    """Where archives lie; ``prefix`` is that of a Python environment, this one's if not given."""
    return (prefix or Path(sys.prefix)) / "var" / "tablet-bookkeeper"


def archive_key() -> str | None:
    """A name for what an archive depends on: the Java binary and the pyspark of this environment. None: no Java."""
    java, spark = java_binary(), PathFinder.find_spec("pyspark")
    if java is None or spark is None or spark.origin is None:
        return None
    facts = (str(java), java.stat().st_mtime_ns, version("pyspark"), spark.origin)
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


def java_binary() -> Path | None:
    """The Java that Spark's scripts start, links followed."""
    home = os.environ.get("JAVA_HOME")
    found = f"{home}/bin/java" if home else shutil.which("java")
    return Path(found).resolve() if found and Path(found).is_file() else None


def find_archive(directory: Path, key: str | None) -> Path | None:
    """The archive of this key that is as long as its name says."""
    if key is None:
        return None
    for path in directory.glob(f"spark-{key}-*.jsa"):
        if path.name == archive_name(key, path.stat().st_size):
            return path
    return None


def archive_name(key: str, size: int) -> str:
    """The name of an archive of ``size`` bytes."""
    return f"spark-{key}-{size}.jsa"


def keep_archive(written: Path, directory: Path, key: str) -> Path:
    """Put a whole archive (in the same directory) under its name, and remove all others; durable on return."""
    with written.open("rb") as file:
        os.fsync(file.fileno())
    kept = written.rename(directory / archive_name(key, written.stat().st_size))
    for other in directory.glob("*.jsa"):
        if other != kept:
            other.unlink(missing_ok=True)
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return kept
