"""A thousand nights of 2,000 cases on 20 devices: taken in, shown, and one more."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from harness.history.database import open_database
from harness.history.importing import import_run
from harness.site.build import build
from tests.farm_nights import many_nights
from tests.integration.history.test_memory import peak_mb
from tests.unit.history.test_facts import all_facts

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(4 * 3600)]
_T = TypeVar("_T")


def cpu_s(do: Callable[[], _T]) -> tuple[_T, float]:
    """Return the result, and the seconds of processor time that this process took for it."""
    begin = time.process_time()
    return do(), time.process_time() - begin


def children_s() -> float:
    """The seconds that processes which have ended worked for this one."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime


def test_a_thousand_nights_are_taken_in_and_a_new_one_at_a_small_part(tmp_path: Path) -> None:
    """34 s of work and 145 MB for the site, 5 s for the pages of a new night were seen."""
    reports, file = tmp_path / "reports", tmp_path / "history.sqlite"
    site = tmp_path / "site"
    *_, last = many_nights(reports, nights=1000, cases=2000, devices=20)
    held_back = last.rename(tmp_path / last.name)
    before = children_s()
    peak = peak_mb("history", "import", reports, "--database", file)
    import_s, before = children_s() - before, children_s()
    site_mb = peak_mb(
        "report", "site", "--output", site, "--database", file, "--reports", tmp_path / "none"
    )
    site_s = children_s() - before
    database = open_database(str(file))
    taken, night_s = cpu_s(lambda: import_run(database, held_back))
    facts, facts_s = cpu_s(lambda: all_facts(database))
    shown, pages_s = cpu_s(lambda: build(database, site))
    print(f"\n{peak} MB and {import_s:.0f} s to import, {night_s:.1f} s for a new night")
    print(
        f"{site_mb} MB and {site_s:.0f} s for the site, {facts_s:.1f} s for facts, "
        f"{pages_s:.1f} s for the new night's pages"
    )
    assert peak < 150
    assert (taken.attempts, taken.changed) == (2000, True)
    assert night_s < 10 * import_s / 999
    assert facts_s < site_s
    assert facts, "something fails in the last runs"
    assert site_mb < 500
    assert pages_s < site_s / 4
    assert shown.written < 300, "pages of the new night, of its cases and devices, and lists"
