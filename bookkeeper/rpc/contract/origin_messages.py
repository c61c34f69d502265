"""Questions about the end of root logs, and their answers (rule R22), as in ``bookkeeper.thrift``."""

from __future__ import annotations

from msgspec import Struct

from bookkeeper.origins import RootLog


class RootQuestion(Struct, frozen=True):
    """A question about a root log (rule R22). ``streams``: deleted logs of other clusters that were sent to the
    answering cluster with records of it.
    """

    log: RootLog
    streams: tuple[RootLog, ...] = ()


class HandedOn(Struct, frozen=True, order=True):
    """An instance that received records of a root log, and the log in which they were sent; an empty ``file`` means
    that records may still be sent.
    """

    instance_id: str
    file: str


class RootStanding(Struct, frozen=True):
    """The answer of a cluster about a root log (rule R22). ``owed``: a log of that cluster has records that it must
    still send on. ``under_way``: the stream of a log in the question is still open there, so a message may bring more.
    ``refused``: the caller neither wrote the log nor sent records of it, and the other fields say nothing.
    """

    owed: bool
    under_way: bool
    handed: tuple[HandedOn, ...]
    refused: bool | None = None
