"""The machines of tests: what each of them has for itself, what the switch cuts, and that nothing outlives a test."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.support.machines import BOOT_OFFSET_S, Machine, Machines, Process, why_no_machines
from tests.support.replay_process import all_gone
from tests.support.tservers import wait_until
from tests.support.zookeeper import state_of

pytestmark = pytest.mark.integration

PORT = 5_000
END_S = 30.0


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    if (reason := why_no_machines()) is not None:
        pytest.skip(reason)
    with Machines(tmp_path, 2) as made:
        yield made


def wait_for_pids(process: Process) -> list[int]:
    wait_until(lambda: bool(process.pids), "a command that runs")
    return process.pids


def udp(machine: Machine) -> socket.socket:
    with machine.network():
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.bind((machine.address, PORT))
    return made


def test_a_machine_has_its_own_name_pids_boot_id_clock_and_directory(machines: Machines) -> None:
    one, other = machines.all
    boot_ids = {Path("/proc/sys/kernel/random/boot_id").read_text()}
    for machine in machines.all:
        boot_ids.add(machine.run("cat", "/proc/sys/kernel/random/boot_id"))
        assert machine.run("hostname") == f"{machine.name}\n"
        assert machine.run("cat", "/proc/1/comm") == "sleep\n"
    assert len(boot_ids) == 3
    before_s = time.clock_gettime(time.CLOCK_BOOTTIME)
    up_s = [uptime_s(machine) for machine in machines.all]
    assert up_s[0] > before_s + BOOT_OFFSET_S - 1
    assert up_s[1] > up_s[0] + BOOT_OFFSET_S - 1
    (one.directory / "file").write_text("1")
    assert one.run("cat", str(one.directory / "file")) == "1"
    assert other.run("ls", str(one.directory)) == ""
    assert [machine.run("ls", str(machine.here)).split() for machine in machines.all] == [
        ["boot_id", "file", "hosts"],
        ["boot_id", "hosts"],
    ]
    assert one.run("pwd") == f"{Path.cwd()}\n"


def test_two_machines_reach_each_other_and_a_cut_is_of_one_direction(machines: Machines) -> None:
    one, other = machines.all
    with udp(one) as here, udp(other) as there:
        here.sendto(b"1", (other.address, PORT))
        assert there.recv(16) == b"1"
        machines.cut_one_way(one, other)
        here.sendto(b"2", (other.address, PORT))
        wait_until(lambda: machines.dropped(one, other) >= 1, "the end of a packet")
        there.sendto(b"3", (one.address, PORT))
        assert here.recv(16) == b"3", "the other direction is cut, too"
        machines.cut_one_way(other, one)
        there.sendto(b"4", (one.address, PORT))
        wait_until(lambda: machines.dropped(other, one) >= 1, "the end of a packet")
        machines.join_all()
        here.sendto(b"5", (other.address, PORT))
        there.sendto(b"6", (one.address, PORT))
        assert (there.recv(16), here.recv(16)) == (b"5", b"6"), "a packet came that was cut"
        assert machines.dropped(one, other) == 0


def uptime_s(machine: Machine) -> float:
    return float(machine.run("cat", "/proc/uptime").split()[0])


def connected(machines: Machines) -> tuple[socket.socket, subprocess.Popen[str]]:
    """A connection from the first machine to a process on the second one."""
    one, other = machines.all
    code = f"""
