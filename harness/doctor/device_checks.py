"""Checks of a device's answers, and of the layers between a process and its DSP (pure).

The input was read before: the device's answers, the metadata of the libraries, and the results of
a session and of a graph. A successful session proves all layers below it; the log of a failed one
shows at which layer it ended.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final, NamedTuple

from harness.core.matrix_axes import RPC_LIBRARY
from harness.core.outgoing_text import first_names
from harness.core.socs import PLATFORMS, SOCS, Platform, near_socs
from harness.diagnosis.error_record import ErrorRecord
from harness.doctor.check_results import Checked, CheckResult
from harness.lab.facts import THERMAL, UNSIGNED_SHELL, DeviceAnswers
from harness.lab.health import HealthFinding, HealthRules, judge_health
from harness.lab.lab_device import AttachedDevice
from harness.runtimes.runtime import LibraryFacts

_NO_ANSWER: Final = CheckResult("unknown", "the device does not report it")
_NO_BATTERY: Final = CheckResult("not-applicable", "the device reports none")
_NOT_KNOWN: Final = "the harness does not know this SoC"


@dataclass(frozen=True)
class ExaminedDevice:
    """A device and its answers."""

    device: AttachedDevice
    answers: DeviceAnswers
    rules: HealthRules

    @property
    def platform(self) -> Platform:
        return PLATFORMS[self.device.target]

    @property
    def no_dsp(self) -> str | None:
        """The reason why it has no DSP; None if it should have one."""
        if not self.platform.has_dsp:
            return "the HTP is a simulator inside libQnnHtp.so"
        if not self.device.config.simulated:
            return None
        if self.device.simulated_dsp is not None:
            return "a simulated DSP does not have these layers"
        return "a simulated board has no DSP and no GPU"

    @property
    def findings(self) -> dict[str, HealthFinding]:
        health = judge_health(self.answers.vitals, self.rules, has_dsp=False)
        return {finding.code: finding for finding in health.findings}


def device_checks(examined: ExaminedDevice) -> Iterator[Checked]:
    """Yield all checks from one round trip, except for the layers to the DSP."""
    checks = {
        "SoC": _soc,
        "system": _system,
        "OpenCL driver": _opencl,
        "work folder": _work_folder,
        "programs": _programs,
    }
    for name, function in checks.items():
        if examined.no_dsp is not None and function is _opencl:
            result = CheckResult("not-applicable", examined.no_dsp)
        else:
            result = function(examined)
        yield Checked("device", examined.device.name, name, *result)
    for name, result in _health_checks(examined):
        yield Checked("device", examined.device.name, name, *result)


def _soc(examined: ExaminedDevice) -> CheckResult:
    facts, configured = examined.device.facts, examined.device.config.soc
    reported = facts.soc
    number = "" if facts.soc_id is None else f" (soc_id {facts.soc_id})"
    if reported and configured and reported != configured:
        ours, theirs = SOCS.get(configured), SOCS.get(reported)
        differ = bool(ours and theirs and ours.htp_arch != theirs.htp_arch)
        return CheckResult(
            "fail" if differ else "warn",
            f"devices.yaml says {configured}, the device says {reported}{number}",
            "correct or remove `soc` of the device in devices.yaml"
            if theirs
            else "if these are not names of the same SoC, correct `soc` in devices.yaml",
        )
    name = configured or reported
    text = f"{name or 'unknown'}{number}"
    if examined.device.htp_arch is not None:
        source = "" if name in SOCS else f" (from devices.yaml; {_NOT_KNOWN})"
        return CheckResult("ok", f"{text}, HTP v{examined.device.htp_arch}{source}")
    if name in SOCS:
        return CheckResult("ok", f"{text}, which has no HTP")
    return unknown_soc(name, text)


def unknown_soc(name: str | None, text: str) -> CheckResult:
    """Return the result for a SoC that is not in the table."""
    near = near_socs(name or "")
    close = f"; similar: {', '.join(near)}" if near else ""
    advice = "write a known `soc`, or `htp_arch`, of the device into devices.yaml"
    return CheckResult("warn", f"the HTP of {text} is unknown{close}", advice)


def _system(examined: ExaminedDevice) -> CheckResult:
    facts, answers = examined.device.facts, examined.answers
    build = f"{examined.device.target}: {facts.os_build or 'an unknown system'}"
    if examined.platform.libc == "bionic":
        api = "unknown API level" if facts.android_api is None else f"API {facts.android_api}"
        return CheckResult("ok", f"{build}, {api}")
    if facts.glibc:
        return CheckResult("ok", f"{build}, glibc {facts.glibc}")
    text = f"{build}, C library: {facts.libc or 'unknown'}"
    if answers.has_interpreter:
        return CheckResult("ok", text)
    advice = f"the probe needs glibc; use an image with {examined.platform.interpreter}"
    return CheckResult("fail", text, advice)


def _opencl(examined: ExaminedDevice) -> CheckResult:
    drivers = readable_paths(examined.answers.opencl)
    if any(".so" in PurePosixPath(path).name for path in drivers):
        return CheckResult("ok", first_names(drivers))
    advice = "the GPU backend will fail with 1006; install the vendor's Adreno OpenCL driver"
    return CheckResult("warn", first_names(drivers) or "none in the usual places", advice)


def _work_folder(examined: ExaminedDevice) -> CheckResult:
    vitals, answers = examined.answers.vitals, examined.answers
    if vitals.write_problem is not None:
        advice = "set `workdir` of the device to a folder that the shell user may write to"
        return CheckResult("fail", vitals.write_problem, advice)
    if answers.exec_exit != 7:
        output = answers.exec_said or "no answer"
        advice = "the file system is mounted noexec, or forbids execution; choose another `workdir`"
        return CheckResult("fail", f"nothing can be executed: {output}", advice)
    return CheckResult("ok", f"{examined.device.workdir} is writable, and programs run in it")


def _programs(examined: ExaminedDevice) -> CheckResult:
    missing = ", ".join(examined.answers.missing_programs)
    if missing:
        advice = "deploying needs these; install busybox, toybox or coreutils on the device"
        return CheckResult("fail", f"missing: {missing}", advice)
    return CheckResult("ok", examined.answers.tools or "all that are needed")


def _health_checks(examined: ExaminedDevice) -> Iterator[tuple[str, CheckResult]]:
    """Yield (name, result) for the figures that the lab's rules of health judge."""
    vitals, findings = examined.answers.vitals, examined.findings
    storage, ram, status = vitals.free_storage_bytes, vitals.free_ram_bytes, vitals.thermal_status
    charging = {True: ", charging", False: ", not charging", None: ""}[vitals.battery_charging]
    hot = None if vitals.hottest_c is None else f"{vitals.hottest_c:.0f} C ({vitals.hottest})"
    battery = None if vitals.battery_percent is None else f"{vitals.battery_percent} %{charging}"
    no_sensor = CheckResult("unknown", "no sensor can be read")
    if examined.device.config.simulated:
        no_sensor = CheckResult("not-applicable", "it has no sensors")
    clean = "`qnn-harness devices clean` frees some"
    cool = "let it cool down; check its fan and case"
    end_others = "close other programs on it, or reboot it"
    rows: list[tuple[str, tuple[str, ...], str | None, str, CheckResult]] = [
        ("free storage", ("storage-full", "low-storage"), _size(storage), clean, _NO_ANSWER),
        ("free memory", ("low-memory",), _size(ram), end_others, _NO_ANSWER),
        ("battery", ("low-battery",), battery, "charge it", _NO_BATTERY),
        ("temperature", ("hot",), hot, cool, no_sensor),
    ]
    if examined.platform.libc == "bionic":
        throttled = None if status is None else THERMAL[status]
        air = "let it cool down; take it out of its case"
        plug = "unlock it, or plug it in; a charging phone does not doze"
        rows += [
            ("thermal status", ("throttled",), throttled, air, _NO_ANSWER),
            ("doze", ("doze",), vitals.doze, plug, _NO_ANSWER),
        ]
    for name, codes, text, advice, missing in rows:
        states = [findings[code].state for code in codes if code in findings]
        if text is None:
            yield name, missing
        elif states:
            is_red = "bad" in states or codes[0] == "storage-full" in findings
            yield name, CheckResult("fail" if is_red else "warn", text, advice)
        else:
            yield name, CheckResult("ok", text)


