"""`qnn-harness run --power`: a case for each profile, with the answers to its votes."""

from typing import Any

import pytest

from harness.models.builtin_models import Model
from tests.integration.device_runs import ROOT, DeviceRuns

PROGRAM = ROOT / "tests/field/executorch-3-contexts.pte"
ACCEPTED = dict.fromkeys(
    ("infrastructure", "client", "dcvs", "rpc_control_latency", "rpc_polling_time", "released"), 0
)


def powers(records: list[dict[str, Any]]) -> list[tuple[str | None, dict[str, Any] | None]]:
    """The profile of each placement, and what became of its votes without the effect."""
    found = []
    for record in records:
        assert record["outcome"] == "passed"
        profile = record["placement"]["power"]
        assert profile == record["axes"]["power"]
        power = record["measurements"].get("power")
        assert power is None or power.pop("effect") == "none: a simulated device has no clocks"
        found.append((profile, power))
    return found


@pytest.mark.slow
def test_a_case_for_each_profile(lab: DeviceRuns) -> None:
    (lab.folder / "model.onnx").write_bytes(Model("tiny").serialized())
    profiles = "--power=default,burst,power_saver"
    code, stderr, records = lab.run_files("model.onnx", profiles, "--engine=qnn", "--tolerance=1")
    assert code == 0, stderr
    assert powers(records) == [
        (None, None),
        ("burst", {"profile": "burst", "votes": ACCEPTED}),
        ("power_saver", {"profile": "power_saver", "votes": ACCEPTED}),
    ]
    assert "-power-burst-" in records[1]["case"]
    code, stderr, records = lab.run_files("model.onnx", "--power=burst", "--engine=ort")
    assert (code, powers(records)) == (0, [("burst", {"profile": "burst", "votes_by": "ort"})])


@pytest.mark.slow
def test_executorch_votes_for_its_own_modes(lab: DeviceRuns) -> None:
    arguments = (PROGRAM, "--engine=executorch", "--qnn=2.49.40")
    code, stderr, records = lab.run_files(*arguments, "--power=burst")
    assert (code, powers(records)) == (
        0,
        [("burst", {"profile": "burst", "votes_by": "executorch"})],
    ), stderr
    code, stderr, (record,) = lab.run_files(*arguments, "--power=extreme_power_saver")
    assert (record["outcome"], record["cause"]) == ("error", "config")
    assert "ExecuTorch has no performance mode 'extreme_power_saver'" in record["error"]["message"]
