"""One device from first contact to smoke inference; each finding is told as soon as it is made."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.adb.device import AdbDevice
from harness.doctor import validator
from harness.doctor.device_checks import device_checks
from harness.doctor.device_script import MAX_BYTES, DeviceAnswers, parse_answers, script_for
from harness.doctor.patient import Patient
from harness.doctor.smoke import smoke_checks
from harness.errors import ConfigError, DeviceError, HarnessError, InfraError
from harness.lab.attach import AttachedDevice
from harness.lab.checks import REACHABLE, Check, Status
from harness.lab.health import RecoveryRules, judge_health
from harness.lab.inventory import Lab
from harness.lab.lease import DeviceHeld, Leases, lease_root
from harness.probe.build import ProbeBuilder
from harness.probe.fitness import ProbeFitness
from harness.qnn.platforms import PLATFORMS
from harness.runtimes.sdk_tree import is_sdk, sdk_of_environment
from harness.workbench import Workbench

_ASK_S: Final = 20.0

Tell = Callable[[Check], None]


@dataclass(frozen=True)
class VisitRules:
    """What is done on every device; `qnn` as in `--qnn`, `logs` a folder of this computer."""

    cache: Path
    logs: Path
    environment: Mapping[str, str]
    qnn: str = "latest"
    smoke: bool = True


def gentle(lab: Lab) -> Lab:
    """The lab with rules that never reboot a device nor wait for one: a doctor looks (pure)."""
    rules = RecoveryRules(reboot=False, come_back_s=0)
    devices = tuple(device.model_copy(update={"recovery": None}) for device in lab.devices)
    return lab.model_copy(update={"recovery": rules, "devices": devices})


def open_workbench(
    lab: Lab, rules: VisitRules, notify: Callable[[str], None], warn: Callable[[str], None]
) -> Workbench:
    """What a visit works with; whoever opens it closes it."""
    leases = Leases(lease_root(), purpose="qnn-harness doctor")
    return Workbench(gentle(lab), cache=rules.cache, notify=notify, warn=warn, leases=leases)


def visit(
    workbench: Workbench, name: str, rules: VisitRules, *, quarantined: bool, tell: Tell
) -> None:
    """Looks at one device. Raises nothing of the harness's own family: that is a finding."""

    def say(title: str, status: Status, found: str, advice: str = "") -> None:
        tell(Check("device", name, title, status, found, advice))

    try:
        device = workbench.lab.device(name)
        answers, skew_s = ask(device)
    except DeviceHeld as held:
        say("checked", "unknown", f"left alone: {held}", "wait for it, then ask again")
        return
    except ConfigError as error:
        say(REACHABLE, "ok", "it answers")
        say("target", "fail", str(error), "correct devices.yaml")
        return
    except InfraError as error:
        say(REACHABLE, "fail", str(error), "see its line under lab, and docs/lab.md")
        return
    say(REACHABLE, "ok", f"{device.adb.serial} answers")
    config = device.config
    patient = Patient(
        config=config,
        facts=device.facts,
        target=device.target,
        workdir=device.workdir,
        answers=answers,
        rules=workbench.lab.lab.health_of(name),
        skew_s=skew_s,
    )
    for check in device_checks(patient):
        tell(check)
    has_dsp = not config.simulated and device.target != "linux-x64"
    health = judge_health(answers.vitals, patient.rules, has_dsp=has_dsp)
    if health.state == "bad":
        say("smoke", "unknown", f"not tried, the device is not well: {health}")
        return
    if not probe_check(device, rules, tell):
        say("smoke", "unknown", "not tried, the probe does not run")
        return
    sdk = sdk_in_use(workbench, device.target, rules)
    validate(device, sdk, patient.htp_arch, tell)
    if not rules.smoke:
        say("smoke", "not-applicable", "left out (--no-smoke)")
    elif quarantined:
        advice = f"qnn-harness devices heal {name}"
        say("smoke", "unknown", "not tried, the device is in quarantine", advice)
    else:
        for check in smoke_checks(workbench, name, device.target, rules.qnn, rules.logs):
            tell(check)


def ask(device: AttachedDevice) -> tuple[DeviceAnswers, float | None]:
    """All that is asked of a device, in one round trip, and how far its clock is ahead (seconds).

    Raises DeviceError.
    """
    script = script_for(PLATFORMS[device.target], device.workdir)
    before = time.time()
    answer = device.adb.shell(script, timeout_s=_ASK_S, max_output_bytes=MAX_BYTES)
    after = time.time()
    answers = parse_answers(answer.stdout.decode("utf-8", "replace"))
    if answers is None:
        raise _incomplete(device.adb, answer.stdout)
    return answers, clock_skew(answers.clock_s, before, after)


def clock_skew(clock_s: int | None, before: float, after: float) -> float | None:
    """How far a clock that showed so many whole seconds is ahead, at least (pure).

    It was read between the two moments; 0 where it can have been right.
    """
    if clock_s is None:
        return None
    least, most = clock_s - after, clock_s + 1 - before
    return max(least, 0.0) if least > 0 else min(most, 0.0)


def probe_check(device: AttachedDevice, rules: VisitRules, tell: Tell) -> bool:
    """Whether our probe can be made for a device and runs there."""

    def say(status: Status, found: str, advice: str = "") -> None:
        tell(Check("device", device.name, "probe", status, found, advice))

    builder = ProbeBuilder(rules.cache / "probe", rules.environment)
    try:
        probe = builder.build(device.target, android_api=device.facts.android_api)
        why = ProbeFitness(builder).problem(device)
    except ConfigError as error:
        say("fail", str(error), "see C compiler, cross compiler and Android NDK of the host")
        return False
    except HarnessError as error:
        say("fail", str(error), f"qnn-harness devices heal {device.name}")
        return False
    if why is not None:
        advice = "its system does not start programs for this target, or forbids it in `workdir`"
        say("fail", f"it does not run: {why}", advice)
        return False
    say("ok", f"{probe.parent.name}/{probe.name} runs")
    return True


def sdk_in_use(workbench: Workbench, target: str, rules: VisitRules) -> Path | None:
    """The QAIRT tree that the chosen runtime comes from, else the one of the environment."""
    with contextlib.suppress(HarnessError):
        name = workbench.catalog.resolve(rules.qnn, target)[-1]
        # those of PyPI have no source in front; they would be fetched, and have no SDK
        if ":" in name and is_sdk(root := workbench.catalog.runtime(name, target).root):
            return root
    named = sdk_of_environment(rules.environment)
    return None if named is None else named[1]


def validate(device: AttachedDevice, sdk: Path | None, htp_arch: int | None, tell: Tell) -> None:
    """Runs the SDK's own validator where there is one."""
    files = validator.validator_files(sdk, device.target, htp_arch)
    if isinstance(files, str):
        tell(Check("device", device.name, validator.PROGRAM, "not-applicable", files))
        return
    try:
        answers = validator.run_validator(device.adb, device.workdir, device.target, files)
    except InfraError as error:
        found = f"it could not be run: {error}"
        tell(Check("device", device.name, validator.PROGRAM, "unknown", found))
        return
    for check in validator.validator_checks(device.name, answers):
        tell(check)


def _incomplete(adb: AdbDevice, said: bytes) -> DeviceError:
    return DeviceError("its answer is not whole", serial=adb.serial, output=said[-400:])
