"""The Java and the jars with which HBase's programs run here: ``docker/hbase/assemble.sh`` puts the jars together."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from bookkeeper.errors import NotFoundError

HOME_VARIABLE = "BOOKKEEPER_HBASE_HOME"
JAVA_MAJOR_MIN = 17
JAVA_MAJOR_MAX = 21
"""HBase 2.6 and Spark 4 support version 17; neither starts with versions after 21."""

JVM_OPTIONS = (
    "-XX:+UseSerialGC",
    "-XX:+ExitOnOutOfMemoryError",
    "-Djava.net.preferIPv4Stack=true",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
)


PROGRAMS, ARCHIVE = "programs.jar", "classes.jsa"
"""Our programs, whose manifest names the jars of ``lib``; and the archive of the classes of all of them."""
SILENT = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")
"""No log lines about an archive that does not fit."""


def default_home() -> Path:
    """Directory of the assembled jars: ``$BOOKKEEPER_HBASE_HOME``, else ``build/hbase`` of the source checkout."""
    configured = os.environ.get(HOME_VARIABLE)
    return Path(configured) if configured else Path(__file__).resolve().parents[3] / "build" / "hbase"


def _java_homes() -> Iterator[Path]:
    if configured := os.environ.get("JAVA_HOME"):
        yield Path(configured)
    if on_path := shutil.which("java"):
        yield Path(on_path).resolve().parent.parent
    yield from sorted(Path("/usr/lib/jvm").glob("java-*-openjdk-*"))


def java_major(home: Path) -> int | None:
    """The major version of the Java in ``home``, from its release file; None when ``home`` has no Java."""
    release = home / "release"
    if not (home / "bin" / "java").exists() or not release.is_file():
        return None
    match = re.search(r'^JAVA_VERSION="(\d+)', release.read_text(), re.MULTILINE)
    return int(match[1]) if match else None


def find_java() -> Path:
    """The first supported ``java`` of JAVA_HOME, PATH and Debian. Raises NotFoundError when there is none."""
    for home in _java_homes():
        major = java_major(home)
        if major is not None and JAVA_MAJOR_MIN <= major <= JAVA_MAJOR_MAX:
            return home / "bin" / "java"
    raise NotFoundError(
        f"no Java {JAVA_MAJOR_MIN} to {JAVA_MAJOR_MAX} in JAVA_HOME, on PATH or in /usr/lib/jvm; run 'make system-deps'"
    )


def why_not_runnable(home: Path | None = None) -> str | None:
    """The missing part of a local HBase, with the next step; None when HBase can run."""
    home = home or default_home()
    if not (home / "stamp").is_file():
        return f"{home}: no assembled HBase; run 'make hbase'"
    try:
        find_java()
    except NotFoundError as missing:
        return missing.message
    return None


def java_command(home: Path, program: str, heap_mb: int, settings: Path | None = None) -> list[str]:
    """A command that runs a Java program with the jars of ``home``. ``settings``: a directory whose HBase settings come
    before those of ``home``. Raises NotFoundError without Java.
    """
    options = [f"-Xmx{heap_mb}m", *JVM_OPTIONS, *archive_options(home)]
    return [str(find_java()), *options, "-cp", class_path(home, settings), program]


def class_path(home: Path, settings: Path | None = None) -> str:
    """The class path of programs with the jars of ``home``; ``settings`` as :func:`java_command` has it. The jars come
    first: an archive fits no other beginning, and no jar has settings.
    """
    places = [home / PROGRAMS, *([] if settings is None else [settings]), home / "conf"]
    return ":".join(str(place) for place in places)


def archive_options(home: Path) -> list[str]:
    """Options with which a JVM takes classes of ``home`` from their archive; none without one. A start costs
    40 % less CPU time then. The JVM ignores an archive of another Java or of jars that were changed.
    """
    archive = home / ARCHIVE
    return [f"-XX:SharedArchiveFile={archive}", *SILENT] if archive.is_file() else []
