"""A file of a replica turns out to be damaged: it counts as not held until a sound copy has taken its place (N3).

The entries stay, because the list of a state is what it was. A leader that hears of it takes the acknowledgements back
of each state that lists the file, so it names no state on the strength of a copy that does not exist.
"""

from __future__ import annotations

from msgspec.structs import replace

from bookkeeper.replicas.events import CopyDamaged, FilesDamaged, FilesMended
from bookkeeper.replicas.values import Replica


def damaged(replica: Replica, event: FilesDamaged) -> Replica:
    """The replica without files whose bytes are wrong. A transfer that took one of them for held is given up, so its
    sender offers the segment again, with the file.
    """
    found = replica.files.intersection(event.files)
    return replace(
        replica,
        files=replica.files - found,
        damaged=replica.damaged | found,
        incoming=tuple(one for one in replica.incoming if found.isdisjoint(one.segment.list)),
    )


def mended(replica: Replica, event: FilesMended) -> Replica:
    """The replica with sound copies of damaged files."""
    found = replica.damaged.intersection(event.files)
    return replace(replica, files=replica.files | found, damaged=replica.damaged - found)


def copy_damaged(replica: Replica, event: CopyDamaged) -> Replica:
    """The replica without the acknowledgements that another placement no longer stands by."""
    return replace(
        replica,
        entries=tuple(
            replace(entry, acked=entry.acked - {event.placement}) if event.file in entry.segment.list else entry
            for entry in replica.entries
        ),
    )
