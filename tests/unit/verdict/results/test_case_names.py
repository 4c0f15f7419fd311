"""What a node id says of where and with what a case ran, beside what says nothing of it."""

from __future__ import annotations

import pytest

from harness.verdict.results.case_names import placement_in, split_node_id

BARE = {"device": "a", "backend": "gpu", "qnn": "2.51.0", "ort": None, "compiler": None}
WHOLE = {
    "device": "sim-v73",
    "backend": "htp",
    "qnn": "sdk:2.51.0",
    "ort": "aar:1.26.0",
    "compiler": "2.47.0",
}
WHOLE_TEXT = "sim-v73-htp-sdk:2.51.0-ort-aar:1.26.0-by-2.47.0"
TWICE = "a-gpu-2.51.0-b-htp-2.47.0-by-2.3-c"
GOES_ON = "a-gpu-2.51.0-ort-1-by-2.2"


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


@pytest.mark.parametrize(
    ("parameters", "axes", "named", "rest"),
    [
        (TWICE, {"backend": "gpu", "qnn": "2.51.0"}, BARE, "b-htp-2.47.0-by-2.3-c"),
        (GOES_ON, {"ort": None}, BARE, "ort-1-by-2.2"),
        (GOES_ON, {"ort": "1"}, BARE | {"ort": "1", "compiler": "2.2"}, ""),
        (GOES_ON, {"compiler": "2.51.0"}, BARE | {"ort": "1"}, "by-2.2"),
        ("a-npu-2.51.0-66", {"backend": "npu"}, BARE | {"backend": "npu"}, "66"),
        ("a-gpu-sdk:2.51.0-66", {"qnn": "2.51.0"}, BARE | {"qnn": "sdk:2.51.0"}, "66"),
    ],
)
def test_the_axes_of_a_case_decide_what_is_part_of_it(
    parameters: str, axes: dict[str, object], named: dict[str, str | None], rest: str
) -> None:
    assert placement_in(parameters, axes) == (named, rest)


def test_parameters_are_what_stands_in_brackets() -> None:
    assert split_node_id("t.py::test[x-[1]]") == ("t.py::test", "x-[1]")
    assert split_node_id("t.py::test") == ("t.py::test", None)
