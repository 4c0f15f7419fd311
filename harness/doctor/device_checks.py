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

from harness.core.axes import RPC_LIBRARY
from harness.core.socs import PLATFORMS, SOCS, Platform, near_socs
from harness.diagnosis.error import ErrorRecord
from harness.doctor.check import Answer, Checked, listed
from harness.lab.attach import AttachedDevice
from harness.lab.device_answers import UNSIGNED_SHELL, DeviceAnswers
from harness.lab.facts import THERMAL
from harness.lab.health import HealthFinding, HealthRules, judge_health
from harness.runtimes.runtime import LibraryFacts

_NOT_TOLD: Final = Answer("unknown", "not told")
_NOT_KNOWN: Final = "our table does not have that SoC"


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
            return "a simulated DSP has no such layers"
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
        "free storage": _storage,
        "free memory": _memory,
        "battery": _battery,
        "temperature": _temperature,
    }
    for name, function in checks.items():
        if examined.no_dsp is not None and function is _opencl:
            answer = Answer("not-applicable", examined.no_dsp)
        else:
            answer = function(examined)
        yield Checked("device", examined.device.name, name, *answer)
    if examined.platform.libc == "bionic":
        yield Checked("device", examined.device.name, "thermal status", *_throttled(examined))
        yield Checked("device", examined.device.name, "doze", *_doze(examined))


def _throttled(examined: ExaminedDevice) -> Answer:
    status = examined.answers.vitals.thermal_status
    text = None if status is None else THERMAL[status]
    advice = "let it cool down: air, out of its case"
    return _NOT_TOLD if text is None else _by_health(examined, "throttled", text, advice)


def _doze(examined: ExaminedDevice) -> Answer:
    state = examined.answers.vitals.doze
    advice = "unlock it, or plug it in: a phone that charges does not doze"
    return _NOT_TOLD if state is None else _by_health(examined, "doze", state, advice)


def _soc(examined: ExaminedDevice) -> Answer:
    facts, configured = examined.device.facts, examined.device.config.soc
    reported = facts.soc
    number = "" if facts.soc_id is None else f" (soc_id {facts.soc_id})"
    if reported and configured and reported != configured:
        ours, theirs = SOCS.get(configured), SOCS.get(reported)
        differ = bool(ours and theirs and ours.htp_arch != theirs.htp_arch)
        return Answer(
            "fail" if differ else "warn",
            f"devices.yaml says {configured}, the device says {reported}{number}",
            "correct or remove `soc` of the device in devices.yaml"
            if theirs
            else "both may be names of one SoC; if not, correct `soc` in devices.yaml",
        )
    name = configured or reported
    text = f"{name or 'not told'}{number}"
    if examined.device.htp_arch is not None:
        arch = f"{text}, HTP v{examined.device.htp_arch}"
        return Answer("ok", arch + ("" if name in SOCS else f" by devices.yaml; {_NOT_KNOWN}"))
    if name in SOCS:
        return Answer("ok", f"{text}, which has no HTP")
    return unknown_soc(name, text)


def unknown_soc(name: str | None, text: str) -> Answer:
    """Return the answer for a SoC that is not in the table."""
    near = near_socs(name or "")
    close = f"; close to it: {', '.join(near)}" if near else ""
    advice = "set `soc`, or `htp_arch`, of the device in devices.yaml"
    return Answer("warn", f"{text}, whose HTP is not known{close}", advice)


def _system(examined: ExaminedDevice) -> Answer:
    facts, answers = examined.device.facts, examined.answers
    build = f"{examined.device.target}: {facts.os_build or 'an unknown system'}"
    if examined.platform.libc == "bionic":
        api = "API level not told" if facts.android_api is None else f"API {facts.android_api}"
        return Answer("ok", f"{build}, {api}")
    if facts.glibc:
        return Answer("ok", f"{build}, glibc {facts.glibc}")
    text = f"{build}, C library: {facts.libc or 'not told'}"
    if answers.has_interpreter:
        return Answer("ok", text)
    interpreter = examined.platform.interpreter
    return Answer("fail", text, f"its programs need glibc, whose {interpreter} is missing")


