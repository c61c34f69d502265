"""A table whose peer has lost its own: what it lacks stays as it is, so that every number can be compared.

Arrives: two running clusters. Leaves: the scene, and afterwards the clusters as they were.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from bookkeeper.client import Mutation
from bookkeeper.security.secret_store import SecretStore
from bookkeeper.security.viewers import token_of
from tests.support.cluster import Cluster

LIMIT_S = 150
"""A sample that takes long delays the next one by twenty times as much."""
PEER = "east"


def get(url: str, token: str = "") -> tuple[int, Any]:
    """Status code and JSON."""
    code, text = read(url, token)
    return code, json.loads(text)


def read(url: str, token: str = "") -> tuple[int, str]:
    """Status code and text of a request that shows the token."""
    shown = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        with urlopen(Request(url, headers=shown), timeout=LIMIT_S) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()


@dataclass(frozen=True, slots=True)
class Scene:
    """All of ``table`` on ``west`` is lacking on the peer ``cluster``."""

    west: Cluster
    table: str
    cluster: str

    @property
    def lag_records(self) -> int:
        """The lag in a client's status. Tables share logs, so records of other tables in between count, too."""
        return sum(found.lag_records for found in self.west.client.replication.status(self.table))

    @property
    def url(self) -> str:
        """The address of the monitor of west's master."""
        return f"http://127.0.0.1:{self.west.settings.monitor.port}"

    @property
    def token(self) -> str:
        """The token of the monitor."""
        return token_of(SecretStore(self.west.directory).own("monitor"))

    @property
    def door(self) -> str:
        """The address with which a browser comes in."""
        return f"{self.url}/?token={self.token}"

    def get(self, path: str) -> Any:
        """JSON of an endpoint that answers 200, once it has read what it tells."""
        found: list[tuple[int, Any]] = []

        def is_read() -> bool:
            found[:] = [get(f"{self.url}/{path}", self.token)]
            return found[0][0] != 503

        self.west.wait_until(is_read, f"an answer of {path}", LIMIT_S)
        ((code, body),) = found
        assert code == 200, body
        return body

    def until(self, path: str, holds: Callable[[Any], bool]) -> Any:
        """The first answer of an endpoint for which ``holds``; the monitor samples every two seconds."""
        self.west.wait_until(lambda: holds(self.get(path)), f"{path} says so", LIMIT_S)
        return self.get(path)

    def put(self, count: int, first: int) -> None:
        """Write rows of one record each, durably."""
        with self.west.client.writer(self.table) as writer:
            for number in range(first, first + count):
                writer.add(Mutation(b"%06d" % number).put(b"f", b"q", b"value"))


@contextmanager
def lagging(west: Cluster, east: Cluster, table: str, rows: int) -> Iterator[Scene]:
    """The scene; a cluster has one name at another, so the peer keeps the name that it has, if it has one."""
    replication = west.client.replication
    known = next((peer.name for peer in replication.clusters() if peer.quorum == east.quorum), None)
    name = known or replication.define_cluster(PEER, east.quorum).name
    scene = Scene(west, table, name)
    for cluster in (west, east):
        cluster.client.tables.create(table)
    replication.enable(table, name)
    east.client.tables.delete(table)
    scene.put(rows, 0)
    try:
        west.wait_until(lambda: scene.lag_records >= rows, "the books know what is lacking", LIMIT_S)
        lag = scene.lag_records
        scene.until(
            "api/tables",
            lambda body: any((row["table"], row["lag_records"]) == (table, lag) for row in body["tables"]),
        )
        yield scene
    finally:
        replication.disable(table, name)
        west.client.tables.delete(table)
        if known is None:
            replication.delete_cluster(name, east.quorum)
