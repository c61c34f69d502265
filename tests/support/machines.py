"""Machines of a test: namespaces with a network, pids, ``/proc``, a boot id and a boot clock of their own. Root only.

They are joined by a switch, a bridge in a network of its own, which can cut any pair of them, also in one direction.
A machine does not see the directory of another one, and has its own at the same path as all others. It may stand still,
with all of its processes, and begin again after it lost its power. Nothing has a name outside of the processes that
hold it: with the test, however it ends, its machines end, all processes on them, and their networks.
"""

from __future__ import annotations

import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from bookkeeper.clock import SystemClock
from bookkeeper.standalone.children.parent_death import ended_with_parent

TOOLS = ("ebtables", "ip", "nsenter", "setpriv", "unshare")
SBIN = "/usr/sbin:/sbin"
BOOT_OFFSET_S = 100_000
"""The boot clocks of two machines differ by this, and theirs from that of the test."""

COUNT_MAX = 9
REBOOT_BACK_S = 5_000
"""The boot clock of a machine goes back by this with each boot after the first."""

NETWORK = "198.19.0"
"""Of the range for tests; no other network has a route to it."""

_UNSHARE = ("unshare", "--net", "--fork", "--kill-child")
_MACHINE = (*_UNSHARE, "--pid", "--uts", "--mount-proc", "--time", "--boottime")
_BEGIN = """
hostname "$1" && mount --bind "$2" /proc/sys/kernel/random/boot_id && mount --bind "$3" /etc/hosts || exit
mount --bind "$4" "$5" && shift 5 || exit
for other; do mount -t tmpfs -o size=1m none "$other" || exit; done
echo ready
exec sleep infinity
"""
_CLONE_NEWNET = 0x40000000


def why_no_machines() -> str | None:
    """Why no machine can be made here; None if it can."""
    if os.geteuid() != 0:
        return "NO MACHINES, so nothing was tested on several of them: this needs root"
    missing = [tool for tool in TOOLS if shutil.which(tool, path=_path()) is None]
    if missing:
        return f"NO MACHINES: {' and '.join(missing)} missing; run 'make system-deps'"
    tried = subprocess.run([*_MACHINE, "1", "true"], capture_output=True, text=True, env=_environment(), check=False)
    return f"NO MACHINES: {tried.stderr.strip()}" if tried.returncode else None


class Machine:
    """One machine. Commands run on it as root of the same file system; it knows the names of the others."""

    def __init__(self, number: int, directory: Path, here: Path, others: Sequence[Path]) -> None:
        """``directory``: its own, which exists; ``here``: where it has that, too; ``others``: directories that it does
        not see.
        """
        self.number, self.directory, self.here = number, directory, here
        self.name, self.address = f"m{number}", f"{NETWORK}.{number}"
        self._others, self.boots = list(map(str, others)), 0
        self.boot_again()

    def boot_again(self) -> None:
        """Begin, also again after :meth:`kill9`: with another boot id, and a boot clock that goes back. The network has
        no link yet. Raises OSError.
        """
        self.boots += 1
        boot_id = self.directory / "boot_id"
        boot_id.write_text(f"{uuid.uuid4()}\n")
        names = self.directory / "hosts"
        names.write_text("127.0.0.1 localhost\n" + "".join(f"{NETWORK}.{n} m{n}\n" for n in range(1, COUNT_MAX + 1)))
        paths = map(str, (boot_id, names, self.directory, self.here))
        begin = ["sh", "-c", _BEGIN, "begin", self.name, *paths, *self._others]
        ahead_s = self.number * BOOT_OFFSET_S - (self.boots - 1) * REBOOT_BACK_S
        self._holder = Holder([*_MACHINE, str(ahead_s), *begin])

    @property
    def pid(self) -> int:
        """Of its first process, which holds it, as the test sees it."""
        return self._holder.pid

    def inside(self, command: Sequence[str]) -> list[str]:
        """The command that runs ``command`` on this machine, in the directory of the test."""
        nsenter = shutil.which("nsenter", path=_path())
        assert nsenter is not None
        namespaces = ("--net", "--mount", "--uts", "--pid", "--time")
        return [nsenter, "--target", str(self.pid), *namespaces, f"--wdns={Path.cwd()}", *command]

    def start(self, command: Sequence[str], **named: Any) -> Process:
        """Start a command; ``named``: as of :class:`subprocess.Popen`."""
        return Process(self, command, **named)

    def run(self, *command: str) -> str:
        """Run a command, and return its output. Raises CalledProcessError."""
        return subprocess.run(
            self.inside(command), check=True, stdout=subprocess.PIPE, text=True, env=_environment()
        ).stdout

    @contextmanager
    def network(self) -> Iterator[None]:
        """Sockets that this thread makes in the block are on this machine, and stay there."""
        with Path("/proc/thread-self/ns/net").open() as own, Path(f"/proc/{self.pid}/ns/net").open() as there:
            _enter(there.fileno())
            try:
                yield
            finally:
                _enter(own.fileno())

    def kill9(self) -> None:
        """All its processes end at once, and its network goes. Their connections are closed; :meth:`Machines.pull` cuts
        them first.
        """
        for pid in self._starters():  # one that stands still would not take the end of its child
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        self._holder.end()

    def suspend(self) -> None:
        """All its processes stand still, together; they do so on return, and so do the ``nsenter`` that began them."""
        self.run("sh", "-c", "kill -STOP -1")
        clock, never = SystemClock(), threading.Event()
        while any(_state_of(pid) not in "TZ" for pid in (*self._pids(), *self._starters())):
            clock.wait(never, 1)

    def resume(self) -> None:
        """Let all its processes go on."""
        for pid in (*self._pids(), *self._starters()):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def _starters(self) -> list[int]:
        """The processes of the test that began processes here; they stand still when those do."""
        return [
            parent for pid in self._pids() if _namespace_of(parent := _parent_of(pid)) == _namespace_of(os.getpid())
        ]

    def pid_of(self, inner: int) -> int | None:
        """The pid of one of its processes as the test sees it; None when it has ended. ``inner``: as it is there."""
        return next((pid for pid in self._pids() if _inner_pid(pid) == inner), None)

    def _pids(self) -> list[int]:
        """Of all its processes, as the test sees them, except for the first one."""
        namespace = _namespace_of(self.pid)
        return [pid for pid in _all_pids() if namespace and pid != self.pid and _namespace_of(pid) == namespace]


