"""`qnn-harness run --power`: a case for each profile, with the answers to its votes."""

from typing import Any

import pytest

from harness.models.builtin_models import Model
from tests.integration.device_runs import ROOT, DeviceRuns

PROGRAM = ROOT / "tests/field/executorch-3-contexts.pte"
ACCEPTED = dict.fromkeys(
    ("infrastructure", "client", "dcvs", "rpc_control_latency", "rpc_polling_time", "released"), 0
)


PROBE = {"votes_by": "probe", "votes": ACCEPTED, "answer": "the library accepted all votes"}


def by_itself(engine: str) -> dict[str, Any]:
    answer = f"the library logged no refusal, and {engine} does not say what it answered"
    return {"votes_by": engine, "votes": {}, "answer": answer}


def powers(records: list[dict[str, Any]]) -> list[tuple[str | None, dict[str, Any] | None]]:
    """The profile of each placement, and what became of its votes on a simulator."""
    voted = []
    for record in records:
        assert record["outcome"] == "passed"
        profile = record["placement"]["power"]
        assert profile == record["axes"]["power"]
        power = record["measurements"].get("power")
        if power is not None:
            assert power.pop("profile") == profile
            power["answer"], _, effect = power["answer"].partition("; ")
            assert effect == "a simulated device has no clocks"
        voted.append((profile, power))
    return voted


@pytest.mark.slow
def test_a_case_for_each_profile(lab: DeviceRuns) -> None:
    (lab.folder / "model.onnx").write_bytes(Model("tiny").serialized())
    profiles = "--power=default,burst,power_saver"
    code, stderr, records = lab.run_files(
        "model.onnx", profiles, "--engine=qnn", "--limit=tolerance=1"
    )
    assert code == 0, stderr
    assert powers(records) == [(None, None), ("burst", PROBE), ("power_saver", PROBE)]
    assert "-power-burst-" in records[1]["case"]
    assert "Power profile burst, 1 case: the library accepted all votes" in stderr
    page = (lab.reports / "latest/report.html").read_text()
    assert "Power profile power_saver, 1 case: the library accepted all votes" in page
    code, stderr, records = lab.run_files("model.onnx", "--power=burst", "--engine=ort")
    assert (code, powers(records)) == (0, [("burst", by_itself("ort"))])


@pytest.mark.slow
def test_executorch_votes_for_its_own_modes(lab: DeviceRuns) -> None:
    arguments = (PROGRAM, "--engine=executorch", "--qnn=2.49.40")
    code, stderr, records = lab.run_files(*arguments, "--power=burst")
    assert (code, powers(records)) == (0, [("burst", by_itself("executorch"))]), stderr
    code, stderr, (record,) = lab.run_files(*arguments, "--power=extreme_power_saver")
    assert (record["outcome"], record["cause"]) == ("error", "config")
    assert "ExecuTorch has no performance mode 'extreme_power_saver'" in record["error"]["message"]
