"""What the facts about this computer mean: one small function for each thing (pure)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from harness.doctor.host_facts import HostFacts
from harness.doctor.usb import VENDORS, rule_line
from harness.lab.checks import Check, Status

_LEAST_PYTHON: Final = (3, 11)
_GB: Final = 1_000_000_000
_CACHE_NEEDS_GB: Final = 2.0
_REPORTS_NEED_GB: Final = 0.5
_MEMORY_NEEDS_GB: Final = 2.0


@dataclass(frozen=True)
class LabNeeds:
    """What the lab wants of its computer: targets of its devices, and how they are attached.

    `usb` is whether a device hangs on this computer's own adb server by its serial number, `server`
    whether any does.
    """

    targets: frozenset[str] = frozenset()
    usb: bool = False
    server: bool = False


def host_checks(facts: HostFacts, needs: LabNeeds) -> Iterator[Check]:
    """Everything but the package index, which takes longer to ask."""
    yield python(facts)
    yield c_compiler(facts)
    yield cross_compiler(facts, needs)
    yield ndk(facts, needs)
    yield qemu(facts)
    yield adb(facts)
    yield adb_server(facts, needs)
    yield usb(facts, needs)
    yield cache(facts)
    yield reports(facts)
    yield memory(facts)


def python(facts: HostFacts) -> Check:
    """The interpreter."""
    text = ".".join(map(str, facts.python))
    if facts.python[:2] < _LEAST_PYTHON:
        return _check(
            "Python", "fail", text, "install Python 3.11 or newer, set PYTHON=/path/to/it"
        )
    return _check("Python", "ok", f"{text} on {facts.machine}")


def c_compiler(facts: HostFacts) -> Check:
    """What builds the probe for this computer, which reads contexts here and runs on simulators."""
    command = facts.compilers.get("linux-x64")
    if command is None:
        why = facts.compiler_problems.get("linux-x64", "not looked for")
        return _check("C compiler", "fail", why, "apt install gcc (or clang), or set CC")
    return _check("C compiler", "ok", command)


def cross_compiler(facts: HostFacts, needs: LabNeeds) -> Check:
    """What builds the probe for Linux boards."""
    command = facts.compilers.get("linux-arm64")
    if command is not None:
        return _check("cross compiler", "ok", command)
    if "linux-arm64" not in needs.targets:
        found = "none; no device of the lab is known to need one"
        return _check("cross compiler", "not-applicable", found)
    advice = (
        "apt install gcc-aarch64-linux-gnu, or pip install ziglang and put zig on PATH; or name a "
        "folder with a prebuilt probe in QNN_HARNESS_PROBES"
    )
    return _check("cross compiler", "fail", "none for linux-arm64", advice)


def ndk(facts: HostFacts, needs: LabNeeds) -> Check:
    """What builds the probe for phones."""
    wanted = "android-arm64" in needs.targets
    advice = (
        "set ANDROID_NDK_HOME to an unpacked NDK (developer.android.com/ndk/downloads), or name a "
        "folder with a prebuilt probe in QNN_HARNESS_PROBES"
    )
    if facts.ndk is None:
        command = facts.compilers.get("android-arm64")
        if command is not None:
            return _check("Android NDK", "ok", f"none, but {command}")
        if not wanted:
            found = "none; no device of the lab is known to be a phone"
            return _check("Android NDK", "not-applicable", found)
        return _check("Android NDK", "fail", "none", advice)
    levels = sorted(facts.ndk.compilers)
    if not levels:
        found = f"{facts.ndk.root} ({facts.ndk.named_by}) has no compilers for arm64 Android"
        return _check("Android NDK", "fail" if wanted else "warn", found, advice)
    revision = f"{facts.ndk.revision} " if facts.ndk.revision else ""
    found = f"{revision}in {facts.ndk.root}, API {levels[0]} to {levels[-1]}"
    return _check("Android NDK", "ok", found)


def qemu(facts: HostFacts) -> Check:
    """What runs simulated arm64 boards."""
    if facts.qemu is None:
        found = "none; only simulated arm64 boards need it (apt install qemu-user)"
        return _check("qemu", "not-applicable", found)
    return _check("qemu", "ok", facts.qemu)


def adb(facts: HostFacts) -> Check:
    """The adb program that the harness starts."""
    if facts.adb is None:
        why = facts.adb_problem or "none"
        return _check("adb", "fail", why, "unset ADBUTILS_ADB_PATH, or reinstall adbutils")
    if facts.adb_version is None:
        advice = "reinstall adbutils, or name another adb in ADBUTILS_ADB_PATH"
        return _check("adb", "fail", f"{facts.adb} does not run", advice)
    other = f"; PATH has {facts.path_adb}" if facts.path_adb else ""
    return _check("adb", "ok", f"{facts.adb}: {facts.adb_version}{other}")


def adb_server(facts: HostFacts, needs: LabNeeds) -> Check:
    """The user's own adb server, which real devices hang on."""
    if facts.server_running:
        owner = facts.server_owner
        user = f" of {owner.user}" if owner and owner.user else ""
        process = f", process {owner.pid} ({owner.command})" if owner and owner.pid else ""
        return _check("adb server", "ok", f"answers at 127.0.0.1:5037{user}{process}")
    if not needs.server:
        found = "not running, and no device of the lab needs it"
        return _check("adb server", "not-applicable", found)
    advice = "`adb start-server`, as the user who may open the devices"
    return _check("adb server", "fail", "none answers at 127.0.0.1:5037", advice)


