"""A strait that all traffic to some servers of this machine passes: open, slow, closed, or torn.

Arrives: connections to ``127.K.M.N:PORT``, a host of its own, passed on to the servers' host and the same port. Leaves:
the same bytes, late or never: their tags and TLS hold. At each address of the servers' host that an answer names it
listens from then on; whoever has to pass the strait dials its host in place of the servers' (:func:`passing`,
:func:`let_pass`). Bounded: connections, and bytes on their way, which the peers' own windows hold. Nothing outlives the
block.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import socket
import struct
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from bookkeeper.rpc.channel import Channel
from bookkeeper.rpc.rpc_pool import RpcPool

REAL_HOST = "127.0.0.1"
VARIABLE = "BOOKKEEPER_TEST_STRAITS"
"""Hosts that the processes of a test dial in place of others, as ``REAL=STRAIT``."""
DIAL = Path(__file__).parent / "dial_strait"
"""A directory for ``PYTHONPATH``: it makes a Python process dial these hosts."""
CHUNK_BYTES = 64 * 1024
CONNECTIONS_MAX = 512
PATIENCE_S = 30.0
AT_ONCE = struct.pack("ii", 1, 0)
"""SO_LINGER: closing resets."""


def own_host() -> str:
    """A host of this machine that no other server uses."""
    return f"127.{secrets.randbelow(250) + 2}.{secrets.randbelow(254) + 1}.{secrets.randbelow(254) + 1}"


class Strait:
    """A context manager; its methods are for the thread of the test."""

    def __init__(self, real_host: str = REAL_HOST) -> None:
        """``real_host``: of the servers behind it."""
        self.real_host = real_host
        self._addresses = re.compile(rb"(?<!\d)%s:(\d{2,5})" % re.escape(real_host.encode()))
        self._host = host = own_host()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"strait-{host}", daemon=True)
        self._open = asyncio.Event()
        self._delay_s = 0.0
        self._listeners: dict[int, asyncio.Server] = {}
        self._connections: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.bytes_passed = 0

    def __enter__(self) -> Self:
        self._thread.start()
        self.mend()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._do(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    # ---- for the test

    def address(self, real: str) -> str:
        """The address of the strait that leads to a server behind it."""
        host, _, port = real.partition(":")
        assert host == self.real_host
        self._do(self._listen(int(port)))
        return f"{self._host}:{port}"

    @property
    def passing(self) -> dict[str, str]:
        """Environment variables that lead a process's connections to the servers' host through the strait."""
        return {VARIABLE: f"{self.real_host}={self._host}", "PYTHONPATH": str(DIAL)}

    def let_pass(self, pool: RpcPool) -> None:
        """The pool's connections to the servers' host pass the strait from now on."""
        connect = pool._connect

        def through(address: str, timeout_ms: float) -> Channel:
            behind = address.startswith(f"{self.real_host}:")
            return connect(self.address(address) if behind else address, timeout_ms)

        pool._connect = through  # type: ignore[method-assign]

    def cut(self) -> None:
        """Let nothing pass, in either direction; connections stay, and new ones hang."""
        self._call(self._open.clear)

    def delay(self, delay_ms: float) -> None:
        """Hold up each part of a message for so long, in each direction."""

        def set_delay() -> None:
            self._delay_s = delay_ms / 1000

        self._call(set_delay)

    def reset(self) -> None:
        """Break every connection, with the bytes on their way."""
        self._call(self._reset)

    def mend(self) -> None:
        """Let everything pass, what was held up first."""
        self.delay(0)
        self._call(self._open.set)

    # ---- inside the loop

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_S)

    def _call(self, act: Callable[[], None]) -> None:
        done: Future[None] = Future()

        def run() -> None:
            act()
            done.set_result(None)

        self._loop.call_soon_threadsafe(run)
        done.result(PATIENCE_S)

    async def _listen(self, port: int) -> None:
        if port not in self._listeners:

            async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                await self._serve(port, reader, writer)

            self._listeners[port] = await asyncio.start_server(serve, self._host, port)

    async def _serve(self, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._connections) >= 2 * CONNECTIONS_MAX:
            writer.close()
            return
        self._connections.add(writer)
        try:
            await self._open.wait()
            try:
                far_reader, far_writer = await asyncio.open_connection(self.real_host, port)
            except OSError:
                return  # no server listens there now: the caller sees its connection end
            self._connections.add(far_writer)
            pumps = [self._pump(reader, far_writer, False), self._pump(far_reader, writer, True)]
            self._tasks |= (tasks := {asyncio.ensure_future(pump) for pump in pumps})
            await asyncio.wait(tasks)
            self._tasks -= tasks
            self._end(far_writer)
        finally:
            self._end(writer)

    def _end(self, writer: asyncio.StreamWriter) -> None:
        self._connections.discard(writer)
        writer.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answers: bool) -> None:
        with suppress(OSError):  # broken: the other direction ends the same way
            while data := await reader.read(CHUNK_BYTES):
                if self._delay_s:
                    await asyncio.sleep(self._delay_s)
                await self._open.wait()
                if answers:
                    await self._listen_at_all(data)
                writer.write(data)
                self.bytes_passed += len(data)
                await writer.drain()
        writer.close()

    async def _listen_at_all(self, data: bytes) -> None:
        for port in {int(found) for found in self._addresses.findall(data)}:
            await self._listen(port)

    def _reset(self) -> None:
        for writer in list(self._connections):
            connected: socket.socket | None = writer.get_extra_info("socket")
            if connected is not None and not writer.is_closing():
                connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)
            writer.transport.abort()

    async def _close(self) -> None:
        for listener in self._listeners.values():
            listener.close()
        self._reset()
        self._open.set()
        for task in list(self._tasks):
            task.cancel()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        if others:
            await asyncio.wait(others, timeout=PATIENCE_S)
