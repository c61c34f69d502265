"""The words for each kind of cause: what waits and why, whether a person is needed, and the next step. Pure.

Arrives: a cause with the names around it. Leaves: :class:`Explained`. A step is a command line with its names filled
in. One at a peer is typed in the directory of that cluster, which this master does not know, so the step says ``.``.
A kind that ends by itself has no step, or one that shows more; a kind that needs a person has one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence

from msgspec import Struct, field

from bookkeeper.errors import NO_JAVA, OLDER_SIDE, CorruptionError, NoTServerError
from bookkeeper.master.queries import causes
from bookkeeper.master.queries.causes import Cause
from bookkeeper.model import Target
from bookkeeper.peers.registry import BUILT_IN, split_quorum
from bookkeeper.rpc.contract.messages import NextStep

SECOND_NS = 1_000_000_000

PATIENCE_S: Mapping[str, int] = {
    **dict.fromkeys(
        (
            *(causes.DAMAGED, causes.QUARANTINED, causes.REFUSED_RECORD, causes.SECRET_REFUSED, causes.TABLE_REFUSED),
            *(causes.OTHER_INSTANCE, causes.OTHER_VERSION, causes.TABLE_GONE, causes.PEER_REFUSES, causes.PEER_FULL),
            causes.PEER_OLDER,
        ),
        0,
    ),
    causes.NO_TSERVER: 15,
    causes.NO_REPLAY: 15,
    causes.REPLAY_FAILS: 60,
    causes.NO_BOOKS: 60,
    causes.LOG_AWAY: 60,
    causes.PEER_UNREACHABLE: 60,
    causes.PEER_BUSY: 600,
}
"""Seconds after which a cause of a kind needs a person; a kind that is not here ends by itself. A supervisor starts a
process again within the shorter times, and a peer that restarts or moves tablets answers within the longer ones.
"""

MOSTLY_BRIEF = frozenset({causes.REPLAY_FAILS, causes.PEER_BUSY})
"""Kinds that end by themselves as a rule: their step is shown once a person is needed."""

SINGLE = frozenset({causes.DAMAGED, causes.REFUSED_RECORD})
"""Kinds that need a person only when they are final: before, the next try may succeed."""


class Names(Struct, frozen=True):
    """The names in commands: of this cluster, of a table here and its target at a peer, and of a file. ``tables`` are
    all tables that wait for the same cause, ``enabled`` all tables and targets at the peer. ``hosts``: the directory of
    each host of this cluster; ``supervised``: the directories whose supervisor runs, where a second one is refused;
    ``apart``: directories, each with a kind of process that `standalone` does not start there.
    """

    directory: str
    own_name: str
    own_instance_id: str
    table: str
    tables: Sequence[str]
    quorum: str
    target: Target
    file: str
    enabled: Sequence[tuple[str, Target]] = ()
    hosts: Mapping[str, str] = field(default_factory=dict)
    supervised: Collection[str] = ()
    apart: Collection[tuple[str, str]] = ()

    @property
    def peer(self) -> str:
        """The peer's name here."""
        return self.target.key.cluster

    def here(self, command: str) -> NextStep:
        """A command of the shell of this cluster."""
        return NextStep("", f"bookkeeper shell {self.directory} {command}")

    def there(self, command: str) -> NextStep:
        """A command line in the directory of the peer."""
        return NextStep(self.peer, f"bookkeeper {command}")

    @property
    def is_foreign(self) -> bool:
        """Whether the peer is of another replica system."""
        return split_quorum(self.quorum)[0] != BUILT_IN

    def at_peer(self, command: str) -> NextStep:
        """A command of the shell of the peer. A peer of another replica system has none: this cluster looks at it."""
        return self.define if self.is_foreign else self.there(f"shell . {command}")

    @property
    def define(self) -> NextStep:
        """Contact the peer at its address; prints the reason when it can't be used."""
        return self.here(f"definecluster {self.peer} {self.quorum}")

    @property
    def start_there(self) -> NextStep:
        """Start the processes of the peer."""
        return self.define if self.is_foreign else self.there("standalone .")

    def is_kept(self, process: str, directory: str) -> bool:
        """Whether a supervisor runs there that starts this process again by itself."""
        return directory in self.supervised and (directory, process.rstrip("0123456789")) not in self.apart

    def start(self, process: str, directory: str) -> NextStep:
        """Start a process in a directory of this cluster, with all others of its supervisor. A supervisor that runs
        there starts an ended one again by itself; then the log of the process says why it ends each time.
        """
        kind = process.rstrip("0123456789")
        if (directory, kind) in self.apart:
            return NextStep("", f"python -m bookkeeper.{kind} {directory}")
        if directory in self.supervised:
            return NextStep("", f"tail -n 20 {directory}/logs/{process}.log")
        return NextStep("", f"bookkeeper standalone {directory}")

    @property
    def define_again(self) -> NextStep:
        """Show the peer the secret that its operator made."""
        return self.here(f"definecluster {self.peer} {self.quorum} --secret-file {self.secret_file}")

    @property
    def secret_file(self) -> str:
        """The file that the peer's operator gives to this cluster, by its name there."""
        return f"{self.own_name}.secret"


