"""A process that owns a log, for tests that stop or kill it: ``python -m tests.support.wal_child DIRECTORY MODE``.

Prints one line for each acknowledged write: URI, offset, row. Modes: ``load`` writes for ever from four threads and
rolls often; ``stop-at-fence`` and ``stop-at-books`` write two rows and stop themselves on the way of the second, after
its sync or before it is written.
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from bookkeeper.clock import SystemClock
from bookkeeper.storage.wal.blocks.block import Block, PlacedBlock
from bookkeeper.storage.wal.blocks.block_pb2 import FileHeader
from bookkeeper.storage.wal.writing.seal import Seal
from bookkeeper.storage.wal.writing.wal_writer import WalWriter
from bookkeeper.tserver.commit.commit_limits import CommitLimits
from bookkeeper.tserver.commit.group_committer import GroupCommitter
from bookkeeper.tserver.commit.submission import Durability
from tests.support.volumes import MACHINE, name_at
from tests.support.wal_commits import Journal, Sequences, Write


class Loud(Write):
    """Answers with the place of its only row."""

    def applied(self, blocks: list[PlacedBlock]) -> object:
        Write.applied(self, blocks)
        return f"{blocks[0].wal_name} {blocks[0].first_offset} {self.rows[0].decode()}"


class Owner:
    """Listener and fence of the child; stops the process where the mode says, once it has acknowledged a row."""

    def __init__(self, directory: Path, mode: str, limits: CommitLimits) -> None:
        self._mode = mode
        self._numbers = itertools.count(1)
        self._directory = directory
        self.acknowledged = False
        self.journal = Journal()
        self.sequences = Sequences()
        self.committer = GroupCommitter(self._open, self, self._fence, SystemClock(), limits)

    def write(self, row: bytes, durability: Durability) -> None:
        answer = self.committer.submit(Loud(self.journal, self.sequences, [row], durability)).result()
        os.write(sys.stdout.fileno(), f"{answer}\n".encode())
        self.acknowledged = True

    def before_append(self, wal_name: str, blocks: Sequence[Block]) -> None:
        del wal_name, blocks
        self._stop_at("stop-at-books")

    def synced(self, wal_name: str, offset: int, position: int) -> None:
        """Keeps no books."""

    def answered(self) -> None:
        """See the protocol."""

    def may_begin_log(self) -> bool:
        """Keeps no books."""
        return True

    def rolled(self, wal_name: str, seal: Seal) -> None:
        """Keeps no books."""

    def _fence(self) -> None:
        self._stop_at("stop-at-fence")

    def _stop_at(self, mode: str) -> None:
        if self.acknowledged and mode == self._mode:
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)

    def _open(self) -> WalWriter:
        path = self._directory / f"{next(self._numbers)}.wal"
        return WalWriter.create(MACHINE, name_at(path), FileHeader(instance_id="west", session_id="child"))


def load(owner: Owner) -> None:
    """Four writers without end."""

    def writer(number: int) -> None:
        chance = random.Random(number)
        for index in itertools.count():
            owner.journal.events.clear()
            row = f"{number}-{index}-{'x' * chance.randrange(3000)}"
            owner.write(row.encode(), chance.choice([Durability.SYNC, Durability.FLUSH]))

    threads = [threading.Thread(target=writer, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def main() -> None:
    directory, mode = Path(sys.argv[1]), sys.argv[2]
    owner = Owner(directory, mode, CommitLimits(wal_roll_bytes=1 << 18))
    if mode == "load":
        load(owner)
    owner.write(b"first", Durability.SYNC)
    owner.write(b"second", Durability.SYNC)


if __name__ == "__main__":
    main()
