"""Ways are run and judged, with runs whose outcome a rule says, and the next runs are chosen."""

import json
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from harness.bisect.bad_condition import Evidence, Question, RunAnswer
from harness.bisect.folder import LOG
from harness.bisect.search_loop import RunEnd, read_run
from harness.cli.schema import FOLDER
from harness.containers.manifest import Expects, RunPlan
from harness.containers.open import open_artefact
from harness.core.errors import ConfigError, InfraError
from harness.reduce.reduction import Minimum, Reduction, ReductionSearch
from harness.reduce.subject import LoadedBinary, Reducing, Subject, Way
from harness.report.report_files import finish
from harness.results.run_folder import RunFolder
from tests.snapshots import Snapshot
from tests.unit.containers.made import CONTEXT, OTHER, bytes_of
from tests.unit.results.records import error, record

ROOT = Path(__file__).parents[3]
Rule = Callable[[list[bytes], str, int], str]
"""Contexts, residency and the number of the run, to an outcome."""


def subject(folder: Path, order: Sequence[int], expects: Expects | None = None) -> Subject:
    kinds = []
    for number, content in enumerate((CONTEXT, OTHER)):
        path = folder / f"{number}.bin"
        path.write_bytes(content)
        common = {"size": len(content), "artefact": "m.pte", "origin": f"forward/{number}"}
        same = {"path": path, "inputs": (), "expected": (), **common}
        kinds.append(LoadedBinary(name=f"m.pte#{number}", sha256=f"{number}" * 64, **same))  # type: ignore[arg-type]
    return Subject(
        case="m.pte::test_contexts[sim-htp-2.51.0-m.pte-resident-9]",
        kinds=tuple(kinds),
        order=tuple(order),
        plan=RunPlan(residency="resident", qnn="2.51.0", backend="htp"),
        devices=("sim",),
        lab=folder / "devices.yaml",
        expects=expects,
    )


class ScriptedRuns:
    """Real run folders of what a rule says: `lab` is an error of the lab."""

    def __init__(self, rule: Rule) -> None:
        self.rule, self.number = rule, 0
        self.waited: list[float] = []

    def __call__(
        self, arguments: Sequence[str], reports: Path, cwd: Path, timeout_s: float
    ) -> RunEnd:
        self.number += 1
        assert f"--qnn-reports={reports}" in arguments
        artefact = open_artefact(cwd / arguments[-1])
        contents = [bytes_of(piece) for piece in artefact.pieces]
        outcome = self.rule(contents, artefact.facts["plan"].residency, self.number)
        if outcome == "interrupted":
            raise KeyboardInterrupt
        fields: dict[str, object] = {"outcome": outcome}
        if outcome == "lab":
            fields = {"outcome": "error", "cause": "infra"}
        elif outcome == "other":
            fields = {"outcome": "failed", "error": error(code=5000, message="newer")}
        elif outcome == "failed":
            fields = {"outcome": "failed", "error": error(context=len(contents) - 1)}
        folder = RunFolder.create(reports, command=[], lab={}, devices=["sim"])
        folder.journal.append(record(**fields))
        finish(folder, exit_code=0)
        return read_run(reports, 0, 1.0)


def reduced(folder: Path, rule: Rule, order: Sequence[int], **more: object) -> Reduction:
    task = Reducing(subject=subject(folder, order), **more)  # type: ignore[arg-type]
    runs = ScriptedRuns(rule)
    return Reduction.create(folder / "reports", task, run=runs, sleep=runs.waited.append)


def resumed(reduction: Reduction, **more: Any) -> Reduction:
    """The same as another process finds it on the disk."""
    reduction.folder.close()
    return Reduction.resume(reduction.folder.path, **more)


def two_others(contents: list[bytes], residency: str, number: int) -> str:
    if contents.count(OTHER) >= 2 and residency == "resident":
        return "failed"
    return "other" if OTHER in contents else "passed"


