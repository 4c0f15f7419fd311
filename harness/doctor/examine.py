"""All checks: this computer, its lab, and every device in parallel."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import shutil
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from harness.bench.workbench import Workbench
from harness.core.cache import BOARDS, PRIVATE, open_to_others
from harness.core.deadline import Deadline
from harness.core.errors import ConfigError, HarnessError, InfraError, NoLabError
from harness.core.outgoing_text import counted
from harness.core.socs import TARGETS
from harness.doctor.check import LAB_FILE, REACHABLE, Answer, Checked, Status
from harness.doctor.device_visit import Options, open_workbench, visit
from harness.dsp.hexagon import HMX, SETUP, VECTOR_FLOAT, find_qemu
from harness.lab.devices import AdbDeviceConfig, DeviceConfig, SimulatedDeviceConfig
from harness.lab.fields import PACKAGE_INDEX
from harness.lab.inventory import Lab, load_lab
from harness.nightly.notifications import channel_problem
from harness.probe.build import Ndk, ProbeBuilder, find_ndk
from harness.runtimes.catalog import Catalog
from harness.runtimes.pypi import QNN_PLATFORMS, QNN_PROJECT
from harness.simulator.board import QEMUS, first_program, run_program
from harness.transport.adb_address import USER_SERVER, SshAddress, has_address
from harness.transport.adb_server import STATE_ADVICE, AdbServer, SeenDevice, adb_binary
from harness.transport.questions import memory

_PROGRAM_S: Final = 5.0
_SERVER_S: Final = 3.0


@dataclass(frozen=True)
class HostFacts:
    """The facts about this computer; texts as printed by the programs.

    `compilers` maps targets to the source of the probe, such as a compiler's command, or else
    `compiler_problems` has the reason. `adb` is the program that the harness starts, `path_adb` the
    one on PATH. `server_running` is about the user's own adb server.
    """

    python: tuple[int, int, int] = (0, 0, 0)
    machine: str = ""
    compilers: Mapping[str, str] = field(default_factory=dict)
    compiler_problems: Mapping[str, str] = field(default_factory=dict)
    ndk: Ndk | None = None
    qemu: str | None = None
    adb: str | None = None
    adb_version: str | None = None
    adb_problem: str | None = None
    path_adb: str | None = None
    server_running: bool = False
    cache: str = ""
    cache_problem: str | None = None
    cache_free_bytes: int | None = None
    reports: str = ""
    reports_free_bytes: int | None = None
    memory_bytes: int | None = None


def inspect_host(
    cache: Path, reports: Path, targets: Iterable[str], environment: Mapping[str, str]
) -> HostFacts:
    """Collect the facts about this computer, within seconds and without raising."""
    builder = ProbeBuilder(cache / "probe", environment)
    compilers: dict[str, str] = {}
    problems: dict[str, str] = {}
    for target in targets:
        try:
            compilers[target] = builder.origin(target)
        except HarnessError as error:
            problems[target] = str(error)
    adb, adb_problem = None, None
    try:
        adb = str(adb_binary())
    except HarnessError as error:
        adb_problem = str(error)
    return HostFacts(
        python=sys.version_info[:3],
        machine=os.uname().machine,
        compilers=compilers,
        compiler_problems=problems,
        ndk=find_ndk(environment),
        qemu=first_program(QEMUS, environment.get("PATH")),
        adb=adb,
        adb_version=_version_of(adb) if adb else None,
        adb_problem=adb_problem,
        path_adb=shutil.which("adb", path=environment.get("PATH")),
        server_running=AdbServer().is_running(timeout_s=_SERVER_S),
        cache=str(cache),
        cache_problem=_write_problem(cache),
        cache_free_bytes=_free(cache),
        reports=str(reports.absolute()),
        reports_free_bytes=_free(reports.absolute()),
        memory_bytes=_memory(),
    )


def index_problem(requirement: str, *, timeout_s: float) -> str | None:
    """Return why pip cannot find a project, with its own configuration; None if it can."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input"]
    command += ["index", "versions", "--retries", "0", "--timeout", "5", requirement]
    try:
        process = run_program(command, timeout_s=timeout_s)
    except InfraError:
        return f"pip did not end within {timeout_s:g} s"
    except OSError as error:
        return str(error)
    if process.returncode == 0:
        return None
    lines = [line for line in process.stderr.splitlines() if line.startswith("ERROR")]
    return (lines or process.stderr.splitlines() or ["pip failed"])[-1].removeprefix("ERROR: ")


