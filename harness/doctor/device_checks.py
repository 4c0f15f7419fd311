"""What a device's answers mean, and the way to its DSP, layer by layer (pure).

What is judged was read before: the device's answers, what the libraries say of themselves, and what
came of a session and of a graph. A session that came up proves all layers below it; one that did
not says in its log at which layer it ended.
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
from harness.doctor.check import Answer, Checked, Status, listed
from harness.lab.attach import AttachedDevice
from harness.lab.device_answers import UNSIGNED_SHELL, DeviceAnswers
from harness.lab.facts import ADVICE, THERMAL, Vitals
from harness.lab.health import HealthFinding, HealthRules, judge_health
from harness.runtimes.runtime import LibraryFacts

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
    """Everything that one round trip tells besides what leads to the DSP."""
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
"""At which layer a session ended, by the diagnosis of its log; else at the session itself."""


# What a process needs of the DSP's files; apps and shells are denied the `-secure` nodes, and need
# none of them (quic/ai-hub-apps#41, where the same process goes on by way of a service).
_NEEDED: Final = re.compile(
    r'(?:name|path)="(?:[^"]*/)?(?:adsprpc-smd|fastrpc-cdsp\d?|libcdsprpc\.so|'
    rf'{UNSIGNED_SHELL})"'
)


class DspTry(NamedTuple):
    """What came of an attempt to use the DSP; `seen` are the device's own lines about it."""

    answer: Answer
    error: ErrorRecord | None = None
    seen: tuple[str, ...] = ()


def ladder(
    patient: Patient,
    libraries: Sequence[LibraryFacts] | None,
    session: DspTry,
    graph: DspTry,
) -> list[Checked]:
    """The layers in their order, and last the answer. `libraries` are those that were deployed."""
    read: dict[str, Answer] = {}
    why_not = patient.no_dsp
    for name, look in _LOOKS.items():
        read[name] = look(patient) if why_not is None else Answer("not-applicable", why_not)
    read["DSP skel"] = _skel(patient, libraries)
    read["stub and skel"] = _stub_and_skel(patient, libraries)
    read[SESSION], read[GRAPH] = session.answer, graph.answer
    if session.answer.status == "ok" and why_not is None:
        read |= {name: _proven(one) for name, one in read.items() if name not in (SESSION, GRAPH)}
    for tried in (session, graph):
        if tried.answer.status == "fail" and (layer := _ended_at(tried)):
            read[layer] = _shown_by(tried, read[layer])
    checks = [Checked("device", patient.device.name, name, *one) for name, one in read.items()]
    return [*checks, Checked("device", patient.device.name, ANSWER, *answer_of(read))]


def answer_of(read: Mapping[str, Answer]) -> Answer:
    """The first layer that fails; else how far it is known that the way is open (pure)."""
    for name, one in read.items():
        if one.status == "fail":
            return Answer("fail", f"it ends at {name}: {one.found}", one.advice)
    through = [name for name in (SESSION, GRAPH) if read[name].status == "ok"]
    if read[GRAPH].status == "ok" or (through and read[GRAPH].status == "not-applicable"):
        simulated = [one for one in read.values() if one.status == "not-applicable"]
        where = f"; {simulated[0].found}" if simulated else ""
        return Answer("ok", f"open as far as {through[-1]}{where}")
    if all(read[name].status == "not-applicable" for name in (SESSION, GRAPH)):
        return Answer("not-applicable", read[SESSION].found)
    first = read[SESSION] if not through else read[GRAPH]
    return Answer("unknown", f"nothing that can be read is wrong; {first.found}", first.advice)


def _proven(one: Answer) -> Answer:
    if one.status in ("ok", "not-applicable"):
        return one
    return Answer("ok", f"{one.found}; yet a session came up")


def _ended_at(tried: DspTry) -> str | None:
    known = None if tried.error is None else tried.error.diagnosis
    if known is None or known.confidence == "possible":
        return None
    if known.id == "fastrpc-denied" and any("avc: " in line for line in tried.seen):
        return "SELinux"
    return _REACHED_AT.get(known.id)


def _shown_by(tried: DspTry, before: Answer) -> Answer:
    """A layer at which an attempt ended: what it logged there, and what could be read before."""
    error = tried.error
    assert error is not None
    assert error.diagnosis is not None
    looked = [line for line in tried.seen if re.search(r"fopen|[Ss]earch path|avc: ", line)][-2:]
    first = error.first_cause.message if error.first_cause else error.message.partition("\n")[0]
    said = "; ".join(dict.fromkeys([first, *looked]))
    found = f"{error.diagnosis.words}: {said}" + (f" ({before.found})" if before.found else "")
    return Answer("fail", found, error.diagnosis.fix or tried.answer.advice)


