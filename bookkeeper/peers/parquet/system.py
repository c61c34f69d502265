"""The replica system ``parquet`` itself: who the directory is, and how a message becomes files in it.

Arrives: messages of one stream. Leaves: files (see ``layout``), an acknowledgement when they are durable. Survives a
crash: the files. A session remembers only up to where it has seen its stream; another session, here or anywhere, sees
the same files. Rules: R18, R19, R20 and R23.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from bookkeeper.clock import Clock, SystemClock
from bookkeeper.errors import (
    CorruptionError,
    GapError,
    IncompatibleError,
    RefusedError,
    UnavailableError,
)
from bookkeeper.model import StreamKey
from bookkeeper.peers.parquet import layout, records
from bookkeeper.peers.parquet.file_store import Store, open_store
from bookkeeper.peers.parquet.layout import IDENTITY_FILE, Part
from bookkeeper.peers.protocol import Acked, Identity, Message, Peer, RetryLimits
from bookkeeper.security.file_roots import FileRoots

IDENTITY_FORMAT = 1
LEFTOVER_AGE_MS = 3_600_000
"""ms after which a temporary file is nobody's: writing one takes seconds."""


@dataclass(frozen=True, slots=True)
class DirectoryIdentity:
    """What is written into a directory once. ``one_block``: each file holds one block (see ``layout``)."""

    instance_id: str
    one_block: bool

    def encode(self) -> bytes:
        """The content of the identity file."""
        fields = {
            "files": "blocks" if self.one_block else "runs",
            "format": IDENTITY_FORMAT,
            "instance_id": self.instance_id,
        }
        return json.dumps(fields, sort_keys=True).encode() + b"\n"


@dataclass(slots=True)
class ParquetSystem:
    """See :class:`bookkeeper.peers.protocol.InstalledSystem`. Quorum: an absolute path, or a URI of ``pyarrow.fs``."""

    clock: Clock = field(default_factory=SystemClock)
    opener: Callable[[str, FileRoots], Store] = open_store
    name: str = "parquet"
    roots: FileRoots = field(default_factory=FileRoots)
    """None, until :meth:`use_roots` names some."""

    def use_roots(self, roots: FileRoots) -> None:
        """See :class:`bookkeeper.peers.extensions.FileSystemPeer`."""
        self.roots = roots

    def prepare(self, quorum: str) -> Identity:
        """Who the directory is; one that is new or empty becomes a peer. Raises RefusedError for any other."""
        store = self.opener(quorum, self.roots)
        if store.read(IDENTITY_FILE) is None:
            refuse_foreign(quorum, store.names(""))
            store.prepare()
            made = DirectoryIdentity(str(uuid.uuid4()), one_block=not store.exclusive)
            store.create(IDENTITY_FILE, made.encode())
        return self.identify(quorum)

    def identify(self, quorum: str) -> Identity:
        """Who the directory is. Raises UnavailableError when it does not say so: it is not the one that was defined."""
        return Identity(read_identity(self.opener(quorum, self.roots), quorum).instance_id, "parquet")

    def resolve_table(self, peer: Peer, name: str) -> str:  # noqa: ARG002 - the protocol's
        """The name itself; raises InvalidInputError for one that can't be part of a path."""
        return layout.check_table(name)

    def stream_done(self, peer: Peer, streams: Sequence[StreamKey]) -> None:  # noqa: ARG002 - the protocol's
        """Nothing is forgotten, because files stay: a message that comes late finds its name taken (R20).

        A good moment to delete what crashes left.
        """
        self.opener(peer.quorum, self.roots).sweep(self.clock.wall_ms() - LEFTOVER_AGE_MS)

    def open(self, peer: Peer, stream: StreamKey, limits: RetryLimits) -> ParquetSession:  # noqa: ARG002 - the protocol's
        """A session on the directory; raises RefusedError when it is another one (R23), UnavailableError without it."""
        layout.check_table(stream.target_table_id)
        store = self.opener(peer.quorum, self.roots)
        identity = read_identity(store, peer.quorum)
        if identity.instance_id != peer.instance_id:
            raise RefusedError(
                f"parquet://{peer.quorum} is {identity.instance_id}, and {peer.cluster} was defined as "
                f"{peer.instance_id}; delete the cluster and define it again if that is meant"
            )
        if not (identity.one_block or store.exclusive):
            raise IncompatibleError(
                f"parquet://{peer.quorum} was made where names are exclusive, and is reached here where they are not: "
                "use the spelling with which it was defined first"
            )
        return ParquetSession(store, peer, stream, identity.one_block)


