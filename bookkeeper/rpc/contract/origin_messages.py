"""Questions about the end of root logs, and their answers (rule R22), as ``bookkeeper.thrift`` has them."""

from __future__ import annotations

from dataclasses import dataclass

from bookkeeper.origins import RootLog


@dataclass(frozen=True, slots=True)
class RootQuestion:
    """A question about a root log (rule R22). ``streams``: logs of other clusters that are gone and were sent to the
    answering one with records of it.
    """

    log: RootLog
    streams: tuple[RootLog, ...] = ()


@dataclass(frozen=True, slots=True, order=True)
class HandedOn:
    """An instance that got records of a root log, and the log that brought them there; an empty ``file`` means that
    some may still be sent.
    """

    instance_id: str
    file: str


@dataclass(frozen=True, slots=True)
class RootStanding:
    """The answer of a cluster about a root log (rule R22). ``owed``: a log there holds records that it hands on.
    ``under_way``: the stream of a log in the question is not over there, so a message may still bring some.
    ``refused``: whoever asked neither wrote the log nor brought records of it, and is told nothing.
    """

    owed: bool
    under_way: bool
    handed: tuple[HandedOn, ...]
    refused: bool | None = None
