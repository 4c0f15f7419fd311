"""The atlas of error codes runs when it is asked for, and sees what changed between versions."""

import pytest

from tests.integration.device_runs import DeviceRuns

CHOSEN = ("-k", "test_error_codes and (14003 or gpu-2.51.0-6999)", "--qnn", "2.47.0,2.51.0")


@pytest.mark.nightly
def test_codes_that_are_provoked(lab: DeviceRuns) -> None:
    completed = lab.run("-m", "device and atlas", *CHOSEN)
    assert completed.code == 0, completed.output
    codes = {
        (case["axes"]["backend"], case["axes"]["qnn"], case["measurements"]["code"]): case
        for case in completed.cases
        if not case["axes"]["ort"]
    }
    answers = {key: case["measurements"]["answered"] for key, case in codes.items()}
    assert answers == {
        ("htp", "2.47.0", 14003): 14003,
        ("htp", "2.51.0", 14003): None,
        ("gpu", "2.51.0", 6999): 6999,
    }
    error = codes["gpu", "2.51.0", 6999]["measurements"]["error"]
    assert error["api"] == "QnnGraph_execute"
    assert error["diagnosis"]["id"] == "gpu-offline"
