"""What the facts about this computer mean: one small function for each thing (pure)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from harness.device.adb.address import USER_SERVER
from harness.tools.doctor.check import Answer, Checked, Status
from harness.tools.doctor.host_facts import HostFacts

_GB: Final = 1_000_000_000
_CACHE_NEEDS_GB: Final = 2.0
_REPORTS_NEED_GB: Final = 0.5
_MEMORY_NEEDS_GB: Final = 2.0


@dataclass(frozen=True)
class LabNeeds:
    """What the lab wants of its computer: targets of its devices, and how they are attached.

    `untold` are devices on USB of which the lab tells no target, so that they may be phones.
    `server` is whether a device hangs on this computer's own adb server.
    """

    targets: frozenset[str] = frozenset()
    untold: tuple[str, ...] = ()
    server: bool = False


def host_checks(facts: HostFacts, needs: LabNeeds) -> Iterator[Checked]:
    """Everything but the package index, which takes longer to ask."""
    answers = {
        "Python": Answer("ok", f"{'.'.join(map(str, facts.python))} on {facts.machine}"),
        "C compiler": _c_compiler(facts),
        "cross compiler": _cross_compiler(facts, needs),
        "Android NDK": _ndk(facts, needs),
        "qemu": _qemu(facts),
        "adb": _adb(facts),
        "adb server": _adb_server(facts, needs),
        "cache": _cache(facts),
        "reports": _room(
            facts.reports, facts.reports_free_bytes, _REPORTS_NEED_GB, "`pytest --reports`"
        ),
        "memory": _memory(facts),
    }
    return (Checked("host", "host", name, *answer) for name, answer in answers.items())


def _c_compiler(facts: HostFacts) -> Answer:
    command = facts.compilers.get("linux-x64")
    if command is None:
        why = facts.compiler_problems.get("linux-x64", "not looked for")
        return Answer("fail", why, "apt install gcc (or clang), or set CC")
    return Answer("ok", command)


def _cross_compiler(facts: HostFacts, needs: LabNeeds) -> Answer:
    """What builds the probe for Linux boards."""
    command = facts.compilers.get("linux-arm64")
    if command is not None:
        return Answer("ok", command)
    if "linux-arm64" not in needs.targets:
        return Answer("not-applicable", "none; no device of the lab is known to need one")
    advice = (
        "apt install gcc-aarch64-linux-gnu, or pip install ziglang and put zig on PATH; or name a "
        "folder with a prebuilt probe in QNN_HARNESS_PROBES"
    )
    return Answer("fail", "none for linux-arm64", advice)


def _ndk(facts: HostFacts, needs: LabNeeds) -> Answer:
    """What builds the probe for phones."""
    wanted = "android-arm64" in needs.targets
    advice = (
        "set ANDROID_NDK_HOME to an unpacked NDK (developer.android.com/ndk/downloads), or name a "
        "folder with a prebuilt probe in QNN_HARNESS_PROBES"
    )
    if facts.ndk is None:
        command = facts.compilers.get("android-arm64")
        if command is not None:
            return Answer("ok", f"none; {command}")
        if not wanted and not needs.untold:
            return Answer("not-applicable", "none; no device of the lab is known to be a phone")
        if not wanted:
            may_be = f"{', '.join(needs.untold)} may be a phone: devices.yaml tells no `target`"
            return Answer("warn", f"none; {may_be}", advice)
        return Answer("fail", "none", advice)
    levels = sorted(facts.ndk.compilers)
    if not levels:
        found = f"{facts.ndk.root} ({facts.ndk.named_by}) has no compilers for arm64 Android"
        return Answer("fail" if wanted else "warn", found, advice)
    revision = f"{facts.ndk.revision} " if facts.ndk.revision else ""
    return Answer("ok", f"{revision}in {facts.ndk.root}, API {levels[0]} to {levels[-1]}")


def _qemu(facts: HostFacts) -> Answer:
    if facts.qemu is None:
        found = "none; only simulated arm64 boards need it (apt install qemu-user)"
        return Answer("not-applicable", found)
    return Answer("ok", facts.qemu)


def _adb(facts: HostFacts) -> Answer:
    if facts.adb is None:
        why = facts.adb_problem or "none"
        return Answer("fail", why, "unset ADBUTILS_ADB_PATH, or reinstall adbutils")
    if facts.adb_version is None:
        advice = "reinstall adbutils, or name another adb in ADBUTILS_ADB_PATH"
        return Answer("fail", f"{facts.adb} does not run", advice)
    other = f"; PATH has {facts.path_adb}" if facts.path_adb else ""
    return Answer("ok", f"{facts.adb}: {facts.adb_version}{other}")


def _adb_server(facts: HostFacts, needs: LabNeeds) -> Answer:
    """The user's own adb server, which real devices hang on."""
    if facts.server_running:
        everybody = "every account of this computer can use it and the devices on it"
        return Answer("ok", f"answers at {USER_SERVER}; {everybody}")
    if not needs.server:
        return Answer("not-applicable", "not running, and no device of the lab needs it")
    advice = "`adb start-server`, as the user who may open the devices"
    return Answer("fail", f"none answers at {USER_SERVER}", advice)


def _cache(facts: HostFacts) -> Answer:
    if facts.cache_problem is not None:
        advice = "set QNN_HARNESS_CACHE to a folder that you, and only you, can write to"
        return Answer("fail", f"{facts.cache}: {facts.cache_problem}", advice)
    return _room(facts.cache, facts.cache_free_bytes, _CACHE_NEEDS_GB, "QNN_HARNESS_CACHE")


def _memory(facts: HostFacts) -> Answer:
    """Memory; compiling large contexts takes gigabytes."""
    if facts.memory_bytes is None:
        return Answer("unknown", "not told")
    text = f"{facts.memory_bytes / _GB:.1f} GB available"
    if facts.memory_bytes < _MEMORY_NEEDS_GB * _GB:
        return Answer("warn", text, "end other programs: compiling contexts takes 2 GB")
    return Answer("ok", text)


def packages(cached: list[str], missing: list[str], problem: str | None) -> Answer:
    """Whether the newest libraries are here, or can be fetched: `problem` says why they cannot."""
    here = (
        f"the newest is in the cache: {', '.join(cached)}"
        if cached
        else "the newest is not in the cache"
    )
    if not missing:
        return Answer("ok", here)
    if problem is None:
        return Answer("ok", f"{here}; {', '.join(missing)} can be fetched")
    advice = (
        "connect to a package index (pip's own configuration is used), or name a folder with the "
        "wheels in PIP_FIND_LINKS"
    )
    status: Status = "warn" if cached else "fail"
    return Answer(status, f"{here}; {', '.join(missing)} cannot be fetched: {problem}", advice)


def _room(folder: str, free: int | None, least_gb: float, knob: str) -> Answer:
    if free is None:
        return Answer("unknown", f"{folder}: free space not told")
    text = f"{folder}: {free / _GB:.1f} GB free"
    if free >= least_gb * _GB:
        return Answer("ok", text)
    status: Status = "fail" if free < 0.1 * least_gb * _GB else "warn"
    return Answer(status, text, f"free some, or choose another folder with {knob}")
