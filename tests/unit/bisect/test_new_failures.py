"""Bisections of new failures, and the advice of `compare`."""

import json
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from pydantic import JsonValue

from harness.bisect.new_failures import NewFailure, version_of
from harness.bisect.search import AxisSpec
from harness.cli.main import commands
from harness.core.errors import ConfigError
from harness.core.matrix_axes import VERSIONS
from harness.diagnosis.error_record import Outcome
from harness.history.attempts import Attempt
from harness.history.comparison import Pair, compare
from harness.nightly.night import STATE
from harness.results.record import CaseRecord, PlacementRecord
from tests.snapshots import Snapshot
from tests.unit.bisect.scripted_runs import ScriptedRuns, new_bisection, record
from tests.unit.history.runs import run_folder
from tests.unit.nightly.nights import a_night
from tests.unit.results.placed import placed


def case(placement: str, outcome: str = "passed", contexts: int = 66) -> CaseRecord:
    template = record(outcome, device="sim")
    qnn = placement.split("-")[2]
    name = f"suites/test_a.py::test_b[{placement}-{contexts}]"
    test, placed_at = placed(name)
    axes = {"backend": "htp", "qnn": qnn, "ort": None, "contexts": contexts}
    fields = template.model_dump() | {"test": test, "placement": placed_at}
    return CaseRecord.model_validate(fields | {"case": name, "axes": axes})


def test_a_failure_that_replaced_another_is_found(tmp_path: Path) -> None:
    versions = ("2.47.0", "2.48.40", "2.49.40", "2.50.40", "2.51.0")
    comparison = compare(
        [Attempt.of(case(f"sim-htp-{versions[0]}", "crashed"))],
        [Attempt.of(case(f"sim-htp-{versions[-1]}", "failed"))],
    )
    command = NewFailure.of(comparison["changed"][0]).command("lab.yaml", "reports")
    options = dict(zip(command[1::2], command[2::2], strict=True))
    axis = AxisSpec(axis="qnn", candidates=versions, good=options["--good"], bad=options["--bad"])
    runs = ScriptedRuns(lambda point, _: "failed" if point[0] >= versions[3] else "crashed")
    answer = new_bisection(tmp_path, axis, runs, match=options["--match"]).run()
    assert (answer.last_good, answer.first_bad) == (versions[2], versions[3])


def brief(
    case: str,
    outcome: Outcome = "passed",
    *,
    axes: dict[str, JsonValue] | None = None,
    device: str | None = "sim",
    ort: str | None = None,
    failure: str | None = None,
    known_issue: str | None = None,
) -> Attempt:
    test, fields = placed(case)
    placement = None if fields is None else PlacementRecord.model_validate(fields)
    return Attempt(
        case,
        test,
        placement,
        axes or {},
        outcome,
        device=device,
        ort=ort,
        failure=failure,
        known_issue=known_issue,
        started="2026-11-21T00:00:00Z",
    )


def new_failure(before: Attempt, after: Attempt) -> NewFailure:
    return NewFailure.of(Pair(before, after))


OLD, NEW = "f.py::t[sim-htp-2.50.40-io]", "f.py::t[sim-htp-2.51.0-io]"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (brief(NEW), brief(NEW, "failed", failure="a")),
        (brief(OLD), brief(NEW, "failed", device=None)),
        (brief(OLD, "failed", failure="a"), brief(NEW, "failed", failure="a")),
        (brief(OLD, "failed", failure="a", known_issue="x"), brief(NEW, "failed", failure="a")),
        (brief(OLD, "failed", failure="a"), brief(NEW, "crashed")),
    ],
    ids=["same versions", "no device", "alike", "known issue", "no signature"],
)
def test_what_hinders_a_bisection(before: Attempt, after: Attempt, snapshot: Snapshot) -> None:
    failure = new_failure(before, after)
    assert failure.hindrance == snapshot
    advice = failure.bisectable("lab.yaml", "reports")
    assert (advice.changed, advice.hindrance) == (failure.changed, failure.hindrance)
    assert advice.bisect is failure.command("lab.yaml", "reports") is None


ENDS = ("--device", "sim", "--lab", "lab.yaml", "--reports", "reports")


