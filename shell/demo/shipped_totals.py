"""Totals of shipped records, from the journal of a cluster's replay processes.

The journal has a line for every range with a result and for every started run, so the totals include the work of
killed processes. They are exact, or come with the reasons why the true totals may be higher.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from msgspec import Struct

from bookkeeper.model import TargetKey
from bookkeeper.replay.journal import JournalContent, Shipped
from bookkeeper.replay.ranges import TASK_FAILED_CODE


class Totals(Struct, frozen=True):
    """Sums over all files and targets.

    ``files``: files with at least one acknowledged record. ``records``: distinct acknowledged records, each counted
    once for each target. ``bytes_sent``: bytes of the records in all sent messages, acknowledged or not.
    ``sent_again``: records in those messages, minus the distinct ones: a record is sent again if no answer came, a
    peer declined for the moment, or two workers shipped the same range. ``undercount_reasons``: reasons why the
    figures may be too low; empty = exact.
    """

    files: int
    records: int
    bytes_sent: int
    sent_again: int
    undercount_reasons: tuple[str, ...]


def totals_of(journal: JournalContent) -> Totals:
    """The totals of a journal."""
    streams: dict[tuple[str, TargetKey], list[Shipped]] = {}
    for line in journal.shipped:
        streams.setdefault((line.file, line.target), []).append(line)
    coverages = [coverage_of(lines) for lines in streams.values()]
    records = sum(cover.records for cover in coverages)
    return Totals(
        files=len({line.file for line in journal.shipped if line.records}),
        records=records,
        bytes_sent=sum(line.sent_bytes for line in journal.shipped),
        sent_again=max(0, sum(line.sent_records for line in journal.shipped) - records),
        undercount_reasons=tuple(undercount_reasons(journal, coverages)),
    )


class Coverage(Struct, frozen=True):
    """Acknowledged records of one stream. ``records``: the least number of distinct records. ``uncertain``: how many
    more there may be. ``hole``: offsets are missing between the lines, so lines are lost.
    """

    records: int
    uncertain: int
    hole: bool


def coverage_of(lines: Sequence[Shipped]) -> Coverage:
    """The union of acknowledged ranges, counted in records for the target.

    A range may overlap an earlier one and have records that are not for the target. Their offsets are unknown, so the
    overlap may have more or fewer records: then the least number counts.
    """
    end = records = uncertain = 0
    hole = False
    for line in sorted(lines, key=lambda line: (line.first, -line.acked)):
        if line.acked < line.first or line.acked <= end:
            continue
        hole = hole or line.first > end + 1
        new, overlap = line.acked - max(end, line.first - 1), max(0, end - line.first + 1)
        least, most = max(0, line.records - overlap), min(line.records, new)
        records, uncertain, end = records + least, uncertain + most - least, line.acked
    return Coverage(records, uncertain, hole)


def undercount_reasons(journal: JournalContent, coverages: Sequence[Coverage]) -> list[str]:
    """Reasons why totals may be too low, one line each."""
    ended = Counter(line.run for line in journal.shipped if line.error_code != TASK_FAILED_CODE)
    cut = sum(ended[line.run] < line.ranges for line in journal.began)
    uncertain = sum(cover.uncertain for cover in coverages)
    holes = sum(cover.hole for cover in coverages)
    reasons = {
        f"{cut} runs ended without a report of their sent records": cut,
        f"{journal.unreadable} lines of the journal were cut": journal.unreadable,
        "the journal was full, so its oldest part may be deleted": journal.full,
        f"the journal lacks lines of {holes} streams": holes,
        f"{uncertain} records may belong to either of two overlapping ranges": uncertain,
    }
    return [text for text, applies in reasons.items() if applies]
