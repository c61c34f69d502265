"""The Volume of a task: it reads logs on hosts' disks through the processes that its ranges name.

Arrives: ranges that say where their files lie. Leaves: the cluster's Volume itself when all lie there. A log on a host
comes in windows, so memory stays flat; its bytes are those of the file, and Arrow reads them in place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from bookkeeper.clock import Clock
from bookkeeper.errors import UnavailableError
from bookkeeper.log_homes.host_logs import AWAY, Hosts
from bookkeeper.log_homes.log_volume import LogVolume
from bookkeeper.metadata.values import LogHome
from bookkeeper.replay.ranges import Range
from bookkeeper.rpc.contract.services import TServer
from bookkeeper.storage.volume.names import session_of_numbered
from bookkeeper.storage.volume.volume_protocol import Volume


class GivenHomes(Struct, frozen=True):
    """The homes that some ranges name; see :class:`bookkeeper.log_homes.Homes`."""

    homes: Mapping[str, LogHome]
    addresses: Mapping[LogHome, str]

    def of(self, session: str) -> LogHome | None:
        """See :class:`Homes`."""
        return self.homes.get(session)

    def all(self) -> Mapping[str, LogHome]:
        """See :class:`Homes`."""
        return self.homes

    def find(self, home: LogHome) -> str:
        """The address of a host. Raises UnavailableError."""
        address = self.addresses.get(home, "")
        if not address:
            raise UnavailableError(AWAY)
        return address


def volume_of(ranges: Sequence[Range], shared: Volume, tserver: Callable[[str], TServer], clock: Clock) -> Volume:
    """The Volume that has the files of these ranges. ``tserver``: calls to the process at an address."""
    homes: dict[str, LogHome] = {}
    addresses: dict[LogHome, str] = {}
    for r in ranges:
        session = session_of_numbered(r.file)
        if r.log_host and session is not None:
            home = homes[session] = LogHome(r.log_host, r.log_incarnation)
            addresses[home] = r.log_address
    if not homes:
        return shared
    given = GivenHomes(homes, addresses)
    return LogVolume(shared, given, Hosts(given.find, tserver, clock))
