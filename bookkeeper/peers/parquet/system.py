"""The replica system ``parquet``: the identity of a directory, and the files of a message.

Arrives: messages of one stream. Leaves: files (see ``layout``), and an acknowledgement when they are durable. The files
survive a crash. A session remembers only the offset up to which it has seen its stream; another session, in any
process, sees the same files. Rules: R18, R19, R20 and R23.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Sequence

from msgspec import Struct, field

from bookkeeper.clock import Clock, SystemClock
from bookkeeper.errors import (
    CorruptionError,
    GapError,
    IncompatibleError,
    OtherInstanceError,
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
"""ms after which a temporary file has no writer any more: writing one takes seconds."""


class DirectoryIdentity(Struct, frozen=True):
    """The identity file of a directory, written once. ``one_block``: each file has one block (see ``layout``)."""

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


class ParquetSystem(Struct):
    """See :class:`bookkeeper.peers.protocol.InstalledSystem`. Quorum: an absolute path, or a URI of ``pyarrow.fs``."""

    clock: Clock = field(default_factory=SystemClock)
    opener: Callable[[str, FileRoots], Store] = open_store
    name: str = "parquet"
    roots: FileRoots = field(default_factory=FileRoots)
    """Empty until :meth:`use_roots`."""

    def use_roots(self, roots: FileRoots) -> None:
        """See :class:`bookkeeper.peers.extensions.FileSystemPeer`."""
        self.roots = roots

    def prepare(self, quorum: str) -> Identity:
        """The identity of the directory; a new or empty one becomes a peer. Raises RefusedError for any other."""
        store = self.opener(quorum, self.roots)
        if store.read(IDENTITY_FILE) is None:
            refuse_foreign(quorum, store.names(""))
            store.prepare()
            made = DirectoryIdentity(str(uuid.uuid4()), one_block=not store.exclusive)
            store.create(IDENTITY_FILE, made.encode())
        return self.identify(quorum)

    def identify(self, quorum: str) -> Identity:
        """The identity of the directory. Raises UnavailableError when it has none: it is another directory then."""
        return Identity(read_identity(self.opener(quorum, self.roots), quorum).instance_id, "parquet")

    def resolve_table(self, peer: Peer, name: str) -> str:  # noqa: ARG002 - the protocol's
        """The name itself; raises InvalidInputError for one that can't be part of a path."""
        return layout.check_table(name)

    def stream_done(self, peer: Peer, streams: Sequence[StreamKey]) -> None:  # noqa: ARG002 - the protocol's
        """The files stay, so a late message finds its file name taken (R20). Deletes the temporary files of crashes."""
        self.opener(peer.quorum, self.roots).sweep(self.clock.wall_ms() - LEFTOVER_AGE_MS)

    def open(self, peer: Peer, stream: StreamKey, limits: RetryLimits) -> ParquetSession:  # noqa: ARG002 - the protocol's
        """A session on the directory; raises OtherInstanceError when it is another one (R23), UnavailableError without
        it.
        """
        layout.check_table(stream.target_table_id)
        store = self.opener(peer.quorum, self.roots)
        identity = read_identity(store, peer.quorum)
        if identity.instance_id != peer.instance_id:
            raise OtherInstanceError(
                f"parquet://{peer.quorum} is {identity.instance_id}, and {peer.cluster} was defined as "
                f"{peer.instance_id}; delete the cluster and define it again if it was replaced on purpose"
            )
        if not (identity.one_block or store.exclusive):
            raise IncompatibleError(
                f"parquet://{peer.quorum} was made where names are exclusive, and is reached here where they are not: "
                "use the spelling with which it was defined first"
            )
        return ParquetSession(store, peer, stream, identity.one_block)


def refuse_foreign(quorum: str, names: Sequence[str]) -> None:
    """Raise RefusedError unless a directory is empty, or has only the files of an unfinished :meth:`prepare`."""
    others = sorted(name for name in names if not name.startswith(("_", ".")))
    if others:
        raise RefusedError(
            f"parquet://{quorum} holds {', '.join(others[:3])} and is no peer: name a new or an empty directory"
        )


def read_identity(store: Store, quorum: str) -> DirectoryIdentity:
    """The identity of a directory. Raises UnavailableError without its file: the filesystem may not be mounted."""
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


class ParquetSession(Struct):
    """One stream on its way into the directory.

    All records for the target up to ``covered_offset`` are in files. ``has_read_files``: this session read or made
    them. Then the next block, if it is there, has a file of its own name. A fact beyond ``covered_offset`` means that
    other sessions wrote, and one of them may have put the next block into a file with earlier ones: this session reads
    the directory again.
    """

    store: Store
    peer: Peer
    stream: StreamKey
    one_block: bool
    covered_offset: int = 0
    has_read_files: bool = False
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
        while parts := [part for part in parts if part.block.last_offset > self.covered_offset]:
            applied += self._add_next(parts, message.to_offset)
        self.covered_offset = max(self.covered_offset, message.to_offset)
        return Acked(message.to_offset, applied, total - applied)

    def close(self) -> None:
        """See the protocol; there is nothing to release."""

    def _take_fact(self, acked_offset: int) -> None:
        if acked_offset > self.covered_offset:
            self.covered_offset, self.has_read_files = acked_offset, False

    def _check_claim(self, after_offset: int) -> None:
        """Rule R19: the records between the fact and the claim must be there."""
        if after_offset > self.covered_offset:
            self.covered_offset = max(self.covered_offset, self._high_water())
        if after_offset > self.covered_offset:
            raise GapError(
                f"parquet://{self.peer.quorum} has {self.stream.file} up to {self.covered_offset}, the message begins "
                f"behind {after_offset}",
                {"high_water": str(self.covered_offset)},
            )

    def _add_next(self, parts: Sequence[Part], to_offset: int) -> int:
        """One step: read the directory, or add the next file, or find that another session did; returns the records
        added.
        """
        run = layout.first_run(parts, to_offset, self.one_block)
        directory = layout.stream_directory(self.stream, run.day)
        if not self.has_read_files:
            self.covered_offset, self.has_read_files = max(self.covered_offset, self._covered(directory)), True
            return 0
        path = f"{directory}/{layout.file_name(run.first)}"
        if self.store.create(path, records.encode_run(self.stream, run)):
            self.covered_offset = run.to_offset
            return run.records
        covered = records.covered_to(self.store.metadata(path), self.stream, path)
        if covered < run.parts[0].block.last_offset:
            raise CorruptionError(f"{path} ends within a block, at offset {covered}: it can't be of this log")
        self.covered_offset = covered
        return 0

    def _covered(self, directory: str) -> int:
        """The offset up to which the files in a directory of this stream reach; 0 without files."""
        last = layout.last_file(self.store.names(directory))
        if last is None:
            return 0
        path = f"{directory}/{last}"
        return records.covered_to(self.store.metadata(path), self.stream, path)

    def _high_water(self) -> int:
        """The offset up to which the files of this stream reach, over all days."""
        days = self.store.names(layout.table_directory(self.stream.target_table_id))
        found = [day.removeprefix("day=") for day in days if day.startswith("day=")]
        return max((self._covered(layout.stream_directory(self.stream, day)) for day in found), default=0)


def refuse_loop(peer: Peer, message: Message) -> None:
    """Loop rule: data that has been at the peer never goes there again."""
    if peer.instance_id in message.provenance:
        raise RefusedError(f"{peer.cluster} ({peer.instance_id}) declines data that has been there already")
