"""Calls between processes: a request is a task of the process that it reaches.

A task that is held, or whose process is suspended, is a request on its way: its caller gives up after its timeout, and
it may arrive later all the same. A lost request or answer is a caller that times out. A request may arrive late, so
that others overtake it, and more than once: as when its caller tries again, and the first try is still under way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from bookkeeper.errors import BookkeeperError, NoAnswerError, UnavailableError
from bookkeeper.rpc.contract.messages import Hello
from bookkeeper.rpc.dispatch import ServedService
from bookkeeper.rpc.rpc_pool import LOOK_MS
from bookkeeper.rpc.rpc_server import Binding
from bookkeeper.rpc.trust.rights import Caller, refuse_foreign_source
from tests.support.simulation.kernel import KilledError, Process
from tests.support.simulation.primitives import kernel


@dataclass(eq=False)
class Endpoint:
    """The server at an address."""

    address: str
    kind: str
    service: object
    hello: Hello
    process: Process
    open: bool = False


REPEATED = (
    "replicate",
    "apply_replicated",
    "open_stream",
    "report_work",
    "nudge",
    "assign_work",
    "run",
    "stream_done",
    "forget_streams",
    "confirm_config",
    "load_tablet",
    "unload_tablet",
)
"""Calls between processes of the product that may arrive twice. What users ask for, they repeat themselves."""


def once(_caller: str, _method: str) -> Sequence[int]:
    """A network without faults."""
    return (0,)


def never_lost(_caller: str, _method: str) -> bool:
    """An answer that always comes."""
    return False


@dataclass(eq=False)
class Network:
    """All addresses. ``arrivals``: after how many ns each copy of a request arrives; the caller waits for the answer to
    the first one. ``lose_answer``: whether it waits in vain.
    """

    endpoints: dict[str, Endpoint] = field(default_factory=dict)
    arrivals: Callable[[str, str], Sequence[int]] = once
    lose_answer: Callable[[str, str], bool] = never_lost
    _ports: int = 1_000

    def calm(self) -> None:
        """No more faults."""
        self.arrivals, self.lose_answer = once, never_lost

    def port(self) -> int:
        """A free port."""
        self._ports += 1
        return self._ports


class Net:
    """Which network there is now."""

    now: Network = Network()


class SimServer:
    """Stands for ``bookkeeper.rpc.rpc_server.RpcServer``."""

    def __init__(
        self,
        service: ServedService,
        hello: Hello,
        settings: object,
        clock: object = None,
        *,
        binding: Binding | None = None,
        entrance: object = None,
    ) -> None:
        del settings, clock, entrance
        host, port = (binding.host, binding.port) if binding is not None else (None, 0)
        address = f"{host or '127.0.0.1'}:{port or Net.now.port()}"
        self._endpoint = Endpoint(address, service.name, service.handler, hello, kernel().process_of_current())
        Net.now.endpoints[self._endpoint.address] = self._endpoint

    @property
    def address(self) -> str:
        return self._endpoint.address

    def start(self) -> None:
        self._endpoint.open = True

    def stop(self, grace_ms: int = 0) -> None:
        del grace_ms
        self._endpoint.open = False


@dataclass(eq=False)
class _Answer:
    done: bool = False
    result: Any = None
    error: BaseException | None = None


class SimPool:
    """Stands for ``bookkeeper.rpc.rpc_pool.RpcPool``."""

    def __init__(
        self,
        hello: Hello,
        settings: object = None,
        clock: object = None,
        credentials: object = None,
        silent_ms: int | None = None,
    ) -> None:
        del settings, clock, credentials
        self._hello = hello
        self._silent_ms = silent_ms

    def master(self, address: str, timeout_ms: float | None = None) -> Any:
        return _Stub(self._hello, address, timeout_ms, self._silent_ms)

    tserver = master
    replay = master

    @contextmanager
    def pipeline(self, address: str, service: str, method: str) -> Iterator[SimPipeline]:
        del service
        yield SimPipeline(_Stub(self._hello, address, None, None), method)

    def disconnect(self, address: str) -> None:
        """Calls have no connections."""

    def of_instance(self, instance_id: str) -> SimPool:
        del instance_id
        return self

    def peer_hello(self, address: str) -> Hello:
        endpoint = Net.now.endpoints.get(address)
        if endpoint is None or endpoint.process.dead:
            raise UnavailableError(f"no server answers at {address}")
        return endpoint.hello

    def close(self) -> None:
        """Nothing to let go of."""


class _Stub:
    def __init__(self, hello: Hello, address: str, timeout_ms: float | None, silent_ms: int | None) -> None:
        self._hello = hello
        self._address = address
        self._timeout_ms = 30_000 if timeout_ms is None else timeout_ms
        self._silent_ms = silent_ms

    def __getattr__(self, method: str) -> Callable[..., Any]:
        return lambda *arguments: self._call(method, arguments)

    def _call(self, method: str, arguments: tuple[Any, ...]) -> Any:
        return self.wait(method, *self.begin(method, arguments))

    def begin(self, method: str, arguments: tuple[Any, ...]) -> tuple[Endpoint, _Answer]:
        """Send a request."""
        k, caller = kernel(), kernel().process_of_current()
        k.pause(f"call {method} at {self._address}")
        endpoint = Net.now.endpoints.get(self._address)
        if endpoint is None or endpoint.process.dead or not endpoint.open:
            raise UnavailableError(f"no server answers at {self._address}")
        answer = _Answer()
        lost = Net.now.lose_answer(caller.name, method)
        for number, delay_ns in enumerate(Net.now.arrivals(caller.name, method)):
            self._send(endpoint, method, arguments, answer if number == 0 else _Answer(), lost, delay_ns)
        return endpoint, answer

    def wait(self, method: str, endpoint: Endpoint, answer: _Answer) -> Any:
        """The result of a request."""
        k, process = kernel(), endpoint.process
        limit_ms = self._timeout_ms
        if self._silent_ms is not None and process.suspended:
            limit_ms = min(limit_ms, LOOK_MS + self._silent_ms)
        k.wait(f"answer to {method}", lambda: answer.done or process.dead, int(limit_ms * 1e6))
        if answer.error is not None:
            raise answer.error
        if not answer.done:
            kind = UnavailableError if self._silent_ms is None or process.dead else NoAnswerError
            raise kind(f"{method} at {self._address} was not answered")
        return answer.result

    def _send(
        self,
        endpoint: Endpoint,
        method: str,
        arguments: tuple[Any, ...],
        answer: _Answer,
        lost: bool,
        delay_ns: int,
    ) -> None:
        def serve() -> None:
            if delay_ns:
                kernel().wait("on its way", lambda: False, delay_ns)
            try:
                refuse_foreign_source(Caller(self._hello), endpoint.kind, method, arguments)
                result = getattr(endpoint.service, method)(*arguments)
            except KilledError:
                raise
            except BookkeeperError as error:
                answer.error = error
            else:
                answer.result = result
            if lost:
                kernel().note(f"the answer to {method} is lost")
                answer.error = None
                return
            answer.done = True

        kernel().spawn(endpoint.process, f"rpc-{method}", serve, hello=self._hello)


class SimPipeline:
    """Stands for ``bookkeeper.rpc.rpc_pool.CallPipeline``; its requests may overtake each other."""

    def __init__(self, stub: _Stub, method: str) -> None:
        self._stub = stub
        self._method = method
        self._sent: deque[tuple[Endpoint, _Answer]] = deque()

    def send(self, *arguments: Any) -> None:
        self._sent.append(self._stub.begin(self._method, arguments))

    def receive(self) -> Any:
        return self._stub.wait(self._method, *self._sent.popleft())


def caller() -> Caller | None:
    """Stands for ``bookkeeper.rpc.dispatch.caller``."""
    current = kernel().current
    found = None if current is None else current.hello
    return Caller(found) if isinstance(found, Hello) else None
