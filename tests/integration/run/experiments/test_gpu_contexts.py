"""Context binaries of the real GPU backend, made and loaded on a simulated device."""

from __future__ import annotations

import pytest

from tests.integration.device_runs import DeviceRuns

CHOSEN = "test_gpu_contexts and (compiler or execute or damaged or resident-100])"


@pytest.mark.nightly
def test_gpu_contexts_of_two_versions(lab: DeviceRuns) -> None:
    done = lab.run("-k", CHOSEN, "--qnn", "2.47.0,2.51.0")
    assert done.code == 0, done.output
    for line in ("2.47.0    ok      ok", "2.51.0    ok      ok"):
        assert line in done.output  # older ones read what newer ones made
    for case in done.cases:
        name = case["case"].partition("::")[2].partition("[")[0]
        expected = {"known_issue": "gpu-context-without-a-gpu"} if name == "test_execute" else None
        assert case["expected"] == expected
        if name == "test_execute":
            assert (case["error"]["api"], case["error"]["code"]) == ("QnnGraph_execute", 6999)
        if name == "test_damaged":
            answers = case["measurements"]["answers"]
            assert {answers["empty"], answers["half"]} == {5000, 1002}