@pytest.mark.parametrize(
    ("before", "after", "command"),
    [
        (
            brief(OLD),
            brief(NEW, "failed"),
            ["--axis", "qnn", "--good", "2.50.40", "--bad", "2.51.0"],
        ),
        (
            brief(OLD, "crashed", failure="a"),
            brief(NEW, "failed", failure="b"),
            [
                *("--axis", "qnn", "--good", "2.50.40", "--bad", "2.51.0"),
                *("--match", "signature=b else good"),
            ],
        ),
        (
            brief("t[sim-htp-2.51.0-ort-1.31.1]"),
            brief("t[sim-htp-2.50.40-ort-1.24.1]", "failed"),
            ["--good", "qnn=2.51.0,ort=1.31.1", "--bad", "qnn=2.50.40,ort=1.24.1"],
        ),
        (
            brief("t[sim-htp-mine:2.50-ort-1.24.1]"),
            brief("t[sim-htp-2.51.0-ort-1.31.1]", "failed"),
            ["--good", "qnn=mine:2.50,ort=1.24.1", "--bad", "qnn=2.51.0,ort=1.31.1"],
        ),
        (
            brief("t[sim-htp-2.47.0-ort-1.27.0-by-2.47.0]"),
            brief("t[sim-htp-2.51.0-ort-1.31.1-by-2.48.40]", "failed"),
            [
                *("--good", "qnn=2.47.0,ort=1.27.0", "--bad", "qnn=2.51.0,ort=1.31.1"),
                *("--compiler", "2.47.0"),
            ],
        ),
    ],
)
def test_the_command_of_a_bisection(before: Attempt, after: Attempt, command: list[str]) -> None:
    failure = new_failure(before, after)
    whole = ["bisect", "--case", after.case, *command, *ENDS]
    assert failure.hindrance is None
    assert failure.command("lab.yaml", "reports") == whole
    assert failure.bisectable("lab.yaml", "reports").bisect == ("qnn-harness", *whole)


@pytest.mark.parametrize(
    ("record", "versions"),
    [
        (brief("t[sim-htp-2.51.0]"), ("2.51.0", "", "")),
        (brief("t[sim-htp-2.51.0-ort-1.31.1-by-2.48]"), ("2.51.0", "1.31.1", "2.48")),
        # what options call it, before what the runtime calls itself
        (brief("t[sim-htp-2.51.0-ort-1.31.1]", ort="1.31.1+mine"), ("2.51.0", "1.31.1", "")),
        (brief("t[sim-htp-2.51.0]", ort="1.30"), ("2.51.0", "1.30", "")),
        (brief("t[sim-htp-2.51.0]", ort="1.30", axes={"ort": "1.29"}), ("2.51.0", "1.30", "")),
        (brief("t[sim-htp-2.51.0]", axes={"ort": "1.29"}), ("2.51.0", "1.29", "")),
        (brief("t[sim-htp-2.51.0]", axes={"qnn": "2.40"}), ("2.51.0", "", "")),
        # a test that names its versions otherwise, or has no parameters
        (brief("t[fast]", ort="1.30", axes={"qnn": "2.40"}), ("2.40", "1.30", "")),
        (brief("t", axes={"qnn": 2, "ort": None, "compiler": "2.4"}), ("2", "", "2.4")),
        (brief("t"), ("", "", "")),
    ],
)
def test_the_versions_that_a_case_ran_with(record: Attempt, versions: tuple[str, str, str]) -> None:
    assert tuple(version_of(record, axis) for axis in VERSIONS) == versions


