"""Placements in node ids, beside parameters that are none."""

import pytest
from hypothesis import given, strategies as st

from harness.bench.case_placement import Placement
from harness.core.matrix_axes import POWER_PROFILES
from harness.results.case_names import matching_rest, placement_in, split_node_id, without_placement
from tests.properties import reached, reaches

BARE = {
    "device": "a",
    "backend": "gpu",
    "qnn": "2.51.0",
    "ort": None,
    "compiler": None,
    "power": None,
}
WHOLE = {
    "device": "sim-v73",
    "backend": "htp",
    "qnn": "sdk:2.51.0",
    "ort": "aar:1.26.0",
    "compiler": "2.47.0",
    "power": "low_power_saver",
}
WHOLE_TEXT = "sim-v73-htp-sdk:2.51.0-ort-aar:1.26.0-by-2.47.0-power-low_power_saver"


@pytest.mark.parametrize(
    ("parameters", "named", "rest"),
    [
        ("a-gpu-2.51.0", BARE, ""),
        ("a-gpu-2.51.0-66", BARE, "66"),
        (WHOLE_TEXT, WHOLE, ""),
        (f"{WHOLE_TEXT}-resident-66", WHOLE, "resident-66"),
        ("desk-htp-1-gpu-2.51.0", BARE | {"device": "desk-htp-1"}, ""),
    ],
)
def test_a_placement_is_what_parameters_begin_with(
    parameters: str, named: dict[str, str | None], rest: str
) -> None:
    assert placement_in(parameters) == (named, rest)


@pytest.mark.parametrize(
    # a version that goes on otherwise is no version
    "parameters",
    ["a-gpu-2.51.0 66", "a-gpu-2.51.0:x", "a-gpu-2.51.0\n", "a-npu-2.51.0", "tiny-66", ""],
)
def test_nothing_else_is_one(parameters: str) -> None:
    assert placement_in(parameters) is None


def test_parameters_are_what_stands_in_brackets() -> None:
    assert split_node_id("t.py::test[x-[1]]") == ("t.py::test", "x-[1]")
    assert split_node_id("t.py::test") == ("t.py::test", None)


versions = st.sampled_from(["2.47.0", "2.51.0", "2.31.0.250130", "2.28.2.241116_103376"])
named = st.one_of(versions, versions.map(lambda version: f"sdk-a:{version}"))
placements = st.builds(
    Placement,
    device=st.sampled_from(["sim-v73", "a", "desk-htp-1", "b.2_c", "x-by-2.4"]),
    backend=st.sampled_from(["htp", "gpu", "cpu"]),
    qnn=named,
    compiler=versions,
    ort=st.none() | st.sampled_from(["1.24.1", "my-aar:1.26.0"]),
    power=st.none() | st.sampled_from(POWER_PROFILES[1:]),
)
rests = st.sampled_from(
    ["", "66", "resident-66", "io-heavy-56mb-resident-66", "tiny", "a-htp-2.47.0", "ort-1", "by-3"]
)


@reaches(0.7)
@given(placements, rests, st.sampled_from(["before", "behind"]))
def test_the_rest_is_what_stands_beside_it(placement: Placement, rest: str, place: str) -> None:
    parts = [str(placement), rest] if place == "before" else [rest, str(placement)]
    parameters = "-".join(part for part in parts if part)
    if str(placement) not in rest:
        reached()
        assert without_placement(parameters, str(placement)) == rest


@given(placements, rests)
def test_a_case_is_found_under_the_names_of_other_versions(placement: Placement, rest: str) -> None:
    given_name = f"{placement}-{rest}" if rest else str(placement)
    known = {"66", "resident-66", "io-heavy-56mb-resident-66", "tiny", "ort-1", "by-3", rest}
    assert matching_rest(given_name, known) == rest
    assert matching_rest(rest, known) == rest


@pytest.mark.parametrize("name", ["nothing", "sim-a-htp-2.51.0-huge", "sim-a-npu-2.51.0-66"])
def test_what_is_no_case_means_none(name: str) -> None:
    assert matching_rest(name, {"66", "resident-66", "tiny"}) is None