class Explained(Struct, frozen=True):
    """A cause in words."""

    text: str
    steps: tuple[NextStep, ...]
    needs_person: bool


Words = Callable[[Cause, Names], tuple[str, Sequence[NextStep]]]


def explain(cause: Cause, names: Names, now_ns: int) -> Explained:
    """The words for a cause."""
    bottom = cause.bottom
    text, steps = WORDS[bottom.kind](bottom, names)
    needed = needs_person(cause, now_ns)
    if cause.at_root is not None:
        text = f"{names.peer} must have older records first, those of {cause.root.decode()}: {text}"
    return Explained(text, () if bottom.kind in MOSTLY_BRIEF and not needed else tuple(steps), needed)


def needs_person(cause: Cause, now_ns: int) -> bool:
    """Whether the wait goes on until a person does something."""
    bottom = cause.bottom
    patience = PATIENCE_S.get(bottom.kind)
    if patience is None or (bottom.kind in SINGLE and not bottom.is_final):
        return False
    return not patience or (bottom.since_ns is not None and now_ns - bottom.since_ns >= patience * SECOND_NS)


# ---- the kinds


def _of_itself(text: str) -> Words:
    return lambda cause, _names: (f"{text}{_reason(cause)}", ())


def _reason(cause: Cause) -> str:
    return f": {cause.error}" if cause.error else ""


AGAIN = "; its supervisor starts one again by itself once the reason is gone"


def _no_tserver(cause: Cause, names: Names) -> tuple[str, Sequence[NextStep]]:
    text = "no tablet server of this cluster is alive, so nobody sends the records"
    if cause.error:
        text = f"no tablet server of this cluster works ({cause.error}), so nobody sends the records"
    if names.is_kept("tserver1", names.directory):
        text += f"{AGAIN}, which the log says"
    return text, (names.start("tserver1", names.directory),)


def _no_replay(cause: Cause, names: Names) -> tuple[str, Sequence[NextStep]]:
    words = f"; its last words: {cause.error}" if cause.error else ""
    is_kept = names.is_kept("replay", names.directory)
    text = f"no replay process of this cluster works{words}{AGAIN if is_kept else ''}"
    cure = INSTALL_JAVA if NO_JAVA in cause.error else kill_hung(cause.error)
    steps = [NextStep("", cure)] if cure else []
    return text, steps if steps and is_kept else [*steps, names.start("replay", names.directory)]


INSTALL_JAVA = "apt-get install -y openjdk-17-jre-headless"
"""On Debian, as root; see ``make system-deps``."""

_HUNG = re.compile(r"\(process (\d+)\) hangs\b")


def kill_hung(words: str) -> str:
    """The command that ends the JVM that hangs, by the last words of its replay process; "" = none hangs."""
    found = _HUNG.search(words)
    return "" if found is None else f"kill -KILL {found[1]}"


def _log_away(cause: Cause, names: Names) -> tuple[str, Sequence[NextStep]]:
    host = cause.host or "a host"
    directory = names.hosts.get(host, names.directory)
    text = (
        f"{names.file} lies on {host}, which is away: start it, or bring its directory {directory} back; if its disk "
        f"is lost for ever: bookkeeper shell {names.directory} host forget {host}"
    )
    return text, (names.start("tserver1", directory),)


def _no_books(cause: Cause, names: Names) -> tuple[str, Sequence[NextStep]]:
    text = f"this cluster can't read or write its books{_reason(cause)}; the check names what to do, and all continues"
    return f"{text} by itself then", (NextStep("", f"bookkeeper config check {names.directory}"),)


def _replay_fails(cause: Cause, names: Names) -> tuple[str, Sequence[NextStep]]:
    text = f"runs of the replay process fail before they reach the peer{_reason(cause)}; if all do, it starts anew"
    return text, (NextStep("", f"tail -n 20 {names.directory}/logs/replay.log"),)