@pytest.mark.parametrize(
    ("before", "after", "changed"),
    [
        (brief(OLD), brief(OLD), ()),
        (brief(OLD), brief(NEW), ("qnn",)),
        (brief("t[a-htp-2.5-ort-1.3]"), brief("t[a-htp-2.5-ort-1.4]"), ("ort",)),
        (brief("t[a-htp-2.5-by-2.3]"), brief("t[a-htp-2.5-by-2.4]"), ("compiler",)),
        # contexts of the runtime's own compiler change with it, which is one axis
        (
            brief("t[a-htp-2.5]", axes={"compiler": "2.5"}),
            brief("t[a-htp-2.6]", axes={"compiler": "2.6"}),
            ("qnn",),
        ),
        (brief("t[a-htp-2.5]", axes={"compiler": "2.5"}), brief("t[a-htp-2.6-by-2.5]"), ("qnn",)),
        (
            brief("t[a-htp-2.5-by-2.5]"),
            brief("t[a-htp-2.5]", axes={"compiler": "2.4"}),
            ("compiler",),
        ),
        (brief("t", axes={"qnn": "2.5"}), brief("t", axes={"qnn": "2.6"}), ("qnn",)),
        (brief("t", axes={"compiler": "2.5"}), brief("t", axes={"compiler": "2.6"}), ()),
    ],
)
def test_the_axes_that_changed(before: Attempt, after: Attempt, changed: tuple[str, ...]) -> None:
    assert new_failure(before, after).changed == changed


def compared(*words: str) -> tuple[int, str]:
    completed = CliRunner().invoke(commands, ["compare", *words], standalone_mode=False)
    if completed.exception is not None:
        raise completed.exception
    return completed.return_value, completed.output


def test_a_comparison_ends_with_1_exactly_for_what_it_is_to_fail_on(tmp_path: Path) -> None:
    all_of_them = [case("sim-htp-2.50.40", contexts=number) for number in range(95)]
    other = [case("other-htp-2.50.40", contexts=number) for number in range(4)]
    worse = [case("sim-htp-2.51.0", "failed"), *all_of_them[:66], *all_of_them[67:]]
    base, shorter, broken = (
        str(run_folder(tmp_path, *records)) for records in (all_of_them, other, worse)
    )
    assert compared(base, shorter)[0] == 1
    assert compared(base, shorter, "--fail-on", "new,changed")[0] == 0
    assert compared(shorter, shorter)[0] == 0
    assert compared(base, broken, "--fail-on", "vanished,flaky")[0] == 0
    code, output = compared(base, broken, "--fail-on", "new")
    assert (code, "--axis qnn --good 2.50.40 --bad 2.51.0" in output) == (1, True)
    document = json.loads(compared(base, shorter, "--json")[1])
    assert (len(document["vanished"]), document["failed_on"]) == (95, ["vanished"])
    assert compared("--previous", broken)[1] == compared(shorter, broken)[1]
    assert compared(base, broken, "--format=md")[1].startswith("### Devices: failed\n")
    assert compared(base, broken, "--format=html")[1].startswith("<!DOCTYPE html>")


@pytest.mark.parametrize(
    "words", [("pytest", "--lab=../farm.yaml"), ("run", "--lab", "../farm.yaml")]
)
def test_a_comparison_names_the_lab_of_the_run(tmp_path: Path, words: tuple[str, ...]) -> None:
    records = (case("sim-htp-2.50.40"), case("sim-htp-2.51.0", "failed"))
    runs = [str(run_folder(tmp_path, record, command=("", *words))) for record in records]
    assert f"--lab ../farm.yaml --reports {tmp_path}" in compared(*runs)[1]
    assert f"--lab mine.yaml --reports {tmp_path}" in compared(*runs, "--lab", "mine.yaml")[1]


def test_a_night_stands_for_its_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "reports" / "20261130T192714Z-e69e17-nightly"
    folder.mkdir(parents=True)
    runs = [str(run_folder(folder.parent, case("sim-htp-2.50.40"))) for _ in range(2)]
    with pytest.raises(ConfigError, match="is not the folder of a run"):
        compared(folder.name, runs[1])
    night = a_night(night=folder.name, run=Path(runs[0]).name)
    (folder / STATE).write_text(night.model_dump_json())
    (tmp_path / "reports" / "latest-nightly").symlink_to(folder.name)
    for path in (folder.name, str(folder), "reports/latest-nightly"):
        assert compared(path, runs[1]) == compared(*runs)


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["a", "b", "c"],
        ["--previous", "a", "b"],
        ["a", "--format", "xml"],
        ["a", "--fail-on", "x"],
    ],
)
def test_what_makes_no_sense_is_refused(words: list[str]) -> None:
    with pytest.raises((click.UsageError, ConfigError)):
        compared(*words)