def _size(size: float | None) -> str | None:
    # a tmpfs, or a full phone, has less than 1 GB
    if size is None:
        return None
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"


def readable_paths(access: Mapping[str, str]) -> list[str]:
    """Return the files that the shell user may read, from {path: mode}."""
    return [path for path, mode in access.items() if "r" in mode]


SESSION: Final = "DSP session"
GRAPH: Final = "smoke htp"
ANSWER: Final = "FastRPC"
_DSP_NODES: Final = ("adsprpc-smd", "fastrpc-cdsp")

_REACHED_AT: Final[Mapping[str, str]] = {
    "no-fastrpc": RPC_LIBRARY,
    "linker-namespace": RPC_LIBRARY,
    "npu-driver": RPC_LIBRARY,
    "fastrpc-denied": "DSP nodes",
    "dsp-restarted": "DSP processor",
    "no-unsigned-pd": "unsigned PD",
    "skel-not-found": "DSP skel",
    "stub-missing": "stub and skel",
    "stub-not-loaded": "stub and skel",
    "mixed-libraries": "stub and skel",
    "older-libraries": "stub and skel",
}
"""{diagnosis of a session's log: the layer at which it ended}; the default is the session."""


# The files of the DSP that a process needs; apps and shells are denied the `-secure` nodes, which
# they do not need (quic/ai-hub-apps#41, where the same process continues through a service).
_NEEDED: Final = re.compile(
    r'(?:name|path)="(?:[^"]*/)?(?:adsprpc-smd|fastrpc-cdsp\d?|libcdsprpc\.so|'
    rf'{UNSIGNED_SHELL})"'
)


