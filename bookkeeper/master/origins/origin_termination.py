"""When nothing of a log is under way anywhere any more: the end of what is remembered of several paths (rule R22).

The cluster that wrote a log asks, once the log is gone: those that it sent the log to, then whomever they name, and so
on, along routes of clusters that know each other. Each answers the cluster that wrote the log, and those that brought
it records of it; as each record came by clusters that name one another, one route at least leads wherever there are
some. Each says whether a log of its own that is still there holds records of it to be handed on, and which of its logs
that are gone handed some on, and to whom. A cluster is asked about the streams that were to bring it some, and asked
again about each one that is named later: until a stream is over there, a message of it may wait in a process that was
stopped. A *round* asks every cluster about all of its streams.

Why a round in which nobody owes anything and every stream is over proves the end. Suppose that a cluster takes a record
after it answered last; let B be the first one that does. The record comes by a log of another cluster, Y, which Y had
when it answered last, for Y took nothing afterwards. If the log was still there, Y owed. If it was gone, Y named it,
and B was asked about its stream after that. So the stream was over at B, and B took nothing of it afterwards.

Arrives: what clusters answer. Leaves: verdicts, and routes to tell them by. Pure but for the asking, which is given.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from bookkeeper.errors import PermanentError, TransientError, UnauthorizedError
from bookkeeper.origins import RootLog
from bookkeeper.rpc.contract.origin_messages import HandedOn, RootQuestion, RootStanding

Route = tuple[str, ...]
"""Instances, each of which knows the next one; the last one is meant."""

Ask = Callable[[Route, Sequence[RootQuestion]], Sequence[RootStanding]]

Place = tuple[RootLog, str]
"""A log, and an instance that is asked about it."""

ROUTE_MAX = 16
"""Most clusters on a route: clusters beyond that are told by a nearer one, or not."""

STREAMS_MAX = 100
"""Most streams in one question; about more there are several questions."""

STREAMS_OF_CALL_MAX = 1_000
"""Most streams in all questions of one call."""


@dataclass(slots=True)
class Round:
    """What was said. ``under_way``: an instance at which a stream is not over. ``silent`` did not answer now, ``lost``
    can't be asked at all: not defined where the route needs them, of an older version, or not letting the caller in.
    """

    owed: set[RootLog] = field(default_factory=set)
    under_way: dict[RootLog, str] = field(default_factory=dict)
    silent: dict[RootLog, str] = field(default_factory=dict)
    lost: dict[RootLog, dict[str, str]] = field(default_factory=dict)
    routes: dict[Route, set[RootLog]] = field(default_factory=dict)
    """By which each was asked."""

    def note(self, route: Route, log: RootLog, standing: RootStanding) -> None:
        """The instance at the end of a route answered."""
        self.routes.setdefault(route, set()).add(log)
        if standing.owed:
            self.owed.add(log)
        if standing.under_way:
            self.under_way[log] = route[-1]

    def note_failure(self, log: RootLog, instance: str, error: PermanentError | TransientError) -> None:
        """An instance did not answer about a log on any route."""
        if isinstance(error, PermanentError):
            self.lost.setdefault(log, {})[instance] = error.message
        else:
            self.silent[log] = error.message


@dataclass(slots=True)
class _Walk:
    """A round under way. ``streams``: of each place, those that are named; ``answered``: about which it was asked."""

    own_instance_id: str
    said: Round
    streams: dict[Place, set[RootLog]] = field(default_factory=dict)
    answered: dict[Place, set[RootLog]] = field(default_factory=dict)
    ways: dict[Place, Route] = field(default_factory=dict)
    next_level: dict[Route, set[RootLog]] = field(default_factory=dict)
    failed: dict[Place, PermanentError | TransientError] = field(default_factory=dict)

    def take_level(self) -> dict[Route, set[RootLog]]:
        """The routes of the next level, which starts anew."""
        level, self.next_level = self.next_level, {}
        return level

    def note_failures(self) -> None:
        """The round is over: say which instances did not answer."""
        for (log, instance), why in self.failed.items():
            if not self.is_asked((log, instance)):  # no other route led there
                self.said.note_failure(log, instance, why)

    def is_asked(self, place: Place) -> bool:
        """Whether the instance has answered about the log and about every stream that was named."""
        return has_answered(self.answered.get(place), self.streams[place])

    def name(self, log: RootLog, namer: Route, handed: HandedOn) -> None:
        """A cluster, at the end of a route, handed records of a log on."""
        instance = handed.instance_id
        place = log, instance
        if instance == self.own_instance_id or (instance not in namer and len(namer) == ROUTE_MAX):
            return
        named = self.streams.setdefault(place, set())
        if handed.file:
            named.add(RootLog(namer[-1] if namer else self.own_instance_id, handed.file))
        if not self.is_asked(place):
            self.next_level.setdefault(self.ways.get(place, (*namer, instance)), set()).add(log)

    def ask(self, route: Route, logs: Collection[RootLog], ask: Ask) -> None:
        """Ask the cluster at the end of a route what it has not answered yet."""
        instance = route[-1]
        wanted = [log for log in sorted(logs) if not self.is_asked((log, instance))]
        questions = [question for log in wanted for question in self._questions((log, instance))]
        try:
            for call in _calls(questions):
                for question, standing in zip(call, ask(route, call), strict=True):
                    self._note(route, question, standing)
        except (PermanentError, TransientError) as error:
            self.failed |= {(log, instance): error for log in wanted}

    def _questions(self, place: Place) -> list[RootQuestion]:
        left = sorted(self.streams[place] - self.answered.get(place, set()))
        cuts = range(0, max(1, len(left)), STREAMS_MAX)
        return [RootQuestion(place[0], tuple(left[cut : cut + STREAMS_MAX])) for cut in cuts]

    def _note(self, route: Route, question: RootQuestion, standing: RootStanding) -> None:
        log, instance = question.log, route[-1]
        if standing.refused:
            self.failed[log, instance] = UnauthorizedError(f"it does not answer about {log.file} by way of {route}")
            return
        self.answered.setdefault((log, instance), set()).update(question.streams)
        self.ways.setdefault((log, instance), route)
        self.said.note(route, log, standing)
        for handed in standing.handed:
            self.name(log, route, handed)


def _calls(questions: Sequence[RootQuestion]) -> Iterator[list[RootQuestion]]:
    """Questions as they go together, a bounded number of streams in each call."""
    call: list[RootQuestion] = []
    size = 0
    for question in questions:
        if call and size + len(question.streams) > STREAMS_OF_CALL_MAX:
            yield call
            call, size = [], 0
        call.append(question)
        size += len(question.streams)
    if call:
        yield call


def ask_round(starts: Mapping[RootLog, Collection[HandedOn]], own_instance_id: str, ask: Ask) -> Round:
    """Ask everybody of these logs. ``starts``: to which instances each was sent."""
    found = Round()
    walk = _Walk(own_instance_id, found)
    for log, sent in starts.items():
        for handed in sent:
            walk.name(log, (), handed)
    while walk.next_level:
        for route, logs in sorted(walk.take_level().items()):
            walk.ask(route, logs, ask)
    walk.note_failures()
    return found


def has_answered(about: Collection[RootLog] | None, streams: Collection[RootLog]) -> bool:
    """Whether a cluster was asked about all of these streams; ``about``: those of its questions, None = no question."""
    return about is not None and set(streams) <= set(about)


def is_over(log: RootLog, said: Round, without_the_lost: bool) -> bool:
    """Whether nothing of a log is under way. ``without_the_lost``: those that can't be asked, and streams whose end is
    not told, were waited for long enough.
    """
    if is_owed(said, log) or log in said.silent:
        return False
    return without_the_lost or not (log in said.lost or is_under_way(said, log))


def is_owed(said: Round, log: RootLog) -> bool:
    """Whether somebody still hands records of it on."""
    return log in said.owed


def is_under_way(said: Round, log: RootLog) -> bool:
    """Whether a message may still bring records of it somewhere."""
    return log in said.under_way


def in_order_of_telling(rounds: Round, over: Collection[RootLog]) -> list[tuple[Route, list[RootLog]]]:
    """The farthest first: who forgot does not say any more whom it handed something on to."""
    routes = sorted(rounds.routes.items(), key=lambda item: (-len(item[0]), item[0]))
    return [(route, told) for route, logs in routes if (told := sorted(logs & set(over)))]
