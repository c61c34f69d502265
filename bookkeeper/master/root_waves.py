"""When nothing of a log is under way anywhere any more: the end of what is remembered of several paths (rule R22).

The cluster that wrote a log asks, once the log is gone: those that it sent the log to, then whomever they name, and so
on, along routes of clusters that know each other. Each says whether a log of its own that is still there holds records
of it to be handed on, and whom its logs that are gone handed some on to. A *round* asks every cluster once.

Why two rounds that say the same prove the end. A cluster hands on what lies in a log of its own, and a log goes when
all who are to get it have it. So a cluster that owes nothing owes something again only by being sent it, from one that
owes. If each owed nothing when asked first, and none had another log gone when asked again, then all owed nothing at
one moment, between the end of the first round and the beginning of the second. Nothing can come of that. One round
proves nothing: what moves from a cluster that is not asked yet to one that was would be missed.

Arrives: what clusters answer. Leaves: verdicts, and routes to tell them by. Pure but for the asking, which is given.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from bookkeeper.errors import PermanentError, TransientError
from bookkeeper.roots import RootLog
from bookkeeper.rpc.messages import RootStanding

Route = tuple[str, ...]
"""Instances, each of which knows the next one; the last one is meant."""

Ask = Callable[[Route, Sequence[RootLog]], Sequence[RootStanding]]

ROUTE_MAX = 16
"""Longest route: farther clusters are told by whoever is nearer, or not."""


@dataclass(slots=True)
class Round:
    """What was said. ``marks``: by log and instance. ``silent`` did not answer now, ``lost`` can't be asked at all: not
    defined where the route needs them, of an older version, or not letting the caller in.
    """

    marks: dict[RootLog, dict[str, str]] = field(default_factory=dict)
    owed: set[RootLog] = field(default_factory=set)
    silent: dict[RootLog, str] = field(default_factory=dict)
    lost: dict[RootLog, dict[str, str]] = field(default_factory=dict)
    routes: dict[Route, set[RootLog]] = field(default_factory=dict)
    """By which each was asked."""


def ask_round(starts: Mapping[RootLog, Collection[str]], own_instance_id: str, ask: Ask) -> Round:
    """Ask everybody of these logs. ``starts``: to which instances each was sent."""
    found = Round(marks={log: {} for log in starts})
    failed: dict[tuple[str, RootLog], PermanentError | TransientError] = {}
    level: dict[Route, set[RootLog]] = {}
    for log, instances in starts.items():
        for instance in instances:
            level.setdefault((instance,), set()).add(log)
    while level:
        further: dict[Route, set[RootLog]] = {}
        for route, wanted in sorted(level.items()):
            logs = sorted(log for log in wanted if route[-1] not in found.marks[log])
            if not logs:
                continue
            try:
                answers = ask(route, logs)
            except (PermanentError, TransientError) as error:
                failed |= {(route[-1], log): error for log in logs}
                continue
            found.routes[route] = set(logs)
            for log, standing in zip(logs, answers, strict=True):
                _note(found, further, route, log, standing, own_instance_id)
        level = further
    for (instance, log), why in failed.items():
        if instance in found.marks[log]:
            continue  # another route led there
        if isinstance(why, PermanentError):
            found.lost.setdefault(log, {})[instance] = why.message
        else:
            found.silent[log] = why.message
    return found


def _note(
    found: Round,
    further: dict[Route, set[RootLog]],
    route: Route,
    log: RootLog,
    standing: RootStanding,
    own_instance_id: str,
) -> None:
    found.marks[log][route[-1]] = standing.mark
    if standing.owed:
        found.owed.add(log)
    for instance in standing.handed:
        if instance != own_instance_id and instance not in route and len(route) < ROUTE_MAX:
            further.setdefault((*route, instance), set()).add(log)


def is_over(log: RootLog, first: Round, second: Round, without_the_lost: bool) -> bool:
    """Whether nothing of a log is under way. ``without_the_lost``: it was long enough for those that can't be asked."""
    for said in (first, second):
        if is_owed(said, log) or log in said.silent or (log in said.lost and not without_the_lost):
            return False
    return says_the_same(first, second, log)


def is_owed(said: Round, log: RootLog) -> bool:
    """Whether somebody still hands records of it on."""
    return log in said.owed


def says_the_same(first: Round, second: Round, log: RootLog) -> bool:
    """The same clusters, and no log of theirs went in between."""
    return first.marks[log] == second.marks[log]


def in_order_of_telling(rounds: Round, over: Collection[RootLog]) -> list[tuple[Route, list[RootLog]]]:
    """The farthest first: who forgot does not say any more whom it handed something on to."""
    routes = sorted(rounds.routes.items(), key=lambda item: (-len(item[0]), item[0]))
    return [(route, told) for route, logs in routes if (told := sorted(logs & set(over)))]
