"""Two runs side by side: what is new, what it pairs with, and which bisection it means."""

from __future__ import annotations

from harness.bisect.new_failures import compare
from harness.results.record import CaseRecord
from tests.unit.bisect.scripted_runs import record


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
    assert "--match" in command
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