def _opencl(examined: ExaminedDevice) -> Answer:
    drivers = readable_paths(examined.answers.opencl)
    if any(".so" in PurePosixPath(path).name for path in drivers):
        return Answer("ok", listed(drivers))
    advice = "the GPU backend will end with 1006: install the vendor's Adreno OpenCL driver"
    return Answer("warn", listed(drivers) or "none in the usual places", advice)


def _work_folder(examined: ExaminedDevice) -> Answer:
    vitals, answers = examined.answers.vitals, examined.answers
    if vitals.write_problem is not None:
        advice = "set `workdir` of the device to a folder that the shell user may write to"
        return Answer("fail", vitals.write_problem, advice)
    if answers.exec_exit != 7:
        output = answers.exec_said or "no answer"
        advice = "its file system is mounted noexec, or forbids it: choose another `workdir`"
        return Answer("fail", f"nothing can be executed: {output}", advice)
    return Answer("ok", f"{examined.device.workdir} takes files and runs them")


def _programs(examined: ExaminedDevice) -> Answer:
    missing = ", ".join(examined.answers.missing_programs)
    if missing:
        advice = "deploying needs them: install busybox, toybox or coreutils on the device"
        return Answer("fail", f"missing: {missing}", advice)
    return Answer("ok", examined.answers.tools or "all that are needed")


def _storage(examined: ExaminedDevice) -> Answer:
    free = examined.answers.vitals.free_storage_bytes
    if free is None:
        return _NOT_TOLD
    # a tmpfs, or a full phone, has less than 1 GB
    text = f"{free / 1e9:.1f} GB" if free >= 1e9 else f"{free / 1e6:.0f} MB"
    advice = "`qnn-harness devices clean` frees some"
    if "storage-full" in examined.findings:
        return Answer("fail", text, advice)
    return _by_health(examined, "low-storage", text, advice)


def _memory(examined: ExaminedDevice) -> Answer:
    free = examined.answers.vitals.free_ram_bytes
    if free is None:
        return _NOT_TOLD
    advice = "end other programs on it, or reboot it"
    return _by_health(examined, "low-memory", f"{free / 1e9:.1f} GB", advice)


def _battery(examined: ExaminedDevice) -> Answer:
    percent = examined.answers.vitals.battery_percent
    if percent is None:
        return Answer("not-applicable", "it shows none")
    charging = {True: ", charging", False: ", not charging", None: ""}
    text = f"{percent} %{charging[examined.answers.vitals.battery_charging]}"
    return _by_health(examined, "low-battery", text, "charge it")


def _temperature(examined: ExaminedDevice) -> Answer:
    vitals = examined.answers.vitals
    if vitals.hottest_c is None and examined.device.config.simulated:
        return Answer("not-applicable", "it has no sensors")
    if vitals.hottest_c is None:
        return Answer("unknown", "no sensor can be read")
    text = f"{vitals.hottest_c:.0f} C ({vitals.hottest})"
    return _by_health(examined, "hot", text, "let it cool down; mind its fan and case")


def _by_health(examined: ExaminedDevice, code: str, text: str, advice: str) -> Answer:
    finding = examined.findings.get(code)
    if finding is None:
        return Answer("ok", text)
    return Answer("fail" if finding.state == "bad" else "warn", text, advice)


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
    "domain-refused": "DSP domain",
    "no-unsigned-pd": "unsigned PD",
    "skel-refused": "DSP signature",
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

    answer: Answer
    error: ErrorRecord | None = None
    evidence: tuple[str, ...] = ()


