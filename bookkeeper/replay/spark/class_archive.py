"""The class archive of Spark's JVM (class data sharing): without it, half of a start is reading and linking classes.

:mod:`bookkeeper.replay.make_archive` creates the archive for this Java and this pyspark; without one there are no extra
options. It lies in the Python environment, because it names the jars there. It gets its name once it is complete and
durable. The JVM ignores a foreign archive, but fails on a truncated one: so the name includes the length.
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

from bookkeeper.durable_files import sync_directory

SILENT = "-Xlog:cds=off -Xlog:cds+dynamic=off"
"""No log lines about an archive that does not fit."""


def java_options(prefix: Path | None = None) -> str:
    """Options for the JVM, in the form of ``spark.driver.extraJavaOptions``; empty without an archive."""
    archive = find_archive(archive_directory(prefix), archive_key())
    return f"-XX:SharedArchiveFile={shlex.quote(str(archive))} {SILENT}" if archive else ""


def archive_directory(prefix: Path | None = None) -> Path:
    """The directory of archives; ``prefix`` is that of a Python environment, None = this one."""
    return (prefix or Path(sys.prefix)) / "var" / "tablet-bookkeeper"


def archive_key() -> str | None:
    """The key of an archive: a hash of the Java binary and the pyspark of this environment. None: no Java."""
    java, spark = java_binary(), PathFinder.find_spec("pyspark")
    if java is None or spark is None or spark.origin is None:
        return None
    identity = (str(java), java.stat().st_mtime_ns, version("pyspark"), spark.origin)
    return hashlib.sha256(repr(identity).encode()).hexdigest()[:16]


def java_binary() -> Path | None:
    """The Java that Spark's scripts start, links followed."""
    home = os.environ.get("JAVA_HOME")
    found = f"{home}/bin/java" if home else shutil.which("java")
    return Path(found).resolve() if found and Path(found).is_file() else None


def find_archive(directory: Path, key: str | None) -> Path | None:
    """The archive of this key with the length in its name; None when there is none."""
    if key is None:
        return None
    for path in directory.glob(f"spark-{key}-*.jsa"):
        if path.name == archive_name(key, path.stat().st_size):
            return path
    return None


def archive_name(key: str, size: int) -> str:
    """The name of an archive of ``size`` bytes."""
    return f"spark-{key}-{size}.jsa"


def install_archive(written: Path, directory: Path, key: str) -> Path:
    """Rename a complete archive of the same directory to its name, and delete all others; durable on return."""
    with written.open("rb") as file:
        os.fsync(file.fileno())
    installed = written.rename(directory / archive_name(key, written.stat().st_size))
    for other in directory.glob("*.jsa"):
        if other != installed:
            other.unlink(missing_ok=True)
    sync_directory(directory)
    return installed
