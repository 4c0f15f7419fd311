"""What a record says of where its case ran."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from harness.pytest_plugin.case import Case
from harness.results.record import DeviceRecord
from harness.workbench import Placement


def device(name: str) -> DeviceRecord:
    told = {"name": name, "serial": None, "soc": "QCS8550", "target": "linux-x64"}
    return DeviceRecord.model_validate({**told, "simulated": True})


@pytest.mark.parametrize("ran_on", ["farm-03", "farm-04"])
def test_what_another_device_came_to_is_no_verdict(
    request: pytest.FixtureRequest, ran_on: str
) -> None:
    run: Any = SimpleNamespace(
        records=SimpleNamespace(open_folder=lambda: SimpleNamespace(run_id="r")),
        asked=SimpleNamespace(device_record=lambda placement: device(placement.device)),
        options=SimpleNamespace(fan_out="device"),
    )
    case = Case(request.node, run, Placement("farm-03", "htp", "2.51.0", None), 0)
    case.device = device(ran_on)
    record = case.record()
    assert record.device is not None
    assert record.device.name == record.axes["device"] == "farm-03"
    if ran_on == "farm-03":
        assert (record.outcome, record.cause) == ("passed", None)
    else:
        assert (record.outcome, record.cause) == ("error", "harness")
        assert record.error is not None
        assert "ran on farm-04 instead of farm-03" in record.error.message
