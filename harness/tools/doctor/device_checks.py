"""What a device's answers mean: one small function for each thing that was looked at (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from harness.device.lab.attach import AttachedDevice
from harness.device.lab.device_answers import DeviceAnswers
from harness.device.lab.health import HealthFinding, HealthRules, judge_health
from harness.device.lab.readiness import ADVICE, THERMAL
from harness.device.lab.vitals import Vitals
from harness.ground.facts.platforms import PLATFORMS, Platform
from harness.ground.facts.socs import SOCS, near_socs
from harness.tools.doctor.check import Answer, Checked, Status, listed

_FULL: Final = 95
_LIMIT: Final = "limit its charging (battery settings): one kept full for months swells"
_KEYS: Final = "Developer options, Disable adb authorization timeout: on"
_NOT_KNOWN: Final = "our table does not have that SoC"


@dataclass(frozen=True)
class Patient:
    """One device as the doctor sees it."""

    device: AttachedDevice
    answers: DeviceAnswers
    rules: HealthRules

    @property
    def platform(self) -> Platform:
        return PLATFORMS[self.device.target]

    @property
    def no_dsp(self) -> str | None:
        """Why it has no DSP to look for; None if it should have one."""
        if not self.platform.has_dsp:
            return "the HTP is a simulator inside libQnnHtp.so"
        if not self.device.config.simulated:
            return None
        if self.device.config.dsp is not None:
            return "a simulated DSP has nothing of that"
        return "a simulated board has no DSP and no GPU"

    @property
    def findings(self) -> dict[str, HealthFinding]:
        health = judge_health(self.answers.vitals, self.rules, has_dsp=False)
        return {finding.code: finding for finding in health.findings}


def device_checks(patient: Patient) -> Iterator[Checked]:
    """Everything that one round trip tells besides what leads to the DSP (`ladder.py`)."""
    looks = {
        "SoC": _soc,
        "system": _system,
        "OpenCL driver": _opencl,
        "work folder": _work_folder,
        "programs": _programs,
        "free storage": _storage,
        "free memory": _memory,
        "battery": _battery,
        "temperature": _temperature,
        "clock": _clock,
    }
    for name, look in looks.items():
        if patient.no_dsp is not None and look is _opencl:
            answer = Answer("not-applicable", patient.no_dsp)
        else:
            answer = look(patient)
        yield Checked("device", patient.device.name, name, *answer)
    if patient.platform.libc == "bionic":
        for name, answer in readiness_answers(patient.answers.vitals, patient.findings):
            yield Checked("device", patient.device.name, name, *answer)


def readiness_answers(
    vitals: Vitals, findings: Mapping[str, HealthFinding]
) -> Iterator[tuple[str, Answer]]:
    """Name and answer of what keeps an Android phone usable; what it does not say is unknown."""
    ready, percent = vitals.ready, vitals.battery_percent
    status = ready.thermal_status
    screen = {True: ", screen on", False: ", screen off", None: ""}[vitals.screen_on]
    if percent is not None and ready.is_plugged is None:
        yield "charging", Answer("unknown", "not told")
    elif percent is not None:
        found = f"{ready.charge_limit or 'no known limit'}, {percent} %"
        full = ready.is_plugged and percent >= _FULL and ready.charge_limit is None
        yield "charging", Answer("warn", found, _LIMIT) if full else Answer("ok", found)
    for name, code, said in (
        ("thermal status", "throttled", None if status is None else THERMAL[status]),
        ("doze", "doze", ready.doze and f"{ready.doze}{screen}"),
        ("figures set by hand", "overridden", "none"),
        ("system update", "update-pending", None if ready.developer is None else "none announced"),
        ("developer options", "developer-off", "on" if ready.developer else None),
        ("users", "other-user", ", ".join(map(str, ready.users)) or None),
    ):
        if (wrong := findings.get(code)) is not None:
            bad: Status = "fail" if wrong.state == "bad" else "warn"
            yield name, Answer(bad, wrong.text, ADVICE[code])
        else:
            yield name, Answer("unknown", "not told") if said is None else Answer("ok", said)
    if ready.key_days is not None:
        days = f"this computer's key is forgotten after {ready.key_days:g} days without adb"
        kept = Answer("ok", "this computer's key is kept")
        yield "adb keys", Answer("warn", days, _KEYS) if ready.key_days else kept


def _soc(patient: Patient) -> Answer:
    """What it is: by itself, by devices.yaml, by our table."""
    said, configured = patient.device.facts.soc, patient.device.config.soc
    number = (
        "" if patient.device.facts.soc_id is None else f" (soc_id {patient.device.facts.soc_id})"
    )
    if said and configured and said != configured:
        mine, its = SOCS.get(configured), SOCS.get(said)
        differ = bool(mine and its and mine.htp_arch != its.htp_arch)
        return Answer(
            "fail" if differ else "warn",
            f"devices.yaml says {configured}, the device says {said}{number}",
            "correct or remove `soc` of the device in devices.yaml"
            if its
            else "both may be names of one SoC; if not, correct `soc` in devices.yaml",
        )
    name = configured or said
    text = f"{name or 'not told'}{number}"
    if patient.device.htp_arch is not None:
        arch = f"{text}, HTP v{patient.device.htp_arch}"
        return Answer("ok", arch + ("" if name in SOCS else f" by devices.yaml; {_NOT_KNOWN}"))
    if name in SOCS:
        return Answer("ok", f"{text}, which has no HTP")
    return unknown_soc(name, text)


def unknown_soc(name: str | None, text: str) -> Answer:
    """What is said of a SoC that is not in the table."""
    near = near_socs(name or "")
    close = f"; close to it: {', '.join(near)}" if near else ""
    advice = "set `soc`, or `htp_arch`, of the device in devices.yaml"
    return Answer("warn", f"{text}, whose HTP is not known{close}", advice)


def _system(patient: Patient) -> Answer:
    """The operating system, and whether programs for its target can start there."""
    facts, answers = patient.device.facts, patient.answers
    build = f"{patient.device.target}: {facts.os_build or 'an unknown system'}"
    if patient.platform.libc == "bionic":
        api = "API level not told" if facts.android_api is None else f"API {facts.android_api}"
        return Answer("ok", f"{build}, {api}")
    if facts.glibc:
        return Answer("ok", f"{build}, glibc {facts.glibc}")
    found = f"{build}, C library: {facts.libc or 'not told'}"
    if answers.has_interpreter:
        return Answer("ok", found)
    where = patient.platform.interpreter
    return Answer("fail", found, f"its programs need glibc, whose {where} is missing")


def _opencl(patient: Patient) -> Answer:
    """The driver that the GPU backend opens."""
    drivers = readable(patient.answers.opencl)
    if any(".so" in PurePosixPath(path).name for path in drivers):
        return Answer("ok", listed(drivers))
    advice = "the GPU backend will end with 1006: install the vendor's Adreno OpenCL driver"
    return Answer("warn", listed(drivers) or "none in the usual places", advice)


def _work_folder(patient: Patient) -> Answer:
    """Whether files can be written there, and executed."""
    vitals, answers = patient.answers.vitals, patient.answers
    if vitals.write_problem is not None:
        advice = "set `workdir` of the device to a folder that the shell user may write to"
        return Answer("fail", vitals.write_problem, advice)
    if answers.exec_exit != 7:
        said = answers.exec_said or "no answer"
        advice = "its file system is mounted noexec, or forbids it: choose another `workdir`"
        return Answer("fail", f"nothing can be executed: {said}", advice)
    return Answer("ok", f"{patient.device.workdir} takes files and runs them")


def _programs(patient: Patient) -> Answer:
    missing = ", ".join(patient.answers.missing_programs)
    if missing:
        advice = "deploying needs them: install busybox, toybox or coreutils on the device"
        return Answer("fail", f"missing: {missing}", advice)
    return Answer("ok", patient.answers.tools or "all that are needed")


def _storage(patient: Patient) -> Answer:
    free = patient.answers.vitals.free_storage_bytes
    if free is None:
        return Answer("unknown", "not told")
    # a tmpfs, or a phone that is full, has less than one digit of a GB
    found = f"{free / 1e9:.1f} GB" if free >= 1e9 else f"{free / 1e6:.0f} MB"
    full, low = (code in patient.findings for code in ("storage-full", "low-storage"))
    if full or low:
        return Answer("fail" if full else "warn", found, "`qnn-harness devices clean` frees some")
    return Answer("ok", found)


def _memory(patient: Patient) -> Answer:
    free = patient.answers.vitals.free_ram_bytes
    if free is None:
        return Answer("unknown", "not told")
    advice = "end other programs on it, or reboot it"
    return _by_health(patient, "low-memory", f"{free / 1e9:.1f} GB", advice)


def _battery(patient: Patient) -> Answer:
    percent = patient.answers.vitals.battery_percent
    if percent is None:
        return Answer("not-applicable", "it shows none")
    charging = {True: ", charging", False: ", not charging", None: ""}
    found = f"{percent} %{charging[patient.answers.vitals.battery_charging]}"
    return _by_health(patient, "low-battery", found, "charge it")


def _temperature(patient: Patient) -> Answer:
    vitals = patient.answers.vitals
    if vitals.hottest_c is None and patient.device.config.simulated:
        return Answer("not-applicable", "it has no sensors")
    if vitals.hottest_c is None:
        return Answer("unknown", "no sensor can be read")
    found = f"{vitals.hottest_c:.0f} C ({vitals.hottest})"
    return _by_health(patient, "hot", found, "let it cool down; mind its fan and case")


def _clock(patient: Patient) -> Answer:
    """Its clock against the host's: logs of a case are found by time."""
    skew = patient.answers.vitals.skew_s
    if skew is None:
        return Answer("unknown", "not told")
    found = f"{abs(skew):.0f} s {'ahead of' if skew > 0 else 'behind'} this computer's"
    near = "within a second of this computer's"
    advice = "set its clock (automatic time, or `date`): logs are compared by time"
    return _by_health(patient, "clock-wrong", near if abs(skew) < 1.5 else found, advice)


def _by_health(patient: Patient, code: str, found: str, advice: str) -> Answer:
    finding = patient.findings.get(code)
    if finding is None:
        return Answer("ok", found)
    return Answer("fail" if finding.state == "bad" else "warn", found, advice)


def readable(access: Mapping[str, str]) -> list[str]:
    """The files that the shell user may read, of files and what may be done with each."""
    return [path for path, how in access.items() if "r" in how]
