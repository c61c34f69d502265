"""The laws of replicas: what must hold after each step, and after all faults have ended."""

from __future__ import annotations

from collections import Counter

from bookkeeper.replicas.chain import files_of
from bookkeeper.replicas.instructions import Name
from bookkeeper.replicas.placements import Phase
from bookkeeper.replicas.values import Replica
from tests.support.segment_simulation.books import Books
from tests.support.segment_simulation.world import World


class BrokenError(Exception):
    """A law of replicas does not hold."""


class Checker:
    """Judges the world after each step. Tablets of one table answer for each other's rows: they split and merge."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.named: dict[str, Name | None] = {}
        self.judged_of_peer = 0

    def after_step(self) -> None:
        """All laws that hold at any time. Raises BrokenError."""
        if self.world.disks.lies:
            raise BrokenError(self.world.disks.lies[0])
        for tablet, books in self.world.books.items():
            if books.named is not self.named.get(tablet) and not books.is_gone:
                self._judge_name(tablet, books)
                self.named[tablet] = books.named
        safe = self._safe_rows()
        self._nothing_is_lost(safe)
        self._peer_has_what_is_safe(safe)
        for name, replica in self.world.replicas.items():
            self._files_are_there(name, replica)

    def _judge_name(self, tablet: str, books: Books) -> None:
        """A named id rises, its files have their copies, and each record counts once."""
        before, now = self.named.get(tablet), books.named
        if now is None:
            return
        if before is not None and now.state_id <= before.state_id:
            raise BrokenError(f"the named id falls from {before.state_id} to {now.state_id}")
        copies = self.world.copies[tablet, now.state_id]
        if copies < books.copies_min:
            raise BrokenError(f"named state {now.state_id} had {copies} copies when its leader named it")
        rows = self._rows_of(tablet, now.files)
        twice = [row for row, count in Counter(rows).items() if count > 1]
        if twice:
            raise BrokenError(f"row {min(twice)} counts twice in named state {now.state_id}")

    def _rows_of(self, tablet: str, files: tuple[str, ...]) -> list[str]:
        """The rows of files, each from any replica whose copy is sound."""
        found: list[str] = []
        rows, wrong = self.world.rows, self.world.disks.wrong
        holders = [name for name, its in self.world.tablets.items() if its == tablet]
        for file in files:
            places = ((name, file) for name in holders)
            held = next((rows[place] for place in places if place in rows and place not in wrong), None)
            if held is None:
                raise BrokenError(f"no host holds file {file}, which the books name")
            found += held
        return found

    def _safe_rows(self) -> dict[str, set[str]]:
        """By table: the rows of named states and of logs that exist."""
        safe: dict[str, set[str]] = {}
        for tablet, books in self.world.books.items():
            if books.is_gone:
                continue
            rows = safe.setdefault(books.table, set())
            if books.named:
                rows.update(self._rows_of(tablet, books.named.files))
            for log in books.logs.values():
                if not log.file.is_deleted:
                    rows.update(log.rows)
        return safe

    def _nothing_is_lost(self, safe: dict[str, set[str]]) -> None:
        """A row that a writer was told to be safe is in a named state or in a log that exists. So is an import."""
        for tablet, rows in self.world.acknowledged.items():
            missing = [row for row in rows if row not in safe[self.world.books[tablet].table]]
            if missing:
                raise BrokenError(f"row {missing[0]} was acknowledged and is lost")
        anywhere = set().union(*safe.values())
        for number, one in self.world.imports.items():
            if one.is_named and not anywhere.issuperset(one.rows):
                raise BrokenError(f"import {number} was named and is lost")

    def _peer_has_what_is_safe(self, safe: dict[str, set[str]]) -> None:
        """A peer gets nothing twice, and nothing that the cluster may still lose."""
        peer = self.world.peer
        if peer is None or self.judged_of_peer == len(peer.rows):
            return
        twice = [row for row, count in Counter(peer.rows).items() if count > 1]
        if twice:
            raise BrokenError(f"the peer got row {min(twice)} twice")
        durable = set().union(*safe.values())
        if self.world.logs_on_hosts:
            living = [(tablet, books) for tablet, books in self.world.books.items() if not books.is_gone]
            named = [self._rows_of(tablet, books.named.files) for tablet, books in living if books.named]
            durable = {row for rows in named for row in rows}
        for row in peer.rows[self.judged_of_peer :]:
            if row not in durable:
                raise BrokenError(f"the peer got row {row} before it was durable")
        self.judged_of_peer = len(peer.rows)

    def _files_are_there(self, name: str, replica: Replica) -> None:
        """A replica has each file of its root's list, or knows that it is damaged and waits for a copy."""
        known = replica.files | replica.damaged
        lacking = [file for file in files_of(replica, replica.root, self.world.rules) if file not in known]
        if lacking:
            raise BrokenError(f"{name} lacks file {lacking[0]} of its root's list")

    def at_rest(self) -> None:
        """What holds when all faults have ended and everybody has had turns enough. Raises BrokenError."""
        world = self.world
        got: Counter[str] = Counter()
        for tablet, books in world.books.items():
            if books.is_gone:
                self._is_gone(tablet, books)
                continue
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
            if books.row.phase is not Phase.SERVING:
                raise BrokenError(f"tablet {tablet} is {books.row.phase.value} for ever")
            got.update(self._rows_of(tablet, named.files))
        if any(count > 1 for count in got.values()):
            raise BrokenError("a row counts twice")
        everything = {row for rows in world.acknowledged.values() for row in rows}
        everything.update(row for one in world.imports.values() if one.is_named for row in one.rows)
        if everything - got.keys():
            raise BrokenError(f"row {min(everything - got.keys())} is lost")
        if world.peer is not None and everything - set(world.peer.rows):
            raise BrokenError(f"the peer never gets row {min(everything - set(world.peer.rows))}")

    def _is_gone(self, tablet: str, books: Books) -> None:
        left = [name for name, its in self.world.tablets.items() if its == tablet]
        if left:
            raise BrokenError(f"{left[0]} stays for ever, though its tablet is gone")
        if books.logs:
            raise BrokenError(f"a log of tablet {tablet} is left over, which is gone")

    def _rests(self, name: str, named: Name) -> None:
        replica = self.world.replicas[name]
        wrong = sorted(file for owner, file in self.world.disks.wrong if owner == name)
        if wrong:
            raise BrokenError(f"{name} has the damaged file {wrong[0]} for ever")
        if replica.files != set(named.files):
            raise BrokenError(f"{name} holds files {sorted(replica.files ^ set(named.files))} that the list lacks")
        if replica.has_memory or replica.incoming:
            raise BrokenError(f"{name} waits for ever with memory or a transfer")