def _version_of(adb: str) -> str | None:
    try:
        process = run_program([adb, "--version"], timeout_s=_PROGRAM_S)
    except (OSError, InfraError):
        return None
    return ", ".join(process.stdout.splitlines()[:2]) or None


def _free(path: Path) -> int | None:
    while not path.exists() and path != path.parent:
        path = path.parent
    try:
        return shutil.disk_usage(path).free
    except OSError:
        return None


def _write_problem(folder: Path) -> str | None:
    if (why := open_to_others(folder)) is not None:
        return why
    try:
        folder.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
        file = folder / f".doctor-{os.getpid()}"
        file.write_bytes(b"ok")
        file.unlink()
    except OSError as error:
        return f"{error.strerror or error}"
    return None


def _memory() -> int | None:
    with contextlib.suppress(OSError):
        return memory({"memory": Path("/proc/meminfo").read_text().splitlines()}, "MemAvailable")
    return None


_NO_QEMU: Final = Answer(
    "not-applicable", "none; only simulated arm64 boards need it (apt install qemu-user)"
)
_GB: Final = 1_000_000_000
_MEMORY_NEEDS_GB: Final = 2.0


@dataclass(frozen=True)
class LabNeeds:
    """The needs of the lab's devices: their targets, and how they are attached.

    `no_target` are devices on USB without a target in the lab, which may be phones. `server` is
    whether a device is attached to this computer's own adb server.
    """

    targets: frozenset[str] = frozenset()
    no_target: tuple[str, ...] = ()
    server: bool = False


def host_checks(facts: HostFacts, needs: LabNeeds) -> Iterator[Checked]:
    """Yield all checks of the host but the package index, which is slower."""
    answers = {
        "Python": Answer("ok", f"{'.'.join(map(str, facts.python))} on {facts.machine}"),
        "C compiler": _c_compiler(facts),
        "cross compiler": _cross_compiler(facts, needs),
        "Android NDK": _ndk(facts, needs),
        "qemu": Answer("ok", facts.qemu) if facts.qemu else _NO_QEMU,
        "adb": _adb(facts),
        "adb server": _adb_server(facts, needs),
        "cache": _cache(facts),
        "reports": _room(facts.reports, facts.reports_free_bytes, 0.5, "`pytest --reports`"),
        "memory": _memory_check(facts),
    }
    return (Checked("host", "host", name, *answer) for name, answer in answers.items())


def _c_compiler(facts: HostFacts) -> Answer:
    command = facts.compilers.get("linux-x64")
    if command is None:
        why = facts.compiler_problems.get("linux-x64", "not looked for")
        return Answer("fail", why, "apt install gcc (or clang), or set CC")
    return Answer("ok", command)


def _cross_compiler(facts: HostFacts, needs: LabNeeds) -> Answer:
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
    is_needed = "android-arm64" in needs.targets
    advice = (
        "set ANDROID_NDK_HOME to an unpacked NDK (developer.android.com/ndk/downloads), or name a "
        "folder with a prebuilt probe in QNN_HARNESS_PROBES"
    )
    if facts.ndk is None:
        command = facts.compilers.get("android-arm64")
        if command is not None:
            return Answer("ok", f"none; {command}")
        if not is_needed and not needs.no_target:
            return Answer("not-applicable", "none; no device of the lab is known to be a phone")
        if not is_needed:
            may_be = f"{', '.join(needs.no_target)} may be a phone: devices.yaml has no `target`"
            return Answer("warn", f"none; {may_be}", advice)
        return Answer("fail", "none", advice)
    levels = sorted(facts.ndk.compilers)
    if not levels:
        text = f"{facts.ndk.root} ({facts.ndk.named_by}) has no compilers for arm64 Android"
        return Answer("fail" if is_needed else "warn", text, advice)
    revision = f"{facts.ndk.revision} " if facts.ndk.revision else ""
    return Answer("ok", f"{revision}in {facts.ndk.root}, API {levels[0]} to {levels[-1]}")


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
    return _room(facts.cache, facts.cache_free_bytes, 2.0, "QNN_HARNESS_CACHE")


