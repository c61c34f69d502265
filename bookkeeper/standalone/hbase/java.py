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
    places = [f"{home}/classes", f"{home}/conf", f"{home}/lib/*"]
    class_path = ":".join(places if settings is None else [str(settings), *places])
    return [str(find_java()), f"-Xmx{heap_mb}m", *JVM_OPTIONS, "-cp", class_path, program]
