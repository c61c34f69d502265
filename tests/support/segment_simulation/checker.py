"""The laws of replicas: what must hold after each step, and after all faults have ended."""

from __future__ import annotations

from collections import Counter

from bookkeeper.replicas.chain import files_of
from bookkeeper.replicas.instructions import Name
from bookkeeper.replicas.values import Replica
from tests.support.segment_simulation.books import Books
from tests.support.segment_simulation.world import World


class BrokenError(Exception):
    """A law of replicas does not hold."""


class Checker:
    """Judges the world of one tablet after each step."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.named: dict[str, Name | None] = {}
        self.lost: set[str] = set()
        """Rows of a given-up log whose host was wiped: the books say that they are gone."""

    def after_step(self) -> None:
        """All laws that hold at any time. Raises BrokenError."""
        for tablet, books in self.world.books.items():
            if books.named is not self.named.get(tablet):
                self._judge_name(tablet, books)
                self.named[tablet] = books.named
            self._nothing_is_lost(tablet, books)
        for name, replica in self.world.replicas.items():
            self._files_are_there(name, replica)

    def _judge_name(self, tablet: str, books: Books) -> None:
        """A named id rises, its files have their copies, and each record counts once."""
        before, now = self.named.get(tablet), books.named
        if now is None:
            return
        if before is not None and now.state_id <= before.state_id:
            raise BrokenError(f"the named id falls from {before.state_id} to {now.state_id}")
        copies = self.world.copies[now.state_id]
        if copies < books.copies_min:
            raise BrokenError(f"named state {now.state_id} had {copies} copies when its leader named it")
        rows = self._rows_of(tablet, now.files)
        twice = [row for row, count in Counter(rows).items() if count > 1]
        if twice:
            raise BrokenError(f"row {min(twice)} counts twice in named state {now.state_id}")

    def _rows_of(self, tablet: str, files: tuple[str, ...]) -> list[str]:
        """The rows of files, each from any replica that holds it."""
        found: list[str] = []
        holders = [name for name, its in self.world.tablets.items() if its == tablet]
        for file in files:
            held = next((rows for name in holders if (rows := self.world.rows.get((name, file))) is not None), None)
            if held is None:
                raise BrokenError(f"no host holds file {file}, which the books name")
            found += held
        return found

    def _nothing_is_lost(self, tablet: str, books: Books) -> None:
        """A row that a writer was told to be safe is in the named state or in a log that exists."""
        safe = set(self._rows_of(tablet, books.named.files)) if books.named else set()
        for log in books.logs.values():
            safe.update(log.rows)
        missing = [row for row in self.world.acknowledged[tablet] if row not in safe and row not in self.lost]
        if missing:
            raise BrokenError(f"row {missing[0]} was acknowledged and is lost")

    def _files_are_there(self, name: str, replica: Replica) -> None:
        """A replica has each file of its root's list."""
        lacking = [file for file in files_of(replica, replica.root, self.world.rules) if file not in replica.files]
        if lacking:
            raise BrokenError(f"{name} lacks file {lacking[0]} of its root's list")

    def at_rest(self) -> None:
        """What holds when all faults have ended and everybody has had turns enough. Raises BrokenError."""
        world = self.world
        for tablet, books in world.books.items():
            names = [one.host for one in books.row.replicas]
            roots = {name: world.replicas[name].root for name in names}
            if len(set(roots.values())) != 1:
                raise BrokenError(f"replicas have several roots for ever: {roots}")
            (root,) = set(roots.values())
            named = books.named
            if root is None and named is None:
                continue
            if named is None or root != named.state_id:
                raise BrokenError(f"the root {root} is never named")
            for name in names:
                self._rests(name, named)
            behind = [term for term in books.logs if term != books.term]
            if behind:
                raise BrokenError(f"the log of term {behind[0]} is left over")
            got = Counter(self._rows_of(tablet, named.files))
            if any(count > 1 for count in got.values()):
                raise BrokenError("a row counts twice")
            lacking = set(world.acknowledged[tablet]) - got.keys() - self.lost
            if lacking:
                raise BrokenError(f"row {min(lacking)} is lost")

    def _rests(self, name: str, named: Name) -> None:
        replica = self.world.replicas[name]
        if replica.files != set(named.files):
            raise BrokenError(f"{name} holds files {sorted(replica.files ^ set(named.files))} that the list lacks")
        if replica.has_memory or replica.incoming:
            raise BrokenError(f"{name} waits for ever with memory or a transfer")
