"""Fixtures that every test may ask for; ``tests/conftest.py`` imports them.

A fixture imports what it starts: a test that asks for none of them waits for none of these imports.
"""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bookkeeper.standalone import ports
from tests.support.trusted_clients import SECRET_FILE_VARIABLE, client_secret_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.cluster import Cluster
    from tests.support.hbase import HBaseInstance
    from tests.support.hbase_cluster import HBaseCluster
    from tests.support.local_pair import Books
    from tests.support.zookeeper import ZooKeeperServer


@pytest.fixture(scope="session", autouse=True)
def _clients_are_trusted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A client without a cluster's directory, in this process and its children, may name a cluster by its quorum."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(SECRET_FILE_VARIABLE, str(client_secret_in(tmp_path_factory.mktemp("secrets"))))
        yield


@pytest.fixture(scope="session", autouse=True)
def _workers_share_no_port() -> Iterator[None]:
    """Each process of a parallel run chooses from its own part of the ports: between the choice of a port and its use,
    another process could use it, and a cluster would never start.
    """
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    part = ports.PORTS[worker :: int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ports, "_order", itertools.cycle(random.sample(part, len(part))))
        yield


@pytest.fixture(scope="session")
def hbase(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HBaseInstance]:
    """One real HBase for the whole run; use table names of your own. Skips, saying why, where none can run."""
    yield from _started(tmp_path_factory.mktemp("hbase"))


_prefixes = itertools.count()


BOOKS_IN_BOTH = pytest.mark.parametrize(
    "books", ["sqlite", pytest.param("hbase", marks=pytest.mark.hbase)], indirect=True
)
"""For a test that ``make test`` runs with books in HBase, too; ``make test-long`` runs all that ask for books so."""


@pytest.fixture(params=["sqlite", pytest.param("hbase", marks=[pytest.mark.hbase, pytest.mark.long])])
def books(request: pytest.FixtureRequest) -> Iterator[Books]:
    """The store of the clusters' books in a test: SQLite files, then tables of one real HBase."""
    from tests.support.local_pair import own_file

    if request.param == "sqlite":
        yield own_file
        return
    from tests.support.hbase import drop_tables

    hbase: HBaseInstance = request.getfixturevalue("hbase")
    prefix = f"clusters{next(_prefixes)}"
    yield lambda name: f"hbase://{hbase.host}:{hbase.thrift_port}/{prefix}_{name}"
    drop_tables(hbase, prefix)


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    """One ZooKeeper for the whole run; use a root of your own. Skips, saying why, where none can run."""
    from tests.support.hbase import HBaseUnavailableError
    from tests.support.zookeeper import ZooKeeperServer

    server = ZooKeeperServer(tmp_path_factory.mktemp("zookeeper"))
    try:
        server.start()
    except HBaseUnavailableError as error:
        pytest.skip(str(error))
    yield server
    server.kill9()


@pytest.fixture
def hbase_to_kill(tmp_path: Path) -> Iterator[HBaseInstance]:
    """An HBase of the test's own. Skips, saying why, where none can run."""
    yield from _started(tmp_path)


@pytest.fixture(scope="session")
def hbase_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HBaseCluster]:
    """One HBase cluster for the whole run, where root runs the tests in a network of its own; use table names of your
    own, and leave its servers running. Skips, saying why, where none can run.
    """
    from tests.support.hbase_cluster import HBaseCluster, why_no_cluster
    from tests.support.namespaces import Namespace, why_no_namespaces

    if (reason := why_no_cluster()) is not None:
        pytest.skip(reason)
    directory = tmp_path_factory.mktemp("hbase-cluster")
    if why_no_namespaces() is not None:
        with HBaseCluster(directory) as cluster:
            yield cluster
        return
    with Namespace() as network, HBaseCluster(directory, network=network) as cluster:
        yield cluster


@pytest.fixture
def hbase_cluster_is_left_whole(hbase_cluster: HBaseCluster) -> Iterator[None]:
    """Behind a test that fails while a region server is dead, the other tests have a whole cluster again."""
    yield
    hbase_cluster.mend()


def _started(directory: Path) -> Iterator[HBaseInstance]:
    from tests.support.hbase import HBaseUnavailableError, running_hbase

    try:
        instance = running_hbase(directory)
        started = instance.__enter__()
    except HBaseUnavailableError as unavailable:
        pytest.skip(str(unavailable))
    try:
        yield started
    finally:
        instance.__exit__(None, None, None)


QUICK: dict[str, object] = {"master.scan_interval_ms": 1_000}
"""A range with a permanent error is tried again with the next full cycle: a test waits for several of them."""

_shared: dict[str, Cluster] = {}
"""The clusters that run for all tests of this process."""


@pytest.fixture(scope="session")
def west(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One running cluster of two tservers for the whole run; use tables of your own, and leave it running."""
    yield from _running("west", tmp_path_factory)


@pytest.fixture(scope="session")
def east(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A second cluster, a peer for ``west``; the same manners."""
    yield from _running("east", tmp_path_factory)


def _running(name: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    from tests.support.cluster import Cluster

    with Cluster(tmp_path_factory.mktemp("clusters") / name, name, overrides=QUICK) as cluster:
        _shared[name] = cluster
        yield cluster
        del _shared[name]


@pytest.fixture(scope="module", autouse=True)
def _shared_clusters_are_left_clean() -> Iterator[None]:
    """Behind each file ``west`` and ``east`` serve as before it, and have no table more."""
    if _shared:
        from tests.support.shared_cluster import tables_of

        before = {name: tables_of(cluster) for name, cluster in _shared.items()}
    else:
        before = {}
    yield
    if _shared:
        from tests.support.shared_cluster import clean

        for name, cluster in _shared.items():
            clean(cluster, before.get(name, ()))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One Spark session, as a user of the project has it, for the whole run; leave its settings as they are."""
    from tests.support.spark import start_spark

    session = start_spark()
    try:
        yield session
    finally:
        session.stop()
