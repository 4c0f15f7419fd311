"""The checks of one device, from first contact to smoke inference, yielded as they are made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.bench.run_preparation import Workbench
from harness.core.errors import ConfigError, HarnessError, InfraError
from harness.core.socs import SOCS
from harness.core.state_folders import lease_root, quarantine_root
from harness.doctor.check_results import REACHABLE, Checked, CheckResult, Status
from harness.doctor.device_checks import ExaminedDevice, device_checks, unknown_soc
from harness.doctor.smoke import runtime_result, smoke_checks, untried
from harness.lab.facts import query_device
from harness.lab.health import Quarantine, RecoveryRules, judge_health
from harness.lab.identity import WrongTarget
from harness.lab.inventory import Lab
from harness.lab.lab_device import AttachedDevice
from harness.lab.lease import DeviceHeld, Leases
from harness.probe.build import ProbeBuilder
from harness.probe.self_test import built_probe_problem
from harness.transport.transport_errors import server_lost

_SEE_HOST: Final = "see the probe for this target in the section of the host"

NO_SMOKE: Final = "left out (--no-smoke)"
DEVICE_TIMEOUT_S: Final = 300.0
"""Enough for a first run, which fetches 100 MB and compiles a context."""


@dataclass(frozen=True)
class Options:
    """The options of the doctor; without `names` all enabled devices are checked."""

    lab_file: Path
    names: tuple[str, ...]
    cache: Path
    environment: Mapping[str, str]
    qnn: str = "latest"
    smoke: bool = True
    timeout_s: float = DEVICE_TIMEOUT_S


def without_recovery(lab: Lab) -> Lab:
    """Return the lab with rules that never reboot a device nor wait for one (pure)."""
    rules = RecoveryRules(reboot=False, come_back_s=0)
    devices = tuple(device.model_copy(update={"recovery": None}) for device in lab.devices)
    return lab.model_copy(update={"recovery": rules, "devices": devices})


def open_workbench(lab: Lab, options: Options) -> Workbench:
    """Open the workbench for a visit; the caller closes it."""
    leases = Leases(lease_root(), purpose="qnn-harness doctor")
    return Workbench(without_recovery(lab), cache=options.cache, leases=leases)


def visit(workbench: Workbench, name: str, options: Options) -> Iterator[Checked]:
    """Check one device. Errors of the harness are findings, and not raised."""

    def of(title: str, status: Status, text: str, advice: str = "") -> Checked:
        return Checked("device", name, title, status, text, advice)

    try:
        lab_device = workbench.lab.device(name)
        entry = Quarantine(quarantine_root(options.cache)).find(lab_device.key)
        device = lab_device.attach()
        answers = query_device(device.transport, device.workdir, device.target)
    except DeviceHeld as error:
        advice = "wait until it is free, then run doctor again"
        yield of("checked", "unknown", f"skipped: {error}", advice)
        yield from absent_checks(workbench, name, options)
        return
    except WrongTarget as error:
        yield of(REACHABLE, "ok", "it answers")
        yield of("target", "fail", str(error), "correct `target` in devices.yaml")
        return
    except InfraError as error:
        advice = "" if server_lost(str(error)) else "check its power and its connection"
        yield of(REACHABLE, "fail", str(error), advice)
        yield from absent_checks(workbench, name, options)
        return
    yield of(REACHABLE, "ok", f"{device.transport.serial} answers")
    quarantined = entry is not None and entry.until != "answers"
    advice = f"repair it, then run: qnn-harness devices recover {name}"
    if entry is not None and quarantined:
        yield of("quarantine", "fail", f"since {entry.since}: {entry.why}", advice)
    examined = ExaminedDevice(device, answers, lab_device.health_rules)
    yield from device_checks(examined)
    health = judge_health(answers.vitals, examined.rules, has_dsp=device.has_dsp)
    if health.state == "bad":
        yield from host_needs(workbench, name, device.target, options)
        yield from untried(
            examined, CheckResult("unknown", f"not tested: the device is unhealthy: {health}")
        )
        return
    probe = probe_result(device, options)
    yield of("probe", *probe)
    if probe.status != "ok":
        why = CheckResult("unknown", "not tested: the probe does not run")
    elif not options.smoke:
        why = CheckResult("not-applicable", NO_SMOKE)
    elif quarantined:
        why = CheckResult("unknown", "not tested: the device is in quarantine", advice)
    else:
        yield from smoke_checks(workbench, examined, options.qnn, options.cache)
        return
    yield of("runtime", *runtime_result(workbench, device.target, options.qnn))
    yield from untried(examined, why)


def absent_checks(workbench: Workbench, name: str, options: Options) -> Iterator[Checked]:
    """Yield the checks that are possible without the device: its needs of this computer."""
    (config,) = workbench.lab.described.select([name])
    if config.soc is not None and config.soc not in SOCS and config.htp_arch is None:
        yield Checked("device", name, "SoC", *unknown_soc(config.soc, config.soc))
    if config.target is None:
        text = "unknown until the device answers: devices.yaml has no `target`"
        yield Checked("device", name, "target", "unknown", text)
    else:
        yield from host_needs(workbench, name, config.target, options)


def host_needs(workbench: Workbench, name: str, target: str, options: Options) -> Iterator[Checked]:
    """Check what a device of this target needs of this computer: a probe, and libraries."""
    builder = ProbeBuilder(options.cache / "probe", options.environment)
    try:
        probe = builder.build(target)
        result = CheckResult("ok", f"{probe.parent.name}/{probe.name} is built")
    except HarnessError as error:
        result = CheckResult("fail", str(error), _SEE_HOST)
    yield Checked("device", name, "probe", *result)
    yield Checked("device", name, "runtime", *runtime_result(workbench, target, options.qnn))


def probe_result(device: AttachedDevice, options: Options) -> CheckResult:
    """Check that the probe can be built for a device and runs there."""
    builder = ProbeBuilder(options.cache / "probe", options.environment)
    try:
        probe = builder.build(device.target)
        why = built_probe_problem(builder, device)
    except ConfigError as error:
        return CheckResult("fail", str(error), _SEE_HOST)
    except HarnessError as error:
        return CheckResult("fail", str(error), f"qnn-harness devices recover {device.name}")
    if why is not None:
        advice = "the device cannot run programs for this target, or none in `workdir`"
        return CheckResult("fail", f"it does not run: {why}", advice)
    return CheckResult("ok", f"{probe.parent.name}/{probe.name} runs")
