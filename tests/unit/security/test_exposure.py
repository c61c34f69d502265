"""Nothing listens beyond loopback without TLS, unless a setting says so; and it is said before anything listens."""

from __future__ import annotations

from pathlib import Path

import pytest

from bookkeeper.config.file import new_settings
from bookkeeper.config.sections import Settings
from bookkeeper.errors import RefusedError
from bookkeeper.security.access import entrance_of
from bookkeeper.security.exposure import exposed, is_loopback, refuse_plaintext
from bookkeeper.standalone.directory import init_cluster
from shell.failures import ExitCode
from tests.support.certificates import Authority, tls_overrides
from tests.support.faults import fault
from tests.support.must_raise import must_raise
from tests.support.shell import quick

OPEN: dict[str, object] = {"rpc.bind_host": "0.0.0.0", "rpc.announced_host": "west.example"}


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.10", "::1", "localhost"])
def test_loopback_is_this_machine(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host", ["", "0.0.0.0", "::", "10.0.0.7", "2001:db8::1", "fe80::1%lo", "no.such.invalid", "x" * 300]
)
def test_everything_else_lies_beyond(host: str) -> None:
    assert not is_loopback(host)


def settings_with(place: Path, overrides: dict[str, object]) -> Settings:
    return new_settings(place, "west", overrides=overrides)


def test_every_setting_that_binds_such_an_address_is_named(tmp_path: Path) -> None:
    assert exposed(settings_with(tmp_path, {})) == []
    everywhere: dict[str, object] = {
        "rpc.bind_host": "",
        "rpc.announced_host": "west.example",
        "master.host": "::",
        "master.announced_host": "west.example",
        "monitor.host": "10.0.0.7",
        "monitor.port": 1,
    }
    assert exposed(settings_with(tmp_path, everywhere)) == [
        "rpc.bind_host (every address)",
        "master.host (::)",
        "monitor.host (10.0.0.7)",
    ]


def test_no_process_listens_there_without_tls(tmp_path: Path) -> None:
    with must_raise(
        RefusedError,
        "a process listens beyond loopback without TLS",
        match=r"rpc\.bind_host \(0\.0\.0\.0\) lies beyond loopback.*; name a certificate",
    ):
        refuse_plaintext(settings_with(tmp_path, OPEN))
    for section in ("master", "monitor"):
        overrides = {f"{section}.host": "0.0.0.0", f"{section}.announced_host": "west.example"}
        settings = init_cluster(tmp_path / section, "west", overrides=overrides)
        with pytest.raises(RefusedError, match="beyond loopback"):
            entrance_of(settings)


def test_tls_or_a_setting_allows_it(tmp_path: Path) -> None:
    refuse_plaintext(settings_with(tmp_path, {**OPEN, "security.beyond_loopback": "plaintext"}))
    files = Authority.make(tmp_path / "ca").sign("west")
    refuse_plaintext(settings_with(tmp_path, {**OPEN, **tls_overrides(files)}))


def test_standalone_and_config_check_say_it_before_anything_starts(tmp_path: Path) -> None:
    home = str(init_cluster(tmp_path / "west", "west", overrides=OPEN).directory)
    started = quick("standalone", home)
    assert (started.code, started.err.count("\n")) == (ExitCode.FAILED, 1)
    assert 'security.beyond_loopback = "plaintext"' in started.err
    checked = quick("config", "check", home)
    assert (checked.code, checked.out.count("\n")) == (ExitCode.FAILED, 1)
    assert "security.beyond_loopback: rpc.bind_host (0.0.0.0) lies beyond loopback" in checked.out
    assert "; name a certificate (security.tls_certificate" in checked.out


def test_without_its_rule_a_cluster_listens_in_the_open(tmp_path: Path) -> None:
    with fault("everywhere-is-loopback"), pytest.raises(AssertionError, match="listens beyond loopback without TLS"):
        test_no_process_listens_there_without_tls(tmp_path)
