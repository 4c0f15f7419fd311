"""What a device's answers mean: one small function for each thing that was looked at (pure)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from harness.doctor.dsp_checks import (
    dsp_nodes,
    dsp_processor,
    firmware_skels,
    opencl,
    process_domain,
    rpc_library,
)
from harness.doctor.patient import Patient
from harness.lab.checks import Check, Status
from harness.qnn.socs import SOCS

_SKEW_S: Final = 60.0


def device_checks(patient: Patient) -> Iterator[Check]:
    """Everything that one round trip tells."""
    for check in (
        soc,
        system,
        dsp_nodes,
        dsp_processor,
        rpc_library,
        process_domain,
        firmware_skels,
        opencl,
        selinux,
        work_folder,
        programs,
        storage,
        memory,
        battery,
        temperature,
        clock,
    ):
        yield check(patient)


def soc(patient: Patient) -> Check:
    """What it is: by itself, by devices.yaml, by our table."""
    said, configured = patient.facts.soc, patient.config.soc
    name = configured or said
    known, number = SOCS.get(name or ""), patient.facts.soc_id
    text = f"{name or 'not told'}" + (f" (soc_id {number})" if number is not None else "")
    if said and configured and said != configured:
        mine, its = SOCS.get(configured), SOCS.get(said)
        differ = bool(mine and its and mine.htp_arch != its.htp_arch)
        return patient.check(
            "SoC",
            "fail" if differ else "warn",
            f"devices.yaml says {configured}, the device says {said}"
            + (f" (soc_id {number})" if number is not None else ""),
            "correct or remove `soc` of the device in devices.yaml"
            if its
            else "both may be names of one SoC; if not, correct `soc` in devices.yaml",
        )
    if patient.htp_arch is not None:
        return patient.check("SoC", "ok", f"{text}, HTP v{patient.htp_arch}")
    if known is not None:
        return patient.check("SoC", "ok", f"{text}, which has no HTP")
    advice = "set `soc`, or `htp_arch`, of the device in devices.yaml"
    return patient.check("SoC", "warn", f"{text}, whose HTP is not known", advice)


def system(patient: Patient) -> Check:
    """The operating system, and whether programs for its target can start there."""
    facts, answers = patient.facts, patient.answers
    build = facts.os_build or "an unknown system"
    if patient.platform.libc == "bionic":
        api = "API level not told" if facts.android_api is None else f"API {facts.android_api}"
        return patient.check("system", "ok", f"{patient.target}: {build}, {api}")
    libc = ".".join(map(str, answers.glibc)) if answers.glibc else None
    if libc is None:
        status: Status = "ok" if answers.has_interpreter else "fail"
        found = f"{patient.target}: {build}, C library: {answers.libc or 'not told'}"
        where = patient.platform.interpreter
        advice = "" if status == "ok" else f"its programs need glibc, whose {where} is missing"
        return patient.check("system", status, found, advice)
    return patient.check("system", "ok", f"{patient.target}: {build}, glibc {libc}")


def selinux(patient: Patient) -> Check:
    """SELinux mode; denials end up in logcat as `avc: denied`."""
    mode = patient.answers.selinux
    if mode is None:
        absent = patient.platform.libc == "glibc"
        status: Status = "not-applicable" if absent else "unknown"
        return patient.check("SELinux", status, "there is none" if absent else "not told")
    note = "; what it refuses stands in logcat as `avc: denied`" if mode == "Enforcing" else ""
    return patient.check("SELinux", "ok", mode + note)


def work_folder(patient: Patient) -> Check:
    """Whether files can be written there, and executed."""
    vitals, answers = patient.answers.vitals, patient.answers
    if vitals.write_problem is not None:
        advice = "set `workdir` of the device to a folder that the shell user may write to"
        return patient.check("work folder", "fail", vitals.write_problem, advice)
    if answers.exec_exit != 7:
        said = answers.exec_said or "no answer"
        advice = "its file system is mounted noexec, or forbids it: choose another `workdir`"
        return patient.check("work folder", "fail", f"nothing can be executed: {said}", advice)
    return patient.check("work folder", "ok", f"{patient.workdir} takes files and runs them")


def programs(patient: Patient) -> Check:
    """The programs that deploying needs."""
    missing, tools = patient.answers.missing_programs, patient.answers.tools
    if missing:
        advice = "deploying needs them: install busybox, toybox or coreutils on the device"
        return patient.check("programs", "fail", f"missing: {', '.join(missing)}", advice)
    return patient.check("programs", "ok", tools or "all that are needed")


def storage(patient: Patient) -> Check:
    """Free space in the file system of the work folder."""
    free, advice = (
        patient.answers.vitals.free_storage_bytes,
        "`qnn-harness devices clean` frees some",
    )
    if free is None:
        return patient.check("free storage", "unknown", "not told")
    full = "storage-full" in patient.findings
    status: Status = "fail" if full else "warn" if "low-storage" in patient.findings else "ok"
    found = f"{free / 1e9:.1f} GB"
    return patient.check("free storage", status, found, "" if status == "ok" else advice)


def memory(patient: Patient) -> Check:
    """Memory that is available."""
    free = patient.answers.vitals.free_ram_bytes
    if free is None:
        return patient.check("free memory", "unknown", "not told")
    low = "low-memory" in patient.findings
    advice = "end other programs on it, or reboot it" if low else ""
    return patient.check("free memory", "warn" if low else "ok", f"{free / 1e9:.1f} GB", advice)


def battery(patient: Patient) -> Check:
    """Charge, and whether it is being charged."""
    percent = patient.answers.vitals.battery_percent
    if percent is None:
        return patient.check("battery", "not-applicable", "it shows none")
    charging = {True: ", charging", False: ", not charging", None: ""}
    found = f"{percent} %{charging[patient.answers.vitals.battery_charging]}"
    low = patient.findings.get("low-battery")
    if low is None:
        return patient.check("battery", "ok", found)
    status: Status = "fail" if low.state == "bad" else "warn"
    return patient.check("battery", status, found, "charge it")


def temperature(patient: Patient) -> Check:
    """The hottest sensor."""
    vitals = patient.answers.vitals
    if vitals.hottest_c is None and patient.config.simulated:
        return patient.check("temperature", "not-applicable", "it has no sensors")
    if vitals.hottest_c is None:
        return patient.check("temperature", "unknown", "no sensor can be read")
    found = f"{vitals.hottest_c:.0f} C ({vitals.hottest})"
    hot = patient.findings.get("hot")
    if hot is None:
        return patient.check("temperature", "ok", found)
    status: Status = "fail" if hot.state == "bad" else "warn"
    return patient.check("temperature", status, found, "let it cool down; mind its fan and case")


def clock(patient: Patient) -> Check:
    """Its clock against the host's: logs of a case are found by time."""
    skew = patient.skew_s
    if skew is None:
        return patient.check("clock", "unknown", "not told")
    found = f"{abs(skew):.0f} s {'ahead of' if skew > 0 else 'behind'} this computer's"
    if abs(skew) <= _SKEW_S:
        close = "within a second of this computer's" if abs(skew) < 1.5 else found
        return patient.check("clock", "ok", close)
    advice = "set its clock (automatic time, or `adb shell date`): logs are compared by time"
    return patient.check("clock", "warn", found, advice)
