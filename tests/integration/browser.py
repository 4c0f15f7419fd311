"""A real browser without a network, in which pages are looked at."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

from tests.needed import need

WAIT_S = 60


class Browser:
    """The page that is open, as a reader sees it."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver

    def wait(self, what: Callable[[], Any]) -> Any:
        """Wait until something is true; look again for an element that is drawn anew."""
        drawn_anew = [StaleElementReferenceException]
        wait = WebDriverWait(self.driver, WAIT_S, ignored_exceptions=drawn_anew)
        return wait.until(lambda _: what())

    def all(self, selector: str) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def one(self, selector: str) -> WebElement:
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def js(self, script: str) -> Any:
        return self.driver.execute_script(script)  # type: ignore[no-untyped-call]

    def see(self, width: int, scheme: str) -> None:
        """Makes the window so wide, and asks for light or dark."""
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", media)

    def complaints(self) -> list[str]:
        """The lines of the browser's console, and every request but for the page."""
        console = [entry["message"] for entry in self.driver.get_log("browser")]
        fetched = self.js("return performance.getEntriesByType('resource').map(one => one.name)")
        return [*console, *fetched]


@contextlib.contextmanager
def chromium() -> Iterator[webdriver.Chrome]:
    """Starts one; it ends with the block."""
    need("chromium")
    need("chromedriver")
    options = Options()
    options.binary_location = "/usr/bin/chromium"
    for word in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))
    try:
        driver.set_page_load_timeout(WAIT_S)
        driver.set_script_timeout(WAIT_S)
        yield driver
    finally:
        driver.quit()
