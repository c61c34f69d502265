"""Damaged files of replicas on this host: found, marked as not held, and replaced by sound copies of other hosts.

Each reader of a file that finds it damaged says so: a page, a compaction, a transfer, the background check. The whole
file is compared with its checksum, and only a difference counts. A file that is gone needs no reader: the size of each
file is looked up when the process starts, and again when one was found to be gone. From then on the replica does not
hold the file, so it counts for no state that lists it (N3). The damaged bytes stay until a copy
is here, complete, synced and with the right checksum; then the copy takes the file's name. The leader is asked for the
file first, because it has to know.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping

from msgspec import Struct

from bookkeeper.clock import Clock
from bookkeeper.errors import BookkeeperError, CorruptionError, UnavailableError, unavailable
from bookkeeper.replicas.events import FilesDamaged
from bookkeeper.replicas.values import Replica, Target
from bookkeeper.rpc.contract.messages import FileRequest
from bookkeeper.rpc.contract.services import TServer
from bookkeeper.runtime.threads import BackgroundThread, Die
from bookkeeper.storage.replicas.file_checks import is_sound
from bookkeeper.storage.replicas.incoming_files import IncomingFiles
from bookkeeper.storage.replicas.manifest import HeldFile
from bookkeeper.tserver.replicas.disk_room import DiskRoom
from bookkeeper.tserver.replicas.held_replica import HeldReplica
from bookkeeper.tserver.replicas.held_replicas import HeldReplicas
from bookkeeper.tserver.replicas.wire_forms import own_placement

LOG = logging.getLogger(__name__)

Resolve = Callable[[CorruptionError, float], None]
"""Deals with damage that the work on a tablet has met, see :meth:`FileRepair.resolve`."""

FindHost = Callable[[Target], TServer | None]
"""Calls to the host of a placement; None while no live process holds its disk. Raises TransientError."""

TICK_MS = 1_000
"""ms between two tries to get a file."""


def sources(replica: Replica) -> list[Target]:
    """The hosts to ask for a file, the leader first: it must not count on this copy for the name of a state."""
    return sorted(replica.targets, key=lambda target: (target.host != replica.leader, target.host))


def unresolved(error: CorruptionError, patience_ms: float) -> None:
    """Where another process holds the replicas: raises the error."""
    del patience_ms
    raise error


def unmarked(error: CorruptionError) -> bool:
    """Where another process holds the replicas: nothing is marked."""
    del error
    return False


def file_of(error: CorruptionError) -> str | None:
    """The file that an error names."""
    found = error.details.get("name", error.details.get("file"))
    return found if isinstance(found, str) else None


class RepairCounts(Struct, frozen=True):
    """Files since the start of the process."""

    damaged: int = 0
    mended: int = 0
    bytes: int = 0


class FileRepair:
    """Thread-safe; files are got in a thread of its own, one at a time."""

    def __init__(
        self,
        replicas: HeldReplicas,
        incoming: IncomingFiles,
        find_host: FindHost,
        room: DiskRoom,
        clock: Clock,
        die: Die,
    ) -> None:
        self._replicas = replicas
        self._incoming = incoming
        self._find_host = find_host
        self._room = room
        self._lock = threading.Lock()
        self._mended = threading.Condition(self._lock)
        self._counts = RepairCounts()
        self._told: set[str] = set()
        """Damaged files of which the log says why they can't be got."""
        self._look_is_due = True
        """Whether the sizes of all files are to be looked up."""
        self._thread = BackgroundThread("file-repair", clock, die)

    # ---- finding

    def suspect(self, name: str) -> bool:
        """Compare a file with its checksum, and mark it when it differs. Returns whether it is damaged. Raises
        UnavailableError when it can't be compared, and the errors of :meth:`HeldReplica.apply`.
        """
        held = self._replicas.holder_of(name)
        if held is None:
            return False
        if name in held.replica.damaged:
            return True
        file = held.manifest.files.get(name)
        if file is None or self._is_intact(file):
            return False
        self._look_is_due |= self._is_gone(file)
        held.apply(FilesDamaged((name,)))
        if name not in held.replica.damaged:
            return False  # the replica let the file go meanwhile
        with self._lock:
            self._counts = RepairCounts(self._counts.damaged + 1, self._counts.mended, self._counts.bytes)
        LOG.error("%s of this host is damaged: it counts as not held until another host has sent it", name)
        self._thread.wake()
        return True

    def _is_intact(self, file: HeldFile) -> bool:
        try:
            return is_sound(self._replicas.store.volume, file)
        except OSError as error:
            raise unavailable(f"{file.name} of this host can't be compared with its checksum", error) from error

    def _is_gone(self, file: HeldFile) -> bool:
        """Whether there is no file of this name and size."""
        try:
            return self._replicas.store.volume.size(file.name) != file.size_bytes
        except FileNotFoundError:
            return True
        except OSError as error:
            LOG.warning("the size of %s can't be looked up: %s", file.name, error)
            return False

    def look_for_gone(self) -> None:
        """Mark the files that are gone or cut: one ``stat`` of each. Errors are logged."""
        for held in self._replicas.all():
            for name in sorted(held.replica.files):
                file = held.manifest.sound.get(name)
                if file is None or not self._is_gone(file):
                    continue
                try:
                    self.suspect(name)
                except BookkeeperError as error:
                    LOG.warning("%s", error.message)

    def suspect_named(self, error: CorruptionError) -> bool:
        """:meth:`suspect` for the file that an error names; False, with a line in the log, if it can't be compared."""
        name = file_of(error)
        try:
            return name is not None and self.suspect(name)
        except BookkeeperError as problem:
            LOG.warning("%s", problem.message)
            return False

    def resolve(self, error: CorruptionError, patience_ms: float) -> None:
        """Return when the file that an error names has been replaced by a sound copy: then the work may be done again.
        Waits up to ``patience_ms`` for that, and raises UnavailableError while the file is damaged. Raises the error
        itself when it is of no file of a replica here, or the file has its checksum.
        """
        name = file_of(error)
        if name is None or not self.suspect(name):
            raise error
        with self._mended:
            if self._mended.wait_for(lambda: not self._is_damaged(name), patience_ms / 1000):
                return
        raise UnavailableError(f"{name} of this host is damaged, and another host is asked for it: try again")

    @property
    def unobtainable(self) -> frozenset[str]:
        """Damaged files that no other host has sent."""
        return frozenset(self._told)

    def _is_damaged(self, name: str) -> bool:
        held = self._replicas.holder_of(name)
        return held is not None and name in held.replica.damaged

    # ---- mending

    def run_once(self) -> None:
        """Try to get each damaged file once. Errors are logged."""
        if self._look_is_due:
            self._look_is_due = False
            self.look_for_gone()
        damaged = [(held, name) for held in self._replicas.all() for name in sorted(held.replica.damaged)]
        self._told &= {name for _, name in damaged}
        for held, name in damaged:
            if self._thread.closing.is_set():
                return
            try:
                problem = self._mend(held, name)
            except BookkeeperError as error:
                problem = error.message
            if problem and name not in self._told:
                self._told.add(name)
                LOG.warning("%s is damaged, and no other host has sent it yet: %s", name, problem)
            with self._mended:
                self._mended.notify_all()

    def _mend(self, held: HeldReplica, name: str) -> str:
        """Get a file from the first host that has it; returns why none has sent it. Raises UnavailableError."""
        file = held.manifest.files.get(name)
        if file is None:
            return ""
        problems = []
        if name not in self._told and self._is_intact(file):  # a person has put a copy back
            held.mend(name, lambda: None)
            return ""
        for target in sources(held.replica):
            try:
                host = self._find_host(target)
                if host is None:
                    problems.append(f"{target.host} is away")
                    continue
                self._get(host, held, file)
            except (BookkeeperError, OSError) as error:
                problems.append(f"{target.host}: {error}")
                continue
            LOG.info("%s is sound again, with a copy of host %s", name, target.host)
            return ""
        return "; ".join(problems) or "the tablet has no other replica; restore the file from a copy"

    def _get(self, host: TServer, held: HeldReplica, file: HeldFile) -> None:
        part = self._incoming.take(file)
        try:
            self._check_room(file.size_bytes - part.held_bytes)
            part.settle()
            while not part.is_complete:
                part.append(part.held_bytes, self._content(host, held, file, part.held_bytes))
            if held.mend(file.name, lambda: self._incoming.publish([part])):
                with self._lock:
                    counts = self._counts
                    self._counts = RepairCounts(counts.damaged, counts.mended + 1, counts.bytes + file.size_bytes)
            else:
                part.discard()
        finally:
            self._incoming.give_back(part)

    def _check_room(self, wanted: int) -> None:
        refusal = self._room.refusal(wanted)
        if refusal:
            raise UnavailableError(f"on this host {refusal}")

    def _content(self, host: TServer, held: HeldReplica, file: HeldFile, start: int) -> bytes:
        content = host.replica_content(
            FileRequest(
                held.key.table_id,
                held.key.directory,
                own_placement(held.replica),
                file.name,
                file.size_bytes,
                file.crc32c,
                start,
            )
        )
        if not content:
            raise CorruptionError(f"the copy of {file.name} ends at byte {start} of {file.size_bytes}")
        return content

    # ---- for operators

    def status(self) -> Mapping[str, str]:
        """Files found damaged and replaced since the start."""
        counts = self._counts
        return {
            "files_found_damaged": str(counts.damaged),
            "files_mended": str(counts.mended),
            "file_bytes_mended": str(counts.bytes),
        }

    # ---- the thread

    def start(self) -> None:
        """Begin to get damaged files."""
        self._thread.start(self.run_once, TICK_MS)

    def close(self) -> None:
        """End the thread. Bytes that have come stay for the next process."""
        self._thread.close()
