"""The monitor's pages of a real cluster in a real browser."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any
from urllib.parse import quote

import pytest
from selenium.webdriver import ActionChains, Chrome, Keys
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

from tests.support.browser import LIMIT_S, beyond, chromium, complaints, missing_programs, resize
from tests.support.cluster import Cluster
from tests.support.monitor_scene import Scene, lagging

pytestmark = [
    pytest.mark.integration,
    pytest.mark.spark,
    pytest.mark.skipif(bool(missing_programs()), reason=f"no {missing_programs()}: docker/system-deps.sh all"),
]

ROWS = 30
PATHS = ("", "tables", "peers", "files", "kept", "hosts", "tablets?table=watched")
NOT_READ = "503"
"""In the browser's complaint of an answer that the monitor has not read in time; the page asks again."""
PHONE = 390, 844
DESKTOP = 1280, 900


@pytest.fixture(scope="module")
def scene(west: Cluster, east: Cluster) -> Iterator[Scene]:
    with lagging(west, east, "watched", ROWS) as made:
        yield made


@pytest.fixture(scope="module")
def browser(scene: Scene) -> Iterator[Chrome]:
    with chromium() as driver:
        driver.get(scene.door)
        yield driver


def opened(browser: Chrome, scene: Scene, path: str) -> None:
    """Open a page and wait until it has updated itself once."""
    browser.get(f"{scene.url}/{path}")
    until(browser, "return Number(document.body.dataset.updates) > 0")


def until(browser: Chrome, script: str) -> None:
    """Wait until a script returns something true."""
    WebDriverWait(browser, LIMIT_S).until(lambda driver: driver.execute_script(script), script)


def attributes(browser: Chrome, selector: str, name: str) -> list[str]:
    """An attribute of all elements of an open page at one moment: an update of the page makes some of them anew."""
    script = "return [...document.querySelectorAll(arguments[0])].map((one) => one.getAttribute(arguments[1]))"
    found: list[str] = browser.execute_script(script, selector, name)
    return found


def number(row: str, column: str) -> str:
    """A script that returns the number in a column of a row."""
    return f"""[...document.querySelectorAll('tr[data-row]')].filter((row) => row.dataset.row === '{row}')
        .map((row) => Number(row.querySelector('[data-column={column}] data').value))[0]"""


def test_pages_load_without_complaints_and_nothing_comes_from_another_host(browser: Chrome, scene: Scene) -> None:
    for path in PATHS:
        opened(browser, scene, path)
        assert [line for line in complaints(browser) if NOT_READ not in line] == []
        loaded = browser.execute_script("return performance.getEntriesByType('resource').map((entry) => entry.name)")
        assert [name for name in loaded if not name.startswith(scene.url)] == []
    browser.execute_script("console.error('this is seen')")
    assert len(complaints(browser)) == 1


def test_a_browser_comes_in_by_the_address_or_by_the_token_and_shows_neither_afterwards(scene: Scene) -> None:
    with chromium(*PHONE) as stranger:
        stranger.get(f"{scene.url}/files")
        assert "shows nothing without its token" in stranger.find_element(By.CLASS_NAME, "problem").text
        assert stranger.execute_script("return document.documentElement.scrollWidth <= innerWidth")
        assert scene.table not in stranger.page_source
        stranger.find_element(By.ID, "token").send_keys("wrong", Keys.ENTER)
        until(stranger, "return location.search !== '' && !!document.getElementById('token')")
        assert "is not, or no longer" in stranger.find_element(By.CLASS_NAME, "problem").text
        stranger.find_element(By.ID, "token").send_keys(scene.token, Keys.ENTER)
        until(stranger, "return Number(document.body.dataset.updates) > 0")
        assert stranger.current_url == f"{scene.url}/files"
        assert stranger.execute_script("return document.cookie") == ""
        assert all("401" in line for line in complaints(stranger))
        (cookie,) = stranger.get_cookies()
        assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
        assert cookie["value"] != scene.token
        stranger.delete_all_cookies()
        until(stranger, "return !!document.getElementById('token')")
        stranger.get(scene.door)
        assert stranger.current_url == f"{scene.url}/"


def test_numbers_are_those_of_the_books_and_plots_are_drawn(browser: Chrome, scene: Scene) -> None:
    behind = [found for found in scene.west.client.replication.status(scene.table) if found.lag_records]
    assert sum(found.lag_records for found in behind) == scene.lag_records >= ROWS
    opened(browser, scene, "files")
    for found in behind:
        until(browser, f"return {number(found.file, 'lag_records')} === {found.lag_records}")
        until(browser, f"return {number(found.file, 'lag_bytes')} === {found.lag_bytes}")
    opened(browser, scene, "peers")
    until(browser, f"return {number(scene.cluster, 'lag_records')} === {scene.lag_records}")
    opened(browser, scene, "")
    scene.until("api/history", lambda body: len(body["at_ms"]) >= 2)
    until(browser, "return document.querySelectorAll('svg[data-picture^=lag_] path.line').length >= 3")


def test_an_open_page_follows_what_is_written(browser: Chrome, scene: Scene) -> None:
    before = scene.lag_records
    opened(browser, scene, "tables")
    until(browser, f"return {number(scene.table, 'lag_records')} === {before}")
    browser.execute_script("window.opened = true")
    scene.put(5, ROWS)
    until(browser, f"return {number(scene.table, 'lag_records')} >= {before + 5}")
    assert browser.execute_script("return window.opened")
    assert browser.find_element(By.ID, "status-line").text == "live"


