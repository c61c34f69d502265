"""One replica on this host: its manifest, and the lock under which it changes.

Each event goes through ``decide`` of the machine. The next manifest is durable before the decision is returned, so a
host never says or does a thing that it may forget. An event that can't be saved has not happened.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence

from msgspec.structs import replace

from bookkeeper.errors import NotServingError
from bookkeeper.model import Extent
from bookkeeper.replicas.chain import files_of
from bookkeeper.replicas.events import Collect, ContentArrived, Event, FilesMended
from bookkeeper.replicas.instructions import Answer, Decision, Delete
from bookkeeper.replicas.machine import decide
from bookkeeper.replicas.messages import Ack
from bookkeeper.replicas.rules import CORRECTED, Rules
from bookkeeper.replicas.splitting import divided
from bookkeeper.replicas.values import Placement, Replica, Segment
from bookkeeper.rpc.contract.messages import HeldReplicaInfo
from bookkeeper.storage.replicas.host_store import HostStore
from bookkeeper.storage.replicas.manifest import HeldFile, Manifest, ReplicaKey
from bookkeeper.storage.replicas.manifest_codec import durable_part
from bookkeeper.tserver.replicas.wire_forms import replica_info

NamesInUse = Callable[[], Collection[str]]
"""The files that readers use now or may use next."""


class HeldReplica:
    """Thread-safe."""

    def __init__(self, store: HostStore, manifest: Manifest, rules: Rules = CORRECTED) -> None:
        """``manifest``: as the disk has it."""
        self._store = store
        self._rules = rules
        self._lock = threading.Lock()
        self._manifest = manifest
        self._readers: list[NamesInUse] = []
        self._confirmed: tuple[int, int] | None = None
        self._info: tuple[Manifest, HeldReplicaInfo] | None = None
        self._is_gone = False
        self._is_unsure = False

    # ---- facts

    @property
    def key(self) -> ReplicaKey:
        """The tablet, for as long as it lives."""
        return self._manifest.key

    @property
    def manifest(self) -> Manifest:
        """All of it at this moment."""
        return self._manifest

    @property
    def extent(self) -> Extent:
        """The rows of the tablet."""
        return self._manifest.extent

    @property
    def replica(self) -> Replica:
        """The state of the machine at this moment."""
        return self._manifest.replica

    @property
    def placement(self) -> Placement:
        """Its placement, with the incarnation of this disk."""
        return self._manifest.replica.placement

    def root_files(self) -> tuple[HeldFile, ...]:
        """The files of its root's list."""
        manifest = self._manifest
        names = files_of(manifest.replica, manifest.replica.root, self._rules)
        return tuple(manifest.files[name] for name in names)

    @property
    def info(self) -> HeldReplicaInfo:
        """Its facts without its segments; made once for each change, because the master often asks for all replicas."""
        manifest, known = self._manifest, self._info
        if known is None or known[0] is not manifest:
            known = self._info = manifest, replica_info(manifest, with_segments=False)
        return known[1]

    def confirmed_ms(self, state_id: int) -> int:
        """Until when a state has every acknowledged write, as its leader said to this process; 0 = it said nothing."""
        confirmed = self._confirmed
        return confirmed[1] if confirmed is not None and confirmed[0] == state_id else 0

    def confirm(self, state_id: int, as_of_ms: int) -> None:
        """The leader says until when a state has every acknowledged write. Nothing of this is durable."""
        with self._lock:
            self._confirmed = (state_id, max(as_of_ms, self.confirmed_ms(state_id)))

    # ---- changes

    def apply(
        self, event: Event, files: Sequence[HeldFile] = (), states: Mapping[int, bytes] | None = None
    ) -> Decision:
        """Let an event happen. ``files``: facts about the durable files that it brings; ``states``: see
        :class:`Manifest`. The new manifest is durable on return.

        Raises ProtocolError where the state of the replica does not allow the event, NotServingError when the replica
        was removed, UnavailableError when the manifest can't be written; nothing has happened then.
        """
        with self._lock:
            return self._apply(event, files, states or {})

    def commit(
        self, event: ContentArrived, files: Sequence[HeldFile], state: bytes, publish: Callable[[], None]
    ) -> Decision:
        """Let the content of an accepted segment count. ``publish`` gives its files their names, durable on return,
        before the manifest lists them; it is not called when the segment no longer fits (P5). Raises as :meth:`apply`,
        and the errors of ``publish``.
        """
        with self._lock:
            _, decision = decide(self._replica_here(), event, self._rules)
            if not any(isinstance(one, Answer) and isinstance(one.reply, Ack) for one in decision):
                return self._apply(event, (), {})
            return self._apply(event, files, {event.segment_id: state}, publish)

    def collect(self, event: Collect) -> tuple[str, ...]:
        """Delete what the event allows (N4), except the files that readers use (P15). Returns their names. Raises as
        :meth:`apply`, and OSError with files left that the manifest no longer has.
        """
        with self._lock:
            in_use = self._names_in_use()
            self._settle()
            decision = self._apply(replace(event, read=event.read | in_use), (), {})
            gone = tuple(name for one in decision if isinstance(one, Delete) for name in one.files)
            self._store.volume.delete(gone)
            return gone

    def divide(self, state: Segment, raw: bytes, files: Sequence[HeldFile], link: Callable[[], None]) -> None:
        """Begin with the state that a split has given this tablet in the books (:func:`divided`). ``link`` gives the
        files of the parent their names here, durable on return. Raises as :meth:`apply`, and the errors of ``link``.
        """
        with self._lock:
            replica = divided(self._replica_here(), state, [file.name for file in files])
            link()
            known = {**self._manifest.files, **{file.name: file for file in files}}
            states = {**self._manifest.states, state.id: raw}
            self._save(replace(self._manifest, replica=replica, files=known, states=states))

    def placed(self, extent: Extent, change: Callable[[Replica], Replica]) -> None:
        """Note what the tablet's row says about this replica, such as its stage. Raises as :meth:`apply`."""
        with self._lock:
            known = self._manifest
            manifest = replace(known, extent=extent, replica=change(self._replica_here()))
            if manifest != known:
                self._save(manifest)

    def mend(self, name: str, publish: Callable[[], None]) -> bool:
        """Let a sound copy take the place of a damaged file. ``publish`` gives the copy the file's name, durable on
        return; it is not called, and the answer is False, when the file is not damaged any more or not needed. Raises
        as :meth:`apply`, and the errors of ``publish``.
        """
        with self._lock:
            if name not in self._replica_here().damaged:
                return False
            publish()
            self._apply(FilesMended((name,)), (), {})
            return True

    def remove(self) -> None:
        """Remove the replica from this host: first the manifest, then the files. No later event happens. Raises
        UnavailableError, OSError; it may be called again.
        """
        with self._lock:
            self._store.remove(self.key)
            self._is_gone = True
            self._store.volume.delete(self._store.volume.list_names(self.key.prefix))

    def delete_unlisted(self) -> tuple[str, ...]:
        """Delete the files in the tablet's directory that the manifest does not have, such as those of an interrupted
        compaction. Files that readers use stay, and all files of a leader, which may be writing some. Raises as
        :meth:`collect`.
        """
        with self._lock:
            replica = self._replica_here()
            if replica.is_leader:
                return ()
            self._settle()
            names = set(self._store.volume.list_names(self.key.prefix)) - replica.files - replica.damaged
            names -= {name for incoming in replica.incoming for name in incoming.segment.list}
            names -= self._names_in_use()
            gone = tuple(sorted(names))
            self._store.volume.delete(gone)
            return gone

    # ---- readers

    def add_reader(self, names_in_use: NamesInUse) -> None:
        """Keep the files that a reader names, whatever is collected (P15)."""
        with self._lock:
            self._readers = [*self._readers, names_in_use]

    def remove_reader(self, names_in_use: NamesInUse) -> None:
        """No longer ask a reader; an unknown one is fine."""
        with self._lock:
            self._readers = [reader for reader in self._readers if reader != names_in_use]

    def names_in_use(self) -> frozenset[str]:
        """The files that readers use now or may use next."""
        with self._lock:
            return self._names_in_use()

    # ---- inside, under the lock

    def _names_in_use(self) -> frozenset[str]:
        return frozenset(name for names_in_use in self._readers for name in names_in_use())

    def _replica_here(self) -> Replica:
        if self._is_gone:
            raise NotServingError(f"the replica of {self.key} was removed from this host: read the tablet's row again")
        return self._manifest.replica

    def _apply(
        self,
        event: Event,
        files: Sequence[HeldFile],
        states: Mapping[int, bytes],
        publish: Callable[[], None] | None = None,
    ) -> Decision:
        replica, decision = decide(self._replica_here(), event, self._rules)
        if replica is self._manifest.replica and not (files or states or publish):
            return decision
        known = {**self._manifest.files, **{file.name: file for file in files}}
        states = {**self._manifest.states, **states}
        self._save(replace(self._manifest, replica=replica, files=known, states=states), publish)
        return decision

    def _save(self, manifest: Manifest, publish: Callable[[], None] | None = None) -> None:
        """``publish`` None: no file has to be durable before. A change of memory alone needs no disk, so a full disk
        keeps no transfer from its end.
        """
        manifest = manifest.pruned()
        if publish is not None or _durable(manifest) != _durable(self._manifest):
            self._write(manifest, publish)
        self._manifest = manifest

    def _write(self, manifest: Manifest, publish: Callable[[], None] | None = None) -> None:
        self._is_unsure = True
        self._store.save(manifest, publish)
        self._is_unsure = False

    def _settle(self) -> None:
        """After a save that failed the disk may have that manifest: make it this one, before a file goes."""
        if self._is_unsure:
            self._write(self._manifest)


def _durable(manifest: Manifest) -> Manifest:
    return replace(manifest, replica=durable_part(manifest.replica))
