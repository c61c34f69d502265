"""Keeps the host's own Thrift gateway running, and ends it when it stands still (rule R4)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

from msgspec import Struct, field

from bookkeeper.clock import Clock
from bookkeeper.config.sections import Settings
from bookkeeper.errors import BookkeeperError
from bookkeeper.metadata.flight import GATEWAY_LOOK_MS, gateway_silence_ms
from bookkeeper.runtime.threads import guarded_thread
from bookkeeper.standalone.children.forked_starts import restart_delay_ms
from bookkeeper.standalone.hbase.gateway import LOOK_MS, PROBE_MS, START_MS, Gateway, refuse_missing_parts

PROBE_INTERVAL_MS = GATEWAY_LOOK_MS - PROBE_MS


def keep_gateway(
    settings: Settings, report: Callable[[str], None], clock: Clock, stop: threading.Event
) -> list[threading.Thread]:
    """Keep the host's own gateway running until ``stop`` is set. Returns the thread of the watch once the gateway has
    answered, or ``stop`` is set; none for books without a gateway of ours. Raises NotFoundError when Java or the jars
    are missing.
    """
    if not settings.hbase_quorum:
        return []
    refuse_missing_parts()
    watch = GatewayWatch(Gateway.of_host(settings), gateway_silence_ms(settings), report, clock)
    thread = guarded_thread("gateway", partial(watch.run, stop))
    thread.start()
    while not watch.has_answered.is_set() and not clock.wait(stop, LOOK_MS):
        continue
    return [thread]


class GatewayWatch(Struct):
    """The watch over one gateway. ``silence_ms``: a gateway without an answer for longer is ended: the limit of R4.

    The time of an answer is that at which it was asked for: what the gateway has read since then is younger.
    """

    gateway: Gateway
    silence_ms: int
    report: Callable[[str], None]
    clock: Clock
    has_answered: threading.Event = field(default_factory=threading.Event)
    _started_ns: int = 0
    _answered_ns: int | None = None
    """When the present process was asked last with success; None before its first answer."""
    _start_at_ns: int = 0
    _delay_ms: int | None = None
    _reported: str = ""

    def run(self, stop: threading.Event) -> None:
        """Watch until ``stop`` is set; then the gateway is ended."""
        try:
            while not stop.is_set():
                self.run_once()
                self.clock.wait(stop, PROBE_INTERVAL_MS if self._answered_ns is not None else LOOK_MS)
        finally:
            self.gateway.kill()

    def run_once(self) -> None:
        """One look: start the gateway if it has ended, ask it, and end it if it is silent for too long."""
        now_ns = self.clock.boot_ns()
        if self.gateway.has_ended():
            if self._started_ns:
                self._note_end(now_ns, "this host's Thrift gateway ended")
            if now_ns >= self._start_at_ns:
                self._start(now_ns)
            return
        if self.gateway.answers():
            self._answered_ns = now_ns
            self._reported = ""
            self.has_answered.set()
        elif self._silent_ms() > (START_MS if self._answered_ns is None else self.silence_ms):
            silent_s = self._silent_ms() / 1000
            self.gateway.kill()
            self._note_end(now_ns, f"this host's Thrift gateway was silent for {silent_s:.1f} s and was ended")

    def _silent_ms(self) -> float:
        since_ns = self._started_ns if self._answered_ns is None else self._answered_ns
        return (self.clock.boot_ns() - since_ns) / 1e6

    def _note_end(self, now_ns: int, what: str) -> None:
        self._delay_ms = restart_delay_ms(self._delay_ms, (now_ns - self._started_ns) // 1_000_000)
        self._start_at_ns, self._started_ns, self._answered_ns = now_ns + self._delay_ms * 1_000_000, 0, None
        when = f"in {self._delay_ms} ms" if self._delay_ms else "at once"
        self._report_once(f"{what}, its log is {self.gateway.log}; starting again {when}")

    def _start(self, now_ns: int) -> None:
        try:
            self.gateway.start()
        except BookkeeperError as error:
            self._delay_ms = restart_delay_ms(self._delay_ms, 0)
            self._start_at_ns = now_ns + self._delay_ms * 1_000_000
            self._report_once(error.message)
        else:
            self._started_ns = now_ns

    def _report_once(self, text: str) -> None:
        if text != self._reported:
            self.report(text)
        self._reported = text
