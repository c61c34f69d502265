"""How far a tserver may ship a log of its own without the master. Pure.

Arrives: the log as its session knows it, and what the peer is known to have. Leaves: the last record that may leave.
The master's limit (``bookkeeper.master.cycle.assigner``) is never below it: all that is known here is true, and the
master knows it, too, once it has read the books. Rules: R15 and R24.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable
from itertools import islice

from msgspec import Struct

from bookkeeper.model import Barrier, TargetKey
from bookkeeper.tserver.shipping.own_log import OwnLog


class Known(Struct, frozen=True):
    """A session's facts about logs. ``own_log``: a log of this session whose file is there; ``is_own``: whether
    this session made a log of that name. ``finished``: the peer has all records of a file for a target up to this
    offset; 0 also when nothing is known.
    """

    own_log: Callable[[str], OwnLog | None]
    is_own: Callable[[str], bool]
    finished: Callable[[str, TargetKey], int]


class Extension(Struct, frozen=True):
    """The last record that may leave, and the barrier behind it, None = all that is durable may leave."""

    last: int
    barrier: Barrier | None = None


def may_extend(log: OwnLog, target: TargetKey, vouched: int, known: Known) -> Extension:
    """The last record of an own log that may go to a target now. ``vouched``: the master has handed out all up to here,
    or an earlier call allowed it; a barrier that is passed stays passed.
    """
    if log.through_master:
        return Extension(min(vouched, log.end))
    end = min(log.end, max(log.named_until, vouched))
    first = bisect.bisect_right(log.barriers, vouched, key=lambda barrier: barrier.offset)
    for barrier in islice(log.barriers, first, None):
        if barrier.offset > end:
            break
        if not is_passed(barrier, target, known):
            return Extension(barrier.offset - 1, barrier)
    return Extension(end)


def is_passed(barrier: Barrier, target: TargetKey, known: Known) -> bool:
    """Rule R24: whether the peer has what the records behind a barrier wait for, or never gets it.

    An unknown finished offset decides nothing: the log of another session may have records for the target that nobody
    has shipped.
    """
    before, until = known.own_log(barrier.file), barrier.until_offset
    if before is None and known.is_own(barrier.file):
        return True  # the file is gone: every target has it, or needs none of it
    if before is not None and target.source_table_id not in before.tables:
        return True  # no `done:` cell ever comes: the books do not name the file for the target
    if before is not None and before.is_sealed:
        until = min(until, before.end)
    return known.finished(barrier.file, target) >= until
