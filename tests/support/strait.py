"""A strait that all traffic to some servers of this machine passes: open, slow, closed, or torn.

Arrives: connections to ``127.K.M.N:PORT``, a host of its own, passed on to ``127.0.0.1:PORT``. Leaves: the same bytes,
late or never; in answers each address ``127.0.0.1:PORT`` becomes the strait's own of the same length, and is listened
at from then on. So whoever is given one address behind the strait finds all others behind it, too. Bounded:
connections, and bytes on their way, which the peers' own windows hold. Nothing outlives the block.
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
from types import TracebackType
from typing import Any, Self

REAL_HOST = "127.0.0.1"
DIGITS = "23456789"
"""One of them keeps the length of an address."""
ADDRESSES = re.compile(rb"127\.0\.0\.1:(\d{2,5})")
CHUNK_BYTES = 64 * 1024
CONNECTIONS_MAX = 512
PATIENCE_S = 30.0
AT_ONCE = struct.pack("ii", 1, 0)
"""SO_LINGER: closing resets."""


class Strait:
    """A context manager; its methods are for the thread of the test."""

    def __init__(self) -> None:
        self._host = host = f"127.{secrets.choice(DIGITS)}.{secrets.choice(DIGITS)}.{secrets.choice(DIGITS)}"
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
        """Where a server at ``127.0.0.1:PORT`` is reached through the strait."""
        host, _, port = real.partition(":")
        assert host == REAL_HOST
        self._do(self._listen(int(port)))
        return f"{self._host}:{port}"

    def cut(self) -> None:
        """Let nothing pass, in either direction; connections stay, and new ones hang."""
        self._call(self._open.clear)

    def delay(self, delay_ms: float) -> None:
        """Hold up each part of a message for so long, in each direction."""

        def set_delay() -> None:
            self._delay_s = delay_ms / 1000

        self._call(set_delay)

    def reset(self) -> None:
        """Break every connection there is, with whatever is on its way."""
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
                far_reader, far_writer = await asyncio.open_connection(REAL_HOST, port)
            except OSError:
                return  # nobody listens there now: the caller sees its connection end
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
                writer.write(await self._translated(data) if answers else data)
                self.bytes_passed += len(data)
                await writer.drain()
        writer.close()

    async def _translated(self, data: bytes) -> bytes:
        for port in {int(found) for found in ADDRESSES.findall(data)}:
            await self._listen(port)
        return ADDRESSES.sub(rb"%s:\1" % self._host.encode(), data)

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
