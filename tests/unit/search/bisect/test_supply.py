"""What a run costs: dear is what must be fetched, and what a search has run itself is there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.libraries.runtimes.catalog import Catalog
from harness.search.bisect import versions as versions_module
from harness.search.bisect.driver import Bisection
from harness.search.bisect.search import AxisSpec, CornerSpec
from harness.search.bisect.versions import Supply, is_here
from tests.unit.search.bisect.histories import task
from tests.unit.search.bisect.scripted_runs import ScriptedRuns, Silent, new_bisection

CORNERS = CornerSpec(
    axes=("ort", "qnn"),
    candidates=(("1.27.0", "1.31.1"), ("2.47.0", "2.50.40", "2.51.0")),
    good=("1.27.0", "2.47.0"),
    bad=("1.31.1", "2.51.0"),
)
TASK = task(CORNERS, held={"compiler": "2.47.0"})


def test_only_a_version_that_can_be_fetched_is_dear(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path / "cache")
    assert not is_here(catalog, "qnn", "2.47.0", "linux-x64")
    assert is_here(catalog, "qnn", "9.9.9", "linux-x64")  # nobody knows: not our business
    assert Supply(catalog, TASK).cost(("1.31.1", "2.47.0")) > 100


def test_what_has_run_or_come_meanwhile_is_dear_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here: set[str] = set()
    monkeypatch.setattr(
        versions_module, "is_here", lambda catalog, axis, version, target: version in here
    )
    costs = Supply(Catalog(tmp_path / "cache"), TASK)
    first = costs.cost(("1.27.0", "2.51.0"))
    assert first == costs.cost(("1.31.1", "2.50.40")) > 120
    here.update(("1.27.0", "2.51.0", "2.47.0"))
    assert costs.cost(("1.27.0", "2.51.0")) == first, "looked at again after a run, and not before"
    costs.ran([("1.27.0", "2.51.0")])
    alone = costs.cost(("1.27.0", "2.51.0"))
    assert alone < 10, "the run and nothing else"
    assert costs.cost(("1.31.1", "2.51.0")) == alone + 40
    here.add("1.31.1")
    costs.ran([])
    assert alone < costs.cost(("1.31.1", "2.51.0")) < alone + 10, "here, but not on the device"
    here.clear()
    costs.ran([])
    assert costs.cost(("1.31.1", "2.51.0")) == alone + 40, "it may be thrown away, too"


def test_the_driver_tells_what_has_run(tmp_path: Path) -> None:
    told: list[set[Any]] = []

    class Told(Supply):
        def cost(self, at: object) -> float:
            return 1.0

        def ran(self, points: object) -> None:
            told.append(set(points))  # type: ignore[call-overload]

    supply = Told(Catalog(tmp_path / "cache"), TASK)
    runs = ScriptedRuns(lambda at, _: "failed" if at[0] == "3" else "passed")
    spec = AxisSpec(axis="qnn", candidates=("1", "2", "3"))
    bisection = new_bisection(tmp_path, spec, runs, supply=supply)
    bisection.go_on()
    assert told == [set(), *(set(runs.made[: i + 1]) for i in range(len(runs.made)))]
    told.clear()
    Bisection(bisection.folder, Silent(), supply=supply).go_on()
    assert told == [set(runs.made)]
