"""The bounds of a server, its end, and the address at which it listens."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.config.sections import RpcSettings
from bookkeeper.errors import InvalidInputError, OverloadedError, UnavailableError
from bookkeeper.rpc.address import Address, parse_address
from bookkeeper.rpc.dispatch import ServedService
from bookkeeper.rpc.rpc_server import Binding, RpcServer
from bookkeeper.runtime.process_exit import EXIT_CODE
from bookkeeper.standalone.ports import free_ports
from tests.support.faults import fault
from tests.support.rpc_peer import SERVER_HELLO, Echo, Gate, pooled, serving
from tests.support.tcp_proxy import TcpProxy


@pytest.fixture
def echo() -> Echo:
    return Echo()


def test_calls_of_a_bounded_method_beyond_the_bound_are_told_to_back_off(echo: Echo) -> None:
    gate = Gate()
    echo.on_run = gate
    with serving(echo, concurrency={"run": 2}) as server, pooled() as pool:
        replay = pool.replay(server.address)
        threads = [threading.Thread(target=replay.run, args=(b"",)) for _ in range(2)]
        for thread in threads:
            thread.start()
        gate.wait_for(2)
        with pytest.raises(OverloadedError):
            replay.run(b"")
        replay.warm()
        gate.opened.set()
        for thread in threads:
            thread.join()
        assert replay.run(b"again") == b"again"


def test_many_clients_at_once_are_all_served(echo: Echo) -> None:
    answers: list[bytes] = []
    with serving(echo, threads_max=4) as server, pooled() as pool:
        replay = pool.replay(server.address)

        def work(number: int) -> None:
            for turn in range(20):
                data = bytes([number]) * (1 + turn * 5000)
                answers.append(data if replay.run(data) == data else b"wrong")

        threads = [threading.Thread(target=work, args=(n,)) for n in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(answers) == 320
    assert b"wrong" not in answers


def test_stopping_lets_a_call_end_and_takes_no_more(echo: Echo) -> None:
    gate, answers = Gate(), []
    echo.on_run = gate
    with serving(echo) as server, pooled() as pool:
        replay = pool.replay(server.address)
        calling = threading.Thread(target=lambda: answers.append(replay.run(b"last")))
        calling.start()
        gate.wait_for(1)
        stopping = threading.Thread(target=server.stop, kwargs={"grace_ms": 20_000})
        stopping.start()
        gate.opened.set()
        stopping.join()
        calling.join()
        assert answers == [b"last"]
        with pytest.raises(UnavailableError):
            replay.run(b"")
        server.stop()


class Nudged:
    """A master that only listens to nudges."""

    def __init__(self) -> None:
        self.heard = threading.Semaphore(0)

    def nudge(self, session_id: str) -> None:
        self.heard.release()
        if session_id == "bad":
            raise InvalidInputError("bad")

    def __getattr__(self, name: str) -> Any:
        return lambda *_: "h:1"


def test_a_oneway_call_has_no_answer_and_its_failure_closes_nothing() -> None:
    handler = Nudged()
    with serving(handler, "Master") as server, pooled() as pool:
        master = pool.master(server.address)
        for session in ("s", "bad", "s"):
            master.nudge(session)
            assert handler.heard.acquire(timeout=30)
        assert master.leader() == "h:1"


def test_an_address_that_is_taken_is_named(echo: Echo) -> None:
    with serving(echo) as server:
        taken = Binding(port=parse_address(server.address).port)
        with pytest.raises(UnavailableError, match=f"can't listen at {server.address} "):
            RpcServer(ServedService("Replay", echo), SERVER_HELLO, RpcSettings(), binding=taken)


@pytest.mark.skipif(not Path("/proc/sys/net/ipv6").exists(), reason="no IPv6 here")
def test_a_server_may_listen_at_an_ipv6_address(echo: Echo) -> None:
    with serving(echo, bind_host="::1") as server:
        assert server.address.startswith("[::1]:")
        with pooled() as pool:
            assert pool.replay(server.address).run(b"ping") == b"ping"


def others_call_the_announced_address(echo: Echo) -> None:
    settings = RpcSettings(announced_host="localhost")
    served = ServedService("Replay", echo)
    (port,) = free_ports(1)
    with TcpProxy("127.0.0.1", port) as proxy:
        binding = Binding(port=port, announced_port=proxy.port)
        server = RpcServer(served, SERVER_HELLO, settings, binding=binding)
        assert server.address == f"localhost:{proxy.port}", "others are told the address that it binds"
        server.start()
        try:
            with pooled() as pool:
                assert pool.replay(server.address).run(b"ping") == b"ping"
        finally:
            server.stop()
        assert proxy.accepted == 1


def test_others_call_the_announced_address(echo: Echo) -> None:
    others_call_the_announced_address(echo)


def test_without_the_setting_they_are_told_the_bound_one(echo: Echo) -> None:
    with fault("announces-what-it-binds"), pytest.raises(AssertionError, match="told the address that it binds"):
        others_call_the_announced_address(echo)


@pytest.mark.parametrize(
    ("binding", "announced"),
    [
        (Binding(), "west.example:7"),
        (Binding(port=9), "west.example:7"),
        (Binding(announced_port=8), "west.example:8"),
        (Binding("127.0.0.1"), "127.0.0.1:7"),
        (Binding("127.0.0.1", 9, "m.example", 8), "m.example:8"),
        (Binding("0.0.0.0", 9, "::2"), "[::2]:7"),
    ],
)
def test_each_part_is_announced_by_itself(binding: Binding, announced: str) -> None:
    settings = RpcSettings(bind_host="0.0.0.0", announced_host="west.example")
    bound = Address(binding.host or "0.0.0.0", 7)
    assert str(binding.announced(settings, bound)) == announced


DYING_SERVER = """
from bookkeeper.rpc.dispatch import Dispatcher
from tests.support.rpc_peer import Echo, pooled, serving

def die(self, frame, conversation):
    raise MemoryError

Dispatcher.respond = die
with serving(Echo()) as server, pooled() as pool:
    pool.replay(server.address).warm()
"""


def test_a_thread_that_dies_takes_its_process_down() -> None:
    done = subprocess.run(
        [sys.executable, "-c", DYING_SERVER], capture_output=True, text=True, cwd=Path(__file__).parents[3], check=False
    )
    assert done.returncode == EXIT_CODE
    assert "MemoryError" in done.stderr
