"""Writes the site: pages whose words have changed, each whole or not at all."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from harness.answers.history.database import Database
from harness.answers.history.nights import nights_held
from harness.answers.site.case_page import ListedTest, case_page, case_row, cases_page
from harness.answers.site.cause_page import cause_page, causes_page
from harness.answers.site.device_page import device_page, devices_page
from harness.answers.site.gathered import (
    WINDOW,
    Harvest,
    device_rows,
    error_of,
    lines_by_test,
    runs_held,
)
from harness.answers.site.links import FRONT, page_of
from harness.answers.site.night_page import front_page, night_page, nights_page
from harness.answers.site.pages import Known
from harness.answers.site.version_page import version_page, versions, versions_page
from harness.ground import InfraError, write_whole


@dataclass
class Built:
    """How many pages were written, and how many were as they ought to be already."""

    written: int = 0
    kept: int = 0
    seconds: float = 0.0


class _Site:
    """The folder that pages are written into."""

    def __init__(self, out: Path) -> None:
        self.out, self.built = out, Built()

    def write(self, name: str, page: str) -> None:
        path, data = self.out / name, page.encode("utf-8", "replace")
        if path.is_file() and path.read_bytes() == data:
            self.built.kept += 1
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, data)
        self.built.written += 1


def build(database: Database, out: Path) -> Built:
    """Makes the site say what the history says. Raises InfraError."""
    began, site = time.monotonic(), _Site(out)
    runs = runs_held(database)
    first, listed = 0, list[ListedTest]()
    try:
        with Harvest() as gathered:
            drawn = max(0, len(runs) - WINDOW)
            devices = device_rows(database, runs, drawn)
            known = Known(runs, gathered, devices, nights_held(database))
            for _, lines in lines_by_test(database, runs, first):
                gathered.take(lines, first, known.last)
            for test, lines in lines_by_test(database, runs, drawn):
                site.write(page_of("case", test), case_page(known, test, lines))
                listed.append(case_row(known, test, lines))
            site.write("cases.html", cases_page(listed))
            for one, _, _ in gathered.causes():
                error = error_of(database, runs[one.at].run, one.case)
                site.write(page_of("cause", one.cause), cause_page(known, one.cause, error))
            site.write("causes.html", causes_page(known))
            for version in versions(known):
                site.write(page_of("version", version), version_page(known, version))
            site.write("versions.html", versions_page(known))
            for at in range(len(runs)):
                site.write(page_of("night", runs[at].run), night_page(known, at))
            for device in {name for name, _ in (*gathered.by_device, *devices)}:
                site.write(page_of("device", device), device_page(known, device))
            site.write("devices.html", devices_page(known))
            site.write("nights.html", nights_page(known))
            site.write(FRONT, front_page(known))
    except OSError as error:
        raise InfraError(f"the site cannot be written: {error}") from error
    site.built.seconds = time.monotonic() - began
    return site.built