def _all_pids() -> list[int]:
    return [int(path.name) for path in Path("/proc").glob("[0-9]*")]


def _namespace_of(pid: int) -> int:
    """That of its pids; 0 when it has ended."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/ns/pid").stat().st_ino
    return 0


def _parent_of(pid: int) -> int:
    """0 when it has ended."""
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[1])
    return 0


def _inner_pid(pid: int) -> int:
    """As the process itself sees it; 0 when it has ended."""
    with suppress(OSError):
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        return int(next(line.split()[-1] for line in lines if line.startswith("NSpid:")))
    return 0


def _state_of(pid: int) -> str:
    """T = it stands still, Z = it has ended."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]
    return "Z"


class Process(subprocess.Popen[str]):
    """A process on a machine. Its exit code comes through ``nsenter``, which the signals do not."""

    def __init__(self, machine: Machine, command: Sequence[str], **named: Any) -> None:
        super().__init__(machine.inside(command), text=True, env=_environment(), **named)

    @property
    def pids(self) -> list[int]:
        """Of the command, as the test sees it; none when it has ended, or did not begin."""
        return children_of(self.pid) if self.poll() is None else []

    def send_signal(self, sig: int) -> None:
        """Send a signal to the command. ``nsenter`` stands still with it, and then does not take its end: so it goes on
        with the command, and when that is killed.
        """
        for pid in self.pids:
            with suppress(ProcessLookupError):
                os.kill(pid, sig)
        if sig in (signal.SIGCONT, signal.SIGKILL):
            super().send_signal(signal.SIGCONT)


def children_of(pid: int) -> list[int]:
    """The processes that the first thread of a process has started."""
    return list(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))


class Holder:
    """A process that holds namespaces: the first process in them, or the one that ``unshare`` has started."""

    def __init__(self, command: Sequence[str]) -> None:
        """The command says that it is ready. Raises OSError when it does not."""
        self._descriptor: int | None = None
        self._outer = subprocess.Popen(
            ended_with_parent(command, signal.SIGKILL), stdout=subprocess.PIPE, text=True, env=_environment()
        )
        assert self._outer.stdout is not None
        if self._outer.stdout.readline() != "ready\n":
            self.end()
            raise OSError(f"{' '.join(command[:3])} failed with {self._outer.returncode}: see the lines above")
        (self.pid,) = children_of(self._outer.pid)
        self._descriptor = os.pidfd_open(self.pid)

    def end(self) -> None:
        """End it, and all processes of its namespace; they are gone on return."""
        self._outer.kill()
        self._outer.wait()
        if self._descriptor is not None:
            select.select([self._descriptor], [], [])
            os.close(self._descriptor)
            self._descriptor = None
        assert self._outer.stdout is not None
        self._outer.stdout.close()