def _damaged(cause: Cause, names: Names) -> tuple[str, Sequence[NextStep]]:
    if cause.range_id:
        text = f"records of {names.file} can't be read{_reason(cause)}; restore the file, or go on without them"
        return text, (names.here(f"replication quarantine hold {cause.range_id}"),)
    text = (
        f"{names.file} can't be read to its end{_reason(cause)}; restore the file, and it continues by itself, or give "
        "up its records behind the damage"
    )
    directory = names.hosts.get(cause.host, names.directory)
    return text, (NextStep("", f"bookkeeper wal seal {directory} {names.file}"),)


def _quarantined(cause: Cause, names: Names) -> tuple[str, Sequence[NextStep]]:
    retry, skip = (names.here(f"replication quarantine {word} {cause.range_id}") for word in ("retry", "skip"))
    held = f"records of {names.file} are in quarantine{_reason(cause)}"
    if cause.code == CorruptionError.code:
        return f"{held}; restore the file and send them ({retry.command}), or give them up", (skip,)
    return f"{held}; send them when the reason is gone, or give them up ({skip.command})", (retry,)


def _refused_record(cause: Cause, names: Names) -> tuple[str, Sequence[NextStep]]:
    text = f"{names.peer} refuses records of {names.file}{_reason(cause)}; go on without them"
    return text, (names.here(f"replication quarantine hold {cause.range_id}"),)


def _secret_refused(cause: Cause, names: Names) -> tuple[str, Sequence[NextStep]]:
    text = (
        f"{names.peer} refuses the secret of this cluster{_reason(cause)}; its operator makes a new one, which you "
        f"copy from secrets/from/{names.secret_file} there and show (if {names.peer} has none for {names.own_name}: "
        f"bookkeeper secret make . {names.own_name} --instance {names.own_instance_id} --tables "
        f"{','.join(names.tables)})"
    )
    return text, (
        names.there(f"secret renew . {names.own_name}"),
        names.define_again,
    )


def _table_refused(cause: Cause, names: Names) -> tuple[str, Sequence[NextStep]]:
    text = f"the secret of this cluster does not open table {names.target.remote_table} of {names.peer}{_reason(cause)}"
    return text, (names.there(f"secret tables . {names.own_name} --add {names.target.remote_table}"),)


def _other_instance(cause: Cause, names: Names) -> tuple[str, Sequence[NextStep]]:
    text = (
        f"another cluster answers at {names.quorum}{_reason(cause)}; if {names.peer} moved, give its new address: "
        f"bookkeeper shell {names.directory} definecluster {names.peer} HOST:PORT; if the new cluster takes its place, "
        "begin anew"
    )
    return text, (
        *(names.here(disabling(table, target)) for table, target in names.enabled),
        names.here(f"deletecluster {names.peer} {names.quorum}"),
        names.define_again,
        *(names.here(enabling(table, target)) for table, target in names.enabled),
    )


def enabling(table: str, target: Target) -> str:
    """The command that enables a target."""
    renamed = "" if target.remote_table == table else f" --remote-table {target.remote_table}"
    return f"enablereplication -t {table} {groups_of(target)}{renamed} {target.key.cluster}"


def disabling(table: str, target: Target) -> str:
    """The command that disables a target."""
    return f"disablereplication -t {table} {groups_of(target)} {target.key.cluster}"


def groups_of(target: Target) -> str:
    """The options for the locality groups of a target."""
    return " ".join(f"-lg {group}" for group in target.groups or ()) or "--all-loc-groups"


def _other_version(cause: Cause, names: Names) -> tuple[str, Sequence[NextStep]]:
    is_here = OLDER_SIDE in cause.error
    older, where = ("this cluster", names.directory) if is_here else (names.peer, ".")
    text = (
        f"{names.peer} and this cluster do not understand each other{_reason(cause)}; stop {older}, install there the "
        "version that the other one has, and start it again"
    )
    if not is_here and names.is_foreign:
        return text, (names.define,)
    words = (f"config check {where}", f"standalone {where}")
    return text, [NextStep("", f"bookkeeper {word}") if is_here else names.there(word) for word in words]


