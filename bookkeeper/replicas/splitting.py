"""A split in place, as a replica of a new tablet lives through it (E-56)."""

from __future__ import annotations

from collections.abc import Collection

from msgspec.structs import replace

from bookkeeper.replicas.values import Entry, Replica, Segment, term_of


def divided(replica: Replica, state: Segment, files: Collection[str]) -> Replica:
    """The replica of a child that has these files of the parent, and begins with the state that the books give it; the
    tablet that keeps the parent's row is a child, too.

    Offers of the parent's terms are INVALID from here on (E-56). A replica that lacks a file of the state keeps its
    root: the first major of its leader brings the file. One that has heard of that leader keeps its root, too.
    """
    replica = replace(replica, files=replica.files | set(files))
    if replica.term >= term_of(state.id) or not replica.files.issuperset(state.list):
        return replica
    return replace(
        replica,
        root=state.id,
        entries=(*replica.entries, Entry(state)),
        leader=None,
        term=term_of(state.id),
        merged=(),
        declined=(),
    )
