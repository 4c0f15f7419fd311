"""Devices and errors in the records of cases."""

from types import SimpleNamespace
from typing import Any

import pytest

from harness.bench.case_placement import Placement
from harness.core.errors import DeviceLost, DeviceTimeout, InfraError
from harness.diagnosis.error_record import ErrorRecord
from harness.plugin.case import Case
from harness.results.record import CaseRecord, DeviceRecord

SERIAL = "127.0.0.1:40023"


def device(name: str) -> DeviceRecord:
    fields = {"name": name, "serial": SERIAL, "soc": "QCS8550", "target": "linux-x64"}
    return DeviceRecord.model_validate({**fields, "simulated": True})


def case_of(request: pytest.FixtureRequest) -> Case:
    run: Any = SimpleNamespace(
        records=SimpleNamespace(open_folder=lambda: SimpleNamespace(run_id="r")),
        selection=SimpleNamespace(device_record=lambda placement: device(placement.device)),
        options=SimpleNamespace(spread="device", contexts=SimpleNamespace(paths=())),
    )
    return Case(
        request.node,
        run,
        Placement(device="farm-03", backend="htp", qnn="2.51.0", compiler=None),
        1,
    )


def failed_with(request: pytest.FixtureRequest, error: BaseException) -> CaseRecord:
    case = case_of(request)
    report: Any = SimpleNamespace(when="call", longrepr="", outcome="failed", failed=True)
    case._fail(report, error)
    return case.record()


@pytest.mark.parametrize("ran_on", ["farm-03", "farm-04"])
def test_what_another_device_came_to_is_no_verdict(
    request: pytest.FixtureRequest, ran_on: str
) -> None:
    case = case_of(request)
    case.device = device(ran_on)
    record = case.record()
    assert record.device.name == record.axes["device"] == "farm-03"
    if ran_on == "farm-03":
        assert (record.outcome, record.cause) == ("passed", None)
    else:
        assert (record.outcome, record.cause) == ("error", "harness")
        assert "ran on farm-04 instead of farm-03" in record.error.message


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (
            DeviceLost("adb says: device offline", serial=SERIAL, command="true"),
            f"farm-03: {SERIAL}: adb says: device offline [true]",
        ),
        (DeviceTimeout("no answer", serial="usb1"), "farm-03: usb1: no answer"),
        (InfraError(f"{SERIAL} did not come back in 9 s"), None),
        (
            InfraError(f"device farm-03 ({SERIAL}) is not used"),
            f"device farm-03 ({SERIAL}) is not used",
        ),
        (InfraError("cannot write logs: no space left"), "cannot write logs: no space left"),
    ],
)
def test_an_error_of_a_device_names_it_and_is_alike_on_all(
    request: pytest.FixtureRequest, error: InfraError, name: str | None
) -> None:
    record = failed_with(request, error)
    assert record.error.message == (name or f"farm-03: {error}")
    assert (record.outcome, record.cause) == ("error", "infra")
    assert record.error.signature == ErrorRecord.of(message=str(error)).signature


def test_a_failed_assertion_has_what_was_compared_and_its_line_beside_its_signature(
    request: pytest.FixtureRequest,
) -> None:
    size, most = 50439, 1
    with pytest.raises(AssertionError) as caught:
        assert size < most, "loads too slowly"
    error = failed_with(request, caught.value).error
    summary, compared, place = error.message.splitlines()
    assert (summary, compared) == ("loads too slowly", "assert 50439 < 1")
    assert place == f"at test_case.py:{caught.tb.tb_lineno}"
    assert error.signature == "-|-|loads too slowly"


def test_what_a_device_said_before_it_was_lost_is_in_no_signature(
    request: pytest.FixtureRequest,
) -> None:
    last = DeviceLost("it ended early", serial=SERIAL, output=b"mTotal: 1 kB\nMem")
    error = failed_with(request, last).error
    lost = f"{SERIAL}: it ended early"
    assert error.message == f"farm-03: {lost}\noutput so far: 'mTotal: 1 kB\\nMem'"
    assert error.signature == ErrorRecord.of(message=lost).signature