def dsp_layers(
    examined: ExaminedDevice,
    libraries: Sequence[LibraryFacts] | None,
    session: DspAttempt,
    graph: DspAttempt,
) -> list[Checked]:
    """Check the layers in order, and last their summary. `libraries` are the deployed ones."""
    answers: dict[str, Answer] = {}
    no_dsp = examined.no_dsp
    for name, function in _LAYERS.items():
        answers[name] = function(examined) if no_dsp is None else Answer("not-applicable", no_dsp)
    answers["DSP skel"] = _skel(examined, libraries)
    answers["stub and skel"] = _stub_and_skel(examined, libraries)
    answers[SESSION], answers[GRAPH] = session.answer, graph.answer
    if session.answer.status == "ok" and no_dsp is None:
        for name, (status, text, _) in answers.items():
            if name not in (SESSION, GRAPH) and status not in ("ok", "not-applicable"):
                answers[name] = Answer("ok", f"{text}; yet a session came up")
    for attempt in (session, graph):
        if attempt.answer.status == "fail" and (layer := _ended_at(attempt)):
            answers[layer] = _answer_for_failure(attempt, answers[layer])
    answers[ANSWER] = summary_answer(answers)
    device = examined.device.name
    return [Checked("device", device, name, *answer) for name, answer in answers.items()]


def summary_answer(answers: Mapping[str, Answer]) -> Answer:
    """Return the first layer that fails, else the last one that works (pure)."""
    for name, answer in answers.items():
        if answer.status == "fail":
            return Answer("fail", f"it ends at {name}: {answer.found}", answer.advice)
    passed = [name for name in (SESSION, GRAPH) if answers[name].status == "ok"]
    if answers[GRAPH].status == "ok" or (passed and answers[GRAPH].status == "not-applicable"):
        simulated = [answer for answer in answers.values() if answer.status == "not-applicable"]
        suffix = f"; {simulated[0].found}" if simulated else ""
        return Answer("ok", f"open as far as {passed[-1]}{suffix}")
    if all(answers[name].status == "not-applicable" for name in (SESSION, GRAPH)):
        return Answer("not-applicable", answers[SESSION].found)
    first = answers[SESSION] if not passed else answers[GRAPH]
    return Answer("unknown", f"no visible layer is wrong; {first.found}", first.advice)


def _ended_at(attempt: DspAttempt) -> str | None:
    diagnosis = None if attempt.error is None else attempt.error.diagnosis
    if diagnosis is None or diagnosis.confidence == "possible":
        return None
    if diagnosis.id == "fastrpc-denied" and any("avc: " in line for line in attempt.evidence):
        return "SELinux"
    return _REACHED_AT.get(diagnosis.id)


def _answer_for_failure(attempt: DspAttempt, before: Answer) -> Answer:
    error = attempt.error
    assert error is not None
    assert error.diagnosis is not None
    hints = [line for line in attempt.evidence if _HINT.search(line)][-2:]
    first = error.first_cause.message if error.first_cause else error.message.partition("\n")[0]
    lines = "; ".join(dict.fromkeys([first, *hints]))
    text = f"{error.diagnosis.words}: {lines}" + (f" ({before.found})" if before.found else "")
    return Answer("fail", text, error.diagnosis.fix or attempt.answer.advice)


def _nodes(examined: ExaminedDevice) -> Answer:
    all_nodes = examined.answers.vitals.fastrpc
    nodes = {name: access for name, access in all_nodes.items() if name.startswith(_DSP_NODES)}
    shown = listed(f"{name} ({access or 'no access'})" for name, access in sorted(nodes.items()))
    if any("r" in access for access in nodes.values()):
        return Answer("ok", shown)
    if not nodes:
        return Answer(
            "fail",
            listed(sorted(all_nodes)) or "no fastrpc node in /dev",
            "HTP needs /dev/adsprpc-smd or /dev/fastrpc-cdsp: a kernel with the fastrpc driver and "
            "its device tree node",
        )
    owners = examined.answers.owners
    text = f"no permission: {shown}" + (f" [{'; '.join(owners)}]" if owners else "")
    advice = "let the shell user open them: `adb root`, its group, or a udev rule of the board"
    if any(re.match(r"c.{6}r", line) for line in owners):
        advice = "their mode lets everybody read, so SELinux refuses it: see its denials"
    return Answer("fail", text, advice)


