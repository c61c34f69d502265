"""The journal of shipped ranges: a line for the start of each run, and a line for each result.

The files are ``DIR/logs/shipped.jsonl``, one JSON object a line, and up to :data:`OLDER_PARTS` older parts (``.1`` is
the newest of them), ``replay.journal_bytes`` in all. Only this process sees every result, so only the journal has
complete sums; a master's counters end with the master.

Survives a crash of the process: every written line. A line is one append, and the journal has a range's line before the
worker puts its result into the books: all ranges that are finished there are in the journal. Only lines of tasks that
follow come later while no replay process answers. A kill may cut the last line; the next process starts a new one, and
readers skip incomplete lines. A killed run leaves the line of its start, so that readers see that results are missing.
The journal does not sync each line: after a power failure the last ones may be missing, and only sums for people
depend on them.
"""

from __future__ import annotations

import itertools
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import IO

from msgspec import DecodeError, Struct, json

from bookkeeper.clock import Clock
from bookkeeper.config.sections import Settings
from bookkeeper.errors import UnavailableError
from bookkeeper.model import TargetKey
from bookkeeper.replay.ranges import Range, RangeResult

LOG = logging.getLogger(__name__)

FILE = "shipped.jsonl"

OLDER_PARTS = 3
"""Retained older parts: when all are full, the oldest quarter is deleted."""

ERROR_CHARACTERS_MAX = 500
"""Most characters of an error's text, so that a line is far below the size of one write."""


class _Line(Struct, frozen=True, kw_only=True, tag_field="event"):
    time: datetime
    run: str
    """Unique for each attempt of a job."""


class RunBegan(_Line, frozen=True, kw_only=True, tag="began"):
    """The start of a run with a number of ranges."""

    ranges: int


class Shipped(_Line, frozen=True, kw_only=True, tag="shipped"):
    """The outcome of one range in one run; the counts are those of :class:`RangeResult`."""

    file: str
    cluster: str
    remote_table_id: str
    source_table_id: str
    incarnation: int
    first: int
    last: int
    acked: int
    """All records up to here are durable at the peer; below ``first``: none of the range's records."""
    records: int
    bytes: int
    sent_records: int
    sent_bytes: int
    filtered: int
    resent: int
    error_code: str | None
    error: str | None
    host: str
    pid: int
    seconds: float
    way: str = ""
    """How the log of an import was sent: by segment transfer, or as records, and why."""

    @property
    def target(self) -> TargetKey:
        """The target of the range."""
        return TargetKey(self.cluster, self.remote_table_id, self.source_table_id, self.incarnation)


_ANY_LINE: json.Decoder[RunBegan | Shipped] = json.Decoder(RunBegan | Shipped)


class JournalContent(Struct, frozen=True):
    """The content of all files, oldest first. ``unreadable``: lines cut by a kill. ``full``: all older parts exist, so
    earlier parts may have been deleted.
    """

    began: Sequence[RunBegan]
    shipped: Sequence[Shipped]
    unreadable: int
    full: bool