def _memory_check(facts: HostFacts) -> Answer:
    if facts.memory_bytes is None:
        return Answer("unknown", "not told")
    text = f"{facts.memory_bytes / _GB:.1f} GB available"
    if facts.memory_bytes < _MEMORY_NEEDS_GB * _GB:
        return Answer("warn", text, "end other programs: compiling contexts takes 2 GB")
    return Answer("ok", text)


def packages(cached: list[str], missing: list[str], problem: str | None) -> Answer:
    """Check that the newest libraries are cached or can be fetched; `problem` says why not."""
    text = f"the newest is {'' if cached else 'not '}in the cache"
    text += f": {', '.join(cached)}" if cached else ""
    if not missing:
        return Answer("ok", text)
    if problem is None:
        return Answer("ok", f"{text}; {', '.join(missing)} can be fetched")
    advice = (
        "connect to a package index (pip's own configuration is used), or name a folder with the "
        "wheels in PIP_FIND_LINKS"
    )
    status: Status = "warn" if cached else "fail"
    return Answer(status, f"{text}; {', '.join(missing)} cannot be fetched: {problem}", advice)


def _room(folder: str, free: int | None, least_gb: float, knob: str) -> Answer:
    if free is None:
        return Answer("unknown", f"{folder}: free space not told")
    text = f"{folder}: {free / _GB:.1f} GB free"
    if free >= least_gb * _GB:
        return Answer("ok", text)
    status: Status = "fail" if free < 0.1 * least_gb * _GB else "warn"
    return Answer(status, text, f"free some, or choose another folder with {knob}")


_ANSWER_S: Final = 5.0
_NO_LAB: Final = "none here; a simulated device needs none: qnn-harness run FILE --device sim-v73"
_check = partial(Checked, "lab")


def lab_needs(devices: Sequence[DeviceConfig]) -> LabNeeds:
    """Return the needs of these devices (pure)."""
    by_adb = [device for device in devices if isinstance(device, AdbDeviceConfig)]
    return LabNeeds(
        targets=frozenset(device.target for device in devices if device.target),
        no_target=tuple(
            device.name
            for device in by_adb
            if device.target is None and not has_address(device.serial)
        ),
        server=any(not (device.host or device.address) for device in by_adb),
    )


def file_check(path: Path, lab: Lab | ConfigError, *, named: bool) -> Checked:
    """Check devices.yaml; it may be missing unless devices were `named`."""
    if isinstance(lab, NoLabError) and not named and path == Path(LAB_FILE):
        return _check("lab", LAB_FILE, "not-applicable", _NO_LAB, "for a phone: qnn-harness init")
    if isinstance(lab, ConfigError):
        advice = "" if isinstance(lab, NoLabError) else "correct what the message names"
        return _check("lab", LAB_FILE, "fail", str(lab), advice)
    devices, enabled = counted(len(lab.devices), "device"), len(lab.enabled_devices())
    return _check("lab", LAB_FILE, "ok", f"{path}: {devices}, {enabled} enabled")


def simulated_checks(lab: Lab, devices: Sequence[DeviceConfig], cache: Path) -> Iterator[Checked]:
    """Check that this computer can simulate its devices, and the emulator of simulated DSPs."""
    for device in lab.devices:
        why = lab.why_off(device)
        if why is not None and device.enabled:
            yield _check(device.name, "simulated here", "not-applicable", why)
    for device in devices:
        if isinstance(device, SimulatedDeviceConfig) and device.dsp is not None:
            yield _check(device.name, "DSP emulator", *_emulator(cache))


def _emulator(cache: Path) -> Answer:
    try:
        qemu = find_qemu(cache)
    except HarnessError as error:
        return Answer("fail", str(error))
    text = f"{qemu.path}, version {qemu.version}"
    lacks = [name for name in (VECTOR_FLOAT, HMX) if name not in qemu.can]
    if not lacks:
        return Answer("ok", text)
    missing = f"{text}, lacks {' and '.join(lacks)}: graphs that need it are unsupported"
    return Answer("warn", missing, f"`{SETUP}` builds one that has it")


