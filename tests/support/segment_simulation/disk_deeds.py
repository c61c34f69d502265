"""Random damage of files on disks: bytes go wrong, hosts notice it and ask others for sound copies."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from typing import Any

from bookkeeper.replicas.instructions import Name
from tests.support.segment_simulation.codec import write_file
from tests.support.segment_simulation.damage_steps import sources_of
from tests.support.segment_simulation.play import Play

DISK_WEIGHTS = {"damage": 3, "check": 4, "mend": 8, "mend_queued": 4}


class DiskDeeds(ABC):
    """A part of a schedule. It leaves a sound copy of each file on which a named state rests, or may rest later."""

    play: Play
    rng: random.Random

    @abstractmethod
    def do(self, kind: str, **args: Any) -> dict[str, Any]:
        """Do one step."""

    # ---- who has what

    @property
    def _names(self) -> list[str]:
        return list(self.play.world.replicas)

    def _running(self, tablet: str | None = None) -> list[str]:
        world = self.play.world
        return [one for one in self._names if one not in world.stopped and tablet in (None, world.tablets[one])]

    def _others(self, name: str) -> list[str]:
        """The other replicas of a tablet."""
        tablets = self.play.world.tablets
        return [one for one in self._names if one != name and tablets[one] == tablets[name]]

    def _named_files(self, tablet: str) -> set[str]:
        """The files of the named state, and of states whose name is still in flight."""
        world = self.play.world
        bodies = [one.body for one in world.messages.values() if one.target == tablet]
        names = [body for body in bodies if isinstance(body, Name)]
        named = world.books[tablet].named
        return {file for one in [*names, *([named] if named is not None else [])] for file in one.files}

    def _sound(self, *names: str) -> set[str]:
        """The files that replicas hold and whose bytes are right."""
        world = self.play.world
        return {file for name in names for file in world.disks.sound(name, world.replicas[name].files)}

    def _known(self, *names: str) -> set[str]:
        """The files that a leader may take for held: it hears of damage later."""
        replicas = self.play.world.replicas
        return {file for name in names for file in replicas[name].files | replicas[name].damaged}

    def _leaves_wrong(self, name: str) -> bool:
        """Whether without a replica some of its files would have copies on others, of which none is sound."""
        others = self._others(name)
        return not self._known(*others) & self._known(name) <= self._sound(*others)

    def _has_wrong(self, name: str) -> bool:
        """Whether some file of a replica has wrong bytes: it may be the only one with the tail of a log."""
        return self._sound(name) != self._known(name)

    # ---- deeds

    def _do_damage(self) -> None:
        name = self.rng.choice(self._names)
        files = sorted(self._sound(name))
        if files:
            file = self.rng.choice(files)
            if all(self._may_spoil(*place) for place in self.play.world.disks.names_of(name, file)):
                self.do("damage", replica=name, file=write_file(self.play.codec.ids, file))

    def _may_spoil(self, name: str, file: str) -> bool:
        """Whether a replica may lose a file: no log is given up, and a sound copy is left if others rely on one."""
        world, others = self.play.world, self._others(name)
        books = world.books_of(name)
        if books.is_gone:
            return True
        is_free = file not in self._known(*others) | self._named_files(world.tablets[name])
        return not books.given_up and (is_free or file in self._sound(*others))

    def _do_check(self) -> None:
        running = self._running()
        if running:
            self.do("check", replica=self.rng.choice(running))

    def _do_mend(self, queued: bool = False) -> None:
        world = self.play.world
        damaged = [name for name in self._running() if world.replicas[name].damaged]
        if not damaged:
            return
        name = self.rng.choice(damaged)
        sources = sources_of(world, name)
        if queued and sources:
            self.do("mend", replica=name, queued=True, **{"from": self.rng.choice(sources)})
        else:
            self.do("mend", replica=name)

    def _do_mend_queued(self) -> None:
        self._do_mend(queued=True)

    # ---- rest

    def _check_all(self) -> None:
        """Each host finds what is wrong on its disk."""
        for name in self._names:
            self.do("check", replica=name)

    def _mend_all(self, tablet: str) -> None:
        """Each replica of a tablet asks for the files that are damaged."""
        for name in self._running(tablet):
            if self.play.world.replicas[name].damaged:
                self.do("mend", replica=name)
