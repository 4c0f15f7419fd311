"""The placement in a case's name is told from the rest, whatever the two look like."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from harness.bench.placement import Placement
from harness.plugin.case_names import matching_rest, without_placement
from harness.results.case_names import placement_in
from tests.properties import reached, reaches

versions = st.sampled_from(["2.47.0", "2.51.0", "2.31.0.250130", "2.28.2.241116_103376"])
named = st.one_of(versions, versions.map(lambda version: f"sdk-a:{version}"))
placements = st.builds(
    Placement,
    device=st.sampled_from(["sim-v73", "a", "desk-htp-1", "b.2_c", "x-by-2.4"]),
    backend=st.sampled_from(["htp", "gpu", "cpu"]),
    qnn=named,
    compiler=versions,
    ort=st.none() | st.sampled_from(["1.24.1", "my-aar:1.26.0"]),
)
rests = st.sampled_from(
    ["", "66", "resident-66", "io-heavy-56mb-resident-66", "tiny", "a-htp-2.47.0", "ort-1", "by-3"]
)


def named_as(placement: Placement) -> dict[str, str | None]:
    return {
        "device": placement.device,
        "backend": placement.backend,
        "qnn": placement.qnn,
        "ort": placement.ort,
        "compiler": placement.other_compiler,
    }


@given(placements)
def test_what_a_placement_says_is_read_again(placement: Placement) -> None:
    assert placement_in(str(placement)) == (named_as(placement), "")


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
