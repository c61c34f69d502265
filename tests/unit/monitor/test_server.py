"""The monitor as a browser or Prometheus meets it, on a real socket; its source is set by the test."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import pytest
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families

from bookkeeper.clock import SystemClock
from bookkeeper.config.sections import MonitorSettings
from bookkeeper.monitor import web_server as module
from bookkeeper.monitor.metrics import METRICS, PREFIX
from bookkeeper.monitor.web_server import Monitor
from tests.support.certificates import Authority
from tests.support.monitor_source import LEADING, NO_TOKEN, QUARANTINED, STANDING_BY, SetSource, books, kept, status

LIMIT_S = 60
OF_EVERY_MASTER = {f"{PREFIX}leads", f"{PREFIX}master_has_books"}


@contextmanager
def serving(source: SetSource, port: int | None = 0) -> Iterator[Monitor]:
    monitor = Monitor(MonitorSettings(), source, SystemClock(), NO_TOKEN, port)
    monitor.start()
    try:
        yield monitor
    finally:
        monitor.stop()


def get(monitor: Monitor, path: str, method: str = "GET") -> tuple[int, str]:
    try:
        with urlopen(Request(monitor.url + path, method=method), timeout=LIMIT_S) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()


def test_a_leader_answers_every_endpoint() -> None:
    observation = replace(LEADING, books=replace(books(status("a.wal", "backing_off")), quarantined=(QUARANTINED,)))
    with serving(SetSource(observation, (kept("a.wal", 9, "recovery"),))) as monitor:
        for path in ("overview", "tables", "peers", "files", "quarantine", "kept", "history"):
            code, body = get(monitor, f"api/{path}")
            assert (code, bool(json.loads(body))) == (200, True), path
        assert [host["state"] for host in json.loads(get(monitor, "api/hosts")[1])["hosts"]] == [
            "alive",
            "draining",
            "away",
        ]
        assert json.loads(get(monitor, "api/tablets?table=cities")[1])["total"] == 2
        assert json.loads(get(monitor, "api/tablet?table=cities&tablet=t1")[1])["named"] == 7
        for path, expected in (
            ("api/tablets", 400),
            ("api/tablet?table=cities", 400),
            ("api/tablets?table=other", 404),
            ("api/tablet?table=cities&tablet=gone", 404),
        ):
            assert get(monitor, path)[0] == expected, path
        assert json.loads(get(monitor, "api/file?file=a.wal")[1])["ways"][0]["finished"] == 90
        assert get(monitor, "api/file?file=b.wal")[0] == 404
        assert json.loads(get(monitor, "api/files?phase=done")[1])["total"] == 0
        assert json.loads(get(monitor, "ready")[1])["ready"]
        assert get(monitor, "api/files?page=x")[0] == 400
        assert get(monitor, "api/nothing")[0] == 404
        assert get(monitor, "api/files", "POST")[0] == 405


def test_metrics_are_those_of_the_list_and_parse() -> None:
    observation = replace(LEADING, books=replace(books(status("a.wal")), quarantined=(QUARANTINED,)))
    with serving(SetSource(observation, (kept("a.wal", 9, "recovery"),))) as monitor:
        code, text = get(monitor, "metrics")
    assert code == 200
    found = {family.name: family for family in text_string_to_metric_families(text)}
    assert found.keys() == {PREFIX + metric.name for metric in METRICS} | OF_EVERY_MASTER
    for metric in METRICS:
        family = found[PREFIX + metric.name]
        assert family.type == metric.kind
        assert all(sample.labels.keys() == set(metric.labels) for sample in family.samples)
        assert family.samples, metric.name
    (lag,) = found[f"{PREFIX}replication_lag_records"].samples
    assert (lag.labels, lag.value) == ({"table": "cities", "peer": "east"}, 10)


def test_a_master_that_stands_by_is_well_and_says_who_leads() -> None:
    with serving(SetSource(STANDING_BY)) as monitor:
        code, body = get(monitor, "api/files")
        assert (code, json.loads(body)["monitor"]) == (503, "http://127.0.0.1:9100/")
        assert get(monitor, "health")[0] == 200, "the sample is of 1970: health does not depend on the wall clock"
        assert get(monitor, "ready")[0] == 200
        assert "bookkeeper_leads" in get(monitor, "metrics")[1]
        assert json.loads(get(monitor, "api/overview")[1])["leads"] is False


def test_a_leader_that_has_read_nothing_shows_no_number_and_is_not_ready() -> None:
    problem = "this master has just begun to lead and has not read the books yet"
    with serving(SetSource(replace(LEADING, books=None, problem=problem))) as monitor:
        families = {family.name: family for family in text_string_to_metric_families(get(monitor, "metrics")[1])}
        assert families.keys() == OF_EVERY_MASTER, "no lag rather than a lag of 0"
        assert families[f"{PREFIX}leads"].samples[0].value == 1
        assert families[f"{PREFIX}master_has_books"].samples[0].value == 0
        code, body = get(monitor, "ready")
        assert (code, json.loads(body)["reason"]) == (503, problem)
        for path in ("api/tables", "api/peers", "api/files", "api/quarantine", "api/kept"):
            code, body = get(monitor, path)
            assert (code, json.loads(body)["error"]) == (503, problem), path
        overview = json.loads(get(monitor, "api/overview")[1])
        assert overview["problem"] == problem
        assert "lag_records" not in overview
        for path in ("", "tables", "peers", "files", "kept"):
            assert problem in get(monitor, path)[1]


def test_nothing_is_loaded_or_sampled_before_the_first_connection() -> None:
    source = SetSource()
    with serving(source) as monitor:
        assert source.calls == []
        port = int(monitor.url.rstrip("/").rpartition(":")[2])
        get(monitor, "ready")
        assert source.calls
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", port))


def test_without_a_port_there_is_none() -> None:
    with serving(SetSource(), None) as monitor:
        assert monitor.url == ""


def test_a_port_in_use_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RESTART_MS", 20)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with serving(SetSource(), port) as monitor:
            assert monitor.url == ""
            taken.close()
            clock, never = SystemClock(), threading.Event()
            deadline_ns = clock.boot_ns() + LIMIT_S * 10**9
            while not monitor.url and clock.boot_ns() < deadline_ns:
                clock.wait(never, 10)
            assert get(monitor, "ready")[0] == 200


def test_a_failed_sample_ends_the_page_for_a_moment_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RESTART_MS", 20)

    class Breaking(SetSource):
        def observe(self):  # type: ignore[no-untyped-def]
            observation = super().observe()
            if len(self.calls) == 1:
                raise KeyError("gone")
            return observation

    with serving(Breaking()) as monitor:
        clock, never = SystemClock(), threading.Event()
        deadline_ns = clock.boot_ns() + LIMIT_S * 10**9
        code = 0
        while code != 200 and clock.boot_ns() < deadline_ns:
            try:
                code = get(monitor, "ready")[0]
            except (OSError, ValueError):
                clock.wait(never, 10)
        assert code == 200


def test_with_tls_it_shows_its_certificate_and_speaks_nothing_else(tmp_path: Path) -> None:
    authority = Authority.make(tmp_path / "ca")
    files = authority.sign("west")
    monitor = Monitor(MonitorSettings(), SetSource(LEADING), SystemClock(), NO_TOKEN, 0, files)
    monitor.start()
    try:
        assert monitor.url.startswith("https://127.0.0.1:")
        context = ssl.create_default_context(cafile=str(files.ca))
        with urlopen(monitor.url + "ready", timeout=LIMIT_S, context=context) as answer:
            assert json.loads(answer.read())["ready"]
        with pytest.raises(URLError):
            urlopen(monitor.url + "ready", timeout=LIMIT_S)  # a CA that nobody knows
        with pytest.raises(OSError, match=r"closed|reset|Remote end"):
            urlopen(monitor.url.replace("https", "http") + "ready", timeout=LIMIT_S)
        old = ssl.create_default_context(cafile=str(files.ca))
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        with pytest.raises(URLError, match=r"(?i)protocol"):
            urlopen(monitor.url + "ready", timeout=LIMIT_S, context=old)
    finally:
        monitor.stop()


def test_with_certified_callers_it_asks_for_their_certificate(tmp_path: Path) -> None:
    authority = Authority.make(tmp_path / "ca")
    files = replace(authority.sign("west"), clients_certified=True)
    monitor = Monitor(MonitorSettings(), SetSource(LEADING), SystemClock(), NO_TOKEN, 0, files)
    monitor.start()
    try:
        context = ssl.create_default_context(cafile=str(files.ca))
        with pytest.raises(OSError, match=r"(?i)certificate.required|reset|closed"):
            urlopen(monitor.url + "ready", timeout=LIMIT_S, context=context)
        context.load_cert_chain(str(files.certificate), str(files.key))
        with urlopen(monitor.url + "ready", timeout=LIMIT_S, context=context) as answer:
            assert json.loads(answer.read())["ready"]
    finally:
        monitor.stop()