import socket
server = socket.create_server(({other.address!r}, {PORT}))
print("listens", flush=True)
connection, _ = server.accept()
connection.sendall(b"hello")
connection.recv(1)
"""
    process = subprocess.Popen(other.inside([sys.executable, "-c", code]), stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "listens\n"
    with one.network():
        connection = socket.create_connection((other.address, PORT))
    assert connection.recv(16) == b"hello"
    return connection, process


def test_a_killed_machine_closes_its_connections(machines: Machines) -> None:
    _, other = machines.all
    connection, process = connected(machines)
    with connection, process:
        other.kill9()
        assert connection.recv(1) == b""


def test_a_machine_without_power_says_nothing(machines: Machines) -> None:
    _, other = machines.all
    connection, process = connected(machines)
    with connection, process:
        machines.pull(other)
        connection.setblocking(False)
        with pytest.raises(BlockingIOError):
            connection.recv(1)


def test_a_machine_that_lost_its_power_boots_with_its_address_and_directory(machines: Machines) -> None:
    one, other = machines.all
    before, up_s = other.run("cat", "/proc/sys/kernel/random/boot_id"), uptime_s(other)
    (other.directory / "file").write_text("1")
    with udp(one) as here:
        with udp(other) as there:
            here.sendto(b"1", (other.address, PORT))
            assert there.recv(16) == b"1"
            machines.pull(other)
        machines.power_on(other)
        assert other.run("cat", "/proc/sys/kernel/random/boot_id") != before
        assert uptime_s(other) < up_s, "the boot clock goes on"
        assert other.run("cat", str(other.directory / "file")) == "1"
        assert other.run("ls", str(one.directory)) == ""
        with udp(other) as there:
            here.sendto(b"2", (other.address, PORT))
            assert there.recv(16) == b"2"


def test_a_machine_stands_still_as_a_whole_and_goes_on(machines: Machines) -> None:
    _, other = machines.all
    processes = [other.start(["sleep", "infinity"]) for _ in range(2)]
    wait_until(lambda: all(process.pids for process in processes), "two processes")
    pids = [pid for process in processes for pid in process.pids]
    other.suspend()
    assert [state_of(Path(f"/proc/{pid}")) for pid in pids] == ["T", "T"]
    other.resume()
    assert all(state_of(Path(f"/proc/{pid}")) in "RS" for pid in pids)
    inner = int(other.run("pgrep", "--newest", "sleep"))
    assert other.pid_of(inner) in pids
    for process in processes:
        process.kill()
        process.wait()


def test_a_process_that_stood_still_is_killed_and_its_end_is_told(machines: Machines) -> None:
    process = machines.all[0].start(["sleep", "infinity"])
    (pid,) = wait_for_pids(process)
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: state_of(Path(f"/proc/{process.pid}")) == "T", "nsenter, which stands still with it")
    os.kill(pid, signal.SIGCONT)
    process.kill()
    assert process.wait(END_S) != 0, "nobody hears of its end"


def networks_in_use() -> dict[int, set[int]]:
    """The processes in each network, by its number."""
    found = dict[int, set[int]]()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            found.setdefault((process / "ns" / "net").stat().st_ino, set()).add(int(process.name))
        except OSError:
            continue  # it has ended
    return found


def processes_in(networks: set[int]) -> list[psutil.Process]:
    """The processes in these networks, each of which has some; a number is of another network afterwards."""
    in_use = networks_in_use()
    assert networks <= in_use.keys()
    return [psutil.Process(pid) for network in networks for pid in in_use[network]]


def networks_of(machines: Machines) -> set[int]:
    pids = [machine.pid for machine in machines.all] + [machines._switch.pid]
    return {Path(f"/proc/{pid}/ns/net").stat().st_ino for pid in pids}


def named_namespaces() -> list[str]:
    """Those that outlive their processes, but for those of :class:`Namespace` in other tests."""
    mounts = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines() if " nsfs " in line]
    return [place for _, _, _, _, place, *_ in mounts if not Path(place).name.startswith("bk")]


def test_nothing_is_left_of_machines(tmp_path: Path) -> None:
    if (reason := why_no_machines()) is not None:
        pytest.skip(reason)
    before = named_namespaces()
    with Machines(tmp_path, 2) as machines:
        networks = networks_of(machines)
        assert len(networks) == 3
        process = subprocess.Popen(machines.all[0].inside(["sleep", "infinity"]))
        inside = processes_in(networks)
    assert process.wait() != 0  # it is of the machine's network, and ends after the machine
    assert all_gone(inside)
    assert named_namespaces() == before


ABANDONED = """
import subprocess, sys, threading
from pathlib import Path
from tests.integration.test_machines import networks_of
from tests.support.machines import Machines
with Machines(Path(sys.argv[1]), 2) as machines:
    daemon = ["setsid", "sh", "-c", "trap '' HUP TERM; echo ready; exec sleep infinity"]
    process = subprocess.Popen(machines.all[0].inside(daemon), stdout=subprocess.PIPE)
    process.stdout.readline()
    print(*networks_of(machines), flush=True)
    threading.Event().wait()
"""


def test_nothing_is_left_of_machines_whose_test_is_killed(tmp_path: Path) -> None:
    if (reason := why_no_machines()) is not None:
        pytest.skip(reason)
    before = named_namespaces()
    code = [sys.executable, "-c", ABANDONED, str(tmp_path)]
    with subprocess.Popen(code, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        networks = set(map(int, process.stdout.readline().split()))
        inside = processes_in(networks)
        assert len(networks) == 3
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        assert all_gone(inside), "the end of the machines"
    assert named_namespaces() == before