def _nodes(patient: Patient) -> Answer:
    """Whether the shell user may open what leads to the DSP."""
    every = patient.answers.vitals.fastrpc
    nodes = {name: how for name, how in every.items() if name.startswith(_DSP_NODES)}
    shown = listed(f"{name} ({how or 'no access'})" for name, how in sorted(nodes.items()))
    if any("r" in how for how in nodes.values()):
        return Answer("ok", shown)
    if not nodes:
        return Answer(
            "fail",
            listed(sorted(every)) or "no fastrpc node in /dev",
            "HTP needs /dev/adsprpc-smd or /dev/fastrpc-cdsp: a kernel with the fastrpc driver and "
            "its device tree node",
        )
    owners = patient.answers.owners
    found = f"no permission: {shown}" + (f" [{'; '.join(owners)}]" if owners else "")
    advice = "let the shell user open them: `adb root`, its group, or a udev rule of the board"
    if any(re.match(r"c.{6}r", line) for line in owners):
        advice = "their mode lets everybody read, so it is SELinux that refuses: its denials tell"
    return Answer("fail", found, advice)


def _selinux(patient: Patient) -> Answer:
    """Its mode, and what it has just refused to a process like ours."""
    mode, answers = patient.answers.selinux, patient.answers
    if mode is None and not answers.denials:
        glibc = patient.platform.libc == "glibc"
        return Answer("not-applicable", "there is none") if glibc else Answer("unknown", "not told")
    own = re.search(r"context=(\w+:\w+:\w+)", answers.who or "")
    theirs = f"scontext={own[1]}" if own else "scontext="
    refused = [line for line in answers.denials if "permissive=1" not in line]
    ours = [line for line in refused if theirs in line and _NEEDED.search(line)]
    if ours and mode != "Permissive":
        advice = (
            "the image's policy forbids it: a rule for that, or `setenforce 0` on a test device"
        )
        return Answer("fail", f"{mode or 'enforcing'}; it refused: {ours[-1]}", advice)
    seen = "no denial about the DSP"
    if answers.denials:
        seen = f"denials about the DSP, none of them in our way: {answers.denials[-1]}"
    return Answer("ok", f"{mode or 'its mode is not told'}; {seen}")


def _processor(patient: Patient) -> Answer:
    """Whether the processor that runs HTP code is up."""
    states = {n: s for n, s in patient.answers.vitals.remoteprocs.items() if "cdsp" in n}
    if not states:
        return Answer("unknown", "the kernel does not show it to us")
    shown = listed(f"{name}: {state}" for name, state in states.items())
    if "dsp-down" in patient.findings:
        advice = "reboot it; if it stays down, its firmware (cdsp.mbn) does not load: see dmesg"
        return Answer("fail", shown, advice)
    return Answer("ok", shown)


def _daemon(patient: Patient) -> Answer:
    """The daemon that reads the DSP's files for it where the process itself may not."""
    if running := patient.answers.daemons:
        return Answer("ok", f"running: {listed(running)}")
    if not patient.answers.sees_processes:
        return Answer("unknown", "the device shows us no processes but our own")
    advice = "start it if no session comes up: it reads the DSP's files where a process may not"
    return Answer("warn", "not running", advice)


def _rpc_library(patient: Patient) -> Answer:
    """Where the library is that stubs reach the DSP with, and of which build."""
    found = patient.answers.rpc_libraries
    if usable := readable(found):
        known = patient.answers.rpc_builds
        return Answer("ok", listed(f"{p} ({known[p]})" if p in known else p for p in usable))
    if found:
        advice = "without it the stub cannot be loaded: make it readable for the shell user"
        return Answer("fail", f"no permission: {listed(found)}", advice)
    where = ", ".join(patient.platform.library_folders)
    install = "" if patient.platform.libc == "bionic" else " (github.com/qualcomm/fastrpc has it)"
    advice = f"HTP cannot be reached without it: the vendor's image lacks it{install}"
    return Answer("fail", f"not in {where}", advice)


def _domain(patient: Patient) -> Answer:
    who = patient.answers.who or ("root" if patient.answers.vitals.is_root else "not told")
    found = f"domain 3 (cdsp), asked for by {who}"
    if patient.answers.vitals.is_root and patient.platform.libc == "bionic":
        advice = "if it is refused (0x80000416), use adb's shell user: `adb unroot`"
        return Answer("warn", found, advice)
    return Answer("ok", found) if patient.answers.who else Answer("unknown", found)


