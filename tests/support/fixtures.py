"""Fixtures that every test may ask for; ``tests/conftest.py`` imports them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.cluster import Cluster
from tests.support.hbase import HBaseInstance, HBaseUnavailableError, running_hbase
from tests.support.trust import trusted_clients

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session", autouse=True)
def _clients_are_trusted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A client may name a cluster of a test by its quorum."""
    with trusted_clients(tmp_path_factory.mktemp("secrets")):
        yield


@pytest.fixture(scope="session")
def hbase(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HBaseInstance]:
    """One real HBase for the whole run; use table names of your own. Skips, saying why, where none can run."""
    yield from _started(tmp_path_factory.mktemp("hbase"))


@pytest.fixture
def hbase_to_kill(tmp_path: Path) -> Iterator[HBaseInstance]:
    """An HBase of the test's own. Skips, saying why, where none can run."""
    yield from _started(tmp_path)


def _started(directory: Path) -> Iterator[HBaseInstance]:
    try:
        instance = running_hbase(directory)
        started = instance.__enter__()
    except HBaseUnavailableError as unavailable:
        pytest.skip(str(unavailable))
    try:
        yield started
    finally:
        instance.__exit__(None, None, None)


@pytest.fixture(scope="session")
def west(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One running cluster of two tservers for the whole run; use table names of your own, and leave it running."""
    with Cluster(tmp_path_factory.mktemp("clusters") / "west", "west") as cluster:
        yield cluster


@pytest.fixture(scope="session")
def east(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A second cluster, a peer for ``west``; the same manners."""
    with Cluster(tmp_path_factory.mktemp("clusters") / "east", "east") as cluster:
        yield cluster


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One Spark session, as a user of the project has it, for the whole run; leave its settings as they are."""
    from tests.support.spark import start_spark  # only who asks for a session pays for the import

    session = start_spark()
    try:
        yield session
    finally:
        session.stop()
