"""Replicas of tablets with their rows, a network between them, and the books; the machine makes every decision.

A message is delivered at once, or it waits under a number until a step delivers, drops or repeats it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from bookkeeper.replicas.chain import files_of
from bookkeeper.replicas.collecting import may_delete_log
from bookkeeper.replicas.events import (
    ContentArrived,
    ContentFailed,
    CopyDamaged,
    Event,
    FilesDamaged,
    FilesMended,
    Flushed,
    OfferArrived,
    ReplyArrived,
)
from bookkeeper.replicas.instructions import (
    Abandon,
    Answer,
    Decision,
    Delete,
    FlushMemory,
    Instruction,
    Merge,
    Name,
    Restart,
    Send,
    Transit,
)
from bookkeeper.replicas.machine import decide
from bookkeeper.replicas.making import next_id
from bookkeeper.replicas.messages import Accept, Ack, Decline, Failed, Purpose, Reply
from bookkeeper.replicas.naming import has_import, shippable
from bookkeeper.replicas.placements import Phase, Role
from bookkeeper.replicas.rules import Rules
from bookkeeper.replicas.values import (
    KeyRange,
    Positions,
    Replica,
    Segment,
    Step,
    joined_positions,
    term_of,
)
from tests.support.segment_simulation.books import Books, Import, Log, LogFile, Peer
from tests.support.segment_simulation.damage import WRONG, Ask, Copy, Disks, FileMessage, Refusal, is_intact
from tests.support.segment_simulation.splitting import travels
from tests.support.segment_simulation.unloading import Unloading, begun, may_go_on, unload_on

RESTARTS_MAX = 2
"""A turn ends as a livelock at this OUT_OF_ORDER without a segment taken in between."""


def host_of(name: str) -> str:
    """The host of a replica: the text before ``/``."""
    return name.partition("/")[0]


def key_of(row: str) -> str:
    """The key of a row: the text before ``=``."""
    return row.partition("=")[0]


@dataclass(slots=True)
class Message:
    """A message under way. A Send is an offer, a Transit content, a Name a write to the books."""

    sender: str
    target: str
    body: Send | Transit | Name | Reply | FileMessage
    purpose: Purpose = Purpose.ONE
    content: dict[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(slots=True)
class Turn:
    """What one step did."""

    offers: list[dict[str, Any]] = field(default_factory=list)
    restarts: int = 0
    outcome: str = "done"
    merged: list[int] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    queued: list[int] = field(default_factory=list)
    named: int | None = None
    damaged: list[str] = field(default_factory=list)
    """Files that a reader found damaged."""
    mended: list[str] = field(default_factory=list)


class World:
    """All state of a simulation, and the delivery of messages."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.replicas: dict[str, Replica] = {}
        self.tablets: dict[str, str] = {}
        self.books: dict[str, Books] = {}
        self.rows: dict[tuple[str, str], tuple[str, ...]] = {}
        """By replica and file: the rows of the file, whatever its bytes are now."""
        self.disks = Disks()
        self.is_intact: Callable[[bool], bool] = is_intact
        self.memory: dict[str, list[str]] = {}
        self.read: dict[str, set[str]] = {}
        """By replica: files that a page reads."""
        self.logs_on_hosts = False
        self.may_delete_log = may_delete_log
        self.shippable = shippable
        self.sessions: dict[str, LogFile] = {}
        """By host: the log that its session writes."""
        self.peer: Peer | None = None
        self.imports: dict[int, Import] = {}
        self.stopped: set[str] = set()
        self.cut: set[frozenset[str]] = set()
        self.messages: dict[int, Message] = {}
        self.sent = 0
        self.copies: dict[tuple[str, int], int] = {}
        """By tablet and id: how many voters held all files of a state when a leader decided to name it."""
        self.acknowledged: dict[str, list[str]] = {}
        """By tablet: the rows that writers were told to be safe."""
        self.unloading: dict[str, Unloading] = {}
        """By replica in UNLOAD: its turn."""
        self._now: deque[Message] = deque()

    def books_of(self, name: str) -> Books:
        """The books of a replica's tablet."""
        return self.books[self.tablets[name]]

    def can_reach(self, sender: str, target: str) -> bool:
        """Whether a message gets from one replica to another."""
        hosts = frozenset((host_of(sender), host_of(target)))
        return not ({sender, target} & self.stopped or hosts in self.cut)

    def on_host_of(self, name: str) -> list[str]:
        """All replicas on the host of one."""
        return [one for one in self.replicas if host_of(one) == host_of(name)]

    # ---- logs

    def next_term(self, tablet: str) -> int:
        """A term above each that a tablet of the family has had."""
        table = self.books[tablet].table
        return 1 + max(books.term for books in self.books.values() if books.table == table)

    def open_log(self, name: str, tablet: str) -> Log:
        """The part of a new term in the log of the host's session."""
        host = host_of(name)
        file = self.sessions.get(host)
        if file is None or file.is_sealed:
            file = self.sessions[host] = LogFile(host)
        file.needed_by.append(tablet)
        return Log(name, file)

    def release_logs(self) -> None:
        """Delete the logs that nobody needs."""
        files = {id(log.file): log.file for books in self.books.values() for log in books.logs.values()}
        for tablet, books in self.books.items():
            books.release(partial(self._peer_needs, tablet))
        for file in files.values():
            file.is_deleted = file.is_deleted or self.may_delete_log(file.is_sealed, file.needed_by)

    def _peer_needs(self, tablet: str, term: int) -> bool:
        """Whether a peer lacks records of a log. A merged tail comes to it in the log of the term that merged it."""
        books = self.books[tablet]
        end = books.merged_from.get(term, len(books.logs[term].rows))
        return self.peer is not None and self.peer.offsets.get((tablet, term), 0) < end

    def content_of(self, name: str, files: tuple[str, ...]) -> list[str]:
        """The rows of some files of a replica."""
        return [row for file in files for row in self.rows.get((name, file), ())]

    # ---- a replica decides, and its host follows

    def happen(self, name: str, event: Event, turn: Turn, queued: bool = False) -> None:
        """Let an event happen to a replica, follow its instructions, and deliver what follows at once."""
        self._decide(name, event, turn, Purpose.ONE, queued, {})
        self._deliver_now(turn)

    def _deliver_now(self, turn: Turn) -> None:
        while self._now:
            message = self._now.popleft()
            if turn.outcome == "livelock":
                continue
            self.deliver(message, turn, queued=False)

    def _decide(
        self,
        name: str,
        event: Event,
        turn: Turn,
        purpose: Purpose,
        queued: bool,
        content: dict[str, tuple[str, ...]],
    ) -> None:
        before = self.replicas[name]
        replica, instructions = decide(before, event, self.rules)
        self.replicas[name] = replica
        if isinstance(event, ReplyArrived):
            self.disks.heard(before, event.reply)
        unloading = self.unloading.get(name)
        if unloading is not None and isinstance(event, ReplyArrived) and may_go_on(replica, event, self.rules):
            instructions = (*instructions, *self._unload_on(name, unloading, turn))
        for file in replica.files - before.files:
            self.keep(name, file, content.get(file, ()))
        for instruction in instructions:
            self._follow(name, instruction, turn, purpose, queued, content)

    def unload(self, name: str, named: Name | None, turn: Turn, queued: bool) -> None:
        """A replica in UNLOAD hands its segments to the children, until an answer ends its turn."""
        unloading = self.unloading[name] = begun(self.replicas[name], named, self.rules)
        for instruction in self._unload_on(name, unloading, turn):
            self._follow(name, instruction, turn, Purpose.ONE, queued, {})
        self._deliver_now(turn)

    def _unload_on(self, name: str, unloading: Unloading, turn: Turn) -> Decision:
        self.replicas[name], instructions = unload_on(self.replicas[name], unloading, self.rules)
        if not instructions:
            turn.outcome = "unloaded"
            del self.unloading[name]
        return instructions

    def _follow(
        self,
        name: str,
        instruction: Instruction,
        turn: Turn,
        purpose: Purpose,
        queued: bool,
        content: dict[str, tuple[str, ...]],
    ) -> None:
        match instruction:
            case Send():
                self._send_offer(name, instruction, turn, queued)
            case Transit(target=target, segment=segment, need=need, purpose=purpose_of_offer):
                beside = self.disks.sound(name, segment.files)
                rows = self._content_for(name, target, (*need, *sorted(beside)))
                message = Message(name, target, instruction, purpose_of_offer, rows)
                if self.suspect(name, need, turn):
                    self.lose(message, turn, queued)
                else:
                    self._post(message, turn, queued)
            case Abandon(target=target, segment_id=segment_id):
                self._give_up_transfer(target, name, segment_id)
            case Answer(target=target, reply=reply):
                self.disks.said(self.replicas[name], reply)
                self._post(Message(name, target, reply, purpose), turn, queued)
            case Merge():
                self._merge(name, instruction, content, turn)
            case FlushMemory():
                self.flush(name, turn)
            case Delete(files=files):
                turn.deleted += files
                for file in files:
                    self.rows.pop((name, file), None)
                    self.disks.gone(name, file)
            case Name(state_id=state_id, files=files):
                self.copies[self.tablets[name], state_id] = self._copies_of(name, files)
                self._post(Message(name, self.tablets[name], instruction), turn, queued)
            case Restart():
                self._begin_again(turn)

    def _begin_again(self, turn: Turn) -> None:
        """A turn that begins again and again is a livelock."""
        turn.restarts += 1
        if turn.restarts >= RESTARTS_MAX and not self.rules.p1_force_major:
            turn.outcome = "livelock"

    def _copies_of(self, name: str, files: tuple[str, ...]) -> int:
        voters = [one.host for one in self.books_of(name).row.replicas if one.role is Role.VOTER]
        return sum(host in self.replicas and self.disks.counts(name, self.replicas[host], files) for host in voters)

    def _range_for(self, name: str, target: str) -> KeyRange | None:
        return next((one.key_range for one in self.replicas[name].targets if one.host == target), None)

    def _content_for(self, name: str, target: str, files: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
        """The rows that travel; for the child of a split, those in its range (E-60)."""
        key_range = self._range_for(name, target)
        found = {file: self.read_file(name, file) for file in files}
        if key_range is None:
            return found
        return {file: tuple(row for row in rows if key_range.has(key_of(row))) for file, rows in found.items()}

    def _send_offer(self, name: str, send: Send, turn: Turn, queued: bool) -> None:
        target, segment = send.target, send.offer.segment
        if turn.outcome == "livelock":
            return
        if self._range_for(name, target) is not None and target in self.replicas:
            count = sum(map(len, self._content_for(name, target, segment.files).values()))
            if not travels(count, self.rules):
                taken = Ack(segment.id, self.replicas[target].placement)
                self._now.append(Message(target, name, taken, send.purpose))
                return
        turn.offers.append({"from": name, "to": target, "segment": segment.id, "reply": None})
        self._post(Message(name, target, send, send.purpose), turn, queued)

    def _post(self, message: Message, turn: Turn, queued: bool) -> None:
        if not queued:
            self._now.append(message)
            return
        self.sent += 1
        self.messages[self.sent] = message
        turn.queued.append(self.sent)

    # ---- messages arrive

    def deliver(self, message: Message, turn: Turn, queued: bool) -> None:
        """Hand a message to its receiver, or its sender learns that the receiver is away."""
        body, sender, target = message.body, message.sender, message.target
        if isinstance(body, Name):
            self._write_name(target, body, turn)
            return
        if target not in self.replicas or not self.can_reach(sender, target):
            self.lose(message, turn, queued)
            return
        match body:
            case Ask() | Copy() | Refusal():
                self._take_file_message(message, body, turn, queued)
            case Send(offer=offer):
                self._decide(target, OfferArrived(offer), turn, message.purpose, queued, {})
            case Transit(segment=segment):
                self._take_content(message, segment, turn, queued)
            case Accept() | Ack() | Decline() | Failed():
                self._note(turn, target, sender, body)
                if isinstance(body, Ack):
                    turn.restarts = 0
                self._decide(target, ReplyArrived(sender, body, message.purpose), turn, message.purpose, queued, {})

    def lose(self, message: Message, turn: Turn, queued: bool) -> None:
        """A message is lost. A receiver gives up a transfer that does not come, a sender gets an error (E-39)."""
        body, sender, target = message.body, message.sender, message.target
        if isinstance(body, Send):
            self._error(message, body.offer.segment.id, turn, queued)
        elif isinstance(body, Transit):
            self._give_up_transfer(target, sender, body.segment.id)
            self._error(message, body.segment.id, turn, queued)
        elif isinstance(body, Accept):
            self._give_up_transfer(sender, target, body.segment_id)

    def _error(self, message: Message, segment_id: int, turn: Turn, queued: bool) -> None:
        """The sender notices by itself, whatever the network does."""
        if message.sender not in self.replicas:
            return
        failed = Failed(segment_id)
        self._note(turn, message.sender, message.target, failed)
        event = ReplyArrived(message.target, failed, message.purpose)
        self._decide(message.sender, event, turn, message.purpose, queued, {})

    def _give_up_transfer(self, receiver: str, sender: str, segment_id: int) -> None:
        if receiver in self.replicas:
            self.replicas[receiver], _ = decide(self.replicas[receiver], ContentFailed(segment_id, sender), self.rules)

    def _note(self, turn: Turn, sender: str, target: str, reply: Reply) -> None:
        """Write the answer beside its offer; an ACCEPT that was noted stays beside its ACK."""
        said = {Accept: "ACCEPTED", Ack: "ACCEPTED", Failed: "ERROR"}.get(type(reply))
        if isinstance(reply, Decline):
            said = reply.reason.value
        for offer in reversed(turn.offers):
            if (offer["from"], offer["to"], offer["segment"]) == (sender, target, reply.segment_id):
                offer["reply"] = said
                return

    def _take_content(self, message: Message, segment: Segment, turn: Turn, queued: bool) -> None:
        """Content arrives. The transfer fails if a file of the list is still missing, as after a disk was lost under
        way, or if a leader would merge that was fenced: it can't write.
        """
        target, sender = message.target, message.sender
        coming = [one for one in self.replicas[target].incoming if (one.segment.id, one.sender) == (segment.id, sender)]
        if coming and coming[0].step is Step.MERGE:
            self.suspect(target, set(segment.list) - message.content.keys(), turn)
        lacks = not self.replicas[target].files.issuperset(set(segment.list) - message.content.keys())
        if coming and (lacks or (coming[0].step is Step.MERGE and not self.may_write(target))):
            self.lose(message, turn, queued)
            return
        event = ContentArrived(segment.id, sender)
        self._decide(target, event, turn, message.purpose, queued, message.content)

    def _write_name(self, tablet: str, name: Name, turn: Turn) -> None:
        """A put of ``tablet:flush``: the highest id counts, whenever it arrives."""
        books = self.books[tablet]
        if books.is_gone or books.row.phase is Phase.SPLIT:
            return
        if books.named is None or name.state_id > books.named.state_id:
            books.named = name
            turn.named = name.state_id
        self.settle_imports()
        self.release_logs()

    def settle_imports(self) -> None:
        """An import ends when the tablet that serves its rows has a named state with it."""
        for books in self.books.values():
            for number, one in self.imports.items():
                if not books.is_gone and books.row.key_range.has(key_of(one.rows[0])):
                    one.is_named |= has_import(books.row, books.named, number)

    # ---- files

    def keep(self, name: str, file: str, rows: tuple[str, ...]) -> None:
        """A host has a file on its disk, complete."""
        self.rows[name, file] = rows
        self.disks.written(name, file, rows)

    def read_file(self, name: str, file: str) -> tuple[str, ...]:
        """The rows that a reader of a file gets."""
        return WRONG if (name, file) in self.disks.wrong else self.rows.get((name, file), ())

    def suspect(self, name: str, files: Iterable[str], turn: Turn) -> list[str]:
        """A host reads files and compares them with their checksums; those that differ count as not held from now on.
        Returns those that nobody may read.
        """
        wrong = sorted(file for file in files if not self.is_intact((name, file) in self.disks.wrong))
        turn.damaged += [file for file in wrong if file in self.replicas[name].files]
        for file in wrong:
            self.disks.find(name, file)
        if wrong:
            self._decide(name, FilesDamaged(tuple(wrong)), turn, Purpose.ONE, False, {})
        return wrong

    def ask(self, name: str, target: str, file: str, turn: Turn, queued: bool) -> None:
        """Ask a host for a file whose copy here is damaged."""
        self._post(Message(name, target, Ask(file, self.replicas[name].placement)), turn, queued)
        self._deliver_now(turn)

    def _take_file_message(self, message: Message, body: FileMessage, turn: Turn, queued: bool) -> None:
        target = message.target
        match body:
            case Ask(file=file, placement=placement):
                if self.replicas[target].is_leader:
                    self.disks.told.add((target, placement, file))
                    self._decide(target, CopyDamaged(placement, file), turn, Purpose.ONE, queued, {})
                lacks = self.suspect(target, [file], turn) or file not in self.replicas[target].files
                answer = Refusal(file) if lacks else Copy(file, self.read_file(target, file))
                self._post(Message(target, message.sender, answer), turn, queued)
            case Copy(file=file, rows=rows):
                if file in self.replicas[target].damaged:
                    self._decide(target, FilesMended((file,)), turn, Purpose.ONE, queued, {file: rows})
                    turn.mended.append(file)
            case Refusal():
                pass

    # ---- rows

    def log_of(self, name: str) -> Log | None:
        """The log that a replica writes, if rules have terms and it exists."""
        replica = self.replicas[name]
        if not self.rules.terms:
            return None
        return self.books_of(name).logs.get(replica.led)

    def may_write(self, name: str) -> bool:
        """Whether the writer of a term is not fenced. Without terms nothing fences a leader."""
        log = self.log_of(name)
        return not self.rules.terms or (log is not None and not log.is_sealed)

    def append(self, name: str, rows: list[str], is_merged: bool = False) -> None:
        """Write rows to the log and to memory. Records that come by a merge name their origin."""
        log = self.log_of(name)
        if log is not None:
            log.rows += rows
            log.merged.update(rows if is_merged else ())
        self.memory[name] += rows

    def positions(self, name: str) -> Positions:
        """What a state made now has of the logs: what its root has, what the term replayed, its own log."""
        replica = self.replicas[name]
        entry = replica.entry(replica.root)
        held: Positions = entry.segment.logs if entry is not None else ()
        found = dict(joined_positions(held, replica.replayed))
        own = self.log_of(name)
        if own is not None:
            found[replica.led] = len(own.rows)
        return tuple(sorted(found.items()))

    def flush(self, name: str, turn: Turn, segment_id: int | None = None) -> int:
        """Write memory into a file and tell the machine."""
        replica = self.replicas[name]
        made = next_id(replica) if segment_id is None else segment_id
        file = str(made)
        event = Flushed((file,), self.positions(name) if self.rules.terms else (), made)
        rows = self.memory[name]
        content = tuple(rows) if self.rules.terms else tuple(sorted(set(rows)))
        self._decide(name, event, turn, Purpose.ONE, False, {file: content})
        self.memory[name] = []
        return made

    def _merge(self, name: str, merge: Merge, content: dict[str, tuple[str, ...]], turn: Turn) -> None:
        """Write the rows of a segment to memory, and say so to the books when it ends a given-up log."""
        segment = merge.segment
        found = {file: content[file] if file in content else self.read_file(name, file) for file in segment.list}
        rows = [row for file in segment.list for row in found[file]]
        if not merge.has_imports:
            taken = {row for one in self.imports.values() for row in one.rows}
            rows = [row for row in rows if row not in taken]
        replica = self.replicas[name]
        present: set[str] = set()
        if merge.by_origin:
            present = set(self.content_of(name, files_of(replica, replica.root, self.rules)))
            present |= set(self.memory[name])
        elif merge.present_in:
            arriving = {row for file in merge.present_in for row in content.get(file, ())}
            present = set(self.content_of(name, merge.present_in)) | arriving | set(self.memory[name])
        if not self.rules.terms:
            present |= set(self.memory[name])
        self.append(name, [row for row in dict.fromkeys(rows) if row not in present], is_merged=merge.by_origin)
        turn.merged.append(segment.id)
        self._end_given_up(name, segment)

    def _end_given_up(self, name: str, segment: Segment) -> None:
        books = self.books_of(name)
        term = term_of(segment.id)
        log = books.logs.get(term)
        if term in books.given_up and log is not None and dict(segment.logs).get(term, 0) >= len(log.rows):
            books.merged_from[term] = books.given_up.pop(term)