_HINT: Final = re.compile(r"fopen|[Ss]earch path|avc: ")
_OF_ONE_BUILD: Final = ("backend-htp", "stub", "skel")


class DspAttempt(NamedTuple):
    """The result of an attempt to use the DSP; `evidence` are the device's lines about it."""

    result: CheckResult
    error: ErrorRecord | None = None
    evidence: tuple[str, ...] = ()


def dsp_layers(
    examined: ExaminedDevice,
    libraries: Sequence[LibraryFacts] | None,
    session: DspAttempt,
    graph: DspAttempt,
) -> list[Checked]:
    """Check the layers in order, and last their summary. `libraries` are the deployed ones."""
    answers: dict[str, CheckResult] = {}
    no_dsp = examined.no_dsp
    for name, function in _LAYERS.items():
        answers[name] = (
            function(examined) if no_dsp is None else CheckResult("not-applicable", no_dsp)
        )
    answers["DSP skel"] = _skel(examined, libraries)
    answers["stub and skel"] = _stub_and_skel(examined, libraries)
    answers[SESSION], answers[GRAPH] = session.result, graph.result
    if session.result.status == "ok" and no_dsp is None:
        for name, (status, text, _) in answers.items():
            if name not in (SESSION, GRAPH) and status not in ("ok", "not-applicable"):
                answers[name] = CheckResult("ok", f"{text}; a session was opened all the same")
    for attempt in (session, graph):
        if attempt.result.status == "fail" and (layer := _ended_at(attempt)):
            answers[layer] = _result_for_failure(attempt, answers[layer])
    answers[ANSWER] = summary_result(answers)
    device = examined.device.name
    return [Checked("device", device, name, *result) for name, result in answers.items()]


def summary_result(answers: Mapping[str, CheckResult]) -> CheckResult:
    """Return the first layer that fails, else the last one that works (pure)."""
    for name, result in answers.items():
        if result.status == "fail":
            return CheckResult("fail", f"it ends at {name}: {result.found}", result.advice)
    passed = [name for name in (SESSION, GRAPH) if answers[name].status == "ok"]
    if answers[GRAPH].status == "ok" or (passed and answers[GRAPH].status == "not-applicable"):
        simulated = [result for result in answers.values() if result.status == "not-applicable"]
        suffix = f"; {simulated[0].found}" if simulated else ""
        return CheckResult("ok", f"all layers up to {passed[-1]} work{suffix}")
    if all(answers[name].status == "not-applicable" for name in (SESSION, GRAPH)):
        return CheckResult("not-applicable", answers[SESSION].found)
    first = answers[SESSION] if not passed else answers[GRAPH]
    text = f"no fault found in the layers that can be checked; {first.found}"
    return CheckResult("unknown", text, first.advice)


