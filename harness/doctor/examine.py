"""All checks: this computer, its lab, and every device in parallel."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import platform
import shutil
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from harness.bench.run_preparation import Workbench
from harness.core.deadline import Deadline
from harness.core.errors import ConfigError, HarnessError, InfraError, NoLabError
from harness.core.outgoing_text import counted
from harness.core.socs import TARGETS
from harness.core.state_folders import PRIVATE, open_to_others
from harness.doctor.check_results import LAB_FILE, REACHABLE, Checked, CheckResult, Status
from harness.doctor.device_visit import Options, open_workbench, visit
from harness.lab.device_config import AdbDeviceConfig, DeviceConfig
from harness.lab.inventory import Lab, load_lab
from harness.probe.build import ProbeBuilder
from harness.runtimes.catalog import Catalog
from harness.runtimes.pypi import QNN_PLATFORMS, QNN_PROJECT
from harness.simulator.board import run_program
from harness.transport.adb_address import USER_SERVER, SshAddress, has_address
from harness.transport.adb_server import AdbServer, adb_binary
from harness.transport.device_queries import memory

_PROGRAM_S: Final = 5.0
_SERVER_S: Final = 3.0


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


def host_checks(
    cache: Path, reports: Path, needs: LabNeeds, environment: Mapping[str, str]
) -> Iterator[Checked]:
    """Yield all checks of the host but the package index, which is slower."""
    builder = ProbeBuilder(cache / "probe", environment)
    python = f"{platform.python_version()} on {platform.machine()}"
    results = {
        "Python": CheckResult("ok", python),
        **{f"probe for {target}": probe_origin(builder, target, needs) for target in TARGETS},
        "adb": _adb(),
        "adb server": _adb_server(needs),
        "cache": _cache(cache),
        "reports": free_space(reports.absolute(), 0.5, "`pytest --reports`"),
        "memory": _memory(),
    }
    return (Checked("host", "host", name, *result) for name, result in results.items())


def probe_origin(builder: ProbeBuilder, target: str, needs: LabNeeds) -> CheckResult:
    """Check that there is a probe for a target, or a compiler, if the lab needs one."""
    try:
        return CheckResult("ok", builder.origin(target))
    except HarnessError as error:
        advice = str(error)
    if target == "linux-x64" or target in needs.targets:
        return CheckResult("fail", "none", advice)
    if target == "android-arm64" and needs.no_target:
        names = ", ".join(needs.no_target)
        text = f"none; {names} may be a phone: devices.yaml has no `target` for it"
        return CheckResult("warn", text, advice)
    return CheckResult("not-applicable", "none; no device of the lab needs one")


def _adb() -> CheckResult:
    advice = "unset ADBUTILS_ADB_PATH, set it to another adb, or reinstall adbutils"
    try:
        adb = adb_binary()
        version = run_program([str(adb), "--version"], timeout_s=_PROGRAM_S).stdout.splitlines()
    except (OSError, HarnessError) as error:
        return CheckResult("fail", str(error), advice)
    if not version:
        return CheckResult("fail", f"{adb} does not run", advice)
    return CheckResult("ok", f"{adb}: {', '.join(version[:2])}")


def _adb_server(needs: LabNeeds) -> CheckResult:
    if AdbServer().is_running(timeout_s=_SERVER_S):
        everybody = "every account of this computer can use it and the devices on it"
        return CheckResult("ok", f"answers at {USER_SERVER}; {everybody}")
    if not needs.server:
        return CheckResult("not-applicable", "not running, and no device of the lab needs it")
    adb = "adb" if shutil.which("adb") else adb_binary()
    advice = f"run `{adb} start-server` as a user who may open the devices"
    return CheckResult("fail", f"not running at {USER_SERVER}", advice)


def _cache(cache: Path) -> CheckResult:
    if (problem := _write_problem(cache)) is not None:
        advice = "set QNN_HARNESS_CACHE to a folder that only you can write to"
        return CheckResult("fail", f"{cache}: {problem}", advice)
    return free_space(cache, 2.0, "QNN_HARNESS_CACHE")


def _memory() -> CheckResult:
    with contextlib.suppress(OSError):
        lines = Path("/proc/meminfo").read_text().splitlines()
        if (available := memory({"memory": lines}, "MemAvailable")) is not None:
            text = f"{available / _GB:.1f} GB available"
            if available < _MEMORY_NEEDS_GB * _GB:
                advice = "close other programs; compiling contexts takes 2 GB"
                return CheckResult("warn", text, advice)
            return CheckResult("ok", text)
    return CheckResult("unknown", "/proc/meminfo cannot be read")


def packages(cached: list[str], missing: list[str], problem: str | None) -> CheckResult:
    """Check that the newest libraries are cached or can be fetched; `problem` says why not."""
    text = f"{', '.join(cached)}: in the cache" if cached else ""
    if not missing:
        return CheckResult("ok", text)
    text = f"{text + '; ' if text else ''}{', '.join(missing)}: not in the cache yet, "
    if problem is None:
        return CheckResult("ok", f"{text}can be fetched")
    advice = (
        "connect this computer to a package index (as pip is configured), or set PIP_FIND_LINKS "
        "to a folder with the wheels"
    )
    status: Status = "warn" if cached else "fail"
    return CheckResult(status, f"{text}cannot be fetched: {problem}", advice)


def free_space(folder: Path, least_gb: float, setting: str) -> CheckResult:
    """Check that a folder, which may not exist yet, has some space; `setting` chooses another."""
    free = _free(folder)
    if free is None:
        return CheckResult("unknown", f"{folder}: its free space is unknown")
    text = f"{folder}: {free / _GB:.1f} GB free"
    if free >= least_gb * _GB:
        return CheckResult("ok", text)
    status: Status = "fail" if free < 0.1 * least_gb * _GB else "warn"
    return CheckResult(status, text, f"free some space, or choose another folder with {setting}")


_ANSWER_S: Final = 5.0
_NO_LAB: Final = "none; not needed for simulated devices: qnn-harness run FILE --device sim-v73"
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
        mistakes = f"; {counted(len(lab.more), 'more mistake')}" if lab.more else ""
        advice = "" if isinstance(lab, NoLabError) else "correct it; `devices list` checks it again"
        return _check(
            "lab", LAB_FILE, "fail", f"{str(lab).partition(chr(10))[0]}{mistakes}", advice
        )
    devices, enabled = counted(len(lab.devices), "device"), len(lab.enabled_devices())
    return _check("lab", LAB_FILE, "ok", f"{path}: {devices}, {enabled} enabled")


def server_checks(lab: Lab, devices: Sequence[DeviceConfig]) -> Iterator[Checked]:
    """Check that the adb servers on other computers answer."""
    by_adb = [device for device in devices if isinstance(device, AdbDeviceConfig)]
    addresses = {dev.server(lab): dev for dev in by_adb if dev.host or dev.address}
    for address, device in addresses.items():
        name = device.host or address.host
        try:
            AdbServer(address).version(deadline=Deadline(_ANSWER_S))
        except InfraError as error:
            advice = address.start_advice
            if isinstance(address, SshAddress):
                advice = "check that ssh needs no prompt, and that an adb server runs there"
            yield _check("lab", f"adb host {name}", "fail", str(error), advice)
        else:
            yield _check("lab", f"adb host {name}", "ok", f"answers at {address}")


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
        lab = load_lab(options.lab_file, names=options.names)
    except ConfigError as error:
        lab = error
    else:
        names = list(options.names) or [device.name for device in lab.enabled_devices()]
        devices = lab.select(names) if names else []
    needs = lab_needs(devices)
    _log.info("checking this computer")
    yield from host_checks(options.cache, _REPORTS, needs, options.environment)
    _log.info("looking for QNN libraries")
    yield _library_check(options.cache, needs)
    yield file_check(options.lab_file, lab, named=bool(options.names))
    if isinstance(lab, ConfigError):
        return
    for device in lab.devices:
        if (why := lab.why_off(device)) is not None and device.enabled:
            yield _check(device.name, "simulated here", "not-applicable", why)
    try:
        Catalog.of(lab, options.environment, options.cache)
    except ConfigError as error:
        yield Checked("lab", "lab", "sources", "fail", str(error), "correct `runtimes`")
    _log.info("checking the lab's adb servers")
    yield from server_checks(lab, devices)
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
                advice = "a bug of the harness or a fault in this lab's files; please report it"
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
            text = f"the check did not end within {self._options.timeout_s:g} s and was abandoned"
            advice = f"run `qnn-harness devices recover {self.name}`, which reboots it if needed"
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
