"""A cluster names its own lack of Java or of tablet servers before its peer. The printed step ends the wait."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from bookkeeper.client import Mutation
from tests.support.asked_why import cause_of, command_words, until_drained
from tests.support.cluster import Cluster
from tests.support.local_pair import local_cluster
from tests.support.masters import MasterNode

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.timeout(300)]


def test_a_cluster_without_java_and_then_without_tablet_servers(tmp_path: Path) -> None:
    west = Cluster(tmp_path / "west", "west", 1, environment={"JAVA_HOME": str(tmp_path / "nothing")})
    with local_cluster(tmp_path / "east") as east:
        with west:
            for client in (west.client, east.client):
                client.tables.create("t")
            west.client.replication.define_cluster("east", east.quorum)
            west.client.replication.enable("t", "east")
            with west.client.writer("t") as writer:
                writer.add(Mutation(b"a").put(b"f", b"q", b"1"))
            cause = cause_of(west.directory, "t", "no_replay")
            assert "there is no Java" in cause["text"]
            cause_of(west.directory, "east", "no_replay")
            west.crash()
        master = MasterNode(west.settings, tmp_path / "master.log")
        started = None
        try:
            cause = cause_of(west.directory, "t", "no_tserver", 15)
            step = cause["steps"][0]
            started = subprocess.Popen(command_words(step["command"]))
            until_drained(west.directory, "t")
        finally:
            master.kill9()
            if started is not None:
                started.send_signal(signal.SIGTERM)
                started.wait(60)
        assert east.rows("t") == {b"a": b"1"}
