"""A host that does not answer costs one call for a while, and not one for each of its logs."""

from __future__ import annotations

import pytest

from bookkeeper.config.sections import RpcSettings
from bookkeeper.errors import HostAwayError, UnavailableError, is_away
from bookkeeper.log_homes.host_logs import SILENCE_MS, HostLogs, Hosts
from bookkeeper.metadata.values import LogHome
from bookkeeper.rpc.contract.services import TServer
from bookkeeper.rpc.rpc_pool import RpcPool, plain_hello
from tests.support.jumping_clock import TestClock

LOG = "wal/s1/000001.wal"
NOBODY = "127.0.0.1:1"


class Calls:
    """Calls to an address where nothing listens."""

    def __init__(self) -> None:
        self.made = 0
        self._pool = RpcPool(plain_hello("master"), RpcSettings())

    def tserver(self, address: str) -> TServer:
        self.made += 1
        return self._pool.tserver(address)


def test_a_silent_host_is_left_alone_for_a_while() -> None:
    clock, calls = TestClock(), Calls()
    hosts = Hosts(lambda home: NOBODY if home.host else "", calls.tserver, clock)
    logs = HostLogs(LogHome("host2", "9f3a"), hosts)
    for _ in range(5):
        with pytest.raises(UnavailableError, match="lies on host host2, which is not answering") as raised:
            logs.open(LOG)
        assert is_away(raised.value)
        with pytest.raises(HostAwayError):
            list(logs.names("wal/s1/"))
    assert calls.made == 1, "each log costs a time-out"
    clock.jump(SILENCE_MS + 1)
    with pytest.raises(UnavailableError):
        logs.read(LOG, 9)
    assert calls.made == 2, "a host that did not answer once is never asked again"
