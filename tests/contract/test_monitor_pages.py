"""The monitor's pages of a real cluster in a real browser."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from selenium.common.exceptions import TimeoutException
from selenium.webdriver import ActionChains, Chrome, Keys
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

from tests.support.browser import LIMIT_S, chromium, complaints, missing_programs, resize
from tests.support.cluster import Cluster
from tests.support.monitor_scene import Scene, lagging

pytestmark = [
    pytest.mark.integration,
    pytest.mark.spark,
    pytest.mark.skipif(bool(missing_programs()), reason=f"no {missing_programs()}: docker/system-deps.sh all"),
]

ROWS = 30
PATHS = ("", "tables", "peers", "files", "kept", "hosts", "tablets?table=watched")
PHONE = 360, 740
WIDE = f"""return [...document.querySelectorAll('body *')].filter((found) => !found.parentElement.closest('.scroll'))
    .filter((found) => found.getBoundingClientRect().right > {PHONE[0]})
    .map((found) => found.outerHTML.slice(0, 160))"""
"""A script that lists the elements beyond the screen, except in tables, which scroll by themselves."""


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


def number(row: str, column: str) -> str:
    """A script that returns the number in a column of a row."""
    return f"""[...document.querySelectorAll('tr[data-row]')].filter((row) => row.dataset.row === '{row}')
        .map((row) => Number(row.querySelector('[data-column={column}] data').value))[0]"""


def test_pages_load_without_complaints_and_nothing_comes_from_another_host(browser: Chrome, scene: Scene) -> None:
    for path in PATHS:
        opened(browser, scene, path)
        assert complaints(browser) == []
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
    until(browser, "return document.querySelectorAll('.plot svg .scatterlayer path.js-line').length >= 3")


def test_an_open_page_follows_what_is_written(browser: Chrome, scene: Scene) -> None:
    before = scene.lag_records
    opened(browser, scene, "tables")
    until(browser, f"return {number(scene.table, 'lag_records')} === {before}")
    browser.execute_script("window.opened = true")
    scene.put(5, ROWS)
    until(browser, f"return {number(scene.table, 'lag_records')} >= {before + 5}")
    assert browser.execute_script("return window.opened")
    assert browser.find_element(By.ID, "status-line").text == "live"


def test_on_a_phone_no_page_is_wider_than_the_screen(browser: Chrome, scene: Scene) -> None:
    resize(browser, *PHONE)
    try:
        for path in PATHS:
            opened(browser, scene, path)
            try:
                until(browser, f"return document.documentElement.scrollWidth <= {PHONE[0]}")
            except TimeoutException as error:
                raise AssertionError(f"/{path}: {browser.execute_script(WIDE)}") from error
            assert browser.execute_script("return innerWidth") == PHONE[0]
    finally:
        resize(browser, 1280, 900)


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
    link = browser.find_element(By.LINK_TEXT, scene.table)
    browser.execute_script("arguments[0].focus()", link)
    seen = browser.execute_script("return document.body.dataset.updates")
    scene.put(1, 900_000)
    until(browser, f"return Number(document.body.dataset.updates) > {seen}")
    assert browser.switch_to.active_element.text == scene.table  # an update leaves the focus where it was
    press(Keys.ENTER)
    until(browser, f"return location.search === '?table={scene.table}' && !!document.querySelector('tr[data-row]')")