class Journal:
    """Writes the journal. Thread-safe; one for each process. It opens the file with the first line."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._clock = clock
        part_bytes = settings.replay.journal_bytes // (OLDER_PARTS + 1)
        self._file = _AppendedFile(
            journal_path(settings), maxBytes=part_bytes, backupCount=OLDER_PARTS, encoding="utf-8", delay=True
        )
        self._process = f"{clock.wall_ms()}-{os.getpid()}"
        self._numbers = itertools.count(1)

    def begin(self, ranges: int) -> str:
        """Write the start of a run with a number of ranges; returns the run's id for :meth:`end`. Raises
        UnavailableError when the line can't be written: then the caller must not ship the ranges.
        """
        run = f"{self._process}-{next(self._numbers)}"
        try:
            self._append(RunBegan(time=self._now(), run=run, ranges=ranges))
        except OSError as error:
            path = self._file.baseFilename
            reason = f"{path} can't be written ({error.strerror}), so nothing is shipped; make room or correct it"
            raise UnavailableError(reason) from error
        return run

    def end(self, run: str, ranges: Sequence[Range], results: Sequence[RangeResult]) -> None:
        """Write the results of a run. It never fails a run, because the acknowledgements of the peer are valid; a run
        without an end shows readers that results are missing.
        """
        wanted, now = {r.range_id: r for r in ranges}, self._now()
        try:
            for result in results:
                self._append(line_of(run, now, wanted[result.range_id], result))
        except OSError:
            LOG.exception("%s can't be written: sums of what was shipped lack a run", self._file.baseFilename)

    def close(self) -> None:
        """Close the file; a later line opens it again."""
        self._file.close()

    def _append(self, line: RunBegan | Shipped) -> None:
        self._file.handle(logging.LogRecord(FILE, logging.INFO, "", 0, json.encode(line).decode(), None, None))

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock.wall_ms() / 1000, UTC)


class _AppendedFile(RotatingFileHandler):
    """A rotated file that starts a new line after an incomplete one, and raises its errors."""

    def _open(self) -> TextIOWrapper:
        path = Path(self.baseFilename)
        path.parent.mkdir(parents=True, exist_ok=True)
        stream = super()._open()
        if ends_in_a_cut_line(path):
            stream.write(self.terminator)
        return stream

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802, ARG002 - the base class's name
        """Raise the current error."""
        error = sys.exc_info()[1]
        assert error is not None
        raise error


def journal_path(settings: Settings) -> Path:
    """The file of the newest part."""
    return settings.logs_dir / FILE


def line_of(run: str, time: datetime, r: Range, result: RangeResult) -> Shipped:
    """The line of one range."""
    error = result.error
    return Shipped(
        time=time,
        run=run,
        file=r.file,
        cluster=r.target.cluster,
        remote_table_id=r.target.remote_table_id,
        source_table_id=r.target.source_table_id,
        incarnation=r.target.incarnation,
        first=r.first,
        last=r.last,
        acked=result.acked_offset,
        records=result.records,
        bytes=result.bytes,
        sent_records=result.sent_records,
        sent_bytes=result.sent_bytes,
        filtered=result.filtered,
        resent=result.resent,
        error_code=error.code if error else None,
        error=error.message[:ERROR_CHARACTERS_MAX] if error else None,
        host=result.host,
        pid=result.pid,
        seconds=result.seconds,
        way=result.way[:ERROR_CHARACTERS_MAX],
    )


def ends_in_a_cut_line(path: Path) -> bool:
    """Whether the last byte is not the end of a line."""
    with path.open("rb") as file:
        if file.seek(0, os.SEEK_END) == 0:
            return False
        file.seek(-1, os.SEEK_END)
        return file.read() != b"\n"


def read_journal(settings: Settings) -> JournalContent:
    """The content of the journal, also while a process writes it; empty before the first run."""
    began: list[RunBegan] = []
    shipped: list[Shipped] = []
    unreadable = 0
    path = journal_path(settings)
    with ExitStack() as cleanup:
        parts = list(_open_parts(path, cleanup))
        for part in reversed(parts):
            for raw in part:
                try:
                    line = _ANY_LINE.decode(raw)
                except DecodeError:
                    unreadable += 1
                    continue
                if isinstance(line, RunBegan):
                    began.append(line)
                else:
                    shipped.append(line)
    return JournalContent(began, shipped, unreadable, full=len(parts) > OLDER_PARTS)


def _open_parts(path: Path, cleanup: ExitStack) -> Iterator[IO[bytes]]:
    """All parts, newest first: a part that is renamed meanwhile appears again and is skipped, and no part is missed."""
    seen: set[tuple[int, int]] = set()
    for part in (path, *(path.with_name(f"{FILE}.{n}") for n in range(1, OLDER_PARTS + 1))):
        try:
            file = cleanup.enter_context(part.open("rb"))
        except FileNotFoundError:
            continue
        status = os.fstat(file.fileno())
        if (status.st_dev, status.st_ino) not in seen:
            seen.add((status.st_dev, status.st_ino))
            yield file
