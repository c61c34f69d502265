"""A network of its own for the servers of a test (``ip netns``), whose links to the test can be cut. Root only."""

from __future__ import annotations

import os
import shutil
import subprocess
from types import TracebackType
from typing import Self

TOOLS = ("ip", "iptables")
SBIN = "/usr/sbin:/sbin"


def why_no_namespaces() -> str | None:
    """Why no network of its own can be made here; None if it can."""
    if os.geteuid() != 0:
        return "NO NETWORK OF ITS OWN, so no cut link was tested: this needs root"
    missing = [tool for tool in TOOLS if shutil.which(tool, path=_path()) is None]
    if missing:
        return (
            f"NO NETWORK OF ITS OWN, so no cut link was tested: {' and '.join(missing)} missing; run 'make system-deps'"
        )
    return None


class Namespace:
    """A network, joined to that of the test by one link; a context manager. Addresses are of the range for tests
    (198.18.0.0/15), chosen by the test's pid.
    """

    def __init__(self) -> None:
        pid = os.getpid()
        self._name, self._link = f"bk{pid}", f"bk{pid % 1_000_000}"
        self._here, self.address = f"198.18.{pid % 256}.1", f"198.18.{pid % 256}.2"

    def __enter__(self) -> Self:
        _run("ip", "netns", "add", self._name)
        try:
            _run("ip", "link", "add", self._link, "type", "veth", "peer", "name", "eth0", "netns", self._name)
            _run("ip", "addr", "add", f"{self._here}/24", "dev", self._link)
            _run("ip", "link", "set", self._link, "up")
            for arguments in (
                ("addr", "add", f"{self.address}/24", "dev", "eth0"),
                ("link", "set", "eth0", "up"),
                ("link", "set", "lo", "up"),
            ):
                _run("ip", "-n", self._name, *arguments)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        _run("ip", "netns", "del", self._name)

    def inside(self, command: list[str]) -> list[str]:
        """The command that runs ``command`` in this network, with the same pid."""
        ip = shutil.which("ip", path=_path())
        assert ip is not None
        return [ip, "netns", "exec", self._name, *command]

    def cut(self, port: int) -> None:
        """Drop every packet between the test and a port here; servers here still reach each other."""
        for arguments in self._rules(port):
            _run(*self.inside(["iptables", "-I", *arguments]))

    def join(self, port: int) -> None:
        """Undo :meth:`cut`."""
        for arguments in self._rules(port):
            _run(*self.inside(["iptables", "-D", *arguments]))

    def _rules(self, port: int) -> list[list[str]]:
        return [
            ["INPUT", "-s", self._here, "-p", "tcp", "--dport", str(port), "-j", "DROP"],
            ["OUTPUT", "-d", self._here, "-p", "tcp", "--sport", str(port), "-j", "DROP"],
        ]


def _path() -> str:
    return f"{os.environ.get('PATH', '')}:{SBIN}"


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True, env={**os.environ, "PATH": _path()})
