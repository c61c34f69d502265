"""The operations that end streams, at the source and at the receiver.

When a file is deleted, ``stream_done`` reports the end of its streams to the peer and deletes the finished cells of the
source. At the peer ``forget_streams`` deletes the `~recv_` cells and the high-waters. Rules: R3, R5, R20 and R22.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import cast

from msgspec import Struct

from bookkeeper.master.fate.engine import Args, Call, Done, Next, Outcome, Running, Step, Wait
from bookkeeper.master.operations.context import Context, text, texts
from bookkeeper.metadata import keys
from bookkeeper.metadata.metadata_table import CellKey
from bookkeeper.metadata.values import FateOp, Json
from bookkeeper.model import StreamKey, TargetKey
from bookkeeper.origins import RootLog, root_of

STREAMS_MAX = 500
"""Most streams in one operation: one message, one purge."""


def stream_done_args(cluster: str, cells: Sequence[tuple[str, TargetKey]]) -> Args:
    """Arguments of ``stream_done``: finished cells (file, target) of deleted files, all of one cluster."""
    pairs: list[Json] = [[file, target.encode().decode()] for file, target in cells]
    return {"cluster": cluster, "cells": pairs}


def forget_streams_args(streams: Iterable[StreamKey]) -> Args:
    """Arguments of ``forget_streams``."""
    encoded: list[Json] = [*sorted(stream.encode() for stream in streams)]
    return {"streams": encoded}


def stream_of(own_instance_id: str, file: str, target: TargetKey) -> StreamKey:
    """The stream in which a target gets a file (rule R5)."""
    return StreamKey(own_instance_id, file, target.source_table_id, target.remote_table_id, target.incarnation)


class StreamDone(Struct, frozen=True):
    """At the source: reports the end of streams to the peer, then purges the finished cells
    (:class:`bookkeeper.master.fate.engine.Operation`).
    """

    context: Context
    first: str = "tell"

    def locks(self, args: Args) -> Collection[str]:
        """One operation at a time for each peer, so that a peer that does not answer occupies one thread only."""
        return (f"streams {text(args, 'cluster')}",)

    @property
    def steps(self) -> Mapping[str, Step]:
        """tell, purge."""
        return {"tell": self.tell, "purge": self.purge}

    def tell(self, call: Call) -> Outcome:
        """Report the end of the streams (rule R20). A cluster that is no longer defined has no address: its high-waters
        stay until an operator acts.
        """
        peer = self.context.config().clusters.get(text(call.args, "cluster"))
        if peer is not None:
            streams = [
                stream_of(self.context.settings.own_instance_id, file, target)
                for file, target in finished_cells(call.args)
            ]
            self.context.peers.tell_done(peer.alias, peer.quorum, peer.instance_id, streams)
        return Next("purge", {})

    def purge(self, call: Call) -> Outcome:
        """Purge the finished cells after the report: until then a late worker finds them and does not begin again
        (rule R3).
        """
        self.context.stores.reign.check()
        self.context.stores.table.purge(
            [CellKey(keys.repl_row(file), keys.done_column(target)) for file, target in finished_cells(call.args)]
        )
        return Done()


def finished_cells(args: Args) -> list[tuple[str, TargetKey]]:
    """The (file, target) pairs of a ``stream_done`` operation."""
    pairs = cast("list[list[str]]", args["cells"])
    return [(file, TargetKey.decode(target.encode())) for file, target in pairs]


def cells_of(op: FateOp) -> list[tuple[str, TargetKey]]:
    """The pairs of any operation: those of ``stream_done``, none of another kind."""
    return finished_cells(op.args) if op.type == "stream_done" else []


class ForgetStreams(Struct, frozen=True):
    """At the receiver: deletes ended streams after a grace (:class:`bookkeeper.master.fate.engine.Operation`)."""

    context: Context
    first: str = "grace"

    def locks(self, _args: Args) -> Collection[str]:
        """None, because streams are independent."""
        return ()

    @property
    def steps(self) -> Mapping[str, Step]:
        """grace, purge, forget."""
        return {"grace": self.grace, "purge": self.purge, "forget": self.forget}

    def grace(self, call: Call) -> Outcome:
        """Wait for the grace: no message lives longer (rule R20). Each master begins the wait again."""
        waited_ms = (self.context.clock.boot_ns() - call.since_ns) // 1_000_000
        left_ms = self.context.settings.stream_grace_ms - waited_ms
        if left_ms > 0:
            return Wait(f"earlier messages may live for {left_ms} ms more", min(left_ms, 1_000))
        return Next("purge", {})

    def purge(self, call: Call) -> Outcome:
        """Purge the cells first: a tserver that loads a tablet afterwards does not find them and drops its high-waters.
        No later stream has the same name, because names of files and incarnations are unique.
        """
        self.context.stores.reign.check()
        self.context.stores.table.purge([keys.recv_cell(stream) for stream in forgotten_streams(call.args)])
        return Next("forget", {})

    def forget(self, call: Call) -> Outcome:
        """Make every live tserver drop the high-waters of the tablets that it serves or is about to serve."""
        streams = forgotten_streams(call.args)
        problems = self.context.tservers.for_each_live(lambda tserver: tserver.forget_streams(streams))
        return Wait("; ".join(problems), 500) if problems else Done()


def forgotten_streams(args: Args) -> list[StreamKey]:
    """The streams of a ``forget_streams`` operation."""
    return [StreamKey.decode(encoded) for encoded in texts(args, "streams")]


def logs_being_forgotten(operations: Iterable[Running]) -> set[RootLog]:
    """The logs of the streams that running ``forget_streams`` operations delete."""
    arguments = [running.op.args for running in operations if running.op.type == "forget_streams" and not running.ended]
    return {root_of(stream).log for args in arguments for stream in forgotten_streams(args)}