def _table_gone(cause: Cause, names: Names) -> tuple[str, Sequence[NextStep]]:
    remote, key = names.target.remote_table, names.target.key
    text = (
        f"{names.peer} has no table {remote} with the id {key.remote_table_id} any more: it was deleted or made anew "
        f"there{_reason(cause)}. Begin anew; records that were written before are missing there until a copy brings "
        "them (exporttable and importtable). The first step is only for a deleted table"
    )
    return text, (
        names.at_peer(f"createtable {remote}"),
        names.here(disabling(names.table, names.target)),
        names.here(enabling(names.table, names.target)),
    )


def _peer_refuses(cause: Cause, names: Names) -> tuple[str, Sequence[NextStep]]:
    text = f"{names.peer} refuses the records{_reason(cause)}; it continues by itself when that reason is gone there"
    return text, (names.at_peer(f"tablets {names.target.remote_table}"),)


def _peer_full(cause: Cause, names: Names) -> tuple[str, Sequence[NextStep]]:
    text = (
        f"no space is left at {names.peer}{_reason(cause)}; it continues by itself when there is some: enlarge that "
        "disk, delete files outside of the cluster's directory, or compact the largest tables (bookkeeper shell . du "
        "lists them), which drops older versions and deleted cells"
    )
    return text, (names.at_peer(f"compact -t {names.target.remote_table} --wait"),)


def _peer_unreachable(cause: Cause, names: Names) -> tuple[str, Sequence[NextStep]]:
    if cause.code == NoTServerError.code:
        text = f"{cause.error}; start one, or read why its supervisor there can't (logs/tserver1.log)"
        return text, (NextStep(names.peer, "python -m bookkeeper.tserver ."),)
    text = (
        f"{names.peer} does not answer at {names.quorum}{_reason(cause)}; start it, or give its new address: "
        f"bookkeeper shell {names.directory} definecluster {names.peer} HOST:PORT"
    )
    return text, (names.start_there,)


def _peer_older(cause: Cause, names: Names) -> tuple[str, Sequence[NextStep]]:
    text = (
        f"{names.peer} came back in an older state: it lacks records that it acknowledged{cause.error}, and no target "
        "sends them again. Begin anew, and copy the tables (exporttable and importtable)"
    )
    begun_anew = [(table, target) for table, target in names.enabled if table in names.tables]
    steps = [names.here(form(table, target)) for form in (disabling, enabling) for table, target in begun_anew]
    return text, steps


def _peer_busy(cause: Cause, names: Names) -> tuple[str, Sequence[NextStep]]:
    text = f"{names.peer} answers and can't take records for now{_reason(cause)}"
    return text, (names.at_peer(f"tablets {names.target.remote_table}"),)


def _uncopied(_cause: Cause, names: Names) -> tuple[str, Sequence[NextStep]]:
    text = f"the next records of {names.file} lie on one host alone; {names.peer} gets them after other hosts have them"
    return text, (names.here(f"tablets {names.table}"),)


WORDS: Mapping[str, Words] = {
    causes.NOT_READ: _of_itself("this master has not read the books up to these records yet"),
    causes.NO_BOOKS: _no_books,
    causes.NO_TSERVER: _no_tserver,
    causes.NO_REPLAY: _no_replay,
    causes.REPLAY_FAILS: _replay_fails,
    causes.LOG_AWAY: _log_away,
    causes.UNSEALED: _of_itself("the end of the log is not known yet"),
    causes.DAMAGED: _damaged,
    causes.QUARANTINED: _quarantined,
    causes.SLOTS_BUSY: _of_itself(
        "all slots of the replay process are in use, and each run gives its own back after some seconds; a greater "
        "replay.tasks_max in the settings makes such waits rarer"
    ),
    causes.UNCOPIED: _uncopied,
    causes.BEHIND: _of_itself("older records must be there first"),
    causes.SHIPPING: _of_itself("the records are on their way"),
    causes.WAITING: _of_itself("the records leave when it is their turn"),
    causes.DONE: _of_itself("nothing waits"),
    causes.REFUSED_RECORD: _refused_record,
    causes.SECRET_REFUSED: _secret_refused,
    causes.TABLE_REFUSED: _table_refused,
    causes.OTHER_INSTANCE: _other_instance,
    causes.OTHER_VERSION: _other_version,
    causes.TABLE_GONE: _table_gone,
    causes.PEER_REFUSES: _peer_refuses,
    causes.PEER_FULL: _peer_full,
    causes.PEER_UNREACHABLE: _peer_unreachable,
    causes.PEER_BUSY: _peer_busy,
    causes.PEER_OLDER: _peer_older,
}
"""Text and steps of each kind."""