def source_checks(catalog: Catalog) -> Iterator[Checked]:
    """Check the versions in the lab's own sources of runtimes, by target."""
    for source in catalog.sources:
        if source.name == PACKAGE_INDEX:
            continue
        try:
            versions = {target: source.versions(target) for target in TARGETS}
        except HarnessError as error:
            advice = "correct it in `runtimes` of devices.yaml, or the variable that names it"
            yield _check("lab", f"source {source.name}", "fail", str(error), advice)
            continue
        texts = [f"{', '.join(v[-3:])} for {target}" for target, v in versions.items() if v]
        if texts:
            yield _check("lab", f"source {source.name}", "ok", "; ".join(texts))
        else:
            advice = "name the folder that holds lib/, or another source"
            yield _check("lab", f"source {source.name}", "warn", "no QNN in it", advice)


def notify_checks(lab: Lab) -> Iterator[Checked]:
    """Check that each channel of `notify` is set up, without sending anything."""
    for channel in lab.notify:
        if why := channel_problem(channel):
            advice = "correct devices.yaml or the environment, then: qnn-harness notify --test"
            yield _check("lab", f"notify {channel.name}", "fail", why, advice)
        else:
            text = "is set up; to try it: qnn-harness notify --test"
            yield _check("lab", f"notify {channel.name}", "ok", text)


def server_checks(lab: Lab, devices: Sequence[DeviceConfig]) -> Iterator[Checked]:
    """Check that the adb servers on other computers answer."""
    by_adb = [device for device in devices if isinstance(device, AdbDeviceConfig)]
    addresses = {dev.server(lab): dev for dev in by_adb if dev.host or dev.address}
    for address, device in addresses.items():
        name = device.host or address.host
        try:
            AdbServer(address).version(deadline=Deadline(_ANSWER_S))
        except InfraError as error:
            advice = f"run `{address.start_command}` there"
            if address.port:
                advice += f", and let port {address.port} through"
            if isinstance(address, SshAddress):
                advice = "see that ssh connects without a prompt, and an adb server runs there"
            yield _check("lab", f"adb host {name}", "fail", str(error), advice)
        else:
            yield _check("lab", f"adb host {name}", "ok", f"answers at {address}")


def unlisted_checks(lab: Lab) -> Iterator[Checked]:
    """List the devices of the user's own adb server, if it runs, that are not in the lab."""
    by_adb = [device for device in lab.devices if isinstance(device, AdbDeviceConfig)]
    known = {device.serial for device in by_adb if device.server(lab) == USER_SERVER}
    server = AdbServer(USER_SERVER)
    with contextlib.suppress(InfraError):
        devices = server.devices() if server.is_running() else []
        yield from (unlisted_check(device) for device in devices if device.serial not in known)


def unlisted_check(device: SeenDevice) -> Checked:
    """Return the check for a device that is not in devices.yaml (pure)."""
    advice = "name it in devices.yaml to use it"
    if device.state in STATE_ADVICE:
        advice = f"{STATE_ADVICE[device.state]}; then {advice}"
    text = " ".join(filter(None, (device.state, device.model)))
    return _check("lab", f"not in the lab: {device.serial}", "warn", text, advice)


_log = logging.getLogger(__name__)

_REPORTS: Final = Path("reports")
_AT_ONCE: Final = 4
_INDEX_S: Final = 20.0
_LOOK_S: Final = 0.2
_END_S: Final = 5.0


def examine(options: Options) -> Iterator[Checked]:
    """Run all checks. Raises ConfigError for an unknown device only."""
    lab: Lab | ConfigError
    devices: list[DeviceConfig] = []
    try:
        lab = load_lab(options.lab_file)
    except ConfigError as error:
        lab = error
    else:
        names = list(options.names) or [device.name for device in lab.enabled_devices()]
        devices = lab.select(names) if names else []
    needs = lab_needs(devices)
    _log.info("looking at this computer")
    facts = inspect_host(options.cache, _REPORTS, TARGETS, options.environment)
    yield from host_checks(facts, needs)
    _log.info("asking for libraries")
    yield _library_check(options.cache, needs)
    yield file_check(options.lab_file, lab, named=bool(options.names))
    if isinstance(lab, ConfigError):
        return
    yield from simulated_checks(lab, devices, options.cache / BOARDS)
    try:
        yield from source_checks(Catalog.of(lab, options.environment, options.cache))
    except ConfigError as error:
        yield Checked("lab", "lab", "sources", "fail", str(error), "correct `runtimes`")
    yield from notify_checks(lab)
    _log.info("asking the lab's adb servers")
    yield from server_checks(lab, devices)
    yield from unlisted_checks(lab)
    yield from visits(options, lab, [device.name for device in devices])