def test_the_smallest_is_packed_and_told(tmp_path: Path) -> None:
    reduction = reduced(tmp_path, two_others, [0, 1, 0, 0, 1, 1, 0, 1])
    reduction.run()
    result = reduction.result()
    assert result.contexts == ("m.pte#1",) * 2
    assert (result.before, result.different, result.residency, result.minimal) == (
        8,
        1,
        "resident",
        True,
    )
    assert (result.shown, result.confirmed, result.exit_code) == (3, 3, 0)
    assert result.expects.signature == error().signature
    schema = json.loads((ROOT / FOLDER / "reduce.schema.json").read_text())
    written = json.loads(result.model_dump_json(by_alias=True))
    jsonschema.Draft202012Validator(schema).validate(written)
    packed = open_artefact(result.bundle)
    assert [bytes_of(piece) for piece in packed.pieces] == [OTHER] * 2
    assert packed.facts["expects"] == result.expects
    assert packed.facts["plan"].soc == "QCS8550"
    first = Path(result.bundle).read_bytes()
    assert str(tmp_path).encode() not in first
    assert b"127.0.0.1" not in first
    (tmp_path / "elsewhere").mkdir()
    reduction.result(tmp_path / "elsewhere/minimal.zip")
    assert (tmp_path / "elsewhere/minimal.zip").read_bytes() == first


def test_what_was_found_out_is_not_run_again(tmp_path: Path) -> None:
    def stopped(contents: list[bytes], residency: str, number: int) -> str:
        return "interrupted" if number == 6 else two_others(contents, residency, number)

    reduction = reduced(tmp_path, stopped, [0, 1, 1, 0, 1])
    with pytest.raises(KeyboardInterrupt):
        reduction.run()
    part = reduction.result()
    assert (part.runs, part.minimal, part.exit_code) == (5, False, 1)
    assert part.bundle is not None
    reduction.folder.close()
    with (reduction.folder.path / LOG).open("ab") as log:
        log.write(b'{"kind":"answ')
    runs = ScriptedRuns(two_others)
    again = resumed(reduction, run=runs)
    again.run()
    whole = again.result()
    assert whole.minimal
    assert whole.runs == 5 + runs.number
    alone = reduced(tmp_path, two_others, [0, 1, 1, 0, 1])
    alone.run()
    assert alone.result().contexts == whole.contexts
    assert alone.result().runs == whole.runs


def test_what_never_fails(tmp_path: Path) -> None:
    fine = reduced(tmp_path, lambda contents, residency, number: "passed", [0, 1])
    fine.run()
    result = fine.result()
    assert (result.bundle, result.expects, result.runs, result.exit_code) == (None, None, 10, 1)
    assert result.shown == 0


def test_a_lab_that_fails(tmp_path: Path, snapshot: Snapshot) -> None:
    def now_and_then(contents: list[bytes], residency: str, number: int) -> str:
        return "lab" if number % 2 else two_others(contents, residency, number)

    reduction = reduced(tmp_path, now_and_then, [0, 1, 1])
    known = reduction.run()
    assert known.way == Way((1, 1), "resident")
    lost = reduced(tmp_path, lambda contents, residency, number: "lab", [0])
    with snapshot.raises(InfraError):
        lost.run()
    assert isinstance(lost._run_case, ScriptedRuns)
    assert lost._run_case.waited == [15.0], "the first try goes on at once"


def test_a_case_that_cannot_be_run(tmp_path: Path, snapshot: Snapshot) -> None:
    reduction = reduced(tmp_path, lambda contents, residency, number: "unsupported", [0])
    snapshot.hide(reduction.folder.path.name, "FOLDER")
    snapshot.hide(f"process {os.getpid()}", "process PID")
    with snapshot.raises(ConfigError):
        reduction.run()
    with snapshot.raises(ConfigError):
        Reduction.resume(reduction.folder.path)
    with snapshot.raises(ConfigError):
        Reduction.resume(tmp_path)
    (tmp_path / LOG).write_text("{}\n")
    with pytest.raises(ConfigError, match=r"log\.jsonl:1"):
        Reduction.resume(tmp_path)


