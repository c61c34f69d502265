"""``bookkeeper standalone`` as an operator meets it: it reports when it answers, which process ended, and the obstacles
to its start.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from bookkeeper.client import Mutation
from bookkeeper.config.file import load_settings
from bookkeeper.errors import RefusedError, UnavailableError
from bookkeeper.security.private_files import is_open
from bookkeeper.standalone.cluster_process import ClusterProcess
from bookkeeper.standalone.directory import init_cluster
from tests.support.cluster import Cluster, standalone_command

pytestmark = [pytest.mark.integration]

LIMIT_S = 90.0


def test_every_killed_process_comes_back_and_data_outlives_all_of_them(tmp_path: Path) -> None:
    with Cluster(tmp_path / "own", "own", tservers=1) as cluster:
        cluster.wait_until(lambda: "answers at" in cluster.log_text("standalone"), "word that it answers")
        cluster.client.tables.create("t")
        with cluster.client.writer("t") as writer:
            writer.add(Mutation(b"row").put(b"f", b"q", b"1"))
        for role in ("tserver1", "replay", "master"):
            killed = cluster.kill9(role)
            again = cluster.wait_restarted(role, killed)
            assert (again.pid, again.starts) == (cluster.pid(role), 2)
        cluster.wait_ready()
        assert [cell.value for cell in cluster.client.scan("t").cells()] == [b"1"]
        cluster.client.tables.flush("t")
        made = [path for name in ("logs", "run", "tables", "wal") for path in (cluster.directory / name).rglob("*")]
        assert {path.suffix for path in made} >= {".wal", ".parquet", ".log", ".json", ".lock"}
        assert [path for path in made if is_open(path.lstat().st_mode)] == []
        cluster.stop()
        lines = cluster.log_text("standalone").splitlines()
        assert lines[0].startswith(f"cluster own answers at {cluster.quorum} with 1 tservers (127.0.0.1:")
        assert [line.split(",")[0] for line in lines[1:]] == [
            f"{role} ended (signal SIGKILL)" for role in ("tserver1", "replay", "master")
        ]
        cluster.start()
        assert [cell.value for cell in cluster.client.scan("t").cells()] == [b"1"]


def test_a_process_that_was_stopped_beyond_its_lease_is_ended_and_replaced_be_its_session_file_garbage(
    tmp_path: Path,
) -> None:
    lease = {"session_lease_ms": 8_000, "session_renew_ms": 500, "session_margin_ms": 500}
    overrides = {f"coordination.{name}": value for name, value in lease.items()}
    with Cluster(tmp_path / "own", "own", tservers=1, overrides=overrides) as cluster:
        stopped = cluster.pid("tserver1")
        os.kill(stopped, signal.SIGSTOP)
        cluster.wait_restarted("tserver1", stopped)
        cluster.wait_ready()
        assert f"(pid {stopped}) outlived its lease and was killed" in cluster.log_text("standalone")

        supervisor = psutil.Process(cluster.pid("master")).parent()
        assert supervisor is not None
        stopped, others = cluster.pid("tserver1"), [cluster.pid("master"), cluster.pid("replay")]
        os.kill(stopped, signal.SIGSTOP)
        for path in (cluster.directory / "coordination" / "sessions").iterdir():
            path.write_bytes(b"rubbish" * 100)
        cluster.wait_restarted("tserver1", stopped)
        cluster.wait_ready()
        said = cluster.log_text("standalone")
        assert f"is damaged: it has no lease record (pid {stopped}); a renewal by its process repairs the file" in said
        assert said.count(f"(pid {stopped}) outlived its lease and was killed") == 1
        assert [cluster.pid("master"), cluster.pid("replay")] == others, "living processes recover by themselves"
        assert supervisor.is_running()


def test_ctrl_c_stops_everything_and_a_second_run_beside_the_first_is_refused(tmp_path: Path) -> None:
    settings = init_cluster(tmp_path / "own", "own")
    first = ClusterProcess(settings, standalone_command(settings.directory))
    first.start()
    try:
        first.wait_ready(LIMIT_S)
        with pytest.raises(RefusedError):
            first.start()
        second = subprocess.run(first.command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        assert second.returncode == 1
        assert "another standalone process runs this cluster" in second.stderr
        children = [psutil.Process(first.role(role).pid) for role in ("master", "tserver1", "replay")]
        supervisor = children[0].parent()
        assert supervisor is not None
        supervisor.send_signal(signal.SIGINT)
        assert supervisor.wait(LIMIT_S) == 0
        assert not any(child.is_running() for child in children)
    finally:
        first.stop(LIMIT_S)


def test_a_port_that_is_taken_is_told_with_the_log_that_says_so(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        settings = init_cluster(tmp_path / "own", "own", master_port=taken.getsockname()[1])
        process = ClusterProcess(settings, standalone_command(settings.directory))
        process.start()
        try:
            process.wait_until(lambda: "master ended" in process.log.read_text(), "word of the master's end", LIMIT_S)
            told = process.log.read_text()
            assert "master ended (exit code 1: the master can't go on: can't listen at " in told
            assert ", its log is " in told
            assert "in use" in (settings.logs_dir / "master.log").read_text()
            with pytest.raises(UnavailableError, match=r"no answering cluster after 1 s; .*standalone\.log ends with:"):
                process.wait_ready(1)
        finally:
            process.stop(LIMIT_S)


def test_a_supervisor_that_ended_is_told_with_its_last_words(tmp_path: Path) -> None:
    settings = init_cluster(tmp_path / "own", "own")
    process = ClusterProcess(settings, ["sh", "-c", "echo gone; exit 3"])
    process.start()
    with pytest.raises(UnavailableError, match=r"standalone ended \(3\):\ngone"):
        process.wait_until(lambda: False, "nothing", LIMIT_S)
    process.stop(1)


def test_what_the_command_makes_is_its_owners_alone_and_what_lies_open_is_closed_and_said(tmp_path: Path) -> None:
    home = tmp_path / "own"
    command = [sys.executable, "-m", "shell.main", "init", str(home), "--name", "own"]
    subprocess.run(command, check=True, umask=0, stdout=subprocess.DEVNULL)
    assert [path for path in (home, *home.rglob("*")) if is_open(path.lstat().st_mode)] == []
    home.chmod(0o755)
    (home / "wal").chmod(0o755)
    cluster = ClusterProcess(load_settings(home), standalone_command(home))
    cluster.start()
    try:
        cluster.wait_ready(LIMIT_S)
        said = cluster.log.read_text().splitlines()
        assert said[:2] == [
            f"{path} was open to other users of this machine; its mode is now private" for path in (home, home / "wal")
        ]
    finally:
        cluster.stop(LIMIT_S)
    assert [path for path in (home, *home.rglob("*")) if is_open(path.lstat().st_mode)] == []