def _library_check(cache: Path, needs: LabNeeds) -> Checked:
    catalog = Catalog(cache)
    cached: list[str] = []
    missing: list[str] = []
    # contexts are compiled and read here, whatever the devices are
    for target in sorted({"linux-x64"} | (needs.targets & set(QNN_PLATFORMS))):
        with contextlib.suppress(HarnessError):
            version = catalog.resolve("latest", target)[-1]
            is_cached = catalog.is_cached(version, target)
            (cached if is_cached else missing).append(f"{version} for {target}")
    problem = index_problem(QNN_PROJECT, timeout_s=_INDEX_S) if missing else None
    return Checked("host", "host", "QNN of PyPI", *packages(cached, missing, problem))


class Visit(threading.Thread):
    """A thread that checks a device in one of a few slots, with its own deadline.

    Its results so far are kept if it hangs and is abandoned.
    """

    def __init__(self, name: str, options: Options, lab: Lab, slots: threading.Semaphore) -> None:
        super().__init__(name=name, daemon=True)
        self.found: list[Checked] = []
        self._options, self._lab, self._slots = options, lab, slots
        self._until, self._is_over = math.inf, False
        self._bench: Workbench | None = None

    def run(self) -> None:
        with self._slots:
            if self._is_over:
                return
            self._until = time.monotonic() + self._options.timeout_s
            _log.info(f"{self.name}: connecting")
            try:
                self._bench = open_workbench(self._lab, self._options)
                for check in visit(self._bench, self.name, self._options):
                    self._add(check)
            except Exception as error:  # nothing else would report it
                text = f"{type(error).__name__}: {error}"
                advice = "a bug of the harness, or of this lab's files: please report it"
                self._add(Checked("device", self.name, "doctor", "fail", text, advice))
            finally:
                # also closes it if it was opened after end()
                self._close()

    def _add(self, check: Checked) -> None:
        if not self._is_over:
            self.found.append(check)
            _log.info(f"{self.name}: {check.name}")

    @property
    def is_over(self) -> bool:
        return self._is_over or not self.is_alive()

    def give_up_if_late(self) -> None:
        """Abandon it after its deadline, and let another one begin."""
        if not self.is_over and time.monotonic() >= self._until:
            text = f"it did not end within {self._options.timeout_s:g} s and was abandoned"
            advice = f"reboot it; `qnn-harness devices heal {self.name}` does so"
            title = "deadline" if self.found else REACHABLE
            self._add(Checked("device", self.name, title, "fail", text, advice))
            self._is_over = True
            self._slots.release()

    def end(self) -> None:
        """Close what it has opened, if it was abandoned or interrupted."""
        self._is_over = True
        self._close()

    def _close(self) -> None:
        bench, self._bench = self._bench, None
        if bench is not None:
            with contextlib.suppress(Exception):
                bench.close()


def visits(options: Options, lab: Lab, names: Iterable[str]) -> Iterator[Checked]:
    """Visit several devices in parallel; yield the results device by device, in order."""
    slots = threading.Semaphore(_AT_ONCE)
    every = [Visit(name, options, lab, slots) for name in names]
    try:
        for thread in every:
            thread.start()
        for thread in every:
            while not thread.is_over:
                thread.join(_LOOK_S)
                for each in every:
                    each.give_up_if_late()
            yield from thread.found
    finally:
        ending = [threading.Thread(target=each.end, daemon=True) for each in every]
        for closing in ending:
            closing.start()
        deadline = Deadline(_END_S)
        # a visit whose device is gone ends, too
        for other in (*ending, *(each for each in every if each.ident is not None)):
            other.join(deadline.remaining())
