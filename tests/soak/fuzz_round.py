"""Attacks on a cluster that is at work, by holders of valid secrets; others' tables notice nothing.

On a cluster with hosts one of the holders is a process of the cluster: a host that was taken over.

A round counts its attacks. It raises InvariantError with the seed when a process ended, failed with an undeclared
error, took more memory than its budget, or a tablet of others has a problem. The caller checks the rows of others'
tables.
"""

from __future__ import annotations

import itertools
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from bookkeeper.client import Mutation
from bookkeeper.clock import SystemClock
from bookkeeper.coordination.connect import open_coordination
from bookkeeper.errors import BookkeeperError, CorruptionError, TransientError, UnavailableError
from bookkeeper.rpc.channel import Channel
from bookkeeper.rpc.contract.faults import INTERNAL_CODE
from bookkeeper.rpc.contract.messages import ACCEPTED, PROTOCOL_VERSION, Hello
from bookkeeper.rpc.contract.tables import CLIENT_METHODS, PEER_METHODS, PROCESS_METHODS
from bookkeeper.rpc.frames.budget import limits_of
from bookkeeper.rpc.frames.envelope import FRAME_HEADER, method_codec, read_start
from bookkeeper.rpc.frames.wire import Buffers
from bookkeeper.rpc.rpc_pool import RpcPool
from bookkeeper.security.access import Credentials, process_credentials
from bookkeeper.security.secret import Secret
from bookkeeper.security.secret_store import SecretStore
from tests.soak.faults import InvariantError
from tests.soak.fuzz import FUZZ_INSTANCE, FUZZ_TABLES, Attack, Attacker, Names
from tests.soak.fuzz_inside import Inside
from tests.soak.fuzz_rights import PeerRights
from tests.soak.trace import Trace
from tests.support.cluster import Cluster
from tests.support.workloads_pair import Pair

HALF_SENT_MAX = 24
"""Connections in the middle of a frame at once."""
ANSWER_MS = 30_000
ATTACKS = 1_500
"""On each cluster of a pair."""
AFTERWARDS = 5
SERVED_S = 60.0
LEARN_EVERY = 100
"""Attacks between two looks of a process: leaders, terms and states change meanwhile."""
CHANGE_EVERY = 100
"""Attacks between two changes of the peer's rights and of tables."""
PEER = "a peer"
SLACK_BYTES = 160 << 20
"""Memory of memtables, caches and the allocator of a busy process, beside the counted memory."""


class Line:
    """A connection on which anything is sent; the handshake and ``hello`` are right."""

    def __init__(self, cluster: Cluster, address: str, secret: Secret, hello: Hello) -> None:
        self._channel = Channel(address, cluster.settings.rpc, SystemClock())
        self._channel.greet(hello, Credentials(lambda: [secret], instance_id=secret.instance_id), ANSWER_MS)
        self._channel.call(method_codec("Master", "hello"), (hello,), ANSWER_MS)

    def send(self, attack: Attack) -> None:
        """The one place where a frame leaves. Raises OSError."""
        deadline_ns = SystemClock().boot_ns() + ANSWER_MS * 1_000_000
        tags, frame = self._channel._tags, FRAME_HEADER.pack(attack.announced) + attack.message
        tagged: Buffers = [frame] if tags is None or not attack.is_whole else tags.tagged([frame])
        self._channel._send(tagged, deadline_ns)

    def hear(self) -> bytes:
        """An answer; raises OSError, CorruptionError."""
        tags, frame = self._channel._tags, self._channel._receive(SystemClock().boot_ns() + ANSWER_MS * 1_000_000)
        return bytes(frame if tags is None else tags.check(frame))

    def close(self) -> None:
        """Leave."""
        with suppress(OSError):
            self._channel.close()


@dataclass(slots=True)
class Holder:
    """An attacker with a secret: its attacks and its connections."""

    name: str
    secret: Secret
    hello: Hello
    attacks: Iterator[Attack]
    lines: dict[str, Line] = field(default_factory=dict)


