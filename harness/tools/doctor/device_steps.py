"""Steps of an acceptance with the probe: processes that end, crash and hang; backends; a reboot."""

from __future__ import annotations

import posixpath
import time
from typing import Final

from harness.contexts.compiler.models import Model
from harness.device.evidence.case_evidence import CaseEvidence
from harness.device.lab.device_answers import ask
from harness.device.lab.recovery import Recovery, ask_vitals
from harness.device.store.deploy import Deployer
from harness.ground.errors import DeviceLost, InfraError
from harness.ground.errors.outgoing_text import log_without_secrets
from harness.ground.host.deadline import Deadline
from harness.libraries.runtimes.library_facts import read_library
from harness.libraries.runtimes.runtime import Runtime
from harness.probe.build import PROBE_NAME
from harness.probe.events import kept_events
from harness.probe.plan import Plan, Step
from harness.probe.plan_runner import run_plan
from harness.run.bench.bench import Bench
from harness.run.bench.case_session import CaseSession
from harness.run.workbench.placement import Placement
from harness.tools.doctor.check import Answer
from harness.tools.doctor.device_checks import Patient
from harness.tools.doctor.ground import CountingDevice, Ground
from harness.tools.doctor.ladder import ANSWER, DspTry, ladder
from harness.tools.doctor.smoke import try_backend, what_it_means
from harness.verdict.failure.verdict import Verdict, judge

PERSON_S: Final = 120.0
"""How long a person may take to pull a cable out or to plug it in."""

_RUN_S: Final = 30.0
_HANG_S: Final = 6.0
_EVIDENCE_S: Final = 20.0
_POLL_S: Final = 0.5
_CONTEXTS: Final = 66
_SMALL, _LARGE = Model("tiny"), Model("io-heavy", 56)
_NO_PROBE: Final = Answer("unknown", "not tried: the probe is not there")


def probe(ground: Ground) -> Answer:
    """The probe for this device is built, put there and run."""
    held = ground.held
    folder = held.deployer.deploy_files("probe", {PROBE_NAME: held.probe}, programs=[PROBE_NAME])
    ground.probe = f"{folder}/{PROBE_NAME}"
    began = time.monotonic()
    verdict, _ = _ran(ground, "probe", Plan((Step("noop"),)), _RUN_S)
    if verdict.outcome != "passed":
        ground.probe = ""
        return Answer("fail", verdict.explanation(), "what it said is in the archive")
    took = time.monotonic() - began
    return Answer("ok", f"for {held.target}: started, ran and ended in {took:.2f} s")


def crash(ground: Ground) -> Answer:
    """A process that ends itself with SIGSEGV, and what the device tells of it."""
    return _provoked(ground, "crash", Step("crash", {"signal": "11"}), "crashed", _RUN_S)


def hang(ground: Ground) -> Answer:
    """A process that hangs, and what the device tells of it."""
    return _provoked(ground, "hang", Step("hang"), "hung", _HANG_S)


def _provoked(ground: Ground, name: str, step: Step, outcome: str, timeout_s: float) -> Answer:
    if not ground.probe:
        return _NO_PROBE
    verdict, evidence = _ran(ground, name, Plan((Step("noop"), step)), timeout_s)
    collected = evidence.collect(ground.logs / name / "evidence", deadline=Deadline(_EVIDENCE_S))
    missing = f"; not had: {'; '.join(collected.notes)}" if collected.notes else ""
    told = f"evidence: {', '.join(collected.files)}{missing}"
    if verdict.outcome != outcome or verdict.cause != "target":
        advice = "verdicts about this device cannot be trusted: please send the archive"
        return Answer("fail", f"not {outcome}, but {verdict.explanation()}; {told}", advice)
    if collected.lost:
        return Answer("fail", collected.lost, "its link is lost while it is asked: see its cable")
    return Answer("ok", f"{outcome}, as it was to; {told}")


def _ran(ground: Ground, name: str, plan: Plan, timeout_s: float) -> tuple[Verdict, CaseEvidence]:
    """Runs a plan without any library; what was said goes to the logs."""
    device, logs = ground.device, ground.logs / name
    evidence = CaseEvidence(device.transport, ground.held.baseline)
    run = run_plan(
        device.transport,
        ground.probe,
        plan,
        env={},
        cwd=posixpath.dirname(ground.probe),
        timeout_s=timeout_s,
        on_hang=evidence.look,
    )
    logs.mkdir(parents=True, exist_ok=True)
    (logs / "probe.plan").write_text(run.plan.text())
    (logs / "probe.jsonl").write_bytes(kept_events(run.raw_events))
    (logs / "probe.stderr").write_bytes(log_without_secrets(run.stderr))
    return judge(run, device.facts.coprocessors), evidence


