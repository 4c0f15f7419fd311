"""What a run costs: dear is what must be fetched, and what a search has run itself is there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.bisect import candidates
from harness.bisect.candidates import Costs, is_here
from harness.bisect.specs import AxisSpec
from harness.bisect.task import Task
from harness.runtimes.catalog import Catalog
from tests.unit.bisect.scripted_runs import ScriptedRuns, new_bisection


def task(folder: Path) -> Task:
    return Task.model_validate(
        {
            "case": "test_a.py::test_b",
            "axes": ("ort", "qnn"),
            "held": {"compiler": "2.47.0"},
            "devices": ("a",),
            "target": "linux-x64",
            "backend": "htp",
            "lab": folder / "devices.yaml",
            "folder": folder,
        }
    )


def test_only_a_version_that_can_be_fetched_is_dear(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path / "cache")
    assert not is_here(catalog, "qnn", "2.47.0", "linux-x64")
    assert is_here(catalog, "qnn", "9.9.9", "linux-x64")  # nobody knows: not our business
    assert Costs(catalog, task(tmp_path))(("1.31.1", "2.47.0")) > 100


def test_what_has_run_or_come_meanwhile_is_dear_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here: set[str] = set()
    monkeypatch.setattr(
        candidates, "is_here", lambda catalog, axis, version, target: version in here
    )
    costs = Costs(Catalog(tmp_path / "cache"), task(tmp_path))
    first = costs(("1.27.0", "2.51.0"))
    assert first == costs(("1.31.1", "2.50.40")) > 120
    here.update(("1.27.0", "2.51.0", "2.47.0"))
    assert costs(("1.27.0", "2.51.0")) == first, "looked at again after a run, and not before"
    costs.ran([("1.27.0", "2.51.0")])
    alone = costs(("1.27.0", "2.51.0"))
    assert alone < 10, "the run and nothing else"
    assert costs(("1.31.1", "2.51.0")) == alone + 40
    here.add("1.31.1")
    costs.ran([])
    assert alone < costs(("1.31.1", "2.51.0")) < alone + 10, "here, but not on the device"
    here.clear()
    costs.ran([])
    assert costs(("1.31.1", "2.51.0")) == alone + 40, "it may be thrown away, too"


def test_the_driver_tells_what_has_run(tmp_path: Path) -> None:
    told: list[set[Any]] = []

    class Prices:
        def __call__(self, at: object) -> float:
            return 1.0

        def ran(self, places: object) -> None:
            told.append(set(places))  # type: ignore[call-overload]

    runs = ScriptedRuns(lambda at, _: "failed" if at[0] == "3" else "passed")
    bisection = new_bisection(tmp_path, AxisSpec(axis="qnn", candidates=("1", "2", "3")), runs)
    bisection.cost = Prices()
    bisection.go_on()
    assert told == [set(), *(set(runs.made[: i + 1]) for i in range(len(runs.made)))]
    told.clear()
    bisection.go_on()
    assert told == [set(runs.made)]
