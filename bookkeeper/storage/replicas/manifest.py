"""One tablet's replica on a host: the state of the machine, and facts about its files. Pure values."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from bookkeeper.errors import InvalidInputError
from bookkeeper.model import Extent
from bookkeeper.replicas.values import Replica
from bookkeeper.storage.volume.names import check_name, tablet_directory


class ReplicaKey(Struct, frozen=True, order=True):
    """The tablet of a replica: its table, and its directory (``tablet:dir``), which stays while the tablet lives."""

    table_id: str
    directory: str

    @property
    def prefix(self) -> str:
        """The beginning of the names of all its files, on every host."""
        return tablet_directory(self.table_id, self.directory) + "/"

    def check(self) -> ReplicaKey:
        """The same key. Raises InvalidInputError unless each part is one part of a file's name."""
        for part in (self.table_id, self.directory):
            if "/" in check_name(part):
                raise InvalidInputError(f"{part!r} is no table or directory of a tablet: want a name without a slash")
        return self

    def check_file(self, name: str) -> str:
        """The same name. Raises InvalidInputError unless it is a file in this tablet's directory."""
        if not check_name(name).startswith(self.prefix) or "/" in name[len(self.prefix) :]:
            raise InvalidInputError(f"{name!r} is no file of the tablet in {self.prefix}")
        return name

    def __str__(self) -> str:
        return f"{self.table_id}/{self.directory}"


class HeldFile(Struct, frozen=True):
    """A segment file: its name on every host, its bytes, their CRC-32C, and its ``segment:`` cell, which is opaque."""

    name: str
    size_bytes: int
    crc32c: int
    entry: bytes


class Manifest(Struct, frozen=True):
    """One tablet's replica on a host.

    ``files``: the durable files by name, those of ``replica.files`` and of ``replica.damaged``: a damaged file is not
    held, and its facts tell which copy is right. ``states``: for states of the list, by id, the facts that a leader
    needs to go on (the value of ``tablet:flush``), opaque.
    """

    key: ReplicaKey
    extent: Extent
    replica: Replica
    files: Mapping[str, HeldFile]
    states: Mapping[int, bytes]

    def check(self) -> Manifest:
        """The same manifest. Raises InvalidInputError where its parts contradict each other."""
        self.key.check()
        if self.extent.table_id != self.key.table_id:
            raise InvalidInputError(f"the manifest of {self.key} names tablet {self.extent} of another table")
        known = self.replica.files | self.replica.damaged
        if self.files.keys() != known or not self.replica.files.isdisjoint(self.replica.damaged):
            differing = sorted(self.files.keys() ^ known or self.replica.files & self.replica.damaged)
            raise InvalidInputError(f"the manifest of {self.key} has no facts about {differing[0]}, or too many")
        for name, file in self.files.items():
            if self.key.check_file(name) != file.name:
                raise InvalidInputError(f"the manifest of {self.key} has the facts of {file.name} under {name}")
        lacking = [name for entry in self.replica.entries for name in entry.segment.files if name not in self.files]
        root = self.replica.entry(self.replica.root)
        if self.replica.root is not None and root is None:
            raise InvalidInputError(f"the manifest of {self.key} lacks its root, state {self.replica.root}")
        lacking += [name for name in (root.segment.list if root else ()) if name not in self.files]
        if lacking:
            raise InvalidInputError(f"the manifest of {self.key} lists {lacking[0]}, and the host does not hold it")
        return self

    @property
    def sound(self) -> dict[str, HeldFile]:
        """The files that the host holds, without the damaged ones."""
        return {name: file for name, file in self.files.items() if name not in self.replica.damaged}

    def pruned(self) -> Manifest:
        """Without the facts about files and states that the replica no longer has."""
        ids = {entry.segment.id for entry in self.replica.entries}
        known = self.replica.files | self.replica.damaged
        return replace(
            self,
            files={name: file for name, file in self.files.items() if name in known},
            states={state: raw for state, raw in self.states.items() if state in ids},
        )
