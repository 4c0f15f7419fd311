"""One small inference per backend, by the very path that the suites take."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from harness.bench.bench import Bench
from harness.bench.case_session import CaseSession, NotPassed
from harness.bench.placement import Placement
from harness.bench.target import Target
from harness.bench.workbench import Workbench
from harness.core.axes import BACKEND_LIBRARIES
from harness.core.errors import ConfigError, HarnessError, VersionError
from harness.core.outgoing_text import counted
from harness.diagnosis.diagnosis import diagnosed
from harness.diagnosis.error import ErrorRecord
from harness.diagnosis.verdict import Verdict
from harness.doctor.check import Answer, Checked
from harness.doctor.device_checks import DspTry, Patient, ladder
from harness.models.models import Model
from harness.models.source import Libraries, within_session
from harness.probe.ort_plan import APP_READ, APP_WRITE, call, operation, tensor
from harness.probe.plan import Plan, Settings, Step
from harness.runtimes.pypi import QNN_PLATFORMS
from harness.runtimes.runtime import KnownFacts, Runtime

_MODEL: Final = Model("tiny")
_NO_CONTEXT: Final = "no context for it was compiled here"
_BYTES: Final = 8 * 8 * 4 * 4
_TIMEOUT_S: Final = 60.0
_SYSTEM: Final = "libQnnSystem.so"


def smoke_checks(
    workbench: Workbench, patient: Patient, qnn: str, cache: Path
) -> Iterator[Checked]:
    """Tries HTP, layer by layer, GPU and CPU; what the probe was told and answered is kept.

    It is kept in `doctor` of the cache. The device must have been found well. An error of the lab
    is a check of its own.
    """
    device, target, logs = patient.device.name, patient.device.target, cache / "doctor"
    try:
        name = workbench.catalog.resolve(qnn, target)[-1]
        runtime = workbench.catalog.runtime(name, target)
    except HarnessError as error:
        yield Checked("device", device, "runtime", "fail", str(error), _name_source(target))
        yield from untried(patient, Answer("unknown", "not tried, there is no runtime"))
        return
    size = f"{counted(len(runtime.files), 'file')}, {runtime.size / 1e6:.0f} MB"
    yield Checked("device", device, "runtime", "ok", f"QNN {runtime.name} for {target}, {size}")
    kept = logs / f"{device}-session"
    session = try_backend(workbench, device, "htp", runtime, name, kept, bare=True)
    if session.answer.status == "ok":
        graph = try_backend(workbench, device, "htp", runtime, name, logs / f"{device}-htp")
    elif session.answer.status == "not-applicable":
        graph = session
    else:
        graph = DspTry(Answer("unknown", "not tried, no session came up"))
    yield from ladder(patient, KnownFacts(cache).of(runtime), session, graph)
    for backend in ("gpu", "cpu"):
        tried = try_backend(workbench, device, backend, runtime, name, logs / f"{device}-{backend}")
        yield Checked("device", device, f"smoke {backend}", *tried.answer)


def untried(patient: Patient, why: Answer) -> list[Checked]:
    """The layers to the DSP if nothing is put on the device."""
    return ladder(patient, None, DspTry(why), DspTry(why))


def runtime_answer(workbench: Workbench, target: str, qnn: str) -> Answer:
    """Which runtime a device would get; nothing is fetched for this."""
    try:
        name = workbench.catalog.resolve(qnn, target)[-1]
        here = workbench.catalog.is_cached(name, target)
    except HarnessError as error:
        return Answer("fail", str(error), _name_source(target))
    return Answer("ok", f"QNN {name} for {target}" + ("" if here else ", which is to be fetched"))


def _name_source(target: str) -> str:
    if target in QNN_PLATFORMS:
        return "name a source of libraries for it, or correct --qnn"
    return (
        "PyPI has none for phones: set QAIRT_SDK_ROOT to a QAIRT SDK, or name that, an AAR or a "
        "Maven repository in `runtimes` of devices.yaml; or correct --qnn"
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
) -> DspTry:
    """One backend: what came of it. `bare`: the HTP is opened, and given no context."""
    library = BACKEND_LIBRARIES[backend]
    if not any(file.path.name == library for file in runtime.files):
        found = f"QNN {runtime.name} for {runtime.target} has no {library}"
        return DspTry(Answer("not-applicable", found))
    compiler = None
    if backend == "htp" and not bare:
        with contextlib.suppress(VersionError):  # none is as old as the runtime
            compiler = workbench.catalog.compiler_for(name, runtime.target)
    placement = Placement(device, backend, name, compiler)
    began = time.monotonic()
    try:
        ready = workbench.held(workbench.lab.device(device)).place(placement)
        case = CaseSession(ready, logs)
        bench = Bench(case)
        if compiler is not None:
            observation = bench.run_contexts([_MODEL], 1, "sequential")
            done = "a context loaded, executed and freed, its outputs as expected"
        else:
            shown = bench.device.facts.coprocessors
            offline = backend == "gpu" and shown is not None and bool(shown.gpu_compiler)
            observation = bench.run(_one_node(ready, offline), timeout_s=_TIMEOUT_S)
            done = "a graph of one node was made there"
            if bare:
                done = "backend and device came up"
            elif backend == "htp":
                done = f"the backend comes up; no inference: {_NO_CONTEXT}"
            elif offline:
                done += "; no inference: it only prepares, there is no GPU behind it"
            else:
                done += " and executed"
    except NotPassed as failure:
        return DspTry(what_it_means(failure.verdict, device, "", logs), failure.verdict.error)
    except ConfigError as error:
        return DspTry(Answer("fail", str(error), "correct the lab or --qnn"))
    except HarnessError as error:
        return DspTry(Answer("fail", str(error), _lab_failed(device)))
    took = f"in {time.monotonic() - began:.1f} s with QNN {runtime.name}"
    verdict, seen = observation.verdict, tuple[str, ...]()
    if verdict.error is not None and verdict.cause == "target":
        seen = case.collect_evidence()
        verdict = replace(verdict, error=diagnosed(verdict.outcome, verdict.error, seen))
    return DspTry(what_it_means(verdict, device, f"{done}, {took}", logs), verdict.error, seen)


def what_it_means(verdict: Verdict, device: str, done: str, logs: Path) -> Answer:
    """What a verdict means for a backend; `done` is said where it passed (pure)."""
    if verdict.outcome == "passed":
        return Answer("ok", done)
    if verdict.error is None:
        return Answer("fail", verdict.outcome)
    found = f"{verdict.outcome}: {error_text(verdict.error)}"
    if verdict.outcome == "unsupported":
        return Answer("not-applicable", f"this target cannot: {found}")
    where = _lab_failed(device) if verdict.cause == "infra" else hint(verdict.error)
    return Answer("fail", found, f"{where}; all that was said is in {logs}")


def _lab_failed(device: str) -> str:
    return f"the lab failed, not the target: `qnn-harness devices heal {device}`"


def error_text(error: ErrorRecord) -> str:
    """API, code, symbol, and where it began: the first line that names a cause (pure)."""
    code = "" if error.code is None else f" {error.code}"
    symbol = f" {error.symbol}" if error.symbol else ""
    return f"{error.api or 'the probe'}{code}{symbol}" + (f": {error.began}" if error.began else "")


def hint(error: ErrorRecord) -> str:
    """What helps, as far as the kind of the failure is known (pure)."""
    known = error.diagnosis
    if known is None:
        return "the lines above may tell; another --qnn shows whether it is this version"
    return f"{known.words}: {known.fix or 'nothing is known that helps'}; see the lines above"


def _one_node(ready: Target, offline: bool) -> Plan:
    """A graph of one Relu, made on the device itself, and executed unless it only prepares.

    On the HTP nothing is made: a phone does not get the library that prepares graphs.
    """
    libraries = Libraries(
        backend=ready.runtime.library(BACKEND_LIBRARIES[ready.placement.backend]),
        system=ready.runtime.library(_SYSTEM),
    )
    # the CPU backend has no devices: QnnDevice_create answers 1000, NOT_SUPPORTED (2.47.0)
    unwanted = ("device-create", "device-free") if ready.placement.backend == "cpu" else ()
    given, got = (
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
        call("QnnGraph_execute", "graph", given, 1, got, 1, 0, 0),
    )
    frees: tuple[Step, ...] = (call("QnnContext_free", "ctx", 0),)
    if ready.placement.backend == "htp":
        steps = frees = ()
    plan = within_session(libraries, steps[: -1 if offline else None], frees, Settings())
    return Plan(tuple(step for step in plan.steps if step.verb not in unwanted))