def run_fuzz(cluster: Cluster, seed: int, count: int, trace: Trace, others: frozenset[str] = frozenset()) -> None:
    """Send so many attacks. ``others``: names of clusters and instances that are not the attacker's. Raises
    InvariantError.
    """
    names = learn_names(cluster, others)
    if has_hosts(cluster):
        for table in cluster.client.tables.list():
            cluster.client.tables.flush(table.name)  # so that hosts have files
        learn_inside(cluster, names)
    answers: Counter[str] = Counter()
    with watched(cluster, names), ExitStack() as closes:
        half_sent: deque[Line] = deque()
        holders, rights = holders_of(cluster, seed, names), PeerRights(cluster)
        closes.callback(_close_all, holders, half_sent)
        addresses = addresses_of(cluster)
        for number in range(count):
            if names.inside is not None and number % LEARN_EVERY == 0:
                with suppress(TransientError):
                    learn_inside(cluster, names)
            if number % CHANGE_EVERY == CHANGE_EVERY - 1:
                rights.change()
                relearn_names(cluster, names, others)
            holder = holders[number % len(holders)]
            attack = next(holder.attacks)
            address = addresses[attack.service][number // 2 % len(addresses[attack.service])]
            try:
                answers[_send(cluster, address, holder, attack, half_sent, names, rights)] += 1
            except InvariantError as error:
                raise InvariantError(f"fuzz seed {seed}, attack {number} by {holder.name}: {error}") from error
    trace.say(f"{count} attacks with seed {seed}, meanwhile {rights.done}: {dict(answers)}")


def run_fuzz_round(pair: Pair, seed: int, trace: Trace) -> None:
    """Both clusters of a pair, under load; then both hold what was written. Raises InvariantError."""
    instances = [cluster.settings.instance for cluster in pair.clusters.values()]
    others = frozenset(name for own in instances for name in (own.name, own.instance_id))
    try:
        for cluster in pair.clusters.values():
            with pair.load():
                run_fuzz(cluster, seed, ATTACKS, trace, others)
                pair.wait_written(AFTERWARDS)
        pair.check()
    except (BookkeeperError, AssertionError, psutil.Error) as error:
        raise InvariantError(f"fuzz seed {seed}: {type(error).__name__}: {error}") from error
    trace.say(f"{pair.written()}  both clusters hold all written rows after the attacks")


def learn_names(cluster: Cluster, others: frozenset[str]) -> Names:
    """The attacker's tables, made when they are missing, and the tables of others."""
    client = cluster.client
    properties = {"table.replicas": "2"} if has_hosts(cluster) else None
    there = {table.name: table.table_id for table in client.tables.list()}
    for name in FUZZ_TABLES:
        if name not in there:
            there[name] = client.tables.create(name, [b"m"], properties=properties).table_id
            with client.writer(name) as writer:
                writer.add(Mutation(b"a").put(b"f", b"q", b"v"))
    own_ids = [there[name] for name in FUZZ_TABLES]
    strange = {name: table_id for name, table_id in there.items() if name not in FUZZ_TABLES}
    extents = {i: [found.extent for found in client.tables.locate(i)] for i in (*own_ids, *strange.values())}
    return Names(
        own_ids,
        [extent for table_id in own_ids for extent in extents[table_id]],
        [extent for table_id in strange.values() for extent in extents[table_id]],
        others | {*strange, *strange.values(), cluster.settings.instance.instance_id, cluster.settings.instance.name},
    )


def relearn_names(cluster: Cluster, names: Names, others: frozenset[str]) -> None:
    """Learn the tablets as they are now; what was known stays known. Attacks may have deleted a table of theirs."""
    with suppress(BookkeeperError):
        found = learn_names(cluster, others)
        names.own_ids = [*dict.fromkeys((*names.own_ids, *found.own_ids))]
        names.own_extents, names.other_extents = found.own_extents, found.other_extents
        names.others |= found.others


def has_hosts(cluster: Cluster) -> bool:
    """Whether the cluster has several hosts, and so tables with replicas."""
    return cluster.settings.standalone.hosts > 1


def learn_inside(cluster: Cluster, names: Names) -> None:
    """Learn what a process of the cluster knows now, on a cluster with hosts; hosts and logs are others'. Raises
    TransientError.
    """
    settings, own = cluster.settings, cluster.settings.instance
    coordination = open_coordination(settings)
    hello = Hello(PROTOCOL_VERSION, own.instance_id, own.name, "tserver")
    with closing(coordination), closing(RpcPool(hello, settings.rpc, None, process_credentials(settings))) as pool:
        leader = coordination.leader()
        hosts = {info.host.name: info for info in coordination.sessions("tserver") if info.alive and info.host}
        tservers = {name: pool.tserver(info.address) for name, info in hosts.items()}
        disks = {name: info.host.incarnation for name, info in hosts.items() if info.host}
        held = [one for tserver in tservers.values() for one in tserver.replicas("", True).replicas]
        logs = [log for name, tserver in tservers.items() for log in tserver.list_logs(disks[name], "wal/", "")]
    accepted = [] if names.inside is None else names.inside.accepted
    names.inside = Inside(disks, held, logs, 1 if leader is None else leader.epoch, accepted)
    names.others |= {*disks, *logs}


def holders_of(cluster: Cluster, seed: int, names: Names) -> list[Holder]:
    """A client, a peer, and on a cluster with hosts a process of it."""
    store, own = SecretStore(cluster.directory), cluster.settings.instance
    process = Holder(
        "a process",
        store.own("cluster"),
        Hello(PROTOCOL_VERSION, own.instance_id, own.name, "tserver"),
        iter(Attacker(f"{seed}:process", names, PROCESS_METHODS, may_harm=True)),
    )
    peer = store.make_for_peer("fuzz", own.name, own.instance_id, FUZZ_INSTANCE, FUZZ_TABLES).secret
    return [
        *([process] if names.inside is not None else ()),
        Holder(
            "a client",
            store.own("client"),
            Hello(PROTOCOL_VERSION, "", "", "client"),
            iter(Attacker(f"{seed}:client", names, CLIENT_METHODS, may_harm=True)),
        ),
        Holder(
            PEER,
            peer,
            Hello(PROTOCOL_VERSION, FUZZ_INSTANCE, "fuzz", "replay"),
            iter(Attacker(f"{seed}:peer", names, PEER_METHODS, may_harm=False)),
        ),
    ]


def _send(
    cluster: Cluster,
    address: str,
    holder: Holder,
    attack: Attack,
    half_sent: deque[Line],
    names: Names,
    rights: PeerRights,
) -> str:
    """Send an attack; returns its outcome in a word."""
    sent_ns = SystemClock().boot_ns()
    try:
        line = holder.lines.pop(address, None) or Line(cluster, address, holder.secret, holder.hello)
        line.send(attack)
    except OSError:
        return "not heard"
    if not attack.is_whole:
        half_sent.append(line)
        if len(half_sent) > HALF_SENT_MAX:
            half_sent.popleft().close()
        return "half sent"
    if method_codec(attack.service, attack.method).oneway:
        line.close()
        return "one way"
    try:
        raw = line.hear()
    except TimeoutError:
        raise InvariantError(f"no answer within {ANSWER_MS} ms to {attack.method} ({attack.what})") from None
    except (OSError, CorruptionError):
        line.close()
        return "closed"
    holder.lines[address] = line
    outcome = judge(attack, raw, names)
    if outcome == "answered" and holder.name == PEER:
        rights.check(attack, arguments_of(attack), sent_ns)
    return outcome


def judge(attack: Attack, raw: bytes, names: Names) -> str:
    """Raises InvariantError when the answer tells of a failure that nobody foresaw."""
    try:
        answered = method_codec(attack.service, attack.method).read_answer(memoryview(raw), 1)
    except BookkeeperError:
        return "answered otherwise"  # the name or the number of the call was changed
    if answered.error is None:
        if attack.method == "open_stream" and attack.what == "as it is":
            names.tokens.append((answered.result, only_argument(attack)))
            del names.tokens[:-50]
        if names.inside is not None and attack.method == "segment_offer" and answered.result.state == ACCEPTED:
            names.inside.accepted.append(only_argument(attack))
            return "accepted"
        return "answered"
    if answered.error.details.get("code") == INTERNAL_CODE:
        raise InvariantError(f"{attack.method} ({attack.what}) failed unexpectedly: {attack.message[:2000]!r}")
    return answered.error.code


def only_argument(attack: Attack) -> Any:
    """The argument of a call that was understood."""
    (argument,) = arguments_of(attack)
    return argument


def arguments_of(attack: Attack) -> tuple[Any, ...]:
    """The arguments of a call that was understood."""
    frame = memoryview(attack.message)
    return method_codec(attack.service, attack.method).read_call(frame, read_start(frame))


def addresses_of(cluster: Cluster) -> Mapping[str, Sequence[str]]:
    """The addresses of each service."""
    with closing(open_coordination(cluster.settings)) as coordination:
        found = {info.address for info in coordination.sessions("tserver") if info.alive}
    return {"Master": [cluster.quorum], "TServer": sorted(found)}


def _close_all(holders: list[Holder], half_sent: deque[Line]) -> None:
    for line in itertools.chain(half_sent, *(holder.lines.values() for holder in holders)):
        line.close()


# ---- what must hold


@contextmanager
def watched(cluster: Cluster, names: Names) -> Iterator[None]:
    """At the end all processes are those of the beginning, within their memory, and others' tablets have no problem."""
    before = memory_of(cluster)
    yield
    most = limits_of(cluster.settings.rpc).process_bytes + SLACK_BYTES
    problems = process_problems(before, memory_of(cluster), most)
    tablets = tablet_problems(cluster, names)
    if names.inside is not None:  # a process may stop serving any tablet, and the master lets it be served again
        with suppress(UnavailableError):
            cluster.wait_until(lambda: not tablet_problems(cluster, names), "tablets without problems", SERVED_S)
        tablets = tablet_problems(cluster, names)
    if problems or tablets:
        raise InvariantError("; ".join([*problems, *tablets]))


def tablet_problems(cluster: Cluster, names: Names) -> list[str]:
    """Why others' tablets are not served as they should be."""
    found = [
        place
        for table_id in sorted({extent.table_id for extent in names.other_extents})
        for place in cluster.client.tables.locate(table_id)
    ]
    reasons = {
        one.extent: "no tserver serves it" if one.address is None else one.problem or one.warning for one in found
    }
    return [f"{extent}: {reason}" for extent, reason in reasons.items() if reason]


def process_problems(
    before: Mapping[tuple[str, int], int], after: Mapping[tuple[str, int], int], bytes_max: int
) -> list[str]:
    """Processes that ended, or grew by more than ``bytes_max``."""
    ended = [f"{role} ended" for role, pid in before if (role, pid) not in after]
    grown = [
        f"{key[0]} grew from {before[key]} to {after[key]} bytes: at most {bytes_max} more are allowed"
        for key in before.keys() & after.keys()
        if after[key] > before[key] + bytes_max
    ]
    return ended + grown


def memory_of(cluster: Cluster, besides: Sequence[str] = ()) -> Mapping[tuple[str, int], int]:
    """The largest size that each process has had, by role and pid; ``besides``: of these roles, too."""
    own = range(1, cluster.settings.standalone.tservers + 1)
    others = range(2, cluster.settings.standalone.hosts + 1)
    roles = ["master", *(f"tserver{n}" for n in own), *(f"host{n}.tserver1" for n in others), *besides]
    return {(role, pid): _peak_bytes(pid) for role in roles for pid in [cluster.pid(role)] if psutil.pid_exists(pid)}


def _peak_bytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text("ascii")
    (peak,) = (line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(peak) * 1024
