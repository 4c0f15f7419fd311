"""The simulated boards end to end: the real arm64 libraries say what a board without DSP says."""

from typing import Any

import pytest

from tests.integration.device_runs import ROOT, DeviceRuns

NEEDED = ("qemu-aarch64", "aarch64-linux-gnu-gcc")
pytestmark = [pytest.mark.needs(tool) for tool in NEEDED]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> DeviceRuns:
    runs = DeviceRuns(tmp_path_factory.mktemp("boards"))
    runs.file.write_text((ROOT / "devices.yaml").read_text())
    return runs


@pytest.fixture(scope="module")
def both_cases(runs: DeviceRuns) -> dict[str, list[dict[str, Any]]]:
    """Two cases of each board."""
    chosen = ("-k", "context_count and tiny and (resident-8 or window-8)")
    completed = runs.run("--device", "sim-arm64,sim-arm64-sm8650", *chosen, code=0)
    assert "4 unsupported" in completed.output
    cases: dict[str, list[dict[str, Any]]] = {}
    for case in completed.cases:
        cases.setdefault(case["device"]["name"], []).append(case)
    return cases


@pytest.fixture(scope="module")
def htp_cases(both_cases: dict[str, list[dict[str, Any]]]) -> dict[str, dict[str, Any]]:
    return {name: cases[0] for name, cases in both_cases.items()}


def test_a_board_without_a_dsp_is_asked_once(
    both_cases: dict[str, list[dict[str, Any]]],
) -> None:
    for first, second in both_cases.values():
        assert (second["outcome"], second["logs"]) == ("unsupported", [])
        logs = first["logs"][0].rpartition("/")[0]
        assert any(logs in line for line in second["error"]["message"].splitlines())
        assert second["error"]["signature"] == first["error"]["signature"]
        assert second["error"]["chain"] == first["error"]["chain"]


@pytest.mark.slow
def test_a_board_without_a_soc(htp_cases: dict[str, dict[str, Any]]) -> None:
    case = htp_cases["sim-arm64"]
    assert (case["outcome"], case["cause"]) == ("unsupported", None)
    assert case["device"]["target"] == "linux-arm64"
    assert case["device"]["coprocessors"] == {"dsp": [], "gpu": [], "gpu_compiler": []}
    error = case["error"]
    assert (error["code"], error["symbol"], error["component"]) == (
        4000,
        "QNN_BACKEND_ERROR_CANNOT_INITIALIZE",
        "backend",
    )
    # the first call that makes the library look for its SoC
    assert error["api"] == "QnnLog_create"
    assert error["first_cause"]["message"] == "No Snapdragon SOC detected"
    assert error["chain"][-1]["source"] == "call"


def test_a_board_that_tells_its_soc_gets_as_far_as_the_skel(
    htp_cases: dict[str, dict[str, Any]],
) -> None:
    case = htp_cases["sim-arm64-sm8650"]
    assert (case["outcome"], case["cause"]) == ("unsupported", None)
    assert case["device"]["soc"] == "SM8650"
    error = case["error"]
    assert (error["api"], error["code"]) == ("QnnDevice_create", 14001)
    assert (error["symbol"], error["component"]) == ("QNN_DEVICE_ERROR_INVALID_CONFIG", "device")
    assert "libcdsprpc.so: cannot open" in error["first_cause"]["message"]
    links = [(link["message"].partition(",")[0], link["code"]) for link in error["chain"]]
    skel = links.index(("Failed to load skel", 4000))
    assert skel < links.index(("Transport layer setup failed: 14001", 14001))
    codes = [code for _, code in links if code is not None]
    assert codes == sorted(codes)
    assert codes[-1] == 14001
