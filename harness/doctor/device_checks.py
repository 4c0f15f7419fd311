"""What a device's answers mean: one small function for each thing that was looked at (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from harness.doctor.check import Answer, Check
from harness.doctor.device_script import UNSIGNED_SHELL, DeviceAnswers
from harness.lab.attach import AttachedDevice
from harness.lab.health import HealthFinding, HealthRules, judge_health
from harness.qnn.backends import RPC_LIBRARY
from harness.qnn.platforms import PLATFORMS, Platform
from harness.qnn.socs import SOCS, near_socs

_SKEW_S: Final = 60.0
_MAX_SHOWN: Final = 4
_NOT_KNOWN: Final = "our table does not have that SoC"
_DSP_NODES: Final = ("adsprpc-smd", "fastrpc-cdsp")


@dataclass(frozen=True)
class Patient:
    """One device as the doctor sees it; `skew_s` is how far its clock is ahead of the host's."""

    device: AttachedDevice
    answers: DeviceAnswers
    rules: HealthRules
    skew_s: float | None

    @property
    def platform(self) -> Platform:
        """What its system is like."""
        return PLATFORMS[self.device.target]

    @property
    def no_dsp(self) -> str | None:
        """Why it has no DSP to look for; None if it should have one."""
        if not self.platform.has_dsp:
            return "the HTP is a simulator inside libQnnHtp.so"
        return "a simulated board has no DSP and no GPU" if self.device.config.simulated else None

    @property
    def findings(self) -> dict[str, HealthFinding]:
        """What its health rules object to, by code."""
        health = judge_health(self.answers.vitals, self.rules, has_dsp=False)
        return {finding.code: finding for finding in health.findings}


def device_checks(patient: Patient) -> Iterator[Check]:
    """Everything that one round trip tells."""
    looks = {
        "SoC": _soc,
        "system": _system,
        "DSP nodes": _dsp_nodes,
        "DSP processor": _dsp_processor,
        RPC_LIBRARY: _rpc_library,
        "unsigned PD": _unsigned_pd,
        "firmware's skels": _firmware_skels,
        "OpenCL driver": _opencl,
        "SELinux": _selinux,
        "work folder": _work_folder,
        "programs": _programs,
        "free storage": _storage,
        "free memory": _memory,
        "battery": _battery,
        "temperature": _temperature,
        "clock": _clock,
    }
    of_dsp_and_gpu = (
        *(_dsp_nodes, _dsp_processor, _rpc_library, _unsigned_pd),
        *(_firmware_skels, _opencl),
    )
    for name, look in looks.items():
        if patient.no_dsp is not None and look in of_dsp_and_gpu:
            answer = Answer("not-applicable", patient.no_dsp)
        else:
            answer = look(patient)
        yield Check("device", patient.device.name, name, *answer)


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
    if answers.glibc:
        return Answer("ok", f"{build}, glibc {'.'.join(map(str, answers.glibc))}")
    found = f"{build}, C library: {answers.libc or 'not told'}"
    if answers.has_interpreter:
        return Answer("ok", found)
    where = patient.platform.interpreter
    return Answer("fail", found, f"its programs need glibc, whose {where} is missing")


def _dsp_nodes(patient: Patient) -> Answer:
    """Whether the shell user may open what leads to the DSP."""
    every = patient.answers.nodes
    nodes = {name: how for name, how in every.items() if name.startswith(_DSP_NODES)}
    shown = _listed(f"{name} ({how or 'no access'})" for name, how in sorted(nodes.items()))
    if any("r" in how for how in nodes.values()):
        return Answer("ok", shown)
    if nodes:
        owners = "; ".join(patient.answers.owners)
        found = f"no permission: {shown}" + (f" [{owners}]" if owners else "")
        advice = "let the shell user open them: `adb root`, its group, or a udev rule of the board"
        return Answer("fail", found, advice)
    return Answer(
        "fail",
        _listed(sorted(every)) or "no fastrpc node in /dev",
        "HTP needs /dev/adsprpc-smd or /dev/fastrpc-cdsp: a kernel with the fastrpc driver and its "
        "device tree node",
    )


def _dsp_processor(patient: Patient) -> Answer:
    """Whether the processor that runs HTP code is up."""
    states = {n: s for n, s in patient.answers.vitals.remoteprocs.items() if "cdsp" in n}
    if not states:
        return Answer("unknown", "the kernel does not show it to us")
    shown = _listed(f"{name}: {state}" for name, state in states.items())
    if "dsp-down" in patient.findings:
        advice = "reboot it; if it stays down, its firmware (cdsp.mbn) does not load: see dmesg"
        return Answer("fail", shown, advice)
    return Answer("ok", shown)


