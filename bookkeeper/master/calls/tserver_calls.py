"""Calls to tservers without a waiting caller: each runs in the lane of its tserver."""

from __future__ import annotations

from msgspec import Struct

from bookkeeper.master.calls.keyed_executors import KeyedExecutors
from bookkeeper.master.calls.tservers import TServers


class TServerCalls(Struct, frozen=True):
    """The tservers, and the lanes in which the master calls them."""

    tservers: TServers
    lanes: KeyedExecutors