def _selinux(examined: ExaminedDevice) -> Answer:
    mode, answers = examined.answers.selinux, examined.answers
    if mode is None and not answers.denials:
        glibc = examined.platform.libc == "glibc"
        return Answer("not-applicable", "there is none") if glibc else _NOT_TOLD
    context = re.search(r"context=(\w+:\w+:\w+)", answers.account or "")
    source = f"scontext={context[1]}" if context else "scontext="
    refused = [line for line in answers.denials if "permissive=1" not in line]
    ours = [line for line in refused if source in line and _NEEDED.search(line)]
    if ours and mode != "Permissive":
        advice = "its policy forbids it: a rule for that, or `setenforce 0` on a test device"
        return Answer("fail", f"{mode or 'enforcing'}; it refused: {ours[-1]}", advice)
    denials = "no denial about the DSP"
    if answers.denials:
        denials = f"denials about the DSP, none of which matters: {answers.denials[-1]}"
    return Answer("ok", f"{mode or 'its mode is not told'}; {denials}")


def _processor(examined: ExaminedDevice) -> Answer:
    states = {n: s for n, s in examined.answers.vitals.remoteprocs.items() if "cdsp" in n}
    if not states:
        return Answer("unknown", "the kernel does not show it")
    shown = listed(f"{name}: {state}" for name, state in states.items())
    if "dsp-down" in examined.findings:
        advice = "reboot it; if it stays down, its firmware (cdsp.mbn) does not load: see dmesg"
        return Answer("fail", shown, advice)
    return Answer("ok", shown)


def _daemon(examined: ExaminedDevice) -> Answer:
    """Check the daemon that reads the DSP's files if the process itself may not."""
    if running := examined.answers.daemons:
        return Answer("ok", f"running: {listed(running)}")
    if not examined.answers.sees_processes:
        return Answer("unknown", "the device shows no processes but our own")
    advice = "start it if no session comes up: it reads the DSP's files where a process may not"
    return Answer("warn", "not running", advice)


def _rpc_library(examined: ExaminedDevice) -> Answer:
    libraries = examined.answers.rpc_libraries
    if usable := readable_paths(libraries):
        builds = examined.answers.rpc_builds
        return Answer("ok", listed(f"{p} ({builds[p]})" if p in builds else p for p in usable))
    if libraries:
        advice = "without it the stub cannot be loaded: make it readable for the shell user"
        return Answer("fail", f"no permission: {listed(libraries)}", advice)
    folders = ", ".join(examined.platform.library_folders)
    install = "" if examined.platform.libc == "bionic" else " (github.com/qualcomm/fastrpc has it)"
    advice = f"HTP cannot be reached without it: the vendor's image lacks it{install}"
    return Answer("fail", f"not in {folders}", advice)


def _domain(examined: ExaminedDevice) -> Answer:
    user = examined.answers.account or ("root" if examined.answers.vitals.is_root else "not told")
    text = f"domain 3 (cdsp), asked for by {user}"
    if examined.answers.vitals.is_root and examined.platform.libc == "bionic":
        advice = "if it is refused (0x80000416), use adb's shell user: `adb unroot`"
        return Answer("warn", text, advice)
    return Answer("ok", text) if examined.answers.account else Answer("unknown", text)


