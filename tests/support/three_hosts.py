"""Tablets with a replica on each of three hosts: a value in each of twenty rows, and the bytes that hosts send."""

from __future__ import annotations

from bookkeeper.model import Extent
from tests.support.led_hosts import Hosts
from tests.support.tservers import records

HOSTS = ("host1", "host2", "host3")
ROWS = [b"%02d" % row for row in range(20)]
AT = b"09"
"""The last row of the lower half."""


def write(world: Hosts, host: str, extent: Extent, value: bytes) -> None:
    """A value in each row of a tablet, acknowledged and flushed."""
    node = world.node(host)
    world.ground.write(node, extent, records([(row, value) for row in ROWS if extent.contains(row)]))
    world.ground.tserver(node).flush_tablet(extent)


def rows(world: Hosts, host: str, extent: Extent) -> dict[bytes, bytes]:
    """The rows of a tablet, with their values."""
    return {row: value for (row, _, _), value in world.ground.scan(world.node(host), extent).items()}


def sent_bytes(world: Hosts, *names: str) -> int:
    """The content that these hosts, or all, have sent to each other."""
    return sum(int(world.node(name).process.parts.status()["segment_bytes_sent"]) for name in names or HOSTS)
