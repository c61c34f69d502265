"""A play: a world, its JSON form, and what steps of all kinds share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bookkeeper.replicas.events import TargetsChanged
from bookkeeper.replicas.machine import decide
from bookkeeper.replicas.placements import targets_of
from bookkeeper.replicas.values import ProtocolError
from tests.support.segment_simulation.codec import Codec, InputError, need, write_file
from tests.support.segment_simulation.world import Turn, World

Args = dict[str, Any]
Reply = dict[str, Any]


@dataclass(slots=True)
class Play:
    """A world, its JSON form, and the offers that were made so far."""

    world: World
    codec: Codec

    def name(self, args: Args, key: str = "replica") -> str:
        """The replica that a step names."""
        name: str = need(args.get(key), str, key)
        if name not in self.world.replicas:
            raise InputError(f"{key} names {name!r}, which is no replica; there are {', '.join(self.world.replicas)}")
        return name

    def names(self, args: Args, key: str, default: list[str]) -> list[str]:
        """The replicas that a step names."""
        given = args.get(key, default)
        return [self.name({key: one}, key) for one in need(given, list, key)]

    def running(self, name: str) -> None:
        """Refuse a step of a stopped replica."""
        if name in self.world.stopped:
            raise ProtocolError(f"{name} is stopped: resume it first")

    def segment(self, args: Args) -> int:
        """The segment that a step names."""
        return self.codec.ids.read(args.get("segment"), "segment")


def said(play: Play, turn: Turn) -> Reply:
    """The deeds of a turn, in JSON."""
    ids = play.codec.ids
    reply: Reply = {"outcome": turn.outcome}
    if turn.offers:
        reply["offers"] = [one | {"segment": ids.write(one["segment"])} for one in turn.offers]
    if turn.merged:
        reply["merged"] = [ids.write(one) for one in turn.merged]
    if turn.deleted:
        reply["deleted"] = [write_file(ids, one) for one in turn.deleted]
    if turn.damaged:
        reply["damaged"] = [write_file(ids, one) for one in turn.damaged]
    if turn.mended:
        reply["mended"] = [write_file(ids, one) for one in turn.mended]
    if turn.queued:
        reply["messages"] = turn.queued
    if turn.named is not None:
        reply["named"] = ids.write(turn.named)
    return reply


def is_queued(args: Args) -> bool:
    """Whether the messages of a step wait."""
    return bool(need(args.get("queued", False), bool, "queued"))


def targets_anew(world: World, tablet: str) -> None:
    """All running replicas learn the row of their tablet."""
    books = world.books[tablet]
    if books.is_gone:
        return
    children = tuple(world.books[child].row for child in books.children)
    for one in books.row.replicas:
        if one.host not in world.replicas:
            continue
        targets = targets_of(books.row, children, one.host, world.rules)
        world.replicas[one.host], _ = decide(world.replicas[one.host], TargetsChanged(targets), world.rules)
