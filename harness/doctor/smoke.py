"""One small inference per backend, by the very path that the suites take."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from harness.bench import Bench
from harness.contexts.models import ModelSpec
from harness.contexts.session_plan import Libraries, session_start
from harness.errors import ConfigError, HarnessError
from harness.lab.checks import Check, Status
from harness.probe.plan import Plan, Step
from harness.qnn.backends import BACKEND_LIBRARIES
from harness.qnn.versions import QnnVersion
from harness.results.record import ErrorRecord
from harness.results.verdict import Verdict
from harness.runtimes.catalog import Runtime, all_versions
from harness.workbench import Placement, Workbench

_MODEL: Final = ModelSpec("tiny")
_TIMEOUT_S: Final = 60.0
_SYSTEM: Final = "libQnnSystem.so"


def smoke_checks(
    workbench: Workbench, device: str, target: str, qnn: str, logs: Path
) -> Iterator[Check]:
    """Tries HTP, GPU and CPU with a runtime; what the probe was told and answered goes to `logs`.

    The device must have been found well; an error of the lab is a check of its own.
    """
    try:
        name = workbench.catalog.resolve(qnn, target)[-1]
        runtime = workbench.catalog.runtime(name, target)
    except HarnessError as error:
        advice = "name a source of libraries for it, or correct --qnn"
        yield Check("device", device, "runtime", "fail", str(error), advice)
        return
    yield Check(
        "device",
        device,
        "runtime",
        "ok",
        f"QNN {runtime.name} for {target}, {len(runtime.files)} files, {runtime.size / 1e6:.0f} MB",
    )
    for backend in BACKEND_LIBRARIES:
        yield smoke_check(workbench, device, backend, runtime, name, logs / f"{device}-{backend}")


def smoke_check(
    workbench: Workbench, device: str, backend: str, runtime: Runtime, name: str, logs: Path
) -> Check:
    """One backend: what came of it."""
    library = BACKEND_LIBRARIES[backend]
    title = f"smoke {backend}"
    if not any(file.path.name == library for file in runtime.files):
        found = f"QNN {runtime.name} for {runtime.target} has no {library}"
        return Check("device", device, title, "not-applicable", found)
    placement = Placement(device, backend, name, compiler_for(runtime.qnn_version))
    began = time.monotonic()
    try:
        bench = Bench(workbench, placement, logs)
        if backend == "htp":
            observation = bench.run_contexts([_MODEL], 1, "sequential")
            done = "a context loaded, executed and freed, its outputs as expected"
        else:
            observation = bench.run(_bring_up(workbench, placement), timeout_s=_TIMEOUT_S)
            done = "the backend comes up; no inference: no context for it can be compiled here"
    except ConfigError as error:
        return Check("device", device, title, "fail", str(error), "correct the lab or --qnn")
    except HarnessError as error:
        advice = f"the lab failed, not the target: `qnn-harness devices heal {device}`"
        return Check("device", device, title, "fail", str(error), advice)
    took = f"in {time.monotonic() - began:.1f} s with QNN {runtime.name}"
    return verdict_check(device, title, observation.verdict, f"{done}, {took}", logs)


def verdict_check(device: str, title: str, verdict: Verdict, done: str, logs: Path) -> Check:
    """What a verdict means for a backend; `done` is said where it passed (pure)."""
    if verdict.outcome == "passed" or verdict.error is None:
        status: Status = "ok" if verdict.outcome == "passed" else "fail"
        return Check("device", device, title, status, done if status == "ok" else verdict.outcome)
    found = f"{verdict.outcome}: {error_text(verdict.error)}"
    if verdict.outcome == "unsupported":
        return Check("device", device, title, "not-applicable", f"this target cannot: {found}")
    advice = f"{hint(verdict.error)}; all that was said is in {logs}"
    return Check("device", device, title, "fail", found, advice)


def error_text(error: ErrorRecord) -> str:
    """API, code, symbol, and where it began: the first line that names a cause (pure)."""
    code = "" if error.code is None else f" {error.code}"
    symbol = f" {error.symbol}" if error.symbol else ""
    first = next((line.strip() for line in error.message.splitlines() if line.strip()), "")
    if error.first_cause is not None and error.first_cause.message:
        first = error.first_cause.message
    return f"{error.api or 'the probe'}{code}{symbol}" + (f": {first}" if first else "")


# First match wins. Public reports of each are named in docs/preflight.md and the known issues.
_HINTS: Final = (
    ("No Snapdragon SOC", "this QNN does not know the SoC, or the board hides it: newer QNN"),
    ("Failed to load skel", "the DSP does not find or take the skel: see DSP nodes, unsigned PD"),
    ("lib id mismatch", "stub and skel are of different SDKs: deploy one runtime"),
    ("OpenCL", "no OpenCL driver that it can use: see OpenCL driver"),
    ("Failed to find available PD", "the DSP's memory is in use: reboot it"),
    ("newer context", "the context was compiled by a newer QNN than runs: newer QNN"),
    ("cannot open shared object", "a library is missing: `qnn-harness runtimes verify`"),
    ("dlopen failed", "a library is missing: `qnn-harness runtimes verify`"),
)
_HINTS_BY_CODE: Final = {
    1006: "the platform is not supported: see OpenCL driver",
    1008: "stub and skel are of different SDKs: deploy one runtime",
    1002: "it ran out of memory: reboot it, see free memory",
    4000: "the backend does not start: see DSP nodes, libcdsprpc.so, unsigned PD",
    14001: "often a skel that cannot be loaded: see DSP nodes, libcdsprpc.so, unsigned PD",
}


def hint(error: ErrorRecord) -> str:
    """Where to look, by what was said, else by the code (pure)."""
    said = "\n".join([error.message, *(link.message for link in error.chain)])
    for text, advice in _HINTS:
        if text in said:
            return advice
    return _HINTS_BY_CODE.get(error.code or 0, "see docs/results.md for what the code means")


def compiler_for(qnn_version: str) -> str:
    """The newest compiler that is not newer than a runtime, else the oldest there is (pure).

    Compilers come from PyPI; a context of a newer one than runs it is refused with 5000.
    """
    known = all_versions()
    runs = QnnVersion.parse(qnn_version.split("_")[0]).parts
    older = [version for version in known if QnnVersion.parse(version).parts <= runs]
    return max(older or known[:1], key=lambda version: QnnVersion.parse(version).parts)


def _bring_up(workbench: Workbench, placement: Placement) -> Plan:
    deployed, _ = workbench.deploy_runtime(placement)
    libraries = Libraries(
        backend=deployed.library(BACKEND_LIBRARIES[placement.backend]),
        system=deployed.library(_SYSTEM),
    )
    # the CPU backend has no devices: QnnDevice_create answers 1000, NOT_SUPPORTED (2.47.0)
    unwanted = ("device-create", "device-free") if placement.backend == "cpu" else ()
    ends = (Step("cleanup"), Step("device-free"), Step("backend-free"))
    steps = (*session_start(libraries), *ends)
    return Plan(tuple(step for step in steps if step.verb not in unwanted))