def _unsigned_pd(examined: ExaminedDevice) -> Answer:
    """Check that the DSP runs unsigned code.

    An unsigned process runs inside fastrpc_shell_unsigned_3, which is part of the device's image.
    Without a process on the DSP it is only known whether that exists and can be read.
    """
    shells = examined.answers.shells
    unsigned = {path: access for path, access in shells.items() if path.endswith(UNSIGNED_SHELL)}
    if usable := readable_paths(unsigned):
        return Answer("ok", f"can be started: {listed(usable)}")
    if unsigned:
        advice = "see the session; SELinux or its mode keeps the shell from reading it"
        return Answer("unknown", f"no permission: {listed(unsigned)}", advice)
    if shells:
        advice = "the DSP may take signed code only (testsig): see the QAIRT docs, signing"
        return Answer("warn", f"only {listed(shells)}", advice)
    return Answer("unknown", f"no {UNSIGNED_SHELL} where the shell user may look")


def _signature(examined: ExaminedDevice) -> Answer:
    if examined.answers.signatures:
        return Answer("ok", f"a test signature is there: {listed(examined.answers.signatures)}")
    if any(path.endswith(UNSIGNED_SHELL) for path in examined.answers.shells):
        return Answer("ok", "none is needed in an unsigned domain")
    return Answer("unknown", "no test signature; whether one is needed, only a session tells")


def _skel(examined: ExaminedDevice, libraries: Sequence[LibraryFacts] | None) -> Answer:
    """Check that the skel is in a folder that the DSP searches; ours is the first."""
    if examined.no_dsp is not None:
        return Answer("not-applicable", examined.no_dsp)
    firmware = listed(examined.answers.skels)
    suffix = f"; the image's own come behind: {firmware}" if firmware else ""
    if libraries is None:
        return Answer("unknown", f"no runtime was looked at{suffix}")
    arch = examined.device.htp_arch
    names = [library.file_name for library in _select(libraries, "skel", arch)]
    folders = "the runtime's folder, " + ", ".join(examined.platform.dsp_folders)
    if names:
        return Answer("ok", f"{listed(names)}, looked for in {folders}{suffix}")
    name = "libQnnHtpV..Skel.so" if arch is None else f"libQnnHtpV{arch}Skel.so"
    advice = f"a runtime with {name}: the SDK has it in lib/hexagon-v{arch or '..'}/unsigned"
    if firmware:
        return Answer("warn", f"none of ours; the image's is taken: {firmware}", advice)
    return Answer("fail", f"{name} is not in {folders}", advice)


def _stub_and_skel(examined: ExaminedDevice, libraries: Sequence[LibraryFacts] | None) -> Answer:
    if not examined.platform.has_dsp:
        return Answer("not-applicable", examined.no_dsp or "")
    if libraries is None:
        return Answer("unknown", "no runtime was looked at")
    arch = examined.device.htp_arch
    files = [file for kind in _OF_ONE_BUILD for file in _select(libraries, kind, arch)]
    kinds = {file.kind for file in files}
    shown = listed(f"{file.file_name} {file.build or 'of a build not told'}" for file in files)
    if "stub" not in kinds:
        advice = "take stub and skel of this HTP from the SDK that the backend is of"
        return Answer("fail", f"no stub for HTP v{arch or '?'} among: {shown or 'nothing'}", advice)
    builds = [file.build for file in files if file.build is not None]
    if any(not build.agrees_with(builds[0]) for build in builds):
        return Answer("fail", f"of two builds: {shown}", "take all of them from one SDK")
    return Answer("ok" if len(builds) == len(files) else "unknown", shown)


def _select(files: Sequence[LibraryFacts], kind: str, arch: int | None) -> Iterator[LibraryFacts]:
    for file in files:
        if file.kind == kind and (arch is None or file.htp_arch in (None, arch)):
            yield file


_LAYERS: Final = {
    "DSP nodes": _nodes,
    "SELinux": _selinux,
    "DSP processor": _processor,
    "cdsprpcd": _daemon,
    RPC_LIBRARY: _rpc_library,
    "DSP domain": _domain,
    "unsigned PD": _unsigned_pd,
    "DSP signature": _signature,
}
"""The layers known from one round trip, in the order in which a session uses them."""
