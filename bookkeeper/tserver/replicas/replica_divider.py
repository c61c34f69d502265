"""Makes this host's replicas of the tablets that a split or merge has made, from those of the tablets before it.

The order comes from the master after the books have the rows of all new tablets, and may come again. A host believes
the books alone: which new tablets (*children*) have a replica here, under which placement, which files their named
states list, and which tablets were merged into one. A file of a parent gets another name in the child's directory by a
hard link, so no byte moves, and each replica deletes its own name without regard to the others. A file that is not here
stays lacking: it comes from the child's leader. So a host may miss the order.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence

from bookkeeper.errors import InvalidInputError, unavailable
from bookkeeper.model import Extent
from bookkeeper.replicas.values import Segment, term_of
from bookkeeper.storage.replicas.manifest import HeldFile, ReplicaKey
from bookkeeper.tserver.replicas.held_replica import HeldReplica
from bookkeeper.tserver.replicas.held_replicas import HeldReplicas
from bookkeeper.tserver.replicas.replica_books import NamedState

LOG = logging.getLogger(__name__)

CHILDREN_MAX = 10_001
"""Most tablets in one order: a split at 10,000 rows, the most of one command, makes so many of one tablet."""

ReadNamed = Callable[[Extent], NamedState | None]
"""Reads the named state of a tablet with its row."""


def first_state(named: NamedState) -> Segment:
    """The named state of a child as a segment: a major without files of its own, the same one on every host."""
    flush = named.flush
    return Segment(
        flush.flush_id,
        None,
        is_major=True,
        retained=flush.segments,
        logs=((term_of(flush.flush_id), flush.last_seq),),
    )


def files_of_child(named: NamedState, parents: Iterable[HeldReplica], child: HeldReplica) -> dict[str, HeldFile]:
    """The files of the child's named state that this host has of the parents, each with the parent's facts, and the
    name in the child's directory. Files of a parent and of its child have the same last part of their names.
    """
    held = {name.rpartition("/")[2]: file for parent in parents for name, file in parent.manifest.sound.items()}
    names = {name: held.get(name.rpartition("/")[2]) for name in named.entries if name not in child.manifest.files}
    return {name: file for name, file in names.items() if file is not None}


class ReplicaDivider:
    """Thread-safe; the same order may run twice at a time."""

    def __init__(self, replicas: HeldReplicas, read_named: ReadNamed) -> None:
        self._replicas = replicas
        self._read_named = read_named

    def divide(self, source: str, children: Sequence[Extent]) -> list[Extent]:
        """Make the replicas of children of the tablet in the directory ``source``, and of those that the children's
        rows name as their parts. Returns those of which this host has each file of the named state. Raises
        InvalidInputError for too many children, CorruptionError for a damaged replica, TransientError.
        """
        if len(children) > CHILDREN_MAX:
            raise InvalidInputError(f"{len(children)} tablets after a split: at most {CHILDREN_MAX} in one call")
        return [extent for extent in children if self._divide(source, extent)]

    def _divide(self, source: str, extent: Extent) -> bool:
        named, host = self._read_named(extent), self._replicas.host
        own = None if named is None else named.row.replicas.get(host.name)
        if named is None or own is None or own.placement.incarnation != host.incarnation:
            return False
        row = named.row
        child = self._replicas.open(row.key, extent, own.placement.id, own.stage, row.targets_of(host.name))
        parents = [self._replicas.find(ReplicaKey(extent.table_id, name)) for name in (source, *row.parts)]
        found = files_of_child(named, [parent for parent in parents if parent is not None], child)
        files = [HeldFile(name, file.size_bytes, file.crc32c, named.entries[name]) for name, file in found.items()]
        child.divide(first_state(named), named.raw, files, lambda: self._link({n: f.name for n, f in found.items()}))
        lacking = set(row.named_files) - child.replica.files
        if lacking:
            LOG.info("tablet %s: its leader will send %d files of the tablets before it", extent, len(lacking))
        return not lacking

    def _link(self, names: dict[str, str]) -> None:
        try:
            self._replicas.store.link(names)
        except OSError as error:
            raise unavailable("files of a tablet before this one can't get their names", error) from error
