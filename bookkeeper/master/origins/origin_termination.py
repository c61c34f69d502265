"""The decision that no record of a root log is under way anywhere (rule R22).

The cluster that wrote a log asks, once the log is deleted, in a *round*: first the clusters to which it sent the log,
then the clusters that those name, and so on, along routes on which each cluster defines the next one. A cluster answers
the writer of the log, each cluster that sent it records of the log, and any cluster while it has no such records.

An answer has two parts: whether a present log of that cluster holds records that it must still forward, and which of
its deleted logs forwarded some, to which instances. A question names the streams to the asked cluster. If another
cluster names a further stream later, the round asks again, because a paused process may hold a message of that stream.

A round proves the end when no cluster owes records and every stream is over. Suppose that a cluster stores a record
after its last answer, and let B be the first cluster to do so. The record came in a log of another cluster, Y. Y had
that log at its last answer, because Y stored nothing between that answer and B's write. If the log was present, Y owed.
If it was deleted, Y named it, and the round asked B about its stream later. So the stream was over at B, and B stored
no record of it afterwards.

Arrives: answers of clusters. Leaves: decisions, and routes for the notification. Pure except for the ``ask`` function.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from msgspec import Struct, field

from bookkeeper.errors import PermanentError, TransientError, UnauthorizedError
from bookkeeper.origins import RootLog
from bookkeeper.rpc.contract.messages import HandedOn, RootQuestion, RootStanding

Route = tuple[str, ...]
"""Instances, each of which defines the next one; the last one is the destination."""

Ask = Callable[[Route, Sequence[RootQuestion]], Sequence[RootStanding]]

Place = tuple[RootLog, str]
"""A log, and an instance that is asked about it."""

ROUTE_MAX = 16
"""Maximum hops. A round neither asks nor notifies clusters farther away, so it proves nothing about them."""

STREAMS_MAX = 100
"""Maximum number of streams in one question; more streams need several questions."""

STREAMS_OF_CALL_MAX = 1_000
"""Maximum number of streams in all questions of one call."""


class Round(Struct):
    """The answers of a round. ``under_way``: an instance at which a stream is open. ``silent``: an error that may pass.
    ``lost``: instances that can't be asked: not defined on the route, of an older version, or refusing the caller.
    """

    owed: set[RootLog] = field(default_factory=set)
    under_way: dict[RootLog, str] = field(default_factory=dict)
    silent: dict[RootLog, str] = field(default_factory=dict)
    lost: dict[RootLog, dict[str, str]] = field(default_factory=dict)
    routes: dict[Route, set[RootLog]] = field(default_factory=dict)
    """The logs about which the end of each route answered."""

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


class _Walk(Struct):
    """A running round. ``streams``: those named for a place; ``answered``: those about which it has answered."""

    own_instance_id: str
    said: Round
    streams: dict[Place, set[RootLog]] = field(default_factory=dict)
    answered: dict[Place, set[RootLog]] = field(default_factory=dict)
    ways: dict[Place, Route] = field(default_factory=dict)
    next_level: dict[Route, set[RootLog]] = field(default_factory=dict)
    failed: dict[Place, PermanentError | TransientError] = field(default_factory=dict)

    def take_level(self) -> dict[Route, set[RootLog]]:
        """The routes of the next level; clears it."""
        level, self.next_level = self.next_level, {}
        return level

    def note_failures(self) -> None:
        """End the round: record the instances that did not answer."""
        for (log, instance), why in self.failed.items():
            if not self.is_asked((log, instance)):  # it has not answered about every named stream
                self.said.note_failure(log, instance, why)

    def is_asked(self, place: Place) -> bool:
        """Whether the instance has answered about the log and every named stream."""
        about = self.answered.get(place)
        return about is not None and self.streams[place] <= about

    def name(self, log: RootLog, namer: Route, handed: HandedOn) -> None:
        """Add an instance to which the cluster at the end of a route forwarded, or may forward, records of a log."""
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
        """Ask the cluster at the end of a route about logs and streams that it has not answered yet."""
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
            self.failed[log, instance] = UnauthorizedError(
                f"{instance} refuses questions about {log.file} on the route {' > '.join(route)}"
            )
            return
        self.answered.setdefault((log, instance), set()).update(question.streams)
        self.ways.setdefault((log, instance), route)
        self.said.note(route, log, standing)
        for handed in standing.handed:
            self.name(log, route, handed)


def _calls(questions: Sequence[RootQuestion]) -> Iterator[list[RootQuestion]]:
    """The questions of each call, with a bounded number of streams."""
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
    """Run a round about these logs. ``starts``: the instances to which each log was sent."""
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


def is_over(log: RootLog, said: Round, is_wait_over: bool) -> bool:
    """Whether no record of a log is under way. ``is_wait_over``: lost instances and open streams no
    longer count. An instance with a transient error always counts.
    """
    if log in said.owed or log in said.silent:  # a cluster still has records of it to hand on, or did not answer
        return False
    # A message of an open stream may still bring records of it to a cluster.
    return is_wait_over or not (log in said.lost or log in said.under_way)


def farthest_first(rounds: Round, over: Collection[RootLog]) -> list[tuple[Route, list[RootLog]]]:
    """Routes and their logs, the farthest first: a cluster that has dropped a log no longer names its recipients."""
    routes = sorted(rounds.routes.items(), key=lambda item: (-len(item[0]), item[0]))
    return [(route, told) for route, logs in routes if (told := sorted(logs & set(over)))]