def fastrpc(ground: Ground) -> Answer:
    """What leads to the DSP is there, and the backend's first call to it comes back."""
    device = ground.device
    patient = Patient(device, ask(device), ground.lab_device.health_rules)
    if patient.no_dsp is not None:
        return Answer("not-applicable", patient.no_dsp)
    name, runtime = _runtime(ground)
    logs = ground.logs / ANSWER / "case"
    session = try_backend(ground.workbench, ground.name, "htp", runtime, name, logs, bare=True)
    graph = DspTry(Answer("not-applicable", "the next step"))
    libraries = [read_library(one.path, one.name) for one in runtime.files]
    *layers, answer = ladder(patient, libraries, session, graph)
    told = "; ".join(f"{check.name}: {check.found}" for check in layers)
    return Answer(answer.status, f"{answer.found} ({told})", answer.advice)


def backend(ground: Ground, backend: str) -> Answer:
    """A small context on the HTP, a small graph on the others."""
    name, runtime = _runtime(ground)
    logs = ground.logs / backend / "case"
    return try_backend(ground.workbench, ground.name, backend, runtime, name, logs).answer


def _runtime(ground: Ground) -> tuple[str, Runtime]:
    catalog, target = ground.workbench.catalog, ground.device.target
    name = catalog.resolve(ground.qnn, target, field="--qnn")[-1]
    return name, catalog.runtime(name, target)


def contexts(ground: Ground) -> Answer:
    """66 contexts in one process: small ones must fit, and how many large ones do is told."""
    (name, _), device = _runtime(ground), ground.name
    compiler = ground.workbench.catalog.compiler_for(name, ground.device.target)
    ready = ground.held.place(Placement(device, "htp", name, compiler))
    logs = ground.logs / "66-contexts"
    small = Bench(CaseSession(ready, logs / "small")).resident(_SMALL, _CONTEXTS)
    done = f"{small.loaded} of {_CONTEXTS} small ones loaded, executed and freed"
    answer = what_it_means(small.verdict, device, done, logs)
    if answer.status != "ok":
        return answer
    large = Bench(CaseSession(ready, logs / "large")).resident(_LARGE, _CONTEXTS)
    if large.verdict.outcome == "passed":
        return Answer("ok", f"{done}; of 56 MB as many")
    meant = what_it_means(large.verdict, device, "", logs)
    # how much a process can hold is a property of device and version, not a fault of the lab
    return Answer("warn", f"{done}; of 56 MB {large.loaded}: {meant.found}", meant.advice)


def unplug(ground: Ground) -> Answer:
    """A cable pulled out in the middle of a command, and plugged in again."""
    device = ground.device
    ground.ask(f"pull the cable of {ground.name} out now, or take its network away")
    try:
        device.transport.shell("while :; do echo; sleep 1; done", timeout_s=PERSON_S)
    except DeviceLost:
        pass
    except InfraError:
        return Answer("unknown", f"nobody pulled it out within {PERSON_S:.0f} s")
    ground.ask(f"plug {ground.name} in again")
    deadline = Deadline(PERSON_S)
    why = "it did not come back"
    while not deadline.expired:
        try:
            ground.lab_device.reconnect(within_s=min(5.0, deadline.remaining()))
            back = ground.device
        except InfraError as error:
            why = str(error)
            time.sleep(min(_POLL_S, deadline.remaining()))
            continue
        if not device.transport.end_leftovers(timeout_s=_EVIDENCE_S):
            return Answer("fail", "what ran there could not be ended", "reboot it")
        took = PERSON_S - deadline.remaining()
        return Answer(
            "ok", f"the loss was noticed, {back.transport.serial} was back after {took:.0f} s"
        )
    return Answer("fail", f"not back after {PERSON_S:.0f} s: {why}", "see `qnn-harness devices`")


def reboot(ground: Ground) -> Answer:
    """A reboot, and whether what was put there outlived it."""
    if ground.lab_device.config.transport == "local":
        return Answer("not-applicable", "it is this computer")
    if not ground.rules.reboot:
        return Answer("not-applicable", "devices.yaml forbids it: `recovery: {reboot: false}`")
    device, began = ground.device, time.monotonic()
    before = ask_vitals(device.transport, device.workdir).boot_id
    Recovery(ground.lab_device, ground.rules, come_back=Deadline(0)).take("reboot")
    took, device = time.monotonic() - began, ground.device
    if before is not None and ask_vitals(device.transport, device.workdir).boot_id == before:
        return Answer("fail", "it is the same boot as before", "reboot it by hand")
    if not ground.probe:
        return Answer("ok", f"back after {took:.0f} s")
    counting, held = CountingDevice(device.transport), ground.held
    after = Deployer(counting.way, device.workdir)
    after.deploy_files("probe", {PROBE_NAME: held.probe}, programs=[PROBE_NAME])
    after.release()
    if counting.pushed_bytes:
        return Answer("warn", f"back after {took:.0f} s; what had been put there was gone")
    return Answer("ok", f"back after {took:.0f} s, with all that had been put there")
