"""``bookkeeper monitor``: the address that opens the pages of a cluster, or why there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from bookkeeper.security.secret_store import SecretStore
from bookkeeper.security.viewers import token_of
from bookkeeper.standalone.directory import init_cluster
from shell.failures import ExitCode
from tests.support.shell import quick


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return init_cluster(tmp_path / "west", "west", overrides={"monitor.port": 9100}).directory


def test_the_command_prints_the_address_with_the_token_of_the_newest_secret(home: Path) -> None:
    store = SecretStore(home)
    token = token_of(store.own("monitor"))
    assert quick("monitor", str(home)).out == f"http://127.0.0.1:9100/?token={token}\n"
    assert quick("secret", "renew", str(home), "viewers").code == ExitCode.OK
    renewed = quick("monitor", str(home), "--token").out.strip()
    assert renewed == token_of(store.own("monitor")) != token
    assert quick("monitor", str(home), "--json").json["token"] == renewed


def test_a_monitor_without_authentication_has_no_token(tmp_path: Path) -> None:
    overrides = {"monitor.port": 9100, "monitor.authentication": "none", "monitor.host": "::1"}
    home = str(init_cluster(tmp_path / "west", "west", overrides=overrides).directory)
    assert quick("monitor", home).out == "http://[::1]:9100/\n"
    answer = quick("monitor", home, "--token")
    assert (answer.code, answer.out) == (ExitCode.FAILED, "")
    assert "monitor.authentication is none" in answer.err


def test_without_a_port_or_a_secret_the_error_names_the_next_step(tmp_path: Path, home: Path) -> None:
    none = init_cluster(tmp_path / "none", "none", overrides={"monitor.port": 0}).directory
    assert "set monitor.port" in quick("monitor", str(none)).err
    SecretStore(home).file_of("monitor").unlink()
    answer = quick("monitor", str(home))
    assert (answer.code, answer.err.count("\n")) == (ExitCode.FAILED, 1)
    assert "bookkeeper standalone makes missing ones" in answer.err
