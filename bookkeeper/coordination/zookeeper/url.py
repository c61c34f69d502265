"""The address of a coordination store in ZooKeeper: ``zk://HOST:PORT[,HOST:PORT...]/ROOT``."""

from __future__ import annotations

import re

from msgspec import Struct

from bookkeeper.errors import InvalidInputError
from bookkeeper.rpc.address import parse_quorum

SCHEME = "zk://"
_ROOT = re.compile(r"(/[A-Za-z0-9_-][A-Za-z0-9._-]*)+")


class ZooKeeperUrl(Struct, frozen=True):
    """The servers of an ensemble, comma-separated, and the node below which a cluster has everything."""

    servers: str
    root: str

    def __str__(self) -> str:
        return f"{SCHEME}{self.servers}{self.root}"


def parse_url(url: str) -> ZooKeeperUrl:
    """Raises InvalidInputError with the right form."""
    servers, slash, root = url.removeprefix(SCHEME).partition("/")
    if not url.startswith(SCHEME) or not _ROOT.fullmatch(slash + root):
        raise InvalidInputError(f"{url!r} names no ZooKeeper: write {SCHEME}HOST:PORT[,HOST:PORT...]/ROOT")
    return ZooKeeperUrl(",".join(map(str, parse_quorum(servers))), slash + root)
