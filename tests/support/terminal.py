"""A program on a terminal of its own: keys go in, what it shows comes out.

Arrives: a command line. Leaves: :class:`Terminal`, which waits for what it expects to see. The program ends with it.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence
from types import TracebackType

LIMIT_S = 60.0
TAB_S = 4.0
"""A program that has read no names in time asks for them again after 3 s."""
LINES, COLUMNS = 50, 200
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]|[\r\x07]")
_READ_BYTES = 65_536
_PLAIN = {"TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1"}
"""A program that asks for the position of the cursor gets no answer here."""


class Terminal:
    """One running program; a context manager."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        self._process = subprocess.Popen(
            command,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**os.environ, **_PLAIN, **environment},
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0) and None,
        )
        os.close(slave)
        self._raw = ""
        self._seen = 0

    def press(self, keys: str) -> None:
        """Send keys; ``\\r`` is Enter, ``\\x03`` Ctrl-C, ``\\x04`` Ctrl-D, ``\\t`` Tab."""
        os.write(self._master, keys.encode())

    def expect(self, text: str) -> str:
        """The output since the last call, up to ``text`` and with it. Raises AssertionError when it does not come."""
        limit = time.monotonic() + LIMIT_S
        while text not in (shown := self._shown()[self._seen :]):
            left = limit - time.monotonic()
            assert left > 0, f"{text!r} was not shown, but {shown!r}"
            assert self._read(left), f"the program ended before it showed {text!r}: {shown!r}"
        end = shown.index(text) + len(text)
        self._seen += end
        return shown[:end]

    def complete(self, keys: str, text: str) -> None:
        """Send keys and Tab, and expect ``text``; Tab again as long as the program knows no name in its time. Raises as
        :meth:`expect`.
        """
        self.press(f"{keys}\t")
        pressed = began = time.monotonic()
        while text not in self._shown()[self._seen :] and time.monotonic() < began + LIMIT_S:
            if time.monotonic() > pressed + TAB_S:
                self.press("\t")
                pressed = time.monotonic()
            if not self._read(TAB_S):
                break
        self.expect(text)

    @property
    def raw(self) -> str:
        """All that it has written, with what moves the cursor and sets colours."""
        return self._raw

    def wait(self) -> int:
        """The exit code, once it has ended by itself."""
        limit = time.monotonic() + LIMIT_S
        while self._read(max(0.0, limit - time.monotonic())):
            assert time.monotonic() < limit, f"it has not ended after {self._shown()[self._seen :]!r}"
        return self._process.wait(LIMIT_S)

    def _shown(self) -> str:
        return _CONTROL.sub("", self._raw)

    def _read(self, limit_s: float) -> bool:
        """Take what comes next, in this time; False when nothing will any more."""
        if not select.select([self._master], [], [], limit_s)[0]:
            return True
        try:
            more = os.read(self._master, _READ_BYTES).decode(errors="replace")
        except OSError:  # the other side of a pty whose last descriptor is closed
            return False
        self._raw += more
        return bool(more)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
        os.close(self._master)
