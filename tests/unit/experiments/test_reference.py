"""Kept outputs against files: what can be told, and what a condition makes of what cannot."""

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from harness.bench.bench import Bench
from harness.bench.case_session import Observation
from harness.bench.kept_outputs import KeptOutput
from harness.core.errors import ConfigError
from harness.diagnosis.verdict import Verdict
from harness.experiments.accuracy import accuracy_of, record_accuracy
from harness.models.contexts import SourceList
from harness.models.session_plan import ClosenessLimits
from harness.results.record import Check
from tests.snapshots import Snapshot


class BenchMock:
    """Takes what a case would measure, and checks."""

    def __init__(self) -> None:
        self.measured: dict[str, Any] = {}
        self.broken: list[str] = []

    def measure(self, **figures: object) -> None:
        self.measured |= figures

    def outputs_compared(self) -> None:
        self.measured["compared"] = True

    def conclude(self, text: str) -> None:
        self.measured["conclusion"] = text

    def expect(self, *checks: Check) -> None:
        self.broken += [check.name for check in checks if check.verdict == "broken"]


def recorded(*outputs: KeptOutput, limits: ClosenessLimits, outcome: str = "passed") -> BenchMock:
    bench, verdict = BenchMock(), Verdict(cast("Any", outcome), None, None)
    observation = Observation(cast("Any", None), verdict, {}, outputs)
    record_accuracy(cast("Bench", bench), observation, SourceList("m", (), closeness=limits))
    return bench


def kept_output(
    folder: Path, data_type: str = "float32", shape: tuple[int, ...] = (1, 2)
) -> KeptOutput:
    got, expected = folder / "got.raw", folder / "expected.raw"
    return KeptOutput("y", data_type, shape, 0.5, -1, got, expected, "the expected files")


def test_an_output_is_read_as_its_type_and_shape(tmp_path: Path) -> None:
    np.array([1, 2], "f4").tofile(tmp_path / "got.raw")
    with pytest.raises(ValueError, match="reference"):
        accuracy_of(kept_output(tmp_path))
    np.array([1, 3], "f4").tofile(tmp_path / "expected.raw")
    accuracy = accuracy_of(kept_output(tmp_path))
    assert accuracy.worst is not None
    assert (accuracy.max_abs, accuracy.max_steps, accuracy.worst.index) == (1.0, None, (0, 1))
    assert accuracy.against == "the expected files"
    flat = accuracy_of(kept_output(tmp_path, shape=(7,)))
    assert flat.worst is not None
    assert flat.worst.index == (1,)
    quantised = accuracy_of(kept_output(tmp_path, "ufixed8"))
    assert quantised.elements == 8
    assert quantised.max_steps == 2 * quantised.max_abs > 0


def test_nobody_tells_what_does_not_fit(tmp_path: Path) -> None:
    def without_output(data_type: str = "float32") -> bool:
        measured = recorded(kept_output(tmp_path, data_type), limits=ClosenessLimits()).measured
        return "accuracy" not in measured and len(measured["not_compared"]) == 1

    np.array([1, 2], "f4").tofile(tmp_path / "got.raw")
    np.array([1, 2, 3], "f4").tofile(tmp_path / "expected.raw")
    assert without_output()
    assert without_output("sfixed4")
    for content in (b"odd", b""):
        (tmp_path / "expected.raw").write_bytes(content)
        assert without_output()
    np.array([1, 2], "f4").tofile(tmp_path / "expected.raw")
    assert not without_output()


def test_an_output_of_each_context_is_told(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    first, other = kept_output(tmp_path), kept_output(tmp_path / "b")
    for got, folder in (([1, 2], tmp_path), ([1, 5], tmp_path / "b")):
        np.array(got, "f4").tofile(folder / "got.raw")
        np.array([1, 3], "f4").tofile(folder / "expected.raw")
    bench = recorded(replace(other, of="m"), limits=ClosenessLimits(max_error=1.5))
    (accuracy,) = bench.measured["accuracy"]
    assert (accuracy["elements"], accuracy["max_abs"]) == (2, 2.0)
    assert accuracy["worst"] == {"index": (0, 1), "got": 5.0, "expected": 3.0}
    assert bench.broken == ["max_error[y]"]
    apart = recorded(first, replace(other, of="other"), limits=ClosenessLimits()).measured
    assert [each["max_abs"] for each in apart["accuracy"]] == [1.0, 2.0]


def test_an_output_that_is_not_compared_is_told_and_breaks_a_condition(
    tmp_path: Path, snapshot: Snapshot
) -> None:
    for name in ("got", "expected"):
        np.array([1, 2], "f4").tofile(tmp_path / f"{name}.raw")
    here = kept_output(tmp_path)
    missing, odd = (
        replace(here, name="gone", file=None),
        replace(here, name="odd", data_type="int4"),
    )
    bench = recorded(here, missing, odd, limits=ClosenessLimits())
    assert [entry["output"] for entry in bench.measured["accuracy"]] == ["y"]
    not_compared = bench.measured["not_compared"]
    assert [f"{entry['output']}: {entry['why']}" for entry in not_compared] == snapshot
    assert bench.broken == []
    assert recorded(here, missing, limits=ClosenessLimits(min_cosine=0.5)).broken == [
        "reference[gone]"
    ]


def test_a_condition_without_any_reference_is_wrong_unless_the_case_failed() -> None:
    with pytest.raises(ConfigError):
        recorded(limits=ClosenessLimits(min_cosine=0.5))
    assert recorded(limits=ClosenessLimits()).measured == {}
    with pytest.raises(AssertionError):
        recorded(limits=ClosenessLimits(min_cosine=0.5), outcome="crashed")
