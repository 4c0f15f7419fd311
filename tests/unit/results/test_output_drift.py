"""Outputs of the same work, compared between versions: from what cases have kept."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from harness.report.report_files import finish
from harness.results.output_drift import OutputDifference, difference, drift, drift_lines
from harness.results.record import CaseRecord
from harness.results.run_folder import OUTPUTS, RunFolder
from tests.snapshots import Snapshot
from tests.unit.results.records import DEVICE, record

FILES = {"000000000000000a-4": b"\x01\x02\x03\x04", "000000000000000b-4": b"\x01\x02\x03\x07"}
A, B = FILES
GONE = "000000000000000c-4"


def case(
    qnn: str,
    digest: str,
    *,
    residency: str = "resident",
    device: str = "one",
    kind: str = "ufixed8",
) -> CaseRecord:
    output = {"name": "y", "data_type": kind, "scale": 0.5, "digest": digest}
    outputs_of_contexts = {"m.pte#0": {"sha256": "00", "outputs": [output]}}
    return record(
        case=f"m.pte::test_contexts[{device}-htp-{qnn}-m.pte-{residency}-1]",
        axes={"backend": "htp", "qnn": qnn, "residency": residency},
        device=DEVICE | {"name": device},
        measurements={"kept_outputs": outputs_of_contexts},
    )


NUMPY_TYPES = {"ufixed8": "u1", "sfixed16": "<i2", "float32": "<f4"}
NAN = float("nan")


@pytest.mark.parametrize(
    ("data_type", "scale", "values", "first", "expected"),
    [
        ("ufixed8", 0.5, [0, 255, 1], [0, 0, 2], (2, 3, 255, 127.5)),
        ("ufixed8", None, [0, 255], [0, 255], (0, 2, 0, 0.0)),
        ("sfixed16", 0.25, [-32768, 1], [32767, 1], (1, 2, 65535, 16383.75)),
        ("float32", 2.0, [1.5, -0.0], [1.0, 0.0], (1, 2, None, 0.5)),
        ("float32", None, [NAN], [NAN], (0, 1, None, 0.0)),
        ("float32", None, [NAN], [0.0], (1, 1, None, 0.0)),
    ],
)
def test_how_outputs_differ(
    data_type: str,
    scale: float | None,
    values: list[float],
    first: list[float],
    expected: tuple[int, int, int | None, float],
) -> None:
    data, expected_data = (
        np.array(side, NUMPY_TYPES[data_type]).tobytes() for side in (values, first)
    )
    figures = difference(data, expected_data, data_type, scale)
    assert (figures.elements, figures.total, figures.max_steps, figures.max_abs) == expected


@pytest.mark.parametrize(
    ("data", "first", "data_type"),
    [
        (b"", b"", "uint8"),
        (b"1", b"12", "uint8"),
        (b"123", b"123", "float16"),
        (b"1", b"1", "int4"),
    ],
)
def test_what_cannot_be_compared(data: bytes, first: bytes, data_type: str) -> None:
    assert difference(data, first, data_type, None) is None


def test_the_offset_of_quantised_values_counts_for_their_angle() -> None:
    figures = difference(bytes([100, 101]), bytes([100, 99]), "ufixed8", 0.5, -100)
    assert (figures.max_steps, figures.max_abs, figures.cosine) == (2, 1.0, -1.0)


@given(st.lists(st.tuples(st.integers(0, 255), st.integers(0, 255)), min_size=1, max_size=20))
def test_steps_are_those_of_a_count(pairs: list[tuple[int, int]]) -> None:
    first, other = (bytes(values) for values in zip(*pairs, strict=True))
    figures = difference(first, other, "ufixed8", 1.0)
    assert figures.elements == sum(a != b for a, b in pairs)
    assert figures.max_steps == max(abs(a - b) for a, b in pairs) == figures.max_abs
    assert -1 <= figures.cosine <= 1
    assert difference(first, first, "ufixed8", 1.0) == OutputDifference(
        0, len(pairs), 0, 0.0, pytest.approx(1.0)
    )


@given(
    st.lists(st.floats(width=32), min_size=1, max_size=8),
    st.lists(st.floats(width=32), min_size=1, max_size=8),
)
def test_any_reals_have_figures(a: list[float], b: list[float]) -> None:
    size = min(len(a), len(b))
    figures = difference(
        np.array(a[:size], "<f4").tobytes(), np.array(b[:size], "<f4").tobytes(), "float32", None
    )
    assert figures.max_abs == figures.max_abs >= 0
    assert -1.001 <= figures.cosine <= 1


def test_versions_are_compared_in_their_order(snapshot: Snapshot) -> None:
    records = [case("2.51.0", B), case("2.47.0", A), case("2.9.0", A), case("2.50.40", GONE)]
    (output,) = drift(records, FILES.get)
    assert [point.qnn for point in output.points] == ["2.9.0", "2.47.0", "2.50.40", "2.51.0"]
    assert list(drift_lines([output])) == snapshot
    assert [output.beyond(steps) for steps in (0, 2, 3)] == [True, True, False]
    point = output.points[-1]
    assert (point.qnn, point.variants) == ("2.51.0", (2,))


@given(
    st.lists(st.floats(width=32), min_size=1), st.integers(0, 2**32 - 1), st.integers(0, 2**22 - 1)
)
def test_other_bytes_of_the_same_values_are_no_drift(
    values: list[float], turned: int, payload: int
) -> None:
    """-0 and 0, and NaN of any payload."""
    first = np.array(values, "<f4")
    other = first.copy()
    for index in range(first.size):
        if turned >> index % 32 & 1 and first[index] == 0:
            other[index] = -first[index]
        elif np.isnan(first[index]):
            other.view("<u4")[index] = 0x7FC00000 | payload
    files = {A: first.tobytes(), B: other.tobytes()}
    (output,) = drift(
        [case("2.47.0", A, kind="float32"), case("2.51.0", B, kind="float32")], files.get
    )
    assert not output.drifts
    assert not output.beyond(0)
    assert list(drift_lines([output])) == []
    assert {point.variants for point in output.points} == {(0,)}


def test_one_version_that_gives_several_outputs_is_not_deterministic(snapshot: Snapshot) -> None:
    records = [
        case("2.51.0", A),
        case("2.51.0", B, residency="window"),
        case("2.51.0", A, device="two"),
    ]
    (output,) = drift(records, FILES.get)
    assert list(drift_lines([output])) == snapshot


@pytest.mark.parametrize(
    "measurement", [None, [], {"m": None}, {"m": {"outputs": 7}}, {"m": {"outputs": [None, "x"]}}]
)
def test_a_measurement_of_another_form_tells_nothing(measurement: object) -> None:
    assert drift([record(measurements={"kept_outputs": measurement})], FILES.get) == []


def test_a_run_reads_what_it_has_kept_and_nothing_else(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, command=["x"], lab={}, devices=[])
    (folder.path / OUTPUTS).mkdir()
    for name, content in FILES.items():
        (folder.path / OUTPUTS / f"{name}.raw").write_bytes(content)
    secret = tmp_path / "secret.raw"
    secret.write_bytes(b"\x00\x00\x00\x00")
    for each in (case("2.47.0", A), case("2.51.0", B), case("2.52.0", "../../secret")):
        folder.journal.append(each.model_dump(mode="json"))
    (outputs,) = folder.drift()
    assert [difference is not None for difference in outputs.differences] == [True, True, False]
    finish(folder, exit_code=0)
    (drifted,) = folder.info()["drift"]
    assert (drifted["context"], drifted["differences"][1]["max_steps"]) == ("m.pte#0", 3)
    assert "<td>m.pte#0, y</td>" in (folder.path / "report.html").read_text()
