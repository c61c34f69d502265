"""The tservers of peers that opened a stream of this host: where streams begin while no master of a peer answers.

Arrives: addresses of tservers that opened a stream. Leaves: these addresses, the latest first, also for the other
processes of the host and after a restart (``run/known_tservers.json``). An address is a hint: a session checks which
instance answers there (R23), so a lost file or an old one costs time and nothing else.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

LOG = logging.getLogger(__name__)

FILE = "run/known_tservers.json"

ADDRESSES_MAX = 8
"""Known tservers of one peer; the one that opened a stream longest ago is forgotten first."""

PEERS_MAX = 256
"""Peers in the file."""

SILENCE_MS = 10_000
"""After a master of a peer did not answer in time, streams begin at known tservers for so long, without a question."""


class KnownTServers:
    """The known tservers of all peers, by the peer's instance id. All sessions of a process share it. Thread-safe."""

    def __init__(self, directory: Path) -> None:
        """``directory``: that of the host."""
        self._file = directory / FILE
        self._lock = threading.Lock()
        self._addresses: dict[str, list[str]] = {}
        self._silent_until_ns: dict[str, int] = {}

    def of(self, instance_id: str) -> Sequence[str]:
        """The addresses, the one to try first in front."""
        with self._lock:
            if instance_id not in self._addresses:
                self._addresses[instance_id] = self._read().get(instance_id, [])
            return tuple(self._addresses[instance_id])

    def note(self, instance_id: str, address: str) -> None:
        """A tserver opened a stream."""
        known = self.of(instance_id)
        with self._lock:
            others = [other for other in self._addresses[instance_id] if other != address]
            self._addresses[instance_id] = [address, *others][:ADDRESSES_MAX]
            if address not in known:
                self._write(instance_id, address)

    def put_last(self, instance_id: str, address: str) -> None:
        """A tserver failed: it comes behind the others. It stays, because it may come back while no master does."""
        with self._lock:
            addresses = self._addresses.get(instance_id, [])
            if address in addresses:
                addresses.sort(key=lambda other: other == address)

    def note_silence(self, instance_id: str, now_ns: int) -> None:
        """No master of the peer answered in time."""
        self._silent_until_ns[instance_id] = now_ns + SILENCE_MS * 1_000_000

    def is_silent(self, instance_id: str, now_ns: int) -> bool:
        """Whether to begin streams without a question to the masters."""
        return now_ns < self._silent_until_ns.get(instance_id, 0)

    def _read(self) -> dict[str, list[str]]:
        """The addresses that the processes of the host noted; nothing when there is no file or a damaged one."""
        try:
            found = json.loads(self._file.read_text())
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            LOG.warning("%s can't be read; its peers need a master to begin streams: %s", self._file, error)
            return {}
        return {
            str(instance_id): [str(address) for address in addresses][:ADDRESSES_MAX]
            for instance_id, addresses in (found.items() if isinstance(found, Mapping) else ())
            if isinstance(addresses, list)
        }

    def _write(self, instance_id: str, address: str) -> None:
        """Add one address to the file. Of two processes that write at once, one is heard: the other one's address comes
        into the file after a restart of its process.
        """
        peers = self._read()
        others = [other for other in peers.pop(instance_id, []) if other != address]
        peers = dict(list(peers.items())[-PEERS_MAX + 1 :])
        peers[instance_id] = [address, *others][:ADDRESSES_MAX]
        temporary = self._file.with_name(f"{self._file.name}.{os.getpid()}.{threading.get_ident()}")
        try:
            self._file.parent.mkdir(exist_ok=True)
            temporary.write_text(json.dumps(peers))
            temporary.replace(self._file)
        except OSError as error:
            LOG.warning("%s can't be written; other processes don't know %s: %s", self._file, address, error)
            temporary.unlink(missing_ok=True)
