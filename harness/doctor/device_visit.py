"""One device from first contact to smoke inference; each finding is given as soon as it is made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.bench.workbench import Workbench
from harness.core.cache import lease_root, quarantine_root
from harness.core.errors import ConfigError, HarnessError, InfraError
from harness.core.socs import SOCS
from harness.doctor.check import REACHABLE, Answer, Checked, Status
from harness.doctor.device_checks import Patient, device_checks, unknown_soc
from harness.doctor.smoke import runtime_answer, smoke_checks, untried
from harness.lab.attach import AttachedDevice
from harness.lab.device_answers import ask
from harness.lab.health import Quarantine, RecoveryRules, judge_health
from harness.lab.identity import WrongTarget
from harness.lab.inventory import Lab
from harness.lab.lease import DeviceHeld, Leases
from harness.lab.recovery import unreachable_advice
from harness.probe.build import ProbeBuilder
from harness.probe.fitness import built_probe_problem

_SEE_HOST: Final = "see C compiler, cross compiler and Android NDK of the host"

NO_SMOKE: Final = "left out (--no-smoke)"
DEVICE_TIMEOUT_S: Final = 300.0
"""Enough for a first run, which fetches 100 MB and compiles a context."""


@dataclass(frozen=True)
class Order:
    """What to look at: devices by name (none: all enabled), with which runtime, for how long."""

    lab_file: Path
    names: tuple[str, ...]
    cache: Path
    environment: Mapping[str, str]
    qnn: str = "latest"
    smoke: bool = True
    timeout_s: float = DEVICE_TIMEOUT_S


def gentle(lab: Lab) -> Lab:
    """The lab with rules that never reboot a device nor wait for one: a doctor looks (pure)."""
    rules = RecoveryRules(reboot=False, come_back_s=0)
    devices = tuple(device.model_copy(update={"recovery": None}) for device in lab.devices)
    return lab.model_copy(update={"recovery": rules, "devices": devices})


def open_workbench(lab: Lab, order: Order) -> Workbench:
    """What a visit works with; whoever opens it closes it."""
    leases = Leases(lease_root(), purpose="qnn-harness doctor")
    return Workbench(gentle(lab), cache=order.cache, leases=leases)


def visit(workbench: Workbench, name: str, order: Order) -> Iterator[Checked]:
    """Looks at one device. Raises nothing of the harness's own family: that is a finding."""

    def of(title: str, status: Status, found: str, advice: str = "") -> Checked:
        return Checked("device", name, title, status, found, advice)

    try:
        lab_device = workbench.lab.device(name)
        kept_out = Quarantine(quarantine_root(order.cache)).find(lab_device.key)
        device = lab_device.attach()
        answers = ask(device)
    except DeviceHeld as held:
        yield of("checked", "unknown", f"left alone: {held}", "wait for it, then ask again")
        yield from without_it(workbench, name, order)
        return
    except WrongTarget as error:
        yield of(REACHABLE, "ok", "it answers")
        yield of("target", "fail", str(error), "correct devices.yaml, or the device")
        return
    except InfraError as error:
        advice = unreachable_advice(str(error)) or "see that it is on, and what is between"
        yield of(REACHABLE, "fail", str(error), f"{advice}; it is used as soon as it answers")
        yield from without_it(workbench, name, order)
        return
    yield of(REACHABLE, "ok", f"{device.transport.serial} answers")
    quarantined = kept_out is not None and kept_out.until != "answers"
    advice = f"mend it, then: qnn-harness devices heal {name}"
    if kept_out is not None and quarantined:
        yield of("quarantine", "fail", f"since {kept_out.since}: {kept_out.why}", advice)
    patient = Patient(device, answers, lab_device.health_rules)
    yield from device_checks(patient)
    health = judge_health(answers.vitals, patient.rules, has_dsp=device.has_dsp)
    if health.state == "bad":
        yield from of_host(workbench, name, device.target, device.facts.android_api, order)
        yield from untried(patient, Answer("unknown", f"not tried, it is not well: {health}"))
        return
    probe = probe_answer(device, order)
    yield of("probe", *probe)
    if probe.status != "ok":
        yield of("runtime", *runtime_answer(workbench, device.target, order.qnn))
        yield from untried(patient, Answer("unknown", "not tried, the probe does not run"))
        return
    if order.smoke and not quarantined:
        yield from smoke_checks(workbench, patient, order.qnn, order.cache)
        return
    yield of("runtime", *runtime_answer(workbench, device.target, order.qnn))
    if not order.smoke:
        yield from untried(patient, Answer("not-applicable", NO_SMOKE))
    else:
        why = Answer("unknown", "not tried, the device is in quarantine", advice)
        yield from untried(patient, why)


def without_it(workbench: Workbench, name: str, order: Order) -> Iterator[Checked]:
    """What can be told of a device that is not there: what it needs of this computer."""
    (config,) = workbench.lab.described.select([name])
    if config.soc is not None and config.soc not in SOCS and config.htp_arch is None:
        yield Checked("device", name, "SoC", *unknown_soc(config.soc, config.soc))
    if config.target is None:
        found = "not known until it answers: devices.yaml tells no `target`"
        yield Checked("device", name, "target", "unknown", found)
    else:
        yield from of_host(workbench, name, config.target, None, order)


def of_host(
    workbench: Workbench, name: str, target: str, android_api: int | None, order: Order
) -> Iterator[Checked]:
    """What a device of this target needs of this computer: a probe, and libraries for it."""
    builder = ProbeBuilder(order.cache / "probe", order.environment)
    try:
        probe = builder.build(target, android_api=android_api)
        built = Answer("ok", f"{probe.parent.name}/{probe.name} is built")
    except HarnessError as error:
        built = Answer("fail", str(error), _SEE_HOST)
    yield Checked("device", name, "probe", *built)
    yield Checked("device", name, "runtime", *runtime_answer(workbench, target, order.qnn))


def probe_answer(device: AttachedDevice, order: Order) -> Answer:
    """Whether our probe can be made for a device and runs there."""
    builder = ProbeBuilder(order.cache / "probe", order.environment)
    try:
        probe = builder.build(device.target, android_api=device.facts.android_api)
        why = built_probe_problem(builder, device)
    except ConfigError as error:
        return Answer("fail", str(error), _SEE_HOST)
    except HarnessError as error:
        return Answer("fail", str(error), f"qnn-harness devices heal {device.name}")
    if why is not None:
        advice = "its system does not start programs for this target, or forbids it in `workdir`"
        return Answer("fail", f"it does not run: {why}", advice)
    return Answer("ok", f"{probe.parent.name}/{probe.name} runs")
