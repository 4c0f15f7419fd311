"""The atlas of error codes: the calls that make the real libraries give each code.

docs/reference/error-codes.md is made of the results (`make atlas`). The expected codes were
measured on x86-64; elsewhere a case records the answer, and passes.
"""

from __future__ import annotations

import pytest

from harness import Bench, Model, Observation, Plan, Settings, TargetFailure, steps

from .error_codes import ORT_PROVOCATIONS, PROVOCATIONS, OrtProvocation, Provocation

pytestmark = pytest.mark.atlas

HTP, GPU = (
    [each for each in PROVOCATIONS if each.backend == backend] for backend in ("htp", "gpu")
)
ORT_HTP, ORT_GPU = (
    [(each, each.model) for each in ORT_PROVOCATIONS if each.backend == backend]
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


def provoke(bench: Bench, provocation: Provocation) -> None:
    libraries = bench.libraries()
    assert libraries.system is not None
    opening = (steps.Step("backend-create"), steps.device_create()) if provocation.opens else ()
    sequence = (
        steps.backend_load(libraries.backend),
        steps.system_load(libraries.system),
        steps.Step("log-create"),
        *opening,
        *provocation.steps,
    )
    plan = Plan(sequence, Settings(log_level="error", memory="off"))
    judge(bench, provocation, bench.attempt(plan, environment=provocation.environment))


def provoke_through_ort(bench: Bench, provocation: OrtProvocation, model: Model) -> None:
    ort, deployed = bench.ort(), bench.model(model)
    session = ort.session(0, deployed.file, provider=ort.provider(provocation.options))
    judge(bench, provocation, bench.attempt(ort.plan((*session, ort.run(0, deployed)), sessions=1)))


def judge(bench: Bench, provocation: Provocation | OrtProvocation, result: Observation) -> None:
    """Record the answer, and fail if it differs from the earlier measurement."""
    error = result.verdict.error
    code = None if error is None else error.code
    error_record = None if error is None else error.model_dump(mode="json")
    bench.measure(code=provocation.code, how=provocation.trigger, answered=code, error=error_record)
    bench.measure(ended=result.verdict.outcome)
    if result.verdict.outcome == "unsupported" and code != provocation.code:
        raise TargetFailure(result.verdict)
    if bench.device.target != "linux-x64":
        return
    expected = provocation.code if bench.qnn_in(provocation.versions) else provocation.otherwise
    actual = f"{code}, {result.verdict.explanation()}"
    trigger = provocation.trigger
    assert code == expected, f"{expected} was measured when {trigger}; now it is {actual}"