def refuse_foreign(quorum: str, names: Sequence[str]) -> None:
    """Raise RefusedError unless a directory holds nothing but what the beginning of a peer leaves."""
    others = sorted(name for name in names if not name.startswith(("_", ".")))
    if others:
        raise RefusedError(
            f"parquet://{quorum} holds {', '.join(others[:3])} and is no peer: name a new or an empty directory"
        )


def read_identity(store: Store, quorum: str) -> DirectoryIdentity:
    """Who a directory is. Raises UnavailableError without the file: its filesystem may not be mounted here."""
    raw = store.read(IDENTITY_FILE)
    if raw is None:
        raise UnavailableError(
            f"parquet://{quorum} has no {IDENTITY_FILE}: the directory is gone, not mounted here, or was emptied or "
            "replaced; bring back the one that was defined, or give it up: disablereplication, deletecluster, and "
            "definecluster for a new one"
        )
    try:
        fields = json.loads(raw)
        if fields["format"] > IDENTITY_FORMAT:
            raise IncompatibleError(f"parquet://{quorum} has format {fields['format']}: upgrade this side")
        return DirectoryIdentity(str(fields["instance_id"]), {"blocks": True, "runs": False}[fields["files"]])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CorruptionError(f"{IDENTITY_FILE} of parquet://{quorum} does not parse: {raw[:80]!r}") from error


@dataclass(slots=True)
class ParquetSession:
    """One stream on its way into the directory.

    ``known``: everything wanted up to there is in files. ``seen`` tells whether that is so by files that this session
    saw or made: then nobody can have put the next block anywhere but under its own name. A fact that reaches further
    than ``known`` says that others were at work, who may have put the next block into a file with earlier ones: the
    directory is looked at again.
    """

    store: Store
    peer: Peer
    stream: StreamKey
    one_block: bool
    known: int = 0
    seen: bool = False
    sends: int = 0

    def ship(self, message: Message) -> Acked:
        """See :class:`bookkeeper.peers.protocol.ReplicaSession`."""
        refuse_loop(self.peer, message)
        parts = layout.parts_of(message)
        self._take_fact(message.acked_offset)
        self._check_claim(message.after_offset)
        self.sends += 1
        total = sum(part.block.record_count for part in parts)
        applied = 0
        while parts := [part for part in parts if part.block.last_offset > self.known]:
            applied += self._add_next(parts, message.to_offset)
        self.known = max(self.known, message.to_offset)
        return Acked(message.to_offset, applied, total - applied)

    def close(self) -> None:
        """See the protocol; nothing is held."""

    def _take_fact(self, acked_offset: int) -> None:
        if acked_offset > self.known:
            self.known, self.seen = acked_offset, False

    def _check_claim(self, after_offset: int) -> None:
        """Rule R19: what lies between the fact and the claim must be there."""
        if after_offset > self.known:
            self.known = max(self.known, self._high_water())
        if after_offset > self.known:
            raise GapError(
                f"parquet://{self.peer.quorum} has {self.stream.file} up to {self.known}, the message begins behind "
                f"{after_offset}",
                {"high_water": str(self.known)},
            )

    def _add_next(self, parts: Sequence[Part], to_offset: int) -> int:
        """One step: look at what is there, or add the next file, or learn that somebody else did; records added."""
        run = layout.first_run(parts, to_offset, self.one_block)
        directory = layout.stream_directory(self.stream, run.day)
        if not self.seen:
            self.known, self.seen = max(self.known, self._covered(directory)), True
            return 0
        path = f"{directory}/{layout.file_name(run.first)}"
        if self.store.create(path, records.encode_run(self.stream, run)):
            self.known = run.to_offset
            return run.records
        covered = records.covered_to(self.store.metadata(path), self.stream, path)
        if covered < run.parts[0].block.last_offset:
            raise CorruptionError(f"{path} ends within a block, at offset {covered}: it can't be of this log")
        self.known = covered
        return 0

    def _covered(self, directory: str) -> int:
        """Up to where the files in a directory of this stream reach; 0 when there are none."""
        last = layout.last_file(self.store.names(directory))
        if last is None:
            return 0
        path = f"{directory}/{last}"
        return records.covered_to(self.store.metadata(path), self.stream, path)

    def _high_water(self) -> int:
        """Up to where all files of this stream reach, whatever their day."""
        days = self.store.names(layout.table_directory(self.stream.target_table_id))
        found = [day.removeprefix("day=") for day in days if day.startswith("day=")]
        return max((self._covered(layout.stream_directory(self.stream, day)) for day in found), default=0)


def refuse_loop(peer: Peer, message: Message) -> None:
    """Loop rule: what has been at the peer never goes there again."""
    if peer.instance_id in message.provenance:
        raise RefusedError(f"{peer.cluster} ({peer.instance_id}) declines what has been there already")