def _ended_at(attempt: DspAttempt) -> str | None:
    diagnosis = None if attempt.error is None else attempt.error.diagnosis
    if diagnosis is None or diagnosis.confidence == "possible":
        return None
    if diagnosis.id == "fastrpc-denied" and any("avc: " in line for line in attempt.evidence):
        return "SELinux"
    return _REACHED_AT.get(diagnosis.id)


def _result_for_failure(attempt: DspAttempt, before: CheckResult) -> CheckResult:
    error = attempt.error
    assert error is not None
    assert error.diagnosis is not None
    hints = [line for line in attempt.evidence if _HINT.search(line)][-2:]
    first = error.first_cause.message if error.first_cause else error.message.partition("\n")[0]
    lines = "; ".join(dict.fromkeys([first, *hints]))
    text = f"{error.diagnosis.words}: {lines}" + (f" ({before.found})" if before.found else "")
    return CheckResult("fail", text, error.diagnosis.fix or attempt.result.advice)


def _nodes(examined: ExaminedDevice) -> CheckResult:
    all_nodes = examined.answers.vitals.fastrpc
    nodes = {name: access for name, access in all_nodes.items() if name.startswith(_DSP_NODES)}
    accesses = (f"{name} ({access or 'no access'})" for name, access in sorted(nodes.items()))
    shown = first_names(accesses)
    if any("r" in access for access in nodes.values()):
        return CheckResult("ok", shown)
    if not nodes:
        return CheckResult(
            "fail",
            first_names(sorted(all_nodes)) or "no fastrpc node in /dev",
            "HTP needs /dev/adsprpc-smd or /dev/fastrpc-cdsp; use a kernel with the fastrpc driver "
            "and its device tree node",
        )
    owners = examined.answers.owners
    text = f"no permission: {shown}" + (f" [{'; '.join(owners)}]" if owners else "")
    advice = "give the shell user access: `adb root`, its group, or a udev rule of the board"
    if any(re.match(r"c.{6}r", line) for line in owners):
        advice = "the mode lets everybody read, so SELinux denies access; see the denials"
    return CheckResult("fail", text, advice)


def _selinux(examined: ExaminedDevice) -> CheckResult:
    mode, answers = examined.answers.selinux, examined.answers
    if mode is None and not answers.denials:
        glibc = examined.platform.libc == "glibc"
        return CheckResult("not-applicable", "the device has none") if glibc else _NO_ANSWER
    context = re.search(r"context=(\w+:\w+:\w+)", answers.account or "")
    source = f"scontext={context[1]}" if context else "scontext="
    refused = [line for line in answers.denials if "permissive=1" not in line]
    ours = [line for line in refused if source in line and _NEEDED.search(line)]
    if ours and mode != "Permissive":
        advice = "add a rule to the policy, or `setenforce 0` on a test device"
        return CheckResult("fail", f"{mode or 'enforcing'}; it denied: {ours[-1]}", advice)
    denials = "no denial concerns the DSP"
    if answers.denials:
        denials = f"harmless denials concern the DSP: {answers.denials[-1]}"
    return CheckResult("ok", f"{mode or 'unknown mode'}; {denials}")


def _processor(examined: ExaminedDevice) -> CheckResult:
    states = {n: s for n, s in examined.answers.vitals.remoteprocs.items() if "cdsp" in n}
    if not states:
        return CheckResult("unknown", "the kernel does not report the state of the DSP")
    shown = first_names(f"{name}: {state}" for name, state in states.items())
    if "dsp-down" in examined.findings:
        advice = (
            "reboot it; if the DSP stays down, its firmware (cdsp.mbn) fails to load: see dmesg"
        )
        return CheckResult("fail", shown, advice)
    return CheckResult("ok", shown)


def _rpc_library(examined: ExaminedDevice) -> CheckResult:
    libraries = examined.answers.rpc_libraries
    if usable := readable_paths(libraries):
        builds = examined.answers.rpc_builds
        with_builds = (f"{path} ({builds[path]})" if path in builds else path for path in usable)
        return CheckResult("ok", first_names(with_builds))
    if libraries:
        advice = "the stub cannot be loaded without it; make it readable for the shell user"
        return CheckResult("fail", f"no permission: {first_names(libraries)}", advice)
    folders = ", ".join(examined.platform.library_folders)
    install = "" if examined.platform.libc == "bionic" else " (github.com/qualcomm/fastrpc has it)"
    advice = f"HTP cannot be reached without it; install it into the image{install}"
    return CheckResult("fail", f"not in {folders}", advice)


