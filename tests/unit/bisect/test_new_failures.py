"""Two runs side by side: what is new, what it pairs with, and which bisection it means."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

from harness.bisect.findings import AxisFinding
from harness.bisect.new_failures import alike, compare
from harness.bisect.search import AxisSpec
from harness.cli.compare import compare_command
from harness.results.record import CaseRecord, Expected
from harness.results.rundir import RunFolder
from tests.unit.bisect.scripted_runs import ScriptedRuns, new_bisection, record

EXPECTED = Expected(known_issue="few-contexts")


def case(placement: str, outcome: str = "passed", contexts: int = 66) -> CaseRecord:
    made = record(outcome, device="sim")
    qnn = placement.split("-")[2]
    return made.model_copy(
        update={
            "case": f"suites/test_a.py::test_b[{placement}-{contexts}]",
            "axes": {"backend": "htp", "qnn": qnn, "ort": None, "contexts": contexts},
        }
    )


def test_a_new_version_broke_it() -> None:
    found = compare(
        [case("sim-htp-2.50.40"), case("sim-htp-2.50.40", contexts=1)],
        [case("sim-htp-2.51.0", "failed"), case("sim-htp-2.51.0", contexts=1)],
    )
    (new,) = found.new
    assert new.changed == ("qnn",)
    command = new.command("lab.yaml", "reports", 30)
    assert command is not None
    assert command[:7] == [
        *("bisect", "--case", "suites/test_a.py::test_b[sim-htp-2.51.0-66]"),
        *("--axis", "qnn", "--good", "2.50.40"),
    ]
    assert command[-2:] == ["--max-minutes", "30"]
    assert (found.well_again, found.only_before, found.only_after) == ((), (), ())


def test_with_the_same_versions_there_is_nothing_to_bisect() -> None:
    found = compare([case("sim-htp-2.51.0")], [case("sim-htp-2.51.0", "crashed")])
    assert found.new[0].command("lab.yaml", "reports") is None


def test_two_axes_changed() -> None:
    found = compare(
        [case("sim-htp-2.50.40-ort-1.24.1")], [case("sim-htp-2.51.0-ort-1.31.1", "failed")]
    )
    command = found.new[0].command("lab.yaml", "reports")
    assert command is not None
    assert "qnn,ort" in command
    assert command[command.index("--ort") :][:2] == ["--ort", ">=1.24.1,<=1.31.1"]


def test_what_failed_before_is_not_new_unless_it_fails_otherwise() -> None:
    same = compare([case("sim-htp-2.50.40", "failed")], [case("sim-htp-2.51.0", "failed")])
    assert not same.new
    other = compare([case("sim-htp-2.50.40", "crashed")], [case("sim-htp-2.51.0", "failed")])
    command = other.new[0].command("lab.yaml", "reports")
    assert command is not None
    assert command[command.index("--match") + 1].endswith(" else good")
    well = compare([case("sim-htp-2.50.40", "failed")], [case("sim-htp-2.51.0")])
    assert len(well.well_again) == 1


def test_several_versions_are_paired_by_name_only() -> None:
    both = [case("sim-htp-2.50.40"), case("sim-htp-2.49.40")]
    found = compare(both, [case("sim-htp-2.50.40", "failed"), case("sim-htp-2.51.0", "failed")])
    assert [new.after.case for new in found.new] == ["suites/test_a.py::test_b[sim-htp-2.50.40-66]"]
    assert len(found.only_after) == 1
    assert len(found.only_before) == 1


def test_the_lab_s_failures_are_not_new_ones() -> None:
    assert not compare([case("sim-htp-2.50.40")], [case("sim-htp-2.51.0", "error")]).new
    assert not compare([case("sim-htp-2.50.40", "error")], [case("sim-htp-2.51.0", "failed")]).new


def test_a_failure_that_replaced_another_is_found(tmp_path: Path) -> None:
    versions = ("2.47.0", "2.48.40", "2.49.40", "2.50.40", "2.51.0")
    found = compare(
        [case(f"sim-htp-{versions[0]}", "crashed")], [case(f"sim-htp-{versions[-1]}", "failed")]
    )
    command = found.new[0].command("lab.yaml", "reports")
    assert command is not None
    told = dict(zip(command[1::2], command[2::2], strict=True))
    axis = AxisSpec(axis="qnn", candidates=versions, good=told["--good"], bad=told["--bad"])
    runs = ScriptedRuns(lambda at, _: "failed" if at[0] >= versions[3] else "crashed")
    answer = new_bisection(tmp_path, axis, runs, match=told["--match"]).go_on()
    assert isinstance(answer, AxisFinding)
    assert (answer.last_good, answer.first_bad) == (versions[2], versions[3])


def test_what_failed_alike_as_known_before_is_no_version_s_fault() -> None:
    known = case("sim-htp-2.50.40", "failed").model_copy(update={"expected": EXPECTED})
    (new,) = compare([known], [case("sim-htp-2.51.0", "failed")]).new
    assert new.command("lab.yaml", "reports") is None
    assert new.hindrance == "it failed alike before, where a known issue expected it"


def test_what_fails_as_known_is_listed_and_can_be_bisected() -> None:
    known = [
        case("sim-htp-2.51.0", "failed", contexts=n).model_copy(update={"expected": EXPECTED})
        for n in (1, 2, 3)
    ]
    before = [case("sim-htp-2.50.40", contexts=1), case("sim-htp-2.50.40", contexts=2)]
    found = compare([*before, case("sim-htp-2.50.40", "failed", contexts=3)], known)
    assert not found.new
    assert not found.well_again
    ((first, second),) = alike(found.as_known)
    assert (first.known_issue, second.known_issue) == ("few-contexts", "few-contexts")
    command = first.command("lab.yaml", "reports")
    assert command is not None
    assert command[3:9] == ["--axis", "qnn", "--good", "2.50.40", "--bad", "2.51.0"]


def test_of_three_axes_two_are_searched_with_the_third_at_both_ends() -> None:
    found = compare(
        [case("sim-htp-2.47.0-ort-1.27.0-by-2.47.0")],
        [case("sim-htp-2.51.0-ort-1.31.1-by-2.48.40", "failed")],
    )
    (new,) = found.new
    assert new.changed == ("qnn", "ort", "compiler")
    assert new.hindrance is None
    command = new.command("lab.yaml", "reports")
    assert command is not None
    told = dict(zip(command[1::2], command[2::2], strict=True))
    assert told["--axis"] == "qnn,ort"
    assert told["--qnn"] == ">=2.47.0,<=2.51.0"
    assert told["--ort"] == ">=1.27.0,<=1.31.1"
    assert told["--compiler"] == "2.47.0,2.48.40"


def test_what_is_tested_no_more_has_vanished() -> None:
    before = [case("sim-htp-2.50.40", contexts=number) for number in range(6)]
    before[5] = case("sim-htp-2.50.40", "error", contexts=5)
    after = [
        case("sim-htp-2.51.0", contexts=0),
        case("sim-htp-2.51.0", "skipped", contexts=1),
        case("sim-htp-2.51.0", "unsupported", contexts=2),
        case("sim-htp-2.51.0", "error", contexts=3),
    ]
    found = compare(before, after)
    assert {name.partition("[")[2] for name in found.vanished} == {
        *("sim-htp-2.51.0-1]", "sim-htp-2.51.0-2]"),  # they say so themselves
        "sim-htp-2.50.40-4]",  # nobody asked; of the one behind it nothing was known
    }
    assert len(found.only_before) == 2
    (spoilt,) = found.spoilt
    assert spoilt.endswith("[sim-htp-2.51.0-3]")
    assert not found.new
    unrelated = compare(before, [case("other-htp-2.51.0", contexts=number) for number in range(4)])
    assert len(unrelated.vanished) == 5


def run_folder(reports: Path, records: list[CaseRecord]) -> str:
    folder = RunFolder.create(reports, command=["pytest"], lab={}, devices=[])
    for one in records:
        folder.journal.append(one.model_dump(mode="json"))
    folder.finish(exit_code=0)
    return str(folder.path)


def test_a_comparison_in_which_cases_vanished_ends_with_1(tmp_path: Path) -> None:
    all_of_them = [case("sim-htp-2.50.40", contexts=number) for number in range(95)]
    unrelated = [case("other-htp-2.50.40", contexts=number) for number in range(4)]
    before, after = run_folder(tmp_path, all_of_them), run_folder(tmp_path, unrelated)
    code = {}
    for words in ((before, after), (before, after, "--allow-missing"), (after, after)):
        done = CliRunner().invoke(compare_command, list(words), standalone_mode=False)
        assert done.exception is None, done.output
        code[words] = done.return_value
        assert ("95 x tested no more" in done.output) == (words[0] == before)
        assert ("unless you give --allow-missing" in done.output) == (done.return_value == 1)
    assert list(code.values()) == [1, 0, 0]
    done = CliRunner().invoke(compare_command, [before, after, "--json"], standalone_mode=False)
    assert done.return_value == 1
    assert len(json.loads(done.output)["vanished"]) == 95