def _rpc_library(patient: Patient) -> Answer:
    """Where the library is that stubs reach the DSP with."""
    found = patient.answers.rpc_libraries
    if readable := _readable(found):
        return Answer("ok", _listed(readable))
    if found:
        advice = "without it the stub cannot be loaded: make it readable for the shell user"
        return Answer("fail", f"no permission: {_listed(found)}", advice)
    where = ", ".join(patient.platform.library_folders)
    install = "" if patient.platform.libc == "bionic" else " (github.com/qualcomm/fastrpc has it)"
    advice = f"HTP cannot be reached without it: the vendor's image lacks it{install}"
    return Answer("fail", f"not in {where}", advice)


def _unsigned_pd(patient: Patient) -> Answer:
    """Whether the DSP takes code that is not signed.

    An unsigned process runs inside fastrpc_shell_unsigned_3, which the device's image brings; that
    it is there and can be read is as much as can be told without a process on the DSP.
    """
    shells = patient.answers.shells
    unsigned = {path: how for path, how in shells.items() if path.endswith(UNSIGNED_SHELL)}
    if readable := _readable(unsigned):
        return Answer("ok", f"can be started: {_listed(readable)}")
    if unsigned:
        advice = "the smoke inference tells; SELinux or its mode keeps the shell from reading it"
        return Answer("unknown", f"no permission: {_listed(unsigned)}", advice)
    if shells:
        advice = "the DSP may take signed code only (testsig): see the QAIRT docs, signing"
        return Answer("warn", f"only {_listed(shells)}", advice)
    return Answer("unknown", f"no {UNSIGNED_SHELL} where the shell user may look")


def _firmware_skels(patient: Patient) -> Answer:
    """Skels of the device's image, which a wrong search order would take instead of ours."""
    skels = _listed(patient.answers.skels)
    if not skels:
        return Answer("ok", "none: only deployed ones can be loaded")
    return Answer("ok", f"{skels}: deployed ones stand before them in ADSP_LIBRARY_PATH")


def _opencl(patient: Patient) -> Answer:
    """The driver that the GPU backend opens."""
    readable = _readable(patient.answers.opencl)
    if any(".so" in PurePosixPath(path).name for path in readable):
        return Answer("ok", _listed(readable))
    advice = "the GPU backend will end with 1006: install the vendor's Adreno OpenCL driver"
    return Answer("warn", _listed(readable) or "none in the usual places", advice)


def _selinux(patient: Patient) -> Answer:
    mode = patient.answers.selinux
    if mode is None and patient.platform.libc == "glibc":
        return Answer("not-applicable", "there is none")
    if mode is None:
        return Answer("unknown", "not told")
    note = "; what it refuses stands in logcat as `avc: denied`" if mode == "Enforcing" else ""
    return Answer("ok", mode + note)


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
    """The programs that deploying needs."""
    missing = ", ".join(patient.answers.missing_programs)
    if missing:
        advice = "deploying needs them: install busybox, toybox or coreutils on the device"
        return Answer("fail", f"missing: {missing}", advice)
    return Answer("ok", patient.answers.tools or "all that are needed")


def _storage(patient: Patient) -> Answer:
    """Free space in the file system of the work folder."""
    free = patient.answers.vitals.free_storage_bytes
    if free is None:
        return Answer("unknown", "not told")
    found = f"{free / 1e9:.1f} GB"
    full, low = (code in patient.findings for code in ("storage-full", "low-storage"))
    if full or low:
        advice = "`qnn-harness devices clean` frees some"
        return Answer("fail" if full else "warn", found, advice)
    return Answer("ok", found)


def _memory(patient: Patient) -> Answer:
    free = patient.answers.vitals.free_ram_bytes
    if free is None:
        return Answer("unknown", "not told")
    found = f"{free / 1e9:.1f} GB"
    if "low-memory" in patient.findings:
        return Answer("warn", found, "end other programs on it, or reboot it")
    return Answer("ok", found)


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
    skew = patient.skew_s
    if skew is None:
        return Answer("unknown", "not told")
    found = f"{abs(skew):.0f} s {'ahead of' if skew > 0 else 'behind'} this computer's"
    if abs(skew) <= _SKEW_S:
        return Answer("ok", "within a second of this computer's" if abs(skew) < 1.5 else found)
    advice = "set its clock (automatic time, or `adb shell date`): logs are compared by time"
    return Answer("warn", found, advice)


def _by_health(patient: Patient, code: str, found: str, advice: str) -> Answer:
    finding = patient.findings.get(code)
    if finding is None:
        return Answer("ok", found)
    return Answer("fail" if finding.state == "bad" else "warn", found, advice)


def _readable(access: Mapping[str, str]) -> list[str]:
    return [path for path, how in access.items() if "r" in how]


def _listed(items: Iterable[str]) -> str:
    """The first of several things, and how many more there are."""
    every = list(items)
    more = f" and {len(every) - _MAX_SHOWN} more" if len(every) > _MAX_SHOWN else ""
    return ", ".join(every[:_MAX_SHOWN]) + more
