"""Several senders of one stream at once, zombies among them, that die anywhere: schedules for a ``parquet`` peer.

A source file is a list of blocks, some of them wanted. Books hold what was acknowledged. Each sender ships ranges from
what the books said at some time on, cut as it likes, through a session that it keeps or not. Wherever a store touches
its directory, the schedule may let another sender run, or the current one die. After each such touch a reader looks:
what it sees must be a beginning of what is wanted, each record once.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from bookkeeper.model import StreamKey
from bookkeeper.peers.parquet import ParquetSystem
from bookkeeper.peers.parquet.file_store import LocalStore, RemoteStore, Store
from bookkeeper.peers.protocol import BlockFacts, Message, MessageBlock, Peer, ReplicaSession
from bookkeeper.security.file_roots import ANYWHERE, FileRoots
from bookkeeper.storage.volume.file_ops import FileOps
from bookkeeper.storage.wal.blocks.block import encode_batch
from tests.support.directory_peer import remote_twin
from tests.support.wal_files import WEST, records

STREAM = StreamKey(WEST, "w", "1", "cities", 1)
DAY_MS = 86_400_000
DEPTH_MAX = 3
"""Senders that run within each other's touches."""


class SenderDiedError(Exception):
    """The process of a sender ended here."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A block that the target wants."""

    block: MessageBlock
    facts: BlockFacts


def source_block(first: int, size: int, last: int, write_time_ms: int) -> Wanted:
    """A block of ``size`` records; with a ``last`` beyond them, its other records were filtered away."""
    rows = [b"%06d" % offset for offset in range(first, first + size)]
    positions = None if first + size - 1 == last else pa.array(range(size), pa.uint64())
    return Wanted(
        MessageBlock(first, last, encode_batch(records(rows)), size, rows[0], rows[-1]),
        BlockFacts(write_time_ms, first, positions),
    )


def random_source(rng: random.Random, blocks: int) -> list[Wanted]:
    """Blocks with unwanted records between them, over a few days that mostly go on."""
    found: list[Wanted] = []
    offset, day = 0, 20_000
    for _ in range(blocks):
        offset += rng.choice([0, 0, 0, 1, 4])
        size, filtered = rng.randint(1, 3), rng.choice([0, 0, 2])
        day += rng.choice([0, 0, 0, 1, -1])
        last = offset + size + filtered
        found.append(source_block(offset + 1, size, last, day * DAY_MS + rng.randrange(DAY_MS)))
        offset = last
    return found


