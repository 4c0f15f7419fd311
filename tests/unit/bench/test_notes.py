"""Notes of a case, as its record has them and readers find them again."""

from __future__ import annotations

import re

import pytest

from harness.bench.case_session import Figures, Notes, NotPassed, NoVerdict, TargetFailure
from harness.core.errors import ConfigError
from harness.diagnosis.error import ErrorRecord
from harness.diagnosis.verdict import Verdict
from harness.results.record import RuntimeRecord
from tests.unit.results.records import record


def test_what_is_noted_stands_under_the_names_that_readers_know() -> None:
    notes = Notes({"loaded": 3}, conclusion="it fits", grid=("compiler", "qnn"), probe_us=5)
    written = record(measurements=notes.figures())
    assert written.measurements == {
        "loaded": 3,
        "conclusion": "it fits",
        "grid": ["compiler", "qnn"],
        "probe_us": 5,
    }
    assert (written.conclusion, written.grid) == ("it fits", ("compiler", "qnn"))


def test_what_is_not_noted_is_not_written() -> None:
    written = record(measurements=Notes({"loaded": 3}).figures())
    assert written.measurements == {"loaded": 3}
    assert written.conclusion is written.grid is None


@pytest.mark.parametrize(
    ("figures", "timed"), [({"load_us": [3]}, True), ({"load_us": [], "loaded": 1}, False)]
)
def test_only_times_have_surroundings(figures: dict[str, object], timed: bool) -> None:
    surroundings: dict[str, object] = {"log_level": "warn", "cases_before": 0}
    written = Notes(figures, probe_us=5, surroundings=surroundings).figures()
    assert written.get("surroundings") == (surroundings if timed else None)


@pytest.mark.parametrize("value", [None, 5, "qnn", ["qnn"], {"rows": "qnn"}])
def test_a_record_that_holds_something_else_there_has_neither(value: object) -> None:
    assert record(measurements={"grid": value}).grid is None
    assert record(measurements={"conclusion": [value]}).conclusion is None


def test_each_maker_of_contexts_is_named_once() -> None:
    notes = Notes(runtime=RuntimeRecord(qnn="2.51.0", source="pip"))
    plain = notes.libraries()
    assert plain is not None
    assert plain.contexts_by is None
    notes.makers += ["2.48.40", "2.51.0", "2.48.40"]
    runtime = notes.libraries()
    assert runtime is not None
    assert runtime.contexts_by == "2.48.40, 2.51.0"
    assert Notes(makers=["2.51.0"]).libraries() is None


def test_only_what_the_target_did_is_a_failure_of_the_target() -> None:
    lab = NotPassed.of(Verdict("error", "infra"))
    assert isinstance(lab, NoVerdict)
    assert not isinstance(lab, AssertionError)
    for outcome in ("failed", "crashed", "hung", "unsupported"):
        assert isinstance(NotPassed.of(Verdict(outcome, "target")), TargetFailure)


def test_a_figure_that_there_is_not_names_those_that_are() -> None:
    figures = Figures(load_us=[1, 2], loaded=2)
    assert figures["loaded"] == 2
    with pytest.raises(KeyError) as caught:
        figures["exec_us"]
    assert str(caught.value) == "no 'exec_us' was measured; there are: load_us, loaded"
    assert isinstance(caught.value, ConfigError), "it is the test's mistake"
    with pytest.raises(KeyError, match="there are: none"):
        Figures()["loaded"]
    assert figures.get("exec_us") is None


def test_only_a_refusal_is_accepted() -> None:
    refused = ErrorRecord.of(message="no", api="QnnContext_createFromBinary", code=5000)
    notes = Notes(verdict=Verdict("failed", "target", refused))
    notes.accept_refusal()
    assert (notes.verdict, notes.measurements["refused_code"]) == (None, 5000)
    wrong = ErrorRecord.of(message="output 0 differs", api="QnnGraph_execute", code=0)
    notes = Notes(verdict=Verdict("failed", "target", wrong))
    with pytest.raises(ConfigError, match="nothing was refused: the call succeeded"):
        notes.accept_refusal()


@pytest.mark.parametrize(
    ("notes", "problem"),
    [
        (Notes(), "nothing has run yet: `accept_refusal()` is for what ran before it"),
        (Notes(verdict=Verdict("passed")), "nothing was refused: what ran last passed"),
        (Notes(verdict=Verdict("crashed", "target")), "nothing was refused: what ran last crashed"),
        (Notes(verdict=Verdict("hung", "target")), "nothing was refused: what ran last hung"),
    ],
)
def test_what_refused_nothing_is_no_refusal(notes: Notes, problem: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(problem)):
        notes.accept_refusal()