class Machines:
    """Several machines and their switch; a context manager. ``directory`` gets one directory for each of them."""

    def __init__(self, directory: Path, count: int) -> None:
        """Raises OSError and CalledProcessError; :func:`why_no_machines` knows the usual reasons before."""
        homes, here = [directory / f"m{number}" for number in range(1, count + 1)], directory / "here"
        for home in (*homes, here):
            home.mkdir(parents=True)
        self._switch = Holder([*_UNSHARE, "sh", "-c", "echo ready; exec sleep infinity"])
        self.all: list[Machine] = []
        self._cuts: set[tuple[Machine, Machine]] = set()
        try:
            self._on_switch("ip", "link", "add", "switch", "type", "bridge")
            self._on_switch("ip", "link", "set", "switch", "up")
            for number, home in enumerate(homes, 1):
                self.all.append(Machine(number, home, here, [other for other in homes if other != home]))
                self._plug_in(self.all[-1])
        except BaseException:
            self.close()
            raise

    def _plug_in(self, machine: Machine) -> None:
        """The machine keeps its hardware address, so the others find it at once."""
        port = _port(machine)
        peer = ("peer", "name", "eth0", "address", f"02:00:00:00:00:{machine.number:02x}", "netns", str(machine.pid))
        self._on_switch("ip", "link", "add", "name", port, "type", "veth", *peer)
        self._on_switch("ip", "link", "set", port, "master", "switch", "up")
        machine.run("ip", "addr", "add", f"{machine.address}/24", "dev", "eth0")
        for link in ("lo", "eth0"):
            machine.run("ip", "link", "set", link, "up")

    def cut(self, one: Machine, other: Machine) -> None:
        """No packet goes between two machines any more, and none of them is told."""
        self.cut_one_way(one, other)
        self.cut_one_way(other, one)

    def cut_one_way(self, source: Machine, target: Machine) -> None:
        """No packet of ``source`` reaches ``target`` any more; packets of ``target`` reach ``source``."""
        if (source, target) not in self._cuts:
            self._cuts.add((source, target))
            self._on_switch("ebtables", "-A", "FORWARD", *_rule(source, target))

    def cut_off(self, machine: Machine) -> None:
        """:meth:`cut` a machine from all others."""
        for other in self.all:
            if other is not machine:
                self.cut(machine, other)

    def join_all(self) -> None:
        """Undo all cuts."""
        self._on_switch("ebtables", "-F", "FORWARD")
        self._cuts.clear()

    def join(self, machine: Machine) -> None:
        """Undo the cuts of one machine."""
        for source, target in sorted(self._cuts, key=lambda cut: (cut[0].number, cut[1].number)):
            if machine in (source, target):
                self._on_switch("ebtables", "-D", "FORWARD", *_rule(source, target))
                self._cuts.discard((source, target))

    def dropped(self, source: Machine, target: Machine) -> int:
        """Packets that a cut has dropped."""
        rule = " ".join(_rule(source, target))
        counted = (
            line.split(" , pcnt = ") for line in self._on_switch("ebtables", "-L", "FORWARD", "--Lc").splitlines()
        )
        return sum(int(found[1].split()[0]) for found in counted if found[0].strip() == rule)

    def pull(self, machine: Machine) -> None:
        """A machine loses its power: the others get nothing from it any more, not even the end of connections."""
        self.cut_off(machine)
        self._on_switch("ip", "link", "delete", _port(machine))
        machine.kill9()

    def power_on(self, machine: Machine) -> None:
        """A machine that was pulled boots, with its directory and address, and nothing cuts it off. It has no
        process yet. The thread that calls this has to live as long as the machine. Raises OSError, CalledProcessError.
        """
        machine.boot_again()
        self.join(machine)
        self._plug_in(machine)

    def close(self) -> None:
        """End all machines, and the switch."""
        for machine in self.all:
            machine.kill9()
        self._switch.end()

    def _on_switch(self, *command: str) -> str:
        inside = ["nsenter", "--target", str(self._switch.pid), "--net", *command]
        return subprocess.run(inside, check=True, stdout=subprocess.PIPE, text=True, env=_environment()).stdout

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _port(machine: Machine) -> str:
    """The link to a machine. When it goes the switch forgets on which port the machine is."""
    return f"port{machine.number}"


def _rule(source: Machine, target: Machine) -> tuple[str, ...]:
    """Packets between two addresses; those by which machines find each other (ARP) pass."""
    return ("-p", "IPv4", "--ip-src", source.address, "--ip-dst", target.address, "-j", "DROP")


def _enter(descriptor: int) -> None:
    """The calling thread is in this network from now on. Raises OSError."""
    if ctypes.CDLL(None, use_errno=True).setns(descriptor, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "a network can't be entered")


def _path() -> str:
    return f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}:{SBIN}"


def _environment() -> dict[str, str]:
    return {**os.environ, "PATH": _path()}