@pytest.mark.parametrize("size", [PHONE, DESKTOP], ids=str)
def test_nothing_of_a_page_is_beyond_the_screen(browser: Chrome, scene: Scene, size: tuple[int, int]) -> None:
    resize(browser, *size)
    try:
        for path in (*PATHS, file_page(scene)):
            opened(browser, scene, path)
            assert browser.execute_script("return innerWidth") == size[0]
            assert beyond(browser) == [], f"/{path}"
    finally:
        resize(browser, *DESKTOP)


def file_page(scene: Scene) -> str:
    """The page of a file that the peer lacks."""
    (found, *_) = (one for one in scene.west.client.replication.status(scene.table) if one.lag_records)
    return f"file?file={quote(found.file)}"


def shows(browser: Chrome, scene: Scene, column: str, place: str, body: Any) -> bool:
    """Whether the page has the words of the answer; a target between two tries changes both."""
    (peer,) = (row for row in body["peers"] if row["cluster"] == scene.cluster)
    words = peer["phases"] if column == "phases" else [wait["kind"] for wait in peer["waits"]]
    shown = browser.execute_script("return document.querySelector(arguments[0])?.textContent ?? ''", place)
    return bool(words) and all(word in shown for word in words)


@pytest.mark.parametrize("size", [PHONE, DESKTOP], ids=str)
def test_phase_and_cause_of_a_peer_are_in_sight(browser: Chrome, scene: Scene, size: tuple[int, int]) -> None:
    resize(browser, *size)
    try:
        opened(browser, scene, "peers")
        cell = f"tr[data-row='{scene.cluster}'] [data-column={{}}]"
        for column in ("phases", "waits"):
            place = cell.format(column)
            scene.until("api/peers", partial(shows, browser, scene, column, place))
            assert browser.execute_script(
                """const shown = document.querySelector(arguments[0]), place = shown.getBoundingClientRect();
                return shown.checkVisibility() && place.width > 0 && place.x >= 0 && place.right <= arguments[1]""",
                place,
                size[0],
            )
    finally:
        resize(browser, *DESKTOP)


def test_pictures_of_lag_hosts_and_a_file_say_what_the_api_says(browser: Chrome, scene: Scene) -> None:
    scene.until("api/history", lambda body: len(body["at_ms"]) >= 2)
    for path in ("", "peers"):
        opened(browser, scene, path)
        picture = f"svg[data-picture=lag_seconds][data-peer='{scene.cluster}']"
        until(browser, f'return Number(document.querySelector("{picture}").dataset.points) > 0')
    opened(browser, scene, "")
    picture = f"svg[data-picture=lag_records][data-peer='{scene.cluster}']"
    lag = sum(row["lag_records"] for row in scene.get("api/peers")["peers"] if row["cluster"] == scene.cluster)
    until(browser, f"return document.querySelector(\"{picture}\").dataset.latest === '{lag}'")
    opened(browser, scene, "hosts")
    for host in scene.get("api/hosts")["hosts"]:
        labels = attributes(browser, f"[data-holding='{host['host']}'] svg", "aria-label")
        assert f"{host['host']} serves {host['serves']} tablets" in labels
    page = file_page(scene)
    opened(browser, scene, page)

    def is_as_told() -> bool:
        """The range that fails is on its way in one sample, and waits in the next."""
        (way,) = scene.get(f"api/{page}")["ways"]
        drawn, kinds = browser.execute_script(
            """return [[...document.querySelectorAll("[data-span]")].map((one) => ({
                kind: one.dataset.span, first: Number(one.dataset.first), last: Number(one.dataset.last)})),
                [...document.querySelectorAll("[data-part]")].map((one) => one.dataset.part)]"""
        )
        return drawn == way["spans"] and Counter(kinds) == Counter(span["kind"] for span in way["spans"])

    scene.west.wait_until(is_as_told, "the spans of the file as the API tells them", LIMIT_S)


def test_processes_have_the_replay_process(browser: Chrome, scene: Scene) -> None:
    opened(browser, scene, "")
    (replay,) = scene.until("api/overview", lambda body: all(one["works"] for one in body["replays"]))["replays"]
    row = f"tr[data-row='{replay['session']}']"
    until(browser, f'return !!document.querySelector("{row}")')
    shown = browser.execute_script("return document.querySelector(arguments[0]).innerText", row)
    assert all(word in shown for word in ("replay", "works", replay["address"]))


def test_a_keyboard_is_enough(browser: Chrome, scene: Scene) -> None:
    opened(browser, scene, "")

    def press(*keys: str) -> None:
        actions = ActionChains(browser)
        for key in keys:
            actions.send_keys(key)
        actions.perform()

    press(Keys.TAB)
    assert browser.switch_to.active_element.text == "Skip to the content"
    press(Keys.TAB, Keys.TAB)
    assert browser.switch_to.active_element.text == "Tables"
    outline = browser.execute_script("return getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"
    press(Keys.ENTER)
    until(browser, "return document.title.startsWith('Tables') && Number(document.body.dataset.updates) > 0")
    browser.execute_script(
        "[...document.querySelectorAll('a')].find((one) => one.innerText === arguments[0]).focus()", scene.table
    )
    seen = browser.execute_script("return document.body.dataset.updates")
    scene.put(1, 900_000)
    until(browser, f"return Number(document.body.dataset.updates) > {seen}")
    assert browser.switch_to.active_element.text == scene.table  # an update leaves the focus where it was
    press(Keys.ENTER)
    until(browser, f"return location.search === '?table={scene.table}' && !!document.querySelector('tr[data-row]')")
