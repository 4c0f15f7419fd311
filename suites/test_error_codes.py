"""The atlas of error codes: what makes the real libraries give each code, and if it still does.

docs/error-codes.md is made of the results (`make atlas`). What is expected was measured on x86-64;
elsewhere a case records what it is answered, and passes.
"""

from __future__ import annotations

import pytest

from harness import Bench, Model, Observation, Plan, Settings, TargetFailure, steps

from .error_codes import ORT_PROVOCATIONS, PROVOCATIONS, OrtProvocation, Provocation

pytestmark = pytest.mark.atlas

HTP, GPU = ([one for one in PROVOCATIONS if one.backend == backend] for backend in ("htp", "gpu"))
ORT_HTP, ORT_GPU = (
    [(one, one.model) for one in ORT_PROVOCATIONS if one.backend == backend]
    for backend in ("htp", "gpu")
)


@pytest.mark.device(backend="htp")
@pytest.mark.parametrize("code", HTP, ids=str)
def test_htp_code(bench: Bench, code: Provocation) -> None:
    """The HTP backend or libQnnSystem gives this code."""
    provoke(bench, code)


@pytest.mark.device(backend="gpu")
@pytest.mark.parametrize("code", GPU, ids=str)
def test_gpu_code(bench: Bench, code: Provocation) -> None:
    """The GPU backend or libQnnSystem gives this code."""
    provoke(bench, code)


@pytest.mark.device(backend="htp", engine="ort")
@pytest.mark.parametrize(("code", "model"), ORT_HTP, ids=str)
def test_ort_htp_code(bench: Bench, code: OrtProvocation, model: Model) -> None:
    """ONNX Runtime on the HTP backend gives this code."""
    provoke_through_ort(bench, code, model)


@pytest.mark.device(backend="gpu", engine="ort")
@pytest.mark.parametrize(("code", "model"), ORT_GPU, ids=str)
def test_ort_gpu_code(bench: Bench, code: OrtProvocation, model: Model) -> None:
    """ONNX Runtime on the GPU backend gives this code."""
    provoke_through_ort(bench, code, model)


def provoke(bench: Bench, wanted: Provocation) -> None:
    libraries = bench.libraries()
    assert libraries.system is not None
    opening = (steps.Step("backend-create"), steps.device_create()) if wanted.opens else ()
    made = (
        steps.backend_load(libraries.backend),
        steps.system_load(libraries.system),
        steps.Step("log-create"),
        *opening,
        *wanted.steps,
    )
    plan = Plan(made, Settings(log_level="error", memory="off"))
    settle(bench, wanted, bench.attempt(plan, environment=wanted.environment))


def provoke_through_ort(bench: Bench, wanted: OrtProvocation, model: Model) -> None:
    ort, deployed = bench.ort(), bench.model(model)
    made = ort.session(0, deployed.file, provider=ort.provider(wanted.options))
    settle(bench, wanted, bench.attempt(ort.plan((*made, ort.run(0, deployed)), sessions=1)))


def settle(bench: Bench, wanted: Provocation | OrtProvocation, seen: Observation) -> None:
    """Records what was answered, and fails where something else was measured before."""
    error = seen.verdict.error
    code = None if error is None else error.code
    said = None if error is None else error.model_dump(mode="json")
    bench.measure(code=wanted.code, how=wanted.how, answered=code, error=said)
    bench.measure(ended=seen.verdict.outcome)
    if seen.verdict.outcome == "unsupported" and code != wanted.code:
        raise TargetFailure(seen.verdict)
    if bench.device.target != "linux-x64":
        return
    expected = wanted.code if bench.qnn_in(wanted.versions) else wanted.otherwise
    what = f"{code}, {seen.verdict.explanation()}"
    assert code == expected, f"{expected} was measured when {wanted.how}; now it is {what}"
