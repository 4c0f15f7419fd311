"""Placements in node ids, beside parameters that are none."""

from __future__ import annotations

import pytest

from harness.results.case_names import placement_in, split_node_id

BARE = {"device": "a", "backend": "gpu", "qnn": "2.51.0", "ort": None, "compiler": None}
WHOLE = {
    "device": "sim-v73",
    "backend": "htp",
    "qnn": "sdk:2.51.0",
    "ort": "aar:1.26.0",
    "compiler": "2.47.0",
}
WHOLE_TEXT = "sim-v73-htp-sdk:2.51.0-ort-aar:1.26.0-by-2.47.0"


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