def _unsigned_pd(patient: Patient) -> Answer:
    """Whether the DSP takes code that is not signed.

    An unsigned process runs inside fastrpc_shell_unsigned_3, which the device's image brings.
    Without a process on the DSP it can only be told that it is there and can be read.
    """
    shells = patient.answers.shells
    unsigned = {path: how for path, how in shells.items() if path.endswith(UNSIGNED_SHELL)}
    if usable := readable(unsigned):
        return Answer("ok", f"can be started: {listed(usable)}")
    if unsigned:
        advice = "the session tells; SELinux or its mode keeps the shell from reading it"
        return Answer("unknown", f"no permission: {listed(unsigned)}", advice)
    if shells:
        advice = "the DSP may take signed code only (testsig): see the QAIRT docs, signing"
        return Answer("warn", f"only {listed(shells)}", advice)
    return Answer("unknown", f"no {UNSIGNED_SHELL} where the shell user may look")


def _signature(patient: Patient) -> Answer:
    if patient.answers.signatures:
        return Answer("ok", f"a test signature is there: {listed(patient.answers.signatures)}")
    if any(path.endswith(UNSIGNED_SHELL) for path in patient.answers.shells):
        return Answer("ok", "none is needed in an unsigned domain")
    return Answer("unknown", "no test signature; whether one is needed, only a session tells")


def _skel(patient: Patient, libraries: Sequence[LibraryFacts] | None) -> Answer:
    """Whether the DSP's half is where the DSP looks for it; our folder is the first it looks in."""
    if patient.no_dsp is not None:
        return Answer("not-applicable", patient.no_dsp)
    firmware = listed(patient.answers.skels)
    behind = f"; the image's own come behind: {firmware}" if firmware else ""
    if libraries is None:
        return Answer("unknown", f"no runtime was looked at{behind}")
    arch = patient.device.htp_arch
    names = [one.file_name for one in _of(libraries, "skel", arch)]
    folders = "the runtime's folder, " + ", ".join(patient.platform.dsp_folders)
    if names:
        return Answer("ok", f"{listed(names)}, looked for in {folders}{behind}")
    wanted = "libQnnHtpV..Skel.so" if arch is None else f"libQnnHtpV{arch}Skel.so"
    advice = f"a runtime with {wanted}: the SDK has it in lib/hexagon-v{arch or '..'}/unsigned"
    if firmware:
        return Answer("warn", f"none of ours; the image's is taken: {firmware}", advice)
    return Answer("fail", f"{wanted} is not in {folders}", advice)


def _stub_and_skel(patient: Patient, libraries: Sequence[LibraryFacts] | None) -> Answer:
    """Whether backend, stub and skel are of one build."""
    if not patient.platform.has_dsp:
        return Answer("not-applicable", patient.no_dsp or "")
    if libraries is None:
        return Answer("unknown", "no runtime was looked at")
    arch = patient.device.htp_arch
    files = [one for kind in ("backend-htp", "stub", "skel") for one in _of(libraries, kind, arch)]
    kinds = {one.kind for one in files}
    shown = listed(f"{one.file_name} {one.build or 'of a build not told'}" for one in files)
    if "stub" not in kinds:
        advice = "take stub and skel of this HTP from the SDK that the backend is of"
        return Answer("fail", f"no stub for HTP v{arch or '?'} among: {shown or 'nothing'}", advice)
    builds = [one.build for one in files if one.build is not None]
    if any(not one.agrees_with(builds[0]) for one in builds):
        return Answer("fail", f"of two builds: {shown}", "take all of them from one SDK")
    return Answer("ok" if len(builds) == len(files) else "unknown", shown)


def _of(libraries: Sequence[LibraryFacts], kind: str, arch: int | None) -> Iterator[LibraryFacts]:
    for one in libraries:
        if one.kind == kind and (arch is None or one.htp_arch in (None, arch)):
            yield one


_LOOKS: Final = {
    "DSP nodes": _nodes,
    "SELinux": _selinux,
    "DSP processor": _processor,
    "cdsprpcd": _daemon,
    RPC_LIBRARY: _rpc_library,
    "DSP domain": _domain,
    "unsigned PD": _unsigned_pd,
    "DSP signature": _signature,
}
"""What one round trip tells, in the order in which a session comes about."""
