"""Steps of damaged files: bytes go wrong, a host notices it, and gets a sound copy from another one."""

from __future__ import annotations

from bookkeeper.replicas.values import ProtocolError, Stage
from bookkeeper.tserver.replicas.file_repair import sources
from tests.support.segment_simulation.codec import read_file, write_file
from tests.support.segment_simulation.play import Args, Play, Reply, is_queued, said
from tests.support.segment_simulation.world import Turn, World


def sources_of(world: World, name: str) -> list[str]:
    """The replicas to ask for a file, the leader first. Leaders of children are none: they have a part of each file. In
    UNLOAD they are the only targets, so the others of the row are asked.
    """
    replica, row = world.replicas[name], world.books_of(name).row
    if replica.stage in (Stage.UNLOAD, Stage.UNLOAD_FINAL):
        return [one.host for one in row.replicas if one.host != name and one.host in world.replicas]
    found = [target.host for target in sources(replica) if target.key_range is None]
    return [host for host in found if host in world.replicas]


def step_damage(play: Play, args: Args) -> Reply:
    """The bytes of a file of a replica go wrong, or those of all files on its host. Nobody notices it."""
    world, name = play.world, play.name(args)
    if "file" not in args:
        for one in world.on_host_of(name):
            world.disks.wrong.update((one, file) for file in world.replicas[one].files)
        return {"outcome": "done"}
    file = read_file(play.codec.ids, args["file"], "file")
    if file not in world.replicas[name].files:
        raise ProtocolError(f"{name} holds no file {args['file']}: name one that it holds")
    world.disks.spoil(name, file)
    return {"outcome": "done"}


def step_check(play: Play, args: Args) -> Reply:
    """The quiet check: a host compares all files of a replica with their checksums."""
    world, name = play.world, play.name(args)
    play.running(name)
    turn = Turn()
    world.suspect(name, world.replicas[name].files, turn)
    return said(play, turn)


def step_mend(play: Play, args: Args) -> Reply:
    """A replica asks for each damaged file: the others until one sends it, the leader first, or only ``from``."""
    world, name = play.world, play.name(args)
    play.running(name)
    targets = sources_of(world, name)
    if "from" in args:
        targets = [play.name(args, "from")]
        if world.tablets[targets[0]] != world.tablets[name]:
            raise ProtocolError(f"{targets[0]} is a replica of another tablet: its files have other rows")
    turn = Turn()
    for file in sorted(world.replicas[name].damaged):
        for target in targets[:1] if is_queued(args) else targets:
            if file in world.replicas[name].damaged:
                world.ask(name, target, file, turn, is_queued(args))
    reply = said(play, turn)
    left = sorted(world.replicas[name].damaged)
    return reply | ({"lacking": [write_file(play.codec.ids, file) for file in left]} if left else {})
