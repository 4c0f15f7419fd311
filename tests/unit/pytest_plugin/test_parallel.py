"""Which device a node id names, and so which cases must stay on one worker."""

from __future__ import annotations

import pytest

from harness.pytest_plugin.parallel import device_of, scope_of


@pytest.mark.parametrize(
    ("node_id", "device"),
    [
        ("suites/test_x.py::test_y[sim-v73-htp-2.51.0-io-heavy-66]", "sim-v73"),
        ("suites/test_x.py::test_y[sim-v73-b-htp-2.51.0]", "sim-v73-b"),
        ("suites/test_x.py::test_y[other-htp-2.51.0]", None),
        ("suites/sim-v73/test_x.py::test_plain", None),
        ("suites/test_x.py::test_y[sim-v73]", None),
        ("", None),
    ],
)
def test_the_placement_stands_first(node_id: str, device: str | None) -> None:
    assert device_of(node_id, ["sim-v73", "sim-v73-b"]) == device


@pytest.mark.parametrize(
    ("dist", "scope"),
    [
        ("load", "tests/test_a.py::Class::test_b[x::y]"),
        ("loadfile", "tests/test_a.py"),
        ("loadscope", "tests/test_a.py::Class"),
    ],
)
def test_a_test_without_a_device_stays_with_those_that_dist_says(dist: str, scope: str) -> None:
    assert scope_of("tests/test_a.py::Class::test_b[x::y]", dist) == scope
