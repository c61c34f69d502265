"""Sums up what replication shipped.

Arrives: the journal of a cluster's replay processes, whole runs of them. Leaves: exact sums, or sums with the reasons
why more may have been sent. They outlive any process that was killed: the journal has a line for every range whose
result went back, and one for every run that began.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from bookkeeper.model import TargetKey
from bookkeeper.replay.journal import JournalContent, Shipped
from bookkeeper.replay.ranges import TASK_FAILED_CODE


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over all files and targets.

    ``files``: those of which a peer acknowledged at least one record. ``records``: different records that a peer
    acknowledged, each counted once for each target, however often it was sent. ``bytes_sent``: of the records in all
    messages that went out, acknowledged or not. ``sent_again``: records in those messages, less the different ones;
    so it counts how often a record went out after its first time, because an answer did not come, a peer declined
    for the moment, or two workers shipped the same range. ``doubts``: why these may be too low; none: they are exact.
    """

    files: int
    records: int
    bytes_sent: int
    sent_again: int
    doubts: tuple[str, ...]


def sum_up(journal: JournalContent) -> Totals:
    """What was shipped so far."""
    streams: dict[tuple[str, TargetKey], list[Shipped]] = {}
    for line in journal.shipped:
        streams.setdefault((line.file, line.target), []).append(line)
    covers = [covered(lines) for lines in streams.values()]
    records = sum(cover.records for cover in covers)
    return Totals(
        files=len({line.file for line in journal.shipped if line.records}),
        records=records,
        bytes_sent=sum(line.sent_bytes for line in journal.shipped),
        sent_again=max(0, sum(line.sent_records for line in journal.shipped) - records),
        doubts=tuple(doubts(journal, covers)),
    )


@dataclass(frozen=True, slots=True)
class Cover:
    """What the lines of one stream say: different records acknowledged, at least; how many more it may be; and whether
    the lines leave a hole, which the books never do.
    """

    records: int
    unsure: int
    hole: bool


def covered(lines: Sequence[Shipped]) -> Cover:
    """The union of acknowledged ranges, counted in records that the target wanted.

    A range that overlaps an earlier one and has records that are not for the target does not say on which side of the
    border they are: then the least is counted.
    """
    end = records = unsure = 0
    hole = False
    for line in sorted(lines, key=lambda line: (line.first, -line.acked)):
        if line.acked < line.first or line.acked <= end:
            continue
        hole = hole or line.first > end + 1
        fresh, known = line.acked - max(end, line.first - 1), max(0, end - line.first + 1)
        least, most = max(0, line.records - known), min(line.records, fresh)
        records, unsure, end = records + least, unsure + most - least, line.acked
    return Cover(records, unsure, hole)


def doubts(journal: JournalContent, covers: Sequence[Cover]) -> list[str]:
    """Why sums may be too low, one line each."""
    ended = Counter(line.run for line in journal.shipped if line.error_code != TASK_FAILED_CODE)
    cut = sum(ended[line.run] < line.ranges for line in journal.began)
    unsure = sum(cover.unsure for cover in covers)
    holes = sum(cover.hole for cover in covers)
    found = {
        f"{cut} runs ended before they could say what they had sent": cut,
        f"{journal.unreadable} lines of the journal were cut": journal.unreadable,
        "the journal was full and its oldest part may be forgotten": journal.full,
        f"the journal has a hole in {holes} files": holes,
        f"{unsure} records may be of either of two overlapping ranges": unsure,
    }
    return [text for text, applies in found.items() if applies]
