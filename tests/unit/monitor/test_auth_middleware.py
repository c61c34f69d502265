"""Access to the monitor on a real socket, for unknown callers, programs and browsers; the test sets the source."""

from __future__ import annotations

import http.client
import json
import logging
from collections.abc import Callable, Iterator
from http.cookies import SimpleCookie
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from bookkeeper.clock import SystemClock
from bookkeeper.config.file import new_settings
from bookkeeper.config.sections import MonitorSettings, Settings
from bookkeeper.monitor.pages import PAGES
from bookkeeper.monitor.web_server import Monitor
from bookkeeper.security.secret_store import SecretStore
from bookkeeper.security.viewers import cookie_of, token_of, viewers_of
from tests.support.faults import fault
from tests.support.monitor_source import LEADING, SetSource

LIMIT_S = 60
CLOSED = (*PAGES, "/metrics", "/api/overview", "/api/files?rows=2", "/static/monitor.css", "/nothing")


class Guest:
    """Asks one monitor; follows nothing by itself."""

    def __init__(self, monitor: Monitor, settings: Settings) -> None:
        self.store = SecretStore(settings.directory)
        self.cookie_name = f"bookkeeper_{settings.instance.instance_id}"
        self._address = urlsplit(monitor.url)

    @property
    def token(self) -> str:
        return token_of(self.store.own("monitor"))

    def ask(self, path: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], str]:
        """Status code, headers, text."""
        line = http.client.HTTPConnection(str(self._address.hostname), self._address.port, timeout=LIMIT_S)
        line.request(method, path, headers=headers)
        answer = line.getresponse()
        text = answer.read().decode()
        line.close()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, text

    def code(self, path: str, token: str = "", cookie: str = "") -> int:
        shown = {"Authorization": f"Bearer {token}"} if token else {}
        shown |= {"Cookie": f"other=1; {self.cookie_name}={cookie}"} if cookie else {}
        return self.ask(path, **shown)[0]


@pytest.fixture
def guest(tmp_path: Path) -> Iterator[Guest]:
    settings = new_settings(tmp_path, "west")
    SecretStore(tmp_path).complete("west", settings.instance.instance_id)
    monitor = Monitor(MonitorSettings(), SetSource(LEADING), SystemClock(), viewers_of(settings), 0)
    monitor.start()
    yield Guest(monitor, settings)
    monitor.stop()


def test_a_request_without_a_token_gets_instructions_only(guest: Guest) -> None:
    for path in CLOSED:
        code, headers, text = guest.ask(path)
        assert code == 401, f"{path}: a stranger gets a page"
        assert headers["www-authenticate"] == 'Bearer realm="monitor of west"', path
        assert headers["connection"] == "close"
        assert "bookkeeper monitor DIR" in text
        assert "cities" not in text
        assert guest.ask(path, "POST")[0] == 401
    assert json.loads(guest.ask("/api/peers")[2])["error"].startswith("the request has none: ")
    assert 'action="/files"' in guest.ask("/files")[2]


def test_a_wrong_token_is_none(guest: Guest) -> None:
    right, peer = guest.token, guest.store.make_for_peer("east", "west", "i-west").secret
    others = [token_of(secret) for secret in (guest.store.own("client"), guest.store.own("cluster"), peer)]
    for wrong in (*others, right[:-1], right + "x", right.swapcase(), guest.store.own("monitor").id, "ü"):
        assert guest.code("/metrics", wrong.encode().decode("latin-1")) == 401, "a wrong token is accepted"
        assert guest.code("/metrics", cookie=wrong.encode().decode("latin-1")) == 401
    assert guest.code("/metrics", cookie=right) == 401, "a browser's cookie is another text"
    assert guest.code("/metrics", cookie_of(guest.store.own("monitor"))) == 401
    assert guest.ask(f"/?token={right}x")[0] == 401
    assert guest.ask("/metrics", Authorization=f"Basic {right}")[0] == 401


def test_programs_show_the_token_in_a_header(guest: Guest) -> None:
    assert guest.code("/metrics", guest.token) == 200
    assert guest.ask("/api/files", authorization=f"bearer  {guest.token} ")[0] == 200
    assert guest.code("/nothing", guest.token) == 404


def test_a_browser_gets_a_cookie_and_the_address_without_the_token(guest: Guest) -> None:
    code, headers, text = guest.ask(f"/files?cluster=east&token={guest.token}&rows=5")
    assert (code, headers["location"], text) == (303, "/files?cluster=east&rows=5", ""), (
        "the token stays in the address"
    )
    (cookie,) = SimpleCookie(headers["set-cookie"]).values()
    assert (cookie.key, cookie["httponly"], cookie["samesite"], cookie["path"]) == (
        guest.cookie_name,
        True,
        "strict",
        "/",
    ), "scripts or other sites get the cookie"
    assert (cookie["secure"], cookie["max-age"], cookie["expires"]) == ("", "", "")
    assert guest.token not in str(headers)
    assert guest.code("/files", cookie=cookie.value) == 200
    assert guest.code("/files", cookie=cookie.value + "x") == 401


