"""``python -m tests.docs.screenshots``: pictures of the monitor's pages, taken of two real clusters, into
``docs/images/monitor-*.png``.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from selenium.webdriver.common.by import By
from selenium.webdriver.support.expected_conditions import presence_of_element_located
from selenium.webdriver.support.wait import WebDriverWait

from tests.docs.page import ROOT
from tests.support.browser import LIMIT_S, chromium, resize
from tests.support.cluster import Cluster
from tests.support.monitor_scene import lagging

IMAGES = ROOT / "docs" / "images"
ROWS = 1_200
POINTS = 12
SHOTS = (
    ("overview", "", 1280, 1000, "path.line"),
    ("files", "files", 1280, 400, "td.backing_off"),
    ("hosts-on-a-phone", "hosts", 390, 844, ".holding"),
)
"""Name, path, width, height, and an element that must be there."""
ENTRANCE = 1280, 260
"""Width and height of the page for a visitor without a token."""


def main() -> None:
    """Take them all."""
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        with (
            Cluster(place / "west", "west") as west,
            Cluster(place / "east", "east") as east,
            lagging(west, east, "cities", ROWS) as scene,
            chromium() as browser,
        ):
            scene.until("api/files", lambda body: any(row["last_error"] for row in body["files"]))
            scene.until("api/history", lambda body: len(body["at_ms"]) >= POINTS)
            resize(browser, *ENTRANCE)
            browser.get(scene.url)
            browser.save_screenshot(str(IMAGES / "monitor-entrance.png"))
            browser.get(scene.door)
            for shot, path, width, height, there in SHOTS:
                resize(browser, width, height)
                browser.get(f"{scene.url}/{path}")
                WebDriverWait(browser, LIMIT_S).until(
                    lambda driver: driver.execute_script("return Number(document.body.dataset.updates) > 1")
                )
                WebDriverWait(browser, LIMIT_S).until(presence_of_element_located((By.CSS_SELECTOR, there)))
                browser.save_screenshot(str(IMAGES / f"monitor-{shot}.png"))


if __name__ == "__main__":
    main()
