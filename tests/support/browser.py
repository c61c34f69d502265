"""A real browser: Debian's Chromium without a screen, driven through its own chromedriver.

Arrives: nothing. Leaves: a driver. Nothing outlives the block, and nothing is fetched from elsewhere.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from selenium.webdriver import Chrome, ChromeOptions, ChromeService

PROGRAMS = ("chromium", "chromedriver")
LIMIT_S = 150
"""A sample that takes long delays the next one by twenty times as much."""

FLAGS = (
    "--headless=new",
    "--no-sandbox",  # tests may run as root, in containers
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    "--hide-scrollbars",
)


def missing_programs() -> list[str]:
    """Packages that ``docker/system-deps.sh all`` installs."""
    return [program for program in PROGRAMS if shutil.which(program) is None]


@contextmanager
def chromium(width: int = 1280, height: int = 900) -> Iterator[Chrome]:
    """A browser with an empty profile that keeps what pages write to its console."""
    options = ChromeOptions()
    options.binary_location = str(shutil.which("chromium"))
    for flag in (*FLAGS, f"--window-size={width},{height}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = Chrome(options, ChromeService(str(shutil.which("chromedriver"))))
    try:
        driver.set_page_load_timeout(LIMIT_S)
        yield driver
    finally:
        driver.quit()


def resize(driver: Chrome, width: int, height: int) -> None:
    """Give pages a window of this size, as a phone does."""
    driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600},
    )


def complaints(driver: Chrome) -> list[str]:
    """Lines that pages wrote to the console since the last call, with errors and warnings of the browser."""
    return [f"{entry['level']}: {entry['message']}" for entry in driver.get_log("browser")]  # type: ignore[no-untyped-call]


_BEYOND = """return [...document.querySelectorAll('body *')]
    .filter((found) => found.getBoundingClientRect().right > innerWidth + 0.5)
    .map((found) => found.outerHTML.slice(0, 160))"""


def beyond(driver: Chrome) -> list[str]:
    """The elements of a page whose right edge is beyond the window; of each the beginning of its text."""
    found: list[str] = driver.execute_script(_BEYOND)
    return found


def prefer_scheme(driver: Chrome, scheme: str) -> None:
    """Let pages think that their reader prefers ``light`` or ``dark``."""
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
