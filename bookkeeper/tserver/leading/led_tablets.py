"""All tablets that this host leads."""

from __future__ import annotations

import threading
from collections.abc import Callable

from bookkeeper.tserver.leading.leader_chain import LeaderChain
from bookkeeper.tserver.tablets.tablet import ServedTablet


class LedTablets:
    """Thread-safe. A tablet without replicas is never among them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._chains: dict[bytes, LeaderChain] = {}
        self._listeners: list[Callable[[], None]] = []
        self._ack_listeners: list[Callable[[], None]] = []

    def listen(self, changed: Callable[[], None]) -> None:
        """Call ``changed``, which must not wait, when a chain is added or has something new."""
        self._listeners.append(changed)

    def listen_acks(self, acknowledged: Callable[[], None]) -> None:
        """Call ``acknowledged``, which must not wait, when another host has a segment."""
        self._ack_listeners.append(acknowledged)

    def acknowledged(self) -> None:
        """Tell the listeners to acknowledgements."""
        for listener in self._ack_listeners:
            listener()

    def changed(self) -> None:
        """Tell the listeners."""
        for listener in self._listeners:
            listener()

    def add(self, chain: LeaderChain) -> None:
        """This host leads a tablet from here on; an earlier term of the tablet is over."""
        with self._lock:
            before = self._chains.get(chain.tablet.row)
            self._chains[chain.tablet.row] = chain
        if before is not None:
            forget_reader(before)
        self.changed()

    def find(self, tablet: ServedTablet) -> LeaderChain | None:
        """The chain of a tablet; None for one without replicas, or one that has left."""
        chain = self._chains.get(tablet.row)
        return chain if chain is not None and chain.tablet is tablet else None

    def all(self) -> list[LeaderChain]:
        """Each of them."""
        with self._lock:
            return list(self._chains.values())

    def remove(self, chain: LeaderChain) -> None:
        """This host leads the tablet no longer. Raises UnavailableError: the manifest still has the term, which a later
        one ends.
        """
        with self._lock:
            if self._chains.get(chain.tablet.row) is chain:
                del self._chains[chain.tablet.row]
        forget_reader(chain)
        chain.end()


def forget_reader(chain: LeaderChain) -> None:
    """The tablet's pages no longer keep files (P15)."""
    chain.held.remove_reader(chain.tablet.data.names_in_use)