def test_a_folder_that_leads_elsewhere_is_not_gone_on_with(
    tmp_path: Path, snapshot: Snapshot
) -> None:
    reduction = reduced(tmp_path, two_others, [0, 1, 1])
    reduction.run()
    secret = tmp_path / "secret"
    secret.mkdir()
    folder = reduction.folder.path
    snapshot.hide(folder.name, "FOLDER")
    log = folder / LOG
    log_text = log.read_text()
    log.write_text(re.sub(r'"run": ?"[^"]*"', '"run":"../../secret"', log_text))
    with snapshot.raises(ConfigError):
        resumed(reduction)
    log.write_text(log_text)
    runs = folder / "runs"
    runs.rename(folder / "before")
    runs.symlink_to(secret)
    with snapshot.raises(ConfigError):
        resumed(reduction)
    runs.unlink()
    (folder / "set/001.json").unlink()
    (folder / "set/001.json").symlink_to(secret / "new")
    with snapshot.raises(ConfigError):
        resumed(reduction)
    assert list(secret.iterdir()) == []


def test_another_failure_than_the_one_in_the_journal_counts_as_none(tmp_path: Path) -> None:
    expected = Expects(outcome="failed", signature="call|1|-")
    task = Reducing(subject=subject(tmp_path, [1, 1], expected))
    reduction = Reduction.create(tmp_path / "reports", task, run=ScriptedRuns(two_others))
    reduction.run()
    result = reduction.result()
    assert result.shown == 0


AnswerRule = Callable[[Way, int], RunAnswer]


def searched(
    folder: Path, order: tuple[int, ...], rule: AnswerRule, **more: int
) -> tuple[Minimum, int]:
    """Return the result, and the number of runs."""
    search = ReductionSearch(Reducing(subject=subject(folder, order), **more), Evidence())  # type: ignore[arg-type]
    number = 0
    while isinstance(step := search.next(), Question):
        assert step.number == search.evidence.runs + 1
        number += 1
        search.answer(step, rule(Way.from_point(step.at), number))
    assert isinstance(step, Minimum)
    assert step == search.known()
    return step, number


def two(way: Way, number: int) -> RunAnswer:
    """Two of the second kind are needed, in either order."""
    return "bad" if way.order.count(1) > 1 else "untestable"


@pytest.mark.parametrize(
    ("order", "rule", "expected", "runs"),
    [
        ((1, 1), two, Minimum(Way((1, 1), "sequential"), True, True), 7),
        ((0, 1), two, Minimum(Way((0, 1), "resident"), False), 10),
        (
            (0, 1),
            lambda way, number: "bad" if way.order[-2:] == (0, 1) else "good",
            Minimum(Way((0, 1), "sequential"), True, True),
            8,
        ),
    ],
)
def test_what_is_found(
    tmp_path: Path, order: tuple[int, ...], rule: AnswerRule, expected: Minimum, runs: int
) -> None:
    assert searched(tmp_path, order, rule) == (expected, runs)


@pytest.mark.parametrize(("often", "runs_of_each"), [(1, 1), (2, 12), (4, 17), (10, 20)])
def test_what_fails_less_often_is_asked_more_often(
    tmp_path: Path, often: int, runs_of_each: int
) -> None:
    """So often that a failure is overlooked in 1 % of all cases at most.

    What fails in every second run did in one of the first three.
    """
    ways: list[Way] = []

    def now_and_then(way: Way, number: int) -> RunAnswer:
        ways.append(way)
        return "bad" if len(way.order) == 2 and ways.count(way) % often == 0 else "good"

    searched(tmp_path, (0, 0), now_and_then)
    assert ways.count(Way((0,), "sequential")) == runs_of_each


def test_a_way_is_found_again_by_what_a_log_calls_it() -> None:
    way = Way((0, 12, 3), "window")
    assert way.point == ("window", "0,12,3")
    assert Way.from_point(way.point) == way
    for point in (("window", ""), ("all", "1"), ("window",)):
        with pytest.raises(ValueError, match=r"."):
            Way.from_point(point)
