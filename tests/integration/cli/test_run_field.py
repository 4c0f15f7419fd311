"""Files of users run on every runtime."""

from pathlib import Path

import pytest

from tests.integration.device_runs import DeviceRuns

FIELD = Path(__file__).parents[2] / "field"
TIMEOUT_S = 500
FILES = {
    "executorch-3-contexts.pte": 3,
    "qnn_multi_ctx_embed.onnx": 2,
    "qnn_multi_ctx_external.onnx": 2,
    "simple_model_qualcomm_sm8650_precompiled.tflite": 1,
}


@pytest.mark.slow
def test_what_people_have_runs_on_all_that_are_new_enough(lab: DeviceRuns) -> None:
    code, stderr, records = lab.run_files(
        *(FIELD / name for name in FILES), "--qnn=2.48.40,2.51.0", timeout_s=TIMEOUT_S
    )
    assert code == 1, stderr
    by_axes = {(record["axes"]["workload"], record["axes"]["qnn"]): record for record in records}
    assert set(by_axes) == {(name, version) for name in FILES for version in ("2.48.40", "2.51.0")}
    for (name, version), record in by_axes.items():
        # the .pte was made by 2.49.40, and older runtimes refuse what is newer
        if name.endswith(".pte") and version == "2.48.40":
            assert (record["outcome"], record["error"]["code"]) == ("failed", 5000), stderr
            assert {entry["code"] for entry in record["preflight"]} == {"context-newer"}
        else:
            assert (record["outcome"], record["outputs"]) == ("passed", "agreement"), stderr
            assert record["measurements"]["loaded"] == FILES[name]