def usb(facts: HostFacts, needs: LabNeeds) -> Check:
    """Whether this user may open the devices on USB."""
    name = "USB access"
    closed = [device for device in facts.usb if not device.writable]
    if closed:
        first = closed[0]
        who = f"{VENDORS[first.vendor]} {first.product or 'device'} {first.serial}".strip()
        ours = "plugdev" in facts.groups
        join = "" if ours else " and add the user to plugdev (then log in anew)"
        advice = f"put `{rule_line(first.vendor)}` into /etc/udev/rules.d/51-android.rules{join}"
        return _check(name, "fail", f"no permission for {first.node} ({who})", advice)
    if facts.usb:
        listed = ", ".join(
            f"{device.product or device.vendor} {device.node}" for device in facts.usb
        )
        return _check(name, "ok", f"may open {listed}")
    rules = ", ".join(f"{vendor}: {files[0]}" for vendor, files in sorted(facts.usb_rules.items()))
    if rules:
        return _check(name, "ok", f"no Qualcomm or Google device on the bus; rules: {rules}")
    if not needs.usb:
        return _check(name, "not-applicable", "no device of the lab is on USB here")
    advice = "check cable and port; `lsusb` must show it (other makers have other vendor ids)"
    return _check(name, "warn", "no Qualcomm or Google device on the bus, no udev rule", advice)


def cache(facts: HostFacts) -> Check:
    """Where wheels, libraries and contexts are kept."""
    if facts.cache_problem is not None:
        advice = "set QNN_HARNESS_CACHE to a folder that can be written"
        return _check("cache", "fail", f"{facts.cache}: {facts.cache_problem}", advice)
    return _room("cache", facts.cache, facts.cache_free_bytes, _CACHE_NEEDS_GB, "QNN_HARNESS_CACHE")


def reports(facts: HostFacts) -> Check:
    """Where results go."""
    return _room(
        "reports", facts.reports, facts.reports_free_bytes, _REPORTS_NEED_GB, "`pytest --reports`"
    )


def memory(facts: HostFacts) -> Check:
    """Memory; compiling large contexts takes gigabytes."""
    if facts.memory_bytes is None:
        return _check("memory", "unknown", "not told")
    text = f"{facts.memory_bytes / _GB:.1f} GB available"
    if facts.memory_bytes < _MEMORY_NEEDS_GB * _GB:
        return _check("memory", "warn", text, "end other programs: compiling contexts takes 2 GB")
    return _check("memory", "ok", text)


def packages(cached: list[str], missing: list[str], problem: str | None) -> Check:
    """Whether the newest libraries are here, or can be fetched: `problem` says why they cannot."""
    name = "QNN libraries"
    here = f"in the cache: {', '.join(cached)}" if cached else "none in the cache"
    if not missing:
        return _check(name, "ok", here)
    if problem is None:
        return _check(name, "ok", f"{here}; {', '.join(missing)} can be fetched")
    advice = (
        "connect to a package index (pip's own configuration is used), or name a folder with the "
        "wheels in PIP_FIND_LINKS"
    )
    status: Status = "warn" if cached else "fail"
    found = f"{here}; {', '.join(missing)} cannot be fetched: {problem}"
    return _check(name, status, found, advice)


def _room(name: str, folder: str, free: int | None, least_gb: float, knob: str) -> Check:
    if free is None:
        return _check(name, "unknown", f"{folder}: free space not told")
    text = f"{folder}: {free / _GB:.1f} GB free"
    if free >= least_gb * _GB:
        return _check(name, "ok", text)
    status: Status = "fail" if free < 0.1 * least_gb * _GB else "warn"
    return _check(name, status, text, f"free some, or choose another folder with {knob}")


def _check(name: str, status: Status, found: str, advice: str = "") -> Check:
    return Check("host", "host", name, status, found, advice)
