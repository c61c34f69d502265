"""`replicate_file`: the operation of an outstanding file; it persists the tserver that ships the file.

Arrives: planned ranges, complete files. Leaves: `~fate_` rows; the master's cycle drives them, because their steps are
ranges that change with every cycle. The next master continues with the same tserver. Ranges are idempotent.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

from msgspec import Struct, field

from bookkeeper.clock import Clock
from bookkeeper.master.cycle.assigner import WorkRange
from bookkeeper.master.fate.fate_store import FateRecord, FateStore
from bookkeeper.metadata.values import FateOp, FateStep

KIND = "replicate_file"
SHIPPING_STEP = "shipping"


class Chosen(Struct, frozen=True):
    """The operation of a file and the session that ships it."""

    txid: str
    session: str


class ReplicateFiles(Struct):
    """The `replicate_file` operations of one reign. Used by the master's thread alone."""

    store: FateStore
    clock: Clock
    chosen: dict[bytes, Chosen] = field(default_factory=dict)
    _spare: list[str] = field(default_factory=list)

    def adopt(self, records: Iterable[FateRecord]) -> None:
        """Take over the operations of earlier masters; those without a file or session are ended."""
        for record in records:
            if record.op.type != KIND:
                continue
            file, session = record.op.args.get("file"), record.state.get("session", "")
            if not isinstance(file, str) or not isinstance(session, str) or file.encode() in self.chosen:
                self._spare.append(record.txid)
            else:
                self.chosen[file.encode()] = Chosen(record.txid, session)

    def session_for(self, file: bytes) -> str | None:
        """The session that ships the file; None when it has no operation."""
        chosen = self.chosen.get(file)
        return None if chosen is None else chosen.session

    def ensure(self, works: Sequence[WorkRange]) -> None:
        """Write an operation for every file of these ranges, with the range's session, before the ranges are sent."""
        wanted = {work.file: work.session for work in works}
        fresh = [file for file in wanted if file not in self.chosen]
        if fresh:
            now_ms = self.clock.wall_ms()
            txids = self.store.begin([FateOp(KIND, {"file": file.decode()}, now_ms) for file in fresh])
            for file, txid in zip(fresh, txids, strict=True):
                self.chosen[file] = Chosen(txid, "")
        moved = {file: session for file, session in wanted.items() if self.chosen[file].session != session}
        self.store.reach(
            {self.chosen[file].txid: FateStep(SHIPPING_STEP, {"session": session}) for file, session in moved.items()}
        )
        for file, session in moved.items():
            self.chosen[file] = Chosen(self.chosen[file].txid, session)

    def end(self, files: Iterable[bytes]) -> None:
        """End the operations of these files: they are no longer outstanding."""
        ended = [file for file in files if file in self.chosen]
        self.store.end([*(self.chosen[file].txid for file in ended), *self._spare])
        self._spare.clear()
        for file in ended:
            del self.chosen[file]

    def end_all_but(self, files: Container[bytes]) -> None:
        """End the operations of all files but these."""
        self.end([file for file in self.chosen if file not in files])
