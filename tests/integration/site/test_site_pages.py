"""The site in a real browser: at any width, light and dark, by keyboard, without a network."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.webdriver.common.keys import Keys

from tests.integration.browser import Browser, chromium
from tests.unit.history.runs import attempt, run_folder
from tests.unit.site.test_build import EVIL, built

PHONE = "phone-of-the-lab-in-a-city-with-a-long-name"
LONG = "a_name_that_is_long_" * 6
WIDTHS = (420, 1280, 2400)
RIGHT = (
    "return Math.max(0, ...[...document.querySelectorAll('table:not(.cross)')].map("
    "table => table.getBoundingClientRect().right))"
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of three nights: what is long, hostile, measured, lost, mended and new stands in them."""
    folder = tmp_path_factory.mktemp("site")
    figures = {"load_us": [900, 950], "rss_bytes": {"peak": 5_000_000}}
    runs = []
    for number, message in enumerate(
        ("passed", "passed", f"failed message={'which_fails_' * 20}"), start=1
    ):
        cases = [
            attempt(f"{LONG}{index} {message}", device=f"{PHONE}-{index}", measurements=figures)
            for index in range(4)
        ]
        evil = attempt("b error", device=EVIL) if number == 3 else attempt("b passed", device=EVIL)
        runs.append(
            run_folder(folder, *cases, evil, run_id=f"2026110{number}T220000Z-{number:016x}")
        )
    built(folder, *runs)
    return folder / "site"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as driver:
        yield Browser(driver)


@pytest.mark.slow
def test_no_page_is_wider_than_its_window_nor_asks_for_anything(
    browser: Browser, site: Path
) -> None:
    one_of_each = [min(path.rglob("*.html")) for path in site.iterdir() if path.is_dir()]
    pages = [*site.glob("*.html"), *one_of_each]
    assert len(pages) == 10
    for page in pages:
        browser.driver.get(page.as_uri())
        for width, scheme in zip(WIDTHS, ("light", "dark", "light"), strict=True):
            browser.see(width, scheme)
            assert browser.js("return document.documentElement.scrollWidth") <= width, page
            # no column of it has to be scrolled to, either
            assert width < 1280 or browser.js(RIGHT) <= width, page
        browser.see(1400, "dark")
        dark = browser.js("return getComputedStyle(document.body).backgroundColor")
        browser.see(1400, "light")
        assert browser.js("return getComputedStyle(document.body).backgroundColor") != dark
        assert browser.complaints() == []


def test_the_way_from_the_front_page_goes_by_keyboard(browser: Browser, site: Path) -> None:
    browser.see(1400, "light")
    browser.driver.get((site / "index.html").as_uri())
    assert "1 lost to the lab" in browser.one("p.verdict").text
    assert browser.one("h2").text == "New: 4 cases"

    def press(key: str) -> None:
        browser.driver.switch_to.active_element.send_keys(key)

    press(Keys.TAB)
    assert browser.js("return document.activeElement.textContent") == "Skip to content"
    press(Keys.ENTER)
    press(Keys.TAB)
    assert "reports/" in browser.js("return document.activeElement.getAttribute('href')")
    press(Keys.TAB)
    assert "cause/" in browser.js("return document.activeElement.getAttribute('href')")
    press(Keys.ENTER)
    browser.wait(lambda: "/cause/" in browser.driver.current_url)
    assert "4 cases in the last run" in browser.one("p.verdict").text

    browser.driver.get((site / "cases.html").as_uri())
    rows = "return [...document.querySelectorAll('tbody tr')].filter(one => !one.hidden).length"
    assert browser.js(rows) == 5
    press("/")
    press(f"{LONG}2")
    assert browser.js(rows) == 1
    browser.one("tbody tr:not([hidden]) a").send_keys(Keys.ENTER)
    browser.wait(lambda: "/case/" in browser.driver.current_url)
    assert "Fails on 1 of 1 device" in browser.one("p.verdict").text
    assert len(browser.all("svg.curve polyline")) == 2
    assert browser.all("svg.strip path.o-failed title")
