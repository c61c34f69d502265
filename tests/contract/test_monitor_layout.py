"""The monitor's pages with the longest names and texts, in a real browser; the source is set, no cluster runs."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

import pytest
from msgspec.structs import replace
from selenium.webdriver import Chrome

from bookkeeper.clock import SystemClock
from bookkeeper.config.sections import MonitorSettings
from bookkeeper.monitor.web_server import Monitor
from tests.support.browser import beyond, chromium, complaints, missing_programs, prefer_scheme, resize
from tests.support.monitor_source import (
    AWAY,
    EAST,
    HOST,
    JOINER,
    LEADING,
    NO_TOKEN,
    QUARANTINED,
    UNREACHABLE,
    SetSource,
    books,
    kept,
    status,
)

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(bool(missing_programs()), reason=f"no {missing_programs()}: docker/system-deps.sh all"),
]

LONG = "a" * 60 + "_very_long_name_of_" + "b" * 60
TEXT = f"{LONG} does not answer: " + "no route to host, connection refused; " * 8
FILE = f"wal/tserver-{'2' * 32}/000001.wal"
PATHS = (
    *("/", "/tables", "/peers", "/files", "/kept", "/hosts", "/tablets?table=cities"),
    *("/tablet?table=cities&tablet=t1", f"/file?file={quote(FILE)}", "/file?file=none"),
)
WIDTHS = (390, 700, 1280)


def long_source() -> SetSource:
    """A cluster whose names, addresses and errors are as long as they get."""
    row = replace(status(FILE, "backing_off"), worker=f"tserver-{LONG}", last_error=TEXT, table=LONG)
    found = books(row, *(replace(row, file=f"w/{LONG}/{number}.wal") for number in range(9)))
    cause = replace(UNREACHABLE, text=TEXT, tables=(LONG,))
    found = replace(
        found,
        peers=tuple(replace(found.peers[0], cluster=name, quorum=f"{LONG}:1,{LONG}:2") for name in ("east", LONG)),
        tables=tuple(replace(found.tables[0], name=name, table_id=name[:1]) for name in ("cities", LONG)),
        lags=tuple(replace(lag, cluster=name, table=LONG) for lag in found.lags for name in ("east", LONG)),
        causes=(cause, replace(cause, cluster=LONG)),
        tservers=tuple(replace(found.tservers[0], session=LONG + str(number)) for number in range(3)),
        quarantined=(replace(QUARANTINED, file=FILE, error=TEXT),),
        problems=(TEXT,),
        operations=(f"import_directory at prepare: {TEXT}",),
        replay_problem=TEXT,
        under_way={(FILE, EAST): 95},
    )
    return SetSource(
        replace(LEADING, books=found, cluster=LONG[:80]),
        (kept(FILE, 9_000_000_000, "replication", "recovery"),),
        found_hosts=(replace(HOST, name=LONG, problem=TEXT), JOINER, AWAY, replace(HOST, name="host4", bytes=10**15)),
    )


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    monitor = Monitor(MonitorSettings(), long_source(), SystemClock(), NO_TOKEN, 0)
    monitor.start()
    yield monitor.url.rstrip("/")
    monitor.stop()


@pytest.fixture(scope="module")
def browser() -> Iterator[Chrome]:
    with chromium() as driver:
        yield driver


@pytest.mark.parametrize("width", WIDTHS)
def test_the_longest_names_are_inside_the_screen(browser: Chrome, url: str, width: int) -> None:
    resize(browser, width, 900)
    for path in PATHS:
        browser.get(url + path)
        assert beyond(browser) == [], path
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width, path
    assert [line for line in complaints(browser) if "404" not in line] == []


CONTRAST = """
const luminance = (colour) => colour.match(/[\\d.]+/g).slice(0, 3).map((one) => one / 255)
    .map((one) => one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4)
    .reduce((sum, one, index) => sum + one * [0.2126, 0.7152, 0.0722][index], 0);
const behind = (found) => {
    for (let one = found; one; one = one.parentElement) {
        const colour = getComputedStyle(one).backgroundColor;
        if (!/, 0\\)$/.test(colour)) return colour;
    }
    return 'rgb(255, 255, 255)';
};
return [...document.querySelectorAll('body *:not(select):not(option):not(button)')]
    .filter((found) => [...found.childNodes].some((one) => one.nodeType === 3 && one.data.trim()))
    .filter((found) => found.getClientRects().length && !found.closest('svg'))
    .map((found) => [getComputedStyle(found).color, behind(found), found.outerHTML.slice(0, 120)])
    .map(([ink, paper, text]) => [[luminance(ink), luminance(paper)].sort((a, b) => b - a), text])
    .filter(([[light, dark], _]) => (light + 0.05) / (dark + 0.05) < 4.5)
    .map(([_, text]) => text)"""
"""A script that lists the texts with less contrast to what is behind them than WCAG's 4.5."""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_has_contrast_in_both_colour_schemes(browser: Chrome, url: str, scheme: str) -> None:
    resize(browser, 1280, 900)
    prefer_scheme(browser, scheme)
    for path in PATHS:
        browser.get(url + path)
        assert browser.execute_script(CONTRAST) == [], path
