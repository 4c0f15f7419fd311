"""The suite of backends, from command line to journal: with the real libraries, and with stand-ins.

A stand-in shows each verdict the other way round. Behind it works the real library of another
backend, since no GPU library does anything on this host.
"""

from pathlib import Path
from typing import Any

import pytest

from tests.integration.device_runs import DeviceRuns, Finished
from tests.stand_in.build import build_htp

OLDEST = ("--qnn", "2.47.0")  # the only one with libQnnCpu.so for x86-64
FLOAT, TWIN = "mobilenet-v2", "mobilenet-v2-8bit"


def verdicts(case: dict[str, Any]) -> dict[str, str]:
    return {check["name"]: check["verdict"] for check in case["checks"]}


def of(completed: Finished, backend: str, model: str) -> dict[str, Any]:
    """The case that went through ORT."""
    (record,) = (
        case
        for case in completed.cases
        if "test_backend[" in case["case"]
        and (case["axes"]["backend"], case["axes"]["model"]) == (backend, model)
    )
    return record


@pytest.mark.slow
def test_every_backend_by_default(module_lab: DeviceRuns) -> None:
    """The real GPU backend prepares and cannot execute: 6999, as in microsoft/onnxruntime#24004.

    That is expected here, so that the run ends with 0, also where it is strict with what is known.
    """
    completed = module_lab.run(
        "-k", "test_backends", "--qnn", "2.51.0", "-o", "qnn_strict_known=true"
    )
    assert completed.code == 0, completed.output
    assert len(completed.cases) == 8
    gpu, twin = of(completed, "gpu", FLOAT), of(completed, "gpu", TWIN)
    assert (gpu["outcome"], gpu["cause"]) == ("failed", "target")
    assert gpu["expected"] == {"known_issue": "gpu-without-a-gpu"}
    assert verdicts(gpu) == dict.fromkeys(("init", "op_support", "load"), "held") | {
        "execute": "broken"
    }
    error = gpu["error"]
    assert (error["api"], error["code"], error["step"]) == ("Run", 6999, 5)
    assert error["ort"] == {"code": 11, "name": "ORT_EP_FAIL"}
    assert [(link["code"], link["symbol"]) for link in error["chain"]][:2] == [
        (None, None),
        (10014, "GPU_ERROR_OPENCL"),
    ]
    assert error["first_cause"]["message"] == "Cannot enqueue Gpu kernel in offline mode"
    assert error["diagnosis"]["id"] == "gpu-offline"
    assert gpu["device"]["coprocessors"]["gpu_compiler"][0].endswith("/system/bin/oqclc")
    assert twin["outcome"] == "passed"
    assert verdicts(twin) == {"init": "held", "refuses_uint8": "held"}
    assert twin["measurements"]["rejected_operators"]["Conv2d"] == [3110]
    # what the library wrote as it prepared is its maker's, and is gone
    leftovers = [*module_lab.folder.rglob("*.cl"), *module_lab.folder.rglob("bin.o")]
    assert leftovers == []
    passed = {"init", "op_support", "load", "execute", "cosine[y]", "max_abs[y]"}
    for model, nodes in ((FLOAT, 102), (TWIN, 319)):
        case = of(completed, "htp", model)
        assert case["outcome"] == "passed"
        assert verdicts(case) == dict.fromkeys(passed, "held")
        figures = case["measurements"]
        assert (figures["nodes_on_qnn"], figures["nodes"]) == (nodes, nodes)
        assert figures["operators"]["Conv"] == {"qnn": 52, "elsewhere": 0}
        assert figures["arithmetic"] == {FLOAT: "float16", TWIN: "uint8"}[model]
        (accuracy,) = figures["accuracy"]
        assert 0.99 < accuracy["cosine"] < 1
        assert accuracy["max_abs"] > 0
        (context,) = (
            case
            for case in completed.cases
            if "test_context[" in case["case"] and case["axes"]["model"] == model
        )
        assert verdicts(context) == dict.fromkeys(passed - {"op_support"}, "held")
        assert context["measurements"]["accuracy"] == figures["accuracy"]


def test_a_gpu_that_does_not_open(lab: DeviceRuns) -> None:
    lab.without_gpu()
    completed = lab.run("-k", f"test_backends and {FLOAT}]", "--backend", "gpu", "--qnn", "2.51.0")
    assert completed.code == 0, completed.output
    case = of(completed, "gpu", FLOAT)
    assert (case["outcome"], case["cause"]) == ("unsupported", None)
    assert (case["error"]["api"], case["error"]["code"]) == ("QnnBackend_create", 4000)
    assert "TuningMode must be enabled" in case["error"]["message"]
    assert case["measurements"]["refused_at"] == "init"
    assert set(verdicts(case).values()) == {"unseen"}


@pytest.mark.nightly
def test_the_cpu_backend(lab: DeviceRuns) -> None:
    completed = lab.run("-k", "test_backends", "--backend", "cpu", *OLDEST)
    assert completed.code == 0, completed.output
    case = of(completed, "cpu", FLOAT)
    assert case["outcome"] == "passed"
    assert case["measurements"]["device"] == "this backend has no devices (1000)"
    assert case["measurements"]["arithmetic"] == "float32"
    assert case["measurements"]["nodes_on_qnn"] == 102
    twin = of(completed, "cpu", TWIN)
    assert (twin["outcome"], twin["cause"]) == ("unsupported", None)
    assert twin["measurements"]["refused_at"] == "op_support"
    assert twin["measurements"]["operators"]["Conv"] == {"qnn": 0, "elsewhere": 52}
    assert "nodes are not on QNN" in twin["error"]["message"]


@pytest.mark.parametrize(
    ("settings", "broken", "code"),
    [
        ("composed=1,outputs=zero", {"cosine[y]", "max_abs[y]"}, None),
        ("composed=1,execute_code=6999", {"execute"}, 6999),
    ],
    ids=["wrong-outputs", "6999"],
)
@pytest.mark.nightly
def test_a_gpu_that_fails_later(
    lab: DeviceRuns, tmp_path: Path, settings: str, broken: set[str], code: int | None
) -> None:
    """6999 when it is executed, with every node taken: as microsoft/onnxruntime#24004 has it."""
    build_htp(tmp_path)
    (tmp_path / "stand_in.conf").write_text(settings.replace(",", "\n"))
    plugin = ("-p", "tests.stand_in.as_backend", "-k", f"test_backends and {FLOAT}]")
    behind = {"STAND_IN_FOLDER": str(tmp_path), "STAND_IN_BEHIND": "libQnnCpu.so"}
    completed = lab.run(*plugin, "--backend", "gpu", *OLDEST, **behind)
    assert completed.code == 1, completed.output
    case = of(completed, "gpu", FLOAT)
    assert (case["outcome"], case["cause"]) == ("failed", "target")
    by_name = verdicts(case)
    assert {name for name, verdict in by_name.items() if verdict == "broken"} == broken
    assert by_name["op_support"] == "held"
    assert case["error"]["code"] == code
