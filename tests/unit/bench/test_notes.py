"""Notes of a case, as its record has them and readers find them again."""

import pytest

from harness.bench.case_session import Figures, Notes, NotPassed, NoVerdict, TargetFailure
from harness.core.errors import ConfigError
from harness.diagnosis.error_record import ErrorRecord
from harness.diagnosis.verdict import Verdict
from harness.results.record import RuntimeRecord
from tests.snapshots import Snapshot
from tests.unit.results.records import record


def test_what_is_noted_stands_under_the_names_that_readers_know() -> None:
    notes = Notes({"loaded": 3}, conclusion="it fits", grid=("compiler", "qnn"), probe_us=5)
    written = record(measurements=notes.figures())
    assert (written.measurements["loaded"], written.measurements["probe_us"]) == (3, 5)
    assert (written.conclusion, written.grid) == ("it fits", ("compiler", "qnn"))


@pytest.mark.parametrize(
    ("figures", "timed"), [({"load_us": [3]}, True), ({"load_us": [], "loaded": 1}, False)]
)
def test_only_times_have_surroundings(figures: dict[str, object], timed: bool) -> None:
    surroundings: dict[str, object] = {"log_level": "warn", "cases_before": 0}
    written = Notes(figures, surroundings=surroundings).figures()
    assert written == figures | ({"surroundings": surroundings} if timed else {})


@pytest.mark.parametrize("value", [None, 5, "qnn", ["qnn"], {"rows": "qnn"}])
def test_a_record_that_holds_something_else_there_has_neither(value: object) -> None:
    assert record(measurements={"grid": value}).grid is None
    assert record(measurements={"conclusion": [value]}).conclusion is None


def test_each_maker_of_contexts_is_named_once() -> None:
    notes = Notes(runtime=RuntimeRecord(qnn="2.51.0", source="pip"))
    assert notes.libraries() == RuntimeRecord(qnn="2.51.0", source="pip")
    notes.makers += ["2.48.40", "2.51.0", "2.48.40"]
    runtime = notes.libraries()
    assert runtime.contexts_by == "2.48.40, 2.51.0"
    assert Notes(makers=["2.51.0"]).libraries() is None


def test_only_what_the_target_did_is_a_failure_of_the_target() -> None:
    lab = NotPassed.of(Verdict("error", "infra"))
    assert isinstance(lab, NoVerdict)
    assert not isinstance(lab, AssertionError)
    for outcome in ("failed", "crashed", "hung", "unsupported"):
        assert isinstance(NotPassed.of(Verdict(outcome, "target")), TargetFailure)


def test_a_figure_that_there_is_not_names_those_that_are(snapshot: Snapshot) -> None:
    figures = Figures(load_us=[1, 2], loaded=2)
    assert figures["loaded"] == 2
    for measured in (figures, Figures()):
        with snapshot.raises(KeyError) as caught:
            measured["exec_us"]
        assert isinstance(caught.value, ConfigError), "it is the test's mistake"
    assert figures.get("exec_us") is None


def test_only_a_refusal_is_accepted() -> None:
    refused = ErrorRecord.of(message="no", api="QnnContext_createFromBinary", code=5000)
    notes = Notes(verdict=Verdict("failed", "target", refused))
    notes.accept_refusal()
    assert (notes.verdict, notes.measurements["refused_code"]) == (None, 5000)


@pytest.mark.parametrize(
    "verdict",
    [
        None,
        Verdict("passed"),
        Verdict("crashed", "target"),
        Verdict("hung", "target"),
        Verdict(
            "failed", "target", ErrorRecord.of(message="differs", api="QnnGraph_execute", code=0)
        ),
    ],
    ids=lambda verdict: verdict and verdict.outcome,
)
def test_what_refused_nothing_is_no_refusal(verdict: Verdict | None, snapshot: Snapshot) -> None:
    with snapshot.raises(ConfigError):
        Notes(verdict=verdict).accept_refusal()
