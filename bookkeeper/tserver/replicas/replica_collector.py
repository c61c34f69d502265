"""Deletes what this host no longer has to hold: by the books, and never because something was not read.

For each table with replicas here, one read of their tablets' rows. A replica that its row names is collected by N4; one
that its row does not name goes. When there is no row where the tablet ended, or one of another tablet, such as after a
split, all rows of the table are read, complete or an error. A replica whose tablet has no row goes when a second such
read does not show it either, because rows that move during one read can be missed. A part of a merged tablet stays
while a row still names it, because its files are not linked yet. A file that an export reads stays: its hold is in the
books before the read that found its name, and the holds are read here after the rows (R17). An error ends the turn for
a table, and nothing of it goes.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from enum import Enum
from typing import Protocol

from msgspec.structs import replace

from bookkeeper.clock import Clock
from bookkeeper.errors import BookkeeperError
from bookkeeper.model import Extent
from bookkeeper.replicas.events import Collect
from bookkeeper.replicas.values import Placement, Replica, Stage, Target
from bookkeeper.runtime.threads import SELDOM_MS, BackgroundThread, Die
from bookkeeper.storage.replicas.manifest import ReplicaKey
from bookkeeper.tserver.replicas.held_replica import HeldReplica
from bookkeeper.tserver.replicas.held_replicas import HeldReplicas
from bookkeeper.tserver.replicas.offer_checks import ReplicaRow

LOG = logging.getLogger(__name__)


class ReadBooks(Protocol):
    """Reads rows of the books. All raise TransientError or CorruptionError."""

    def rows_of(self, extents: Collection[Extent]) -> Mapping[Extent, ReplicaRow]:
        """For each of these tablets the row of the one that ends there now, if there is one."""

    def rows(self, table_id: str) -> Mapping[str, ReplicaRow]:
        """The tablets of a table by their directories: all of them."""

    def held_files(self, table_id: str) -> Collection[str]:
        """The files of a table that something holds: all of them."""


class Verdict(Enum):
    """The treatment of a replica in one turn."""

    COLLECT = "collect"
    """The row names it: files that nothing needs go."""
    REMOVE = "remove"
    WAIT = "wait"
    """It stays as it is until the next turn."""


def verdict_on(row: ReplicaRow | None, host: str, placement: Placement | None, missed_before: bool) -> Verdict:
    """The treatment of a tablet's replica. ``placement`` None: its manifest is damaged. ``missed_before``: the
    last read did not show the tablet.
    """
    if row is None:
        return Verdict.REMOVE if missed_before else Verdict.WAIT
    named = row.replicas.get(host)
    if named is None:
        return Verdict.REMOVE
    if placement is None:
        # A joining replica counts nowhere, so it may begin anew; a voter's damaged one may be needed to look at.
        return Verdict.REMOVE if named.stage is Stage.JOINING else Verdict.WAIT
    return Verdict.COLLECT if named.placement == placement else Verdict.REMOVE


def collect_event(replica: Replica, row: ReplicaRow) -> Collect:
    """The files that the books allow to delete (N4): those that a named state has replaced."""
    given_up = frozenset(term for term, _ in replica.given_up)
    return Collect(row.named_id, row.named_files, given_up=given_up)


class ReplicaCollector:
    """Works in a thread of its own; one turn at a time."""

    def __init__(self, replicas: HeldReplicas, books: ReadBooks, clock: Clock, die: Die) -> None:
        self._replicas = replicas
        self._books = books
        self._missed: set[ReplicaKey] = set()
        self._has_removed_orphans = False
        self._thread = BackgroundThread("replica-collector", clock, die)

    def collect(self) -> None:
        """One turn over all replicas. Errors are logged, and the rest goes on."""
        held = {one.key: one for one in self._replicas.all()}
        placements: dict[ReplicaKey, Placement | None] = dict.fromkeys(self._replicas.damaged)
        placements.update({key: one.placement for key, one in held.items()})
        missed: set[ReplicaKey] = set()
        for table_id in sorted({key.table_id for key in placements}):
            of_table = {key: placement for key, placement in placements.items() if key.table_id == table_id}
            try:
                rows = self._rows(table_id, {key: held.get(key) for key in of_table})
                held_files = self._books.held_files(table_id)
            except BookkeeperError as error:
                LOG.warning("replicas of table %s are not collected now: %s", table_id, error.message)
                missed |= self._missed & of_table.keys()
                continue
            parts = {part for row in rows.values() for part in row.parts}
            for key, placement in of_table.items():
                row = rows.get(key.directory)
                if key.directory in parts:  # N4: hosts still link its files for a merged tablet
                    continue
                if row is None:
                    missed.add(key)
                self._work(key, placement, row, held_files)
        self._missed = missed
        if not self._has_removed_orphans:
            self._remove_orphans()

    def _rows(self, table_id: str, wanted: Mapping[ReplicaKey, HeldReplica | None]) -> Mapping[str, ReplicaRow]:
        """The rows of these tablets of a table by their directories: each where its replica says that it ends (None:
        the replica is damaged), or all rows of the table, when one is not there. Raises as :class:`ReadBooks`.
        """
        extents = [held.extent for held in wanted.values() if held is not None]
        found = {row.directory: row for row in self._books.rows_of(extents).values()}
        return found if found.keys() == {key.directory for key in wanted} else self._books.rows(table_id)

    def _work(
        self, key: ReplicaKey, placement: Placement | None, row: ReplicaRow | None, held_files: Collection[str]
    ) -> None:
        try:
            verdict = verdict_on(row, self._replicas.host.name, placement, key in self._missed)
            if verdict is Verdict.REMOVE:
                self._replicas.remove(key, placement)
                LOG.info("the replica of %s is removed: the books do not name it on this host", key)
            held = self._replicas.find(key) if verdict is Verdict.COLLECT else None
            if held is not None and row is not None and held.placement == placement:
                collect_replica(held, row, held_files)
        except (BookkeeperError, OSError) as error:
            LOG.warning("the replica of %s is not collected now: %s", key, error)

    def _remove_orphans(self) -> None:
        try:
            gone = self._replicas.delete_orphans()
        except OSError as error:
            LOG.warning("files without a replica can't be removed now: %s", error)
            return
        self._has_removed_orphans = True
        if gone:
            LOG.info("%d files of replicas that were removed before are deleted", len(gone))

    # ---- the thread

    def start(self) -> None:
        """Begin to collect."""
        self._thread.start(self.collect, SELDOM_MS)

    def close(self) -> None:
        """End the thread."""
        self._thread.close()


def collect_replica(held: HeldReplica, row: ReplicaRow, held_files: Collection[str]) -> None:
    """Note what the row says about a replica, and delete the files that nothing needs, none of ``held_files``. Raises
    as :meth:`HeldReplica.collect`.
    """
    own = row.replicas[held.replica.host]
    if not held.replica.is_leader:
        held.placed(row.extent, lambda replica: noted(replica, own.stage, row.targets_of(replica.host)))
    event = collect_event(held.replica, row)
    event = replace(event, read=event.read | frozenset(held_files))  # P15, R17: something still reads them
    gone = (*held.collect(event), *held.delete_unlisted())
    if gone:
        LOG.info("%s: %d files are deleted, the books name state %s", held.key, len(gone), row.named_id)


def noted(replica: Replica, stage: Stage, targets: tuple[Target, ...]) -> Replica:
    """The replica with what its row says. A leader knows its own targets."""
    return replica if replica.is_leader else replace(replica, stage=stage, targets=targets)