@dataclass(slots=True)
class Schedule:
    """One schedule over one directory."""

    root: Path
    rng: random.Random
    remote: bool
    source: Sequence[Wanted] = ()
    peer: Peer = field(init=False)
    finished: int = 0
    depth: int = 0
    steps: int = 0
    touches: int = 0
    deaths: int = 0
    _sessions: list[ReplicaSession] = field(default_factory=list)
    _read: dict[tuple[int, int, str], list[int]] = field(default_factory=dict)
    _known: list[int] = field(default_factory=lambda: [0])

    def __post_init__(self) -> None:
        self.source = self.source or random_source(self.rng, 12)
        identity = ParquetSystem(opener=self._plain, roots=ANYWHERE).prepare(str(self.root))
        self.peer = Peer("lake", str(self.root), identity.instance_id)

    def run(self, steps: int) -> None:
        """Let senders run, then one that does not die ship the rest; look at the end once more."""
        self.steps = steps
        while self.steps > 0:
            self._step()
        session = self._open()
        session.ship(self._message(self.finished, self._end))
        self.finished = self._end
        self.look()

    def look(self) -> None:
        """Check that a reader sees a prefix of the records, each once."""
        found = sorted(offset for path in self._files() for offset in self._offsets_in(path))
        wanted = [offset for part in self.source for offset in self._offsets(part)]
        assert found == wanted[: len(found)], "a reader sees a record twice, or misses one in the middle"
        acknowledged = [offset for offset in wanted if offset <= self.finished]
        assert len(found) >= len(acknowledged), "what was acknowledged is not there"

    def _files(self) -> list[str]:
        return [str(path) for path in self.root.glob("table_name=*/day=*/stream=*/*.parquet")]

    def _offsets_in(self, path: str) -> list[int]:
        status = Path(path).stat()
        key = (status.st_ino, status.st_mtime_ns, path)
        if key not in self._read:
            self._read[key] = pq.ParquetFile(path).read(["_offset"]).column("_offset").to_pylist()
        return self._read[key]

    @property
    def _end(self) -> int:
        return self.source[-1].block.last_offset

    def _step(self) -> None:
        self.steps -= 1
        finished = self.rng.choice(self._known) if self.rng.random() < 0.5 else self.finished
        ends = [part.block.last_offset for part in self.source if part.block.last_offset > finished]
        if not ends:
            return
        to_offset = self.rng.choice(ends[:6])
        kept = bool(self._sessions) and self.rng.random() < 0.5
        session = self.rng.choice(self._sessions) if kept else self._open()
        self.depth += 1
        try:
            session.ship(self._message(finished, to_offset))
        except SenderDiedError:
            self.deaths += 1
            if session in self._sessions:
                self._sessions.remove(session)
            return
        finally:
            self.depth -= 1
        self.finished = max(self.finished, to_offset)
        self._known.append(to_offset)
        if session not in self._sessions:
            self._sessions.append(session)
        self.look()

    def _message(self, finished: int, to_offset: int) -> Message:
        parts = [part for part in self.source if finished < part.block.last_offset <= to_offset]
        blocks, facts = tuple(part.block for part in parts), tuple(part.facts for part in parts)
        return Message((WEST,), finished, finished, to_offset, blocks, facts)

    def _offsets(self, part: Wanted) -> range:
        return range(part.block.first_offset, part.block.first_offset + part.block.record_count)

    def _open(self) -> ReplicaSession:
        return ParquetSystem(opener=self._hooked, roots=ANYWHERE).open(self.peer, STREAM, None)  # type: ignore[arg-type]

    def _plain(self, quorum: str, roots: FileRoots) -> Store:
        roots.resolve(Path(quorum))
        return remote_twin(quorum) if self.remote else LocalStore(Path(quorum))

    def _hooked(self, quorum: str, roots: FileRoots) -> Store:
        roots.resolve(Path(quorum))
        if self.remote:
            return HookedRemote(remote_twin(quorum).filesystem, "", hook=self.touch)
        return LocalStore(Path(quorum), HookedOps(self.touch))

    def touch(self) -> None:
        """Called before and after each touch of the directory by a sender."""
        self.touches += 1
        self.look()
        if self.depth == 0:
            return
        if self.rng.random() < 0.03:
            raise SenderDiedError
        if self.depth < DEPTH_MAX and self.steps > 0 and self.rng.random() < 0.1:
            self._step()


class HookedOps(FileOps):
    """The real calls, with the schedule before and after each that others can notice."""

    def __init__(self, hook: Callable[[], None]) -> None:
        self.hook = hook

    def link(self, source: Path, target: Path) -> None:
        self.hook()
        super().link(source, target)
        self.hook()

    def fsync(self, fd: int) -> None:
        self.hook()
        super().fsync(fd)


class HookedRemote(RemoteStore, frozen=True):
    """The real store, with the schedule around what others can notice."""

    hook: Callable[[], None] = lambda: None

    def names(self, directory: str) -> list[str]:
        found = RemoteStore.names(self, directory)
        self.hook()
        return found

    def create(self, path: str, content: pa.Buffer | bytes) -> bool:
        self.hook()
        created = RemoteStore.create(self, path, content)
        self.hook()
        return created

    def _is_there(self, path: str) -> bool:
        found = RemoteStore._is_there(self, path)
        self.hook()
        return found
