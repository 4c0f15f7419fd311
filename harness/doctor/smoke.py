"""One small inference per backend, on the same path as the suites."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from harness.bench.bench import Bench
from harness.bench.case_placement import Placement
from harness.bench.case_session import CaseSession, NotPassed
from harness.bench.prepared_devices import PreparedPlacement
from harness.bench.run_preparation import Workbench
from harness.core.errors import ConfigError, HarnessError, VersionError
from harness.core.matrix_axes import BACKEND_LIBRARIES
from harness.core.outgoing_text import counted
from harness.diagnosis.diagnosis import diagnosed
from harness.diagnosis.error_record import ErrorRecord
from harness.diagnosis.verdict import Verdict
from harness.doctor.check_results import Checked, CheckResult
from harness.doctor.device_checks import DspAttempt, ExaminedDevice, dsp_layers
from harness.models.builtin_models import Model
from harness.models.session_plan import Libraries, within_session
from harness.probe.ort_plan import APP_READ, APP_WRITE, call, operation, tensor
from harness.probe.plan import Plan, Settings, Step
from harness.runtimes.pypi import QNN_PLATFORMS
from harness.runtimes.qairt_url import QAIRT, QairtUrlSource
from harness.runtimes.runtime import Runtime, facts_of

_MODEL: Final = Model("tiny")
_NO_CONTEXT: Final = "no context was compiled for this device"
_BYTES: Final = 8 * 8 * 4 * 4
_TIMEOUT_S: Final = 60.0
_SYSTEM: Final = "libQnnSystem.so"


def smoke_checks(
    workbench: Workbench, examined: ExaminedDevice, qnn: str, cache: Path
) -> Iterator[Checked]:
    """Check HTP, layer by layer, GPU and CPU; the probe's plans and events are kept.

    They are kept in `doctor` of the cache. The device must be healthy. An error of the lab is a
    separate check.
    """
    device, target, logs = examined.device.name, examined.device.target, cache / "doctor"
    try:
        name = workbench.catalog.resolve(qnn, target)[-1]
        runtime = workbench.catalog.runtime(name, target)
    except HarnessError as error:
        yield Checked("device", device, "runtime", "fail", str(error), _name_source(target))
        yield from untried(examined, CheckResult("unknown", "not tested: no runtime is available"))
        return
    size = f"{counted(len(runtime.files), 'file')}, {runtime.size / 1e6:.0f} MB"
    yield Checked("device", device, "runtime", "ok", f"QNN {runtime.name} for {target}, {size}")
    session_logs = logs / f"{device}-session"
    session = try_backend(workbench, device, "htp", runtime, name, session_logs, bare=True)
    if session.result.status == "ok":
        graph = try_backend(workbench, device, "htp", runtime, name, logs / f"{device}-htp")
    elif session.result.status == "not-applicable":
        graph = session
    else:
        graph = DspAttempt(CheckResult("unknown", "not tested: no session was opened"))
    yield from dsp_layers(examined, facts_of(runtime), session, graph)
    for backend in ("gpu", "cpu"):
        folder = logs / f"{device}-{backend}"
        attempt = try_backend(workbench, device, backend, runtime, name, folder)
        yield Checked("device", device, f"smoke {backend}", *attempt.result)


def untried(examined: ExaminedDevice, why: CheckResult) -> list[Checked]:
    """Return the layers to the DSP if nothing is deployed."""
    return dsp_layers(examined, None, DspAttempt(why), DspAttempt(why))


def runtime_result(workbench: Workbench, target: str, qnn: str) -> CheckResult:
    """Return the runtime that a device would get, without fetching it."""
    try:
        name = workbench.catalog.resolve(qnn, target)[-1]
        is_cached = workbench.catalog.is_cached(name, target)
    except HarnessError as error:
        return CheckResult("fail", str(error), _name_source(target))
    return CheckResult("ok", f"QNN {name} for {target}{'' if is_cached else ', not fetched yet'}")


def _name_source(target: str) -> str:
    if target in QNN_PLATFORMS:
        return "name a source of this version in `runtimes` of devices.yaml, or correct --qnn"
    return (
        "PyPI has no libraries for phones: run `qnn-harness runtimes fetch "
        f"{QAIRT}:{QairtUrlSource.example} --target {target}`, set QAIRT_SDK_ROOT to an SDK, or "
        "name a source in `runtimes` of devices.yaml"
    )


def try_backend(
    workbench: Workbench,
    device: str,
    backend: str,
    runtime: Runtime,
    name: str,
    logs: Path,
    *,
    bare: bool = False,
) -> DspAttempt:
    """Try one backend. `bare`: the HTP is opened without a context."""
    library = BACKEND_LIBRARIES[backend]
    if not any(file.path.name == library for file in runtime.files):
        text = f"QNN {runtime.name} for {runtime.target} has no {library}"
        return DspAttempt(CheckResult("not-applicable", text))
    compiler = None
    if backend == "htp" and not bare:
        with contextlib.suppress(VersionError):  # none is as old as the runtime
            compiler = workbench.catalog.compiler_for(name, runtime.target)
    placement = Placement(device=device, backend=backend, qnn=name, compiler=compiler)
    start = time.monotonic()
    try:
        ready = workbench.provisioned(workbench.lab.device(device)).prepare(placement)
        case = CaseSession(ready, logs)
        bench = Bench(case)
        if compiler is not None:
            observation = bench.run_contexts([_MODEL], 1, "sequential")
            success = "a context was loaded, executed and freed, with the expected outputs"
        else:
            shown = bench.device.facts.coprocessors
            offline = backend == "gpu" and shown is not None and bool(shown.gpu_compiler)
            observation = bench.run(_one_node(ready, offline), timeout_s=_TIMEOUT_S)
            success = "a graph of one node was created"
            if bare:
                success = "backend and device were created"
            elif backend == "htp":
                success = f"the backend was created; no inference: {_NO_CONTEXT}"
            elif offline:
                success += "; no inference: the backend only prepares graphs, it has no GPU"
            else:
                success += " and executed"
    except NotPassed as failure:
        return DspAttempt(verdict_result(failure.verdict, device, "", logs), failure.verdict.error)
    except ConfigError as error:
        return DspAttempt(CheckResult("fail", str(error), "correct devices.yaml or --qnn"))
    except HarnessError as error:
        return DspAttempt(CheckResult("fail", str(error), _lab_failed(device)))
    timing = f"in {time.monotonic() - start:.1f} s with QNN {runtime.name}"
    verdict, evidence = observation.verdict, tuple[str, ...]()
    if verdict.error is not None and verdict.cause == "target":
        evidence = case.collect_evidence()
        verdict = replace(verdict, error=diagnosed(verdict.outcome, verdict.error, evidence))
    result = verdict_result(verdict, device, f"{success}, {timing}", logs)
    return DspAttempt(result, verdict.error, evidence)


def verdict_result(verdict: Verdict, device: str, passed: str, logs: Path) -> CheckResult:
    """Return the result for a verdict on a backend; `passed` is its text if it passed (pure)."""
    if verdict.outcome == "passed":
        return CheckResult("ok", passed)
    if verdict.error is None:
        return CheckResult("fail", verdict.outcome)
    text = f"{verdict.outcome}: {verdict.error.summary or 'no explanation'}"
    if verdict.outcome == "unsupported":
        return CheckResult("not-applicable", f"not on this target: {text}")
    advice = _lab_failed(device) if verdict.cause == "infra" else hint(verdict.error)
    return CheckResult("fail", text, f"{advice}; the output is in {logs}")


def _lab_failed(device: str) -> str:
    return f"the lab failed, not the target; run `qnn-harness devices recover {device}`"


def hint(error: ErrorRecord) -> str:
    """Return the fix, as far as the kind of the failure is known (pure)."""
    diagnosis = error.diagnosis
    if diagnosis is None:
        return "see the lines above; try another version with --qnn"
    return f"{diagnosis.words}: {diagnosis.fix or 'no fix is known'}; see the lines above"


def _one_node(ready: PreparedPlacement, offline: bool) -> Plan:
    """Return the plan for a graph of one Relu, finalized on the device, and executed if possible.

    On the HTP there is no graph: a phone does not get the library that prepares graphs.
    """
    libraries = Libraries(
        backend=ready.runtime.library(BACKEND_LIBRARIES[ready.placement.backend]),
        system=ready.runtime.library(_SYSTEM),
    )
    # the CPU backend has no devices: QnnDevice_create answers 1000, NOT_SUPPORTED (2.47.0)
    skipped = ("device-create", "device-free") if ready.placement.backend == "cpu" else ()
    input_tensor, output_tensor = (
        tensor(name, kind, number=f"t{name}.1", data=f"?{_BYTES}", size=_BYTES)
        for name, kind in (("in", APP_WRITE), ("out", APP_READ))
    )
    steps: tuple[Step, ...] = (
        call("QnnContext_create", "backend", "device", 0, "&ctx"),
        call("QnnGraph_create", "ctx", "'relu'", 0, "&graph"),
        call("QnnTensor_createGraphTensor", "graph", "tin=" + tensor("in", APP_WRITE)),
        call("QnnTensor_createGraphTensor", "graph", "tout=" + tensor("out", APP_READ)),
        call("QnnGraph_addNode", "graph", value=operation("Relu", "tin", "tout")),
        call("QnnGraph_finalize", "graph", 0, 0),
        call("QnnGraph_execute", "graph", input_tensor, 1, output_tensor, 1, 0, 0),
    )
    frees: tuple[Step, ...] = (call("QnnContext_free", "ctx", 0),)
    if ready.placement.backend == "htp":
        steps = frees = ()
    plan = within_session(libraries, steps[: -1 if offline else None], frees, Settings())
    return Plan(tuple(step for step in plan.steps if step.verb not in skipped))
