"""What a node id says of where and with what a case ran, beside what says nothing of it."""

from __future__ import annotations

import pytest

from harness.results.case_names import NamedPlacement, split_node_id, without_versions

BARE = NamedPlacement("a", "gpu", "2.51.0", None, None)
WHOLE = NamedPlacement("sim-v73", "htp", "sdk:2.51.0", "aar:1.26.0", "2.47.0")
WHOLE_TEXT = "sim-v73-htp-sdk:2.51.0-ort-aar:1.26.0-by-2.47.0"


@pytest.mark.parametrize(
    ("text", "alone", "beginning"),
    [
        ("a-gpu-2.51.0", BARE, BARE),
        ("a-gpu-2.51.0-66", None, BARE),
        (WHOLE_TEXT, WHOLE, WHOLE),
        (f"{WHOLE_TEXT}-resident-66", None, WHOLE),
        # a version that goes on otherwise is no version
        ("a-gpu-2.51.0 66", None, None),
        ("a-gpu-2.51.0:x", None, None),
        ("a-npu-2.51.0", None, None),
        ("tiny-66", None, None),
        ("", None, None),
    ],
)
def test_a_placement_is_read_alone_or_where_parameters_begin(
    text: str, alone: NamedPlacement | None, beginning: NamedPlacement | None
) -> None:
    assert NamedPlacement.parse(text) == alone
    assert NamedPlacement.beginning(text) == beginning


@pytest.mark.parametrize(
    ("node_id", "shared"),
    [
        (f"t.py::test[{WHOLE_TEXT}-tiny-66]", "t.py::test[sim-v73-htp-tiny-66]"),
        (f"t.py::test[{WHOLE_TEXT}]", "t.py::test[sim-v73-htp]"),
        ("t.py::test[tiny-66]", "t.py::test[tiny-66]"),
        ("t.py::test[a-gpu-2.51.0 66]", "t.py::test[a-gpu-2.51.0 66]"),
        ("t.py::test[]", "t.py::test[]"),
        ("t.py::test", "t.py::test"),
    ],
)
def test_cases_of_other_versions_share_a_name(node_id: str, shared: str) -> None:
    assert without_versions(node_id) == shared


def test_parameters_are_what_stands_in_brackets() -> None:
    assert split_node_id("t.py::test[x-[1]]") == ("t.py::test", "x-[1]")
    assert split_node_id("t.py::test") == ("t.py::test", None)
