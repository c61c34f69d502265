"""The pages as they are sent, before any script runs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from urllib.request import urlopen

import pytest
from msgspec.structs import replace

from bookkeeper.clock import SystemClock
from bookkeeper.config.sections import MonitorSettings
from bookkeeper.errors import UnavailableError
from bookkeeper.monitor.observation import ReplayInfo
from bookkeeper.monitor.pages import PAGES, TABLE_PAGES, age, size
from bookkeeper.monitor.web_server import Monitor
from tests.support.monitor_scene import read
from tests.support.monitor_source import (
    EAST,
    LEADING,
    NO_TOKEN,
    QUARANTINED,
    STANDING_BY,
    SetSource,
    books,
    kept,
    status,
    tablet,
)

SOURCE = SetSource(
    replace(
        LEADING,
        books=replace(
            books(
                replace(status("w/1.wal", "blocked"), cause="behind", root_cause="table_gone"),
                *(status(f"w/s/{n:06}.wal", "backing_off") for n in range(59)),
            ),
            quarantined=(QUARANTINED,),
            replays=(ReplayInfo("replay-3", "127.0.0.1:9002", True),),
            replay_problem="no <Java>",
            under_way={("w/1.wal", EAST): 95},
        ),
    ),
    (kept("w/s/000001.wal", 9_000, "recovery", "replication"),),
)


@pytest.fixture
def url() -> Iterator[str]:
    monitor = Monitor(MonitorSettings(), SOURCE, SystemClock(), NO_TOKEN, 0)
    monitor.start()
    yield monitor.url.rstrip("/")
    monitor.stop()


class Links(HTMLParser):
    """Every address that a page names, and its elements that are open."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value or "" for name, value in attrs if name in ("href", "src", "action")]
        if tag not in ("meta", "link", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.parametrize("path", PAGES)
def test_a_page_is_whole_and_names_no_other_host(url: str, path: str) -> None:
    check_whole(url, url + path)


OTHERS = ("/tablets?table=cities", "/tablet?table=cities&tablet=t1", "/file?file=w/1.wal")


@pytest.mark.parametrize("path", OTHERS)
def test_pages_of_a_table_and_of_a_file_are_whole_too(url: str, path: str) -> None:
    check_whole(url, url + path)


def check_whole(url: str, address: str) -> None:
    """The page at an address has elements that end, and links that work."""
    code, text = read(address)
    links = Links()
    links.feed(text)
    assert (code, links.open) == (200, [])
    assert all(link.startswith(("/", "?", "#")) for link in links.found)
    for link in links.found:
        if link.startswith("/"):
            assert read(url + link)[0] == 200, link


def test_what_others_wrote_is_text_and_never_markup(url: str) -> None:
    text = read(f"{url}/files")[1]
    assert "no route &lt;to&gt; host" in text
    assert "too &lt;large&gt;" in text
    assert "the host is &lt;away&gt;" in read(f"{url}/hosts")[1]
    text = read(f"{url}/tablet?table=cities&tablet=t1")[1]
    assert "to be &lt;named&gt;" in text
    assert "a &lt;page&gt; reads them" in text


def test_rows_are_paged_and_the_filter_stays_with_the_pages(url: str) -> None:
    text = read(f"{url}/files?cluster=east&rows=20")[1]
    assert text.count("<tr data-row=") == 20
    assert 'href="?cluster=east&amp;page=2&amp;rows=20"' in text
    assert "<option selected>east" in text
    assert "page 3 of 3" in read(f"{url}/files?cluster=east&rows=20&page=3")[1]


def test_segments_are_paged_and_the_tablet_stays_with_the_pages() -> None:
    source = SetSource(found_tablets=(tablet(0, 1_200),))
    monitor = Monitor(MonitorSettings(), source, SystemClock(), NO_TOKEN, 0)
    monitor.start()
    try:
        address = f"{monitor.url}tablet?table=cities&tablet=t0&rows=9999"
        text = read(address)[1]
        assert "1,200 rows, page 1 of 3" in text
        assert 'href="?table=cities&amp;tablet=t0&amp;page=2&amp;rows=9999"' in text
        assert text.index('data-row="1200"') < text.index('data-row="1199"')
        assert len(text) < 300_000
    finally:
        monitor.stop()


def test_a_table_of_a_thousand_tablets_has_small_pages() -> None:
    source = SetSource(found_tablets=tuple(tablet(number) for number in range(1_000)))
    monitor = Monitor(MonitorSettings(), source, SystemClock(), NO_TOKEN, 0)
    monitor.start()
    try:
        text = read(f"{monitor.url}tablets?table=cities")[1]
        assert text.count("<tr data-row=") == 50
        assert "page 1 of 20" in text
        assert len(text) < 50_000
    finally:
        monitor.stop()


def test_a_page_of_a_table_says_what_it_can_not_show(url: str) -> None:
    for path, code, reason in (
        ("/tablets", 404, "lacks the name of a table or a tablet"),
        ("/tablet?table=cities", 404, "lacks the name of a table or a tablet"),
        ("/tablets?table=other", 404, "no table other"),
        ("/tablet?table=cities&tablet=gone", 404, "no tablet gone"),
    ):
        found, text = read(url + path)
        assert (found, reason in text) == (code, True), path
        assert 'href="/tables"' in text


def test_hosts_that_can_not_be_asked_are_a_problem_and_no_empty_page() -> None:
    monitor = Monitor(
        MonitorSettings(), SetSource(error=UnavailableError("the books are away")), SystemClock(), NO_TOKEN, 0
    )
    monitor.start()
    try:
        code, text = read(f"{monitor.url}hosts")
        assert (code, "the books are away" in text, "There are no hosts" in text) == (503, True, False)
    finally:
        monitor.stop()


def test_a_fragment_is_the_part_that_changes(url: str) -> None:
    whole, part = read(f"{url}/tables")[1], read(f"{url}/tables?fragment=1")[1]
    assert part.strip() in whole
    assert "<html" not in part


def test_a_master_that_stands_by_leads_to_the_leader_on_every_page() -> None:
    monitor = Monitor(MonitorSettings(), SetSource(STANDING_BY), SystemClock(), NO_TOKEN, 0)
    monitor.start()
    try:
        for path in PAGES | TABLE_PAGES:
            code, text = read(monitor.url.rstrip("/") + path)
            assert code == (200 if path == "/" else 503)
            assert 'href="http://127.0.0.1:9100/"' in text
    finally:
        monitor.stop()


def test_pictures_stand_in_the_page_and_need_no_script(url: str) -> None:
    text = read(f"{url}/")[1]
    for name in ("lag_seconds", "lag_records", "lag_bytes"):
        assert f'data-picture="{name}" data-peer="east"' in text
    assert text.count("<script") == 1
    assert "<desc" in text
    hosts = read(f"{url}/hosts")[1]
    assert 'aria-label="host2 holds 2 voters, and 2 replicas join"' in hosts
    assert 'aria-label="host3 holds an unknown number of bytes"' in hosts


def test_no_style_stands_in_a_page_so_the_policy_allows_none(url: str) -> None:
    for path in (*PAGES, *OTHERS):
        text = read(url + path)[1]
        assert "<style" not in text
        assert "style=" not in text
    with urlopen(f"{url}/") as answer:
        policy = answer.headers["Content-Security-Policy"]
    assert policy == "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"


def test_processes_are_the_master_the_tservers_and_replay(url: str) -> None:
    text = read(f"{url}/")[1]
    assert re.findall(r'<tr data-row="([^"]*)"><th scope="row">([a-z]+)', text) == [
        ("master-1", "master"),
        ("tserver-2", "tserver"),
        ("replay-3", "replay"),
    ]
    assert "last words of replay: no &lt;Java&gt;" in text


def test_the_page_of_a_file_has_its_way_to_each_peer(url: str) -> None:
    text = read(f"{url}/file?file=w/1.wal")[1]
    for said in ("finished: 1 to 2", "in quarantine: 3 to 5", "finished: 6 to 90", "under way: 91 to 95"):
        assert said in text
    assert "not sent: 96 to 100" in text
    assert "behind (table_gone)" in text
    assert "behind (table_gone)" in read(f"{url}/files")[1]
    assert "too &lt;large&gt;" in text
    code, text = read(f"{url}/file?file=w/9.wal")
    assert (code, "no peer lacks a record of this file" in text) == (404, True)


def test_sizes_and_ages_are_written_in_the_unit_that_fits() -> None:
    assert [size(number) for number in (0, 1023, 1536, 5 * 2**30)] == ["0 B", "1,023 B", "1.5 KiB", "5.0 GiB"]
    assert [age(seconds) for seconds in (0.25, 59, 61, 3_700, 200_000)] == [
        "0.2 s",
        "59.0 s",
        "1 min 1 s",
        "1 h 1 min",
        "2 d 7 h",
    ]