def test_the_redirect_leads_to_no_other_host(guest: Guest) -> None:
    for path in ("//evil.example/", "/%5cevil.example/", "/%2f%2fevil.example/", "/%0d%0aX-Evil:%201"):
        _, headers, _ = guest.ask(f"{path}?token={guest.token}")
        assert headers["location"].startswith("/")
        assert headers["location"][1:2] not in ("/", "\\")
        assert "x-evil" not in headers
        assert guest.ask(path)[1]["content-type"] == "application/json"


def test_health_and_readiness_are_open_in_one_word(guest: Guest) -> None:
    assert [guest.ask(path)[2] for path in ("/health", "/ready")] == ['{"healthy":true}', '{"ready":true}'], (
        "a stranger hears more than one word"
    )
    assert guest.ask("/ready?token=wrong")[2] == '{"ready":true}'
    told = json.loads(guest.ask("/ready", Authorization=f"Bearer {guest.token}")[2])
    assert told == {"ready": True, "leads": True, "reason": ""}


def test_a_forgotten_token_ends_with_the_next_request(guest: Guest) -> None:
    before = guest.store.own("monitor")
    guest.store.renew("viewers")
    assert guest.code("/metrics", guest.token) == guest.code("/metrics", token_of(before)) == 200
    guest.store.forget("viewers")
    assert guest.code("/metrics", guest.token) == 200
    assert guest.code("/metrics", token_of(before)) == 401
    assert guest.code("/", cookie=cookie_of(before)) == 401


def test_the_log_has_a_line_for_a_refusal_without_its_token(guest: Guest, caplog: pytest.LogCaptureFixture) -> None:
    shown = guest.token[:-1]
    with caplog.at_level(logging.DEBUG):
        for _ in range(5):
            guest.ask(f"/?token={shown}")
            guest.ask("/metrics", Authorization=f"Bearer {shown}")
            guest.ask("/metrics", Cookie=f"{guest.cookie_name}={shown}")
            guest.ask(f"/files?token={guest.token}")
            guest.ask("/files")
    lines = [record.getMessage() for record in caplog.records if "refused" in record.getMessage()]
    assert shown not in caplog.text, "the log says what a stranger showed"
    assert len(lines) == 3, "one for each kind of trouble from one address, for a while"
    assert all(line.startswith("127.0.0.1:") and line.endswith("; closed") for line in lines)
    assert shown not in guest.ask(f"/?token={shown}")[2]


@pytest.mark.parametrize(
    ("switch", "law", "says"),
    [
        ("the-monitor-needs-no-token", test_a_request_without_a_token_gets_instructions_only, "a stranger gets a page"),
        ("any-token-will-do", test_a_wrong_token_is_none, "a wrong token is accepted"),
        (
            "tokens-stay-in-the-address",
            test_a_browser_gets_a_cookie_and_the_address_without_the_token,
            "the token stays in the address",
        ),
        (
            "scripts-read-the-cookie",
            test_a_browser_gets_a_cookie_and_the_address_without_the_token,
            "scripts or other sites get the cookie",
        ),
        (
            "all-clients-see-details",
            test_health_and_readiness_are_open_in_one_word,
            "a stranger hears more than one word",
        ),
    ],
)
def test_without_a_rule_its_law_falls(guest: Guest, switch: str, law: Callable[[Guest], None], says: str) -> None:
    with fault(switch), pytest.raises(AssertionError, match=says):
        law(guest)


@pytest.mark.parametrize(
    ("switch", "says"),
    [
        ("refusals-say-what-was-shown", "the log says what a stranger showed"),
        ("every-refusal-is-logged", "one for each kind of trouble"),
    ],
)
def test_without_a_rule_the_log_says_too_much(
    guest: Guest, switch: str, says: str, caplog: pytest.LogCaptureFixture
) -> None:
    with fault(switch), pytest.raises(AssertionError, match=says):
        test_the_log_has_a_line_for_a_refusal_without_its_token(guest, caplog)


@pytest.mark.parametrize("name", ["monitor.authentication", "security.authentication"])
def test_a_setting_opens_it_without_a_token(tmp_path: Path, name: str) -> None:
    settings = new_settings(tmp_path, "west", overrides={name: "none"})
    monitor = Monitor(MonitorSettings(), SetSource(LEADING), SystemClock(), viewers_of(settings), 0)
    monitor.start()
    try:
        assert Guest(monitor, settings).code("/metrics") == 200
        assert "looked_ms_ago" in Guest(monitor, settings).ask("/health")[2]
    finally:
        monitor.stop()


def test_without_a_secret_no_request_is_authenticated(tmp_path: Path) -> None:
    settings = new_settings(tmp_path, "west")
    monitor = Monitor(MonitorSettings(), SetSource(LEADING), SystemClock(), viewers_of(settings), 0)
    monitor.start()
    try:
        assert Guest(monitor, settings).code("/") == 401
        assert Guest(monitor, settings).code("/ready") == 200
    finally:
        monitor.stop()