def _unsigned_pd(examined: ExaminedDevice) -> CheckResult:
    """Check that the DSP runs unsigned code.

    An unsigned process runs inside fastrpc_shell_unsigned_3, which is part of the device's image.
    Without a process on the DSP it is only known whether that exists and can be read.
    """
    shells = examined.answers.shells
    unsigned = {path: access for path, access in shells.items() if path.endswith(UNSIGNED_SHELL)}
    if usable := readable_paths(unsigned):
        return CheckResult("ok", f"can be started: {first_names(usable)}")
    if unsigned:
        advice = "see the session below; SELinux or the file mode denies the shell user reading it"
        return CheckResult("unknown", f"no permission: {first_names(unsigned)}", advice)
    if shells:
        advice = "the DSP may accept only signed code (testsig); see signing in the QAIRT docs"
        return CheckResult("warn", f"only {first_names(shells)}", advice)
    return CheckResult("unknown", f"no {UNSIGNED_SHELL} in folders that the shell user may read")


def _skel(examined: ExaminedDevice, libraries: Sequence[LibraryFacts] | None) -> CheckResult:
    """Check that the skel is in a folder that the DSP searches; ours is the first."""
    if examined.no_dsp is not None:
        return CheckResult("not-applicable", examined.no_dsp)
    firmware = first_names(examined.answers.skels)
    suffix = f"; then those of the image: {firmware}" if firmware else ""
    if libraries is None:
        return CheckResult("unknown", f"no runtime was checked{suffix}")
    arch = examined.device.htp_arch
    names = [library.file_name for library in _select(libraries, "skel", arch)]
    folders = "the runtime's folder, " + ", ".join(examined.platform.dsp_folders)
    if names:
        return CheckResult("ok", f"{first_names(names)}, searched in {folders}{suffix}")
    name = "libQnnHtpV..Skel.so" if arch is None else f"libQnnHtpV{arch}Skel.so"
    advice = f"use a runtime with {name}; the SDK has it in lib/hexagon-v{arch or '..'}/unsigned"
    if firmware:
        return CheckResult("warn", f"the runtime has none; the image's is used: {firmware}", advice)
    return CheckResult("fail", f"{name} is not in {folders}", advice)


def _stub_and_skel(
    examined: ExaminedDevice, libraries: Sequence[LibraryFacts] | None
) -> CheckResult:
    if not examined.platform.has_dsp:
        return CheckResult("not-applicable", examined.no_dsp or "")
    if libraries is None:
        return CheckResult("unknown", "no runtime was checked")
    arch = examined.device.htp_arch
    files = [file for kind in _OF_ONE_BUILD for file in _select(libraries, kind, arch)]
    kinds = {file.kind for file in files}
    shown = first_names(f"{file.file_name} {file.build or 'of an unknown build'}" for file in files)
    if "stub" not in kinds:
        advice = "use stub and skel for this HTP from the same SDK as the backend"
        return CheckResult(
            "fail", f"no stub for HTP v{arch or '?'} among: {shown or 'nothing'}", advice
        )
    builds = [file.build for file in files if file.build is not None]
    if any(not build.agrees_with(builds[0]) for build in builds):
        return CheckResult("fail", f"from different builds: {shown}", "use those of one SDK")
    return CheckResult("ok" if len(builds) == len(files) else "unknown", shown)


def _select(files: Sequence[LibraryFacts], kind: str, arch: int | None) -> Iterator[LibraryFacts]:
    for file in files:
        if file.kind == kind and (arch is None or file.htp_arch in (None, arch)):
            yield file


_LAYERS: Final = {
    "DSP nodes": _nodes,
    "SELinux": _selinux,
    "DSP processor": _processor,
    RPC_LIBRARY: _rpc_library,
    "unsigned PD": _unsigned_pd,
}
"""The layers known from one round trip, in the order in which a session uses them."""
