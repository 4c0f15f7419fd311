"""Checks of the answers of devices: of texts of real systems, and of a real shell."""

import platform
import shlex
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from harness.core.socs import PLATFORMS
from harness.doctor.check_results import Checked, CheckResult, Status
from harness.doctor.device_checks import DspAttempt, ExaminedDevice, device_checks, dsp_layers
from harness.doctor.device_visit import without_recovery
from harness.lab.device_config import DeviceConfig
from harness.lab.facts import (
    QUESTIONS,
    SCRIPT as FACTS_SCRIPT,
    VITALS_QUESTIONS,
    DeviceAnswers,
    DeviceFacts,
    parse_answers,
    parse_facts,
    script_for,
)
from harness.lab.health import HealthRules, RecoveryRules
from harness.lab.inventory import Lab
from harness.lab.lab_device import AttachedDevice
from harness.transport.adb_device import AdbDevice
from harness.transport.adb_server import AdbServer
from tests.snapshots import Snapshot
from tests.unit.deploy.store_device import SHELLS, needing_shell, with_all_programs
from tests.unit.doctor.answers import BOARD, PHONE

FACTS = DeviceFacts(
    target="android-arm64",
    machine="aarch64",
    soc="SM8650",
    soc_id=557,
    adreno="750",
    os_build="Android 14 (UKQ1)",
    free_storage_bytes=1,
    ram_bytes=1,
    android_api=34,
)

BUILD_NOTE = "040000001400000003000000474e5500a1b2c3d4e5f60718293a4b5c6d7e8f9000112233"


def answers(text: str) -> DeviceAnswers:
    return parse_answers(text)


def examined(text: str, target: str = "android-arm64", **changes: object) -> ExaminedDevice:
    config = {"name": "desk", "serial": "1a2b"} | changes.pop("config", {})  # type: ignore[operator]
    facts = replace(FACTS, **changes.pop("facts", {}))  # type: ignore[arg-type]
    parsed = answers(text)
    device = ExaminedDevice(
        device=AttachedDevice(
            config=DeviceConfig.model_validate(config),
            transport=AdbDevice("1a2b", AdbServer()),
            facts=facts,
            target=target,
            workdir="/data/local/tmp/qnn-harness",
        ),
        answers=parsed,
        rules=HealthRules(),
    )
    return replace(device, **changes)  # type: ignore[arg-type]


def checked(device: ExaminedDevice) -> dict[str, Checked]:
    checks = {check.name: check for check in device_checks(device)}
    for check in checks.values():
        assert bool(check.advice) == (check.status in ("warn", "fail")), check
    return checks


def shown(check: Checked) -> str:
    advice = f" -> {check.advice}" if check.advice else ""
    return f"{check.name}: {check.status}: {check.found}{advice}"


def test_a_phone(snapshot: Snapshot) -> None:
    checks = checked(examined(PHONE)).values()
    statuses = {check.name: check.status for check in checks if check.status != "ok"}
    assert statuses == {"battery": "fail", "thermal status": "unknown", "doze": "unknown"}
    assert list(map(shown, checks)) == snapshot
    silent = {"android_api": None, "os_build": None, "soc_id": None}
    unknown = checked(examined(PHONE, facts=silent))
    assert [shown(unknown[name]) for name in ("system", "SoC")] == snapshot


def test_a_board(snapshot: Snapshot) -> None:
    facts = {"soc": "QCS615", "libc": "ldd (GNU libc) 2.35"}
    checks = checked(examined(BOARD, "linux-arm64", facts=facts))
    statuses = {name: check.status for name, check in checks.items() if check.status != "ok"}
    assert statuses == {
        "SoC": "warn",
        "OpenCL driver": "warn",
        "work folder": "fail",
        "programs": "fail",
        "battery": "not-applicable",
    }
    assert list(map(shown, checks.values())) == snapshot


SOCS: list[tuple[dict[str, object], str | None, Status]] = [
    ({"soc": "SM8550"}, "SM8650", "fail"),
    ({"soc": "QCS8550"}, "SM8550", "warn"),
    ({"soc": "QCS8550"}, "KALAMA", "warn"),
    ({"soc": "KALAMA"}, "SM8550", "warn"),
    ({"soc": "SM8650"}, "SM8650", "ok"),
    ({"soc": "SM8650"}, None, "ok"),
    ({}, "SM8250", "ok"),
    ({}, None, "warn"),
    ({"soc": "SM8650-AC"}, None, "warn"),
    ({"soc": "SM8650P", "htp_arch": 75}, None, "ok"),
]


def test_what_the_soc_is(snapshot: Snapshot) -> None:
    """A name that nobody knows may be the same SoC."""
    checks = [
        checked(examined(PHONE, config=config, facts={"soc": reported}))["SoC"]
        for config, reported, _ in SOCS
    ]
    assert [check.status for check in checks] == [status for *_, status in SOCS]
    assert list(map(shown, checks)) == snapshot


@pytest.mark.parametrize(
    ("name", "vitals", "status", "text"),
    [
        ("work folder", {"write_problem": "Read-only file system"}, "fail", None),
        ("free storage", {"free_storage_bytes": None}, "unknown", None),
        ("free storage", {"free_storage_bytes": 10**6}, "warn", None),
        ("free storage", {"free_storage_bytes": 10**9}, "ok", "1.0 GB"),
        ("free storage", {"free_storage_bytes": 10**9 - 10**6}, "ok", "999 MB"),
        # a reserve for root, or no more names: there is room, and nothing can be written
        ("free storage", {"write_problem": "No space left on device"}, "fail", "189.5 GB"),
        ("free memory", {"free_ram_bytes": None}, "unknown", None),
        ("free memory", {"free_ram_bytes": 10**6}, "warn", None),
        ("battery", {"battery_charging": None, "battery_percent": 50}, "ok", "50 %"),
        ("battery", {"battery_charging": True, "battery_percent": 9}, "warn", "9 %, charging"),
        ("temperature", {"hottest_c": None}, "unknown", None),
        ("temperature", {"hottest_c": 95.0}, "warn", None),
        ("temperature", {"hottest_c": 105.0}, "fail", None),
    ],
)
def test_what_a_device_says_of_its_state(
    name: str, vitals: dict[str, object], status: str, text: str | None
) -> None:
    device = examined(PHONE)
    changed = replace(device.answers, vitals=replace(device.answers.vitals, **vitals))  # type: ignore[arg-type]
    check = checked(replace(device, answers=changed))[name]
    assert check.status == status
    assert text in (None, check.found)


@pytest.mark.parametrize(
    ("name", "changes", "status"),
    [
        ("system", {"has_interpreter": True}, "ok"),
        ("system", {"has_interpreter": False}, "fail"),
        ("OpenCL driver", {"opencl": {}}, "warn"),
        ("OpenCL driver", {"opencl": {"/a/libOpenCL.so.1": "r"}}, "ok"),
        ("OpenCL driver", {"opencl": {"/a/libOpenCL.so": ""}}, "warn"),
        ("work folder", {"exec_exit": 0, "exec_said": ""}, "fail"),
        ("work folder", {"exec_exit": 7}, "ok"),
        ("programs", {"missing_programs": ("tar", "mv")}, "fail"),
        ("programs", {"missing_programs": (), "tools": None}, "ok"),
    ],
)
def test_what_a_board_lacks(name: str, changes: dict[str, object], status: str) -> None:
    device = examined(BOARD, "linux-arm64", facts={"libc": "musl"})
    answers = replace(device.answers, **changes)  # type: ignore[arg-type]
    assert checked(replace(device, answers=answers))[name].status == status


def test_a_simulator_has_no_gpu_to_ask_for() -> None:
    config = {"serial": None, "simulated": True, "soc": "QCS8550"}
    device = examined(BOARD, "linux-x64", config=config)
    checks = checked(device)
    assert checks["OpenCL driver"].status == "not-applicable"
    assert (checks["system"].status, checks["temperature"].status) == ("ok", "ok")
    cold = replace(device.answers, vitals=replace(device.answers.vitals, hottest_c=None))
    assert checked(replace(device, answers=cold))["temperature"].status == "not-applicable"


@given(st.lists(st.sampled_from((PHONE + BOARD).splitlines()), max_size=60), st.text(max_size=200))
def test_any_answer_is_survived(lines: list[str], text: str) -> None:
    cut = "\n".join([*lines, text])
    assert parse_answers(cut.replace("@qnn-harness:end", "")) is None
    device = replace(examined(PHONE), answers=answers(f"{cut}\n@qnn-harness:end"))
    why = DspAttempt(CheckResult("unknown", "not tried"))
    for check in (*device_checks(device), *dsp_layers(device, None, why, why)):
        assert check.found.isprintable()
        assert len(check.found) <= 600


def run_script(target: str, workdir: Path, root: Path) -> DeviceAnswers:
    script = script_for(PLATFORMS[target], str(workdir), root=str(root))
    completed = subprocess.run(["sh", "-c", script], capture_output=True, timeout=60, check=False)
    return answers(completed.stdout.decode())


@pytest.mark.parametrize("target", PLATFORMS)
def test_the_script_on_a_real_shell(target: str, tmp_path: Path) -> None:
    root, system = tmp_path / "the root's", PLATFORMS[target]
    files = ["dev/fastrpc-cdsp", "dev/adsprpc-smd-secure", system.opencl[0][1:]]
    files += [f"{system.library_folders[0][1:]}/libcdsprpc.so"]
    for folder in system.dsp_folders[:1]:
        files += [f"{folder[1:]}/fastrpc_shell_unsigned_3", f"{folder[1:]}/libQnnHtpV75Skel.so"]
    for name in files:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("")
    library = bytes.fromhex("7f454c46" + BUILD_NOTE) + b"\0" * 100
    (root / files[3]).write_bytes(library)
    (root / files[3]).rename(root / f"{files[3]}.1.0.0")
    (root / files[3]).symlink_to("libcdsprpc.so.1.0.0")
    (root / "sys/fs/selinux").mkdir(parents=True)
    (root / "sys/fs/selinux/enforce").write_text("1")
    parsed = run_script(target, tmp_path / "work folder's", root)
    assert set(parsed.vitals.fastrpc) == {"fastrpc-cdsp", "adsprpc-smd-secure"}
    assert all("r" in access for access in parsed.vitals.fastrpc.values())
    assert list(parsed.rpc_libraries) == [f"{root}{system.library_folders[0]}/libcdsprpc.so"]
    build = "libcdsprpc.so.1.0.0, build id a1b2c3d4e5f60718293a4b5c6d7e8f9000112233"
    assert parsed.rpc_builds == {f"{root}/{files[3]}": build}
    assert (parsed.account or "").startswith("uid=")
    assert len(parsed.shells) == len(parsed.skels) == min(1, len(system.dsp_folders))
    assert list(parsed.opencl) == [f"{root}{system.opencl[0]}"]
    assert (parsed.exec_exit, parsed.missing_programs) == (7, ())
    assert parsed.selinux == "Enforcing" or parsed.selinux  # the host's own getenforce goes first
    assert not list((tmp_path / "work folder's").iterdir())


def test_a_doctor_never_reboots() -> None:
    recovery = {"recovery": {"reboot": True}}
    devices = [{"name": "a", "serial": "x"} | recovery]
    lab = without_recovery(Lab.model_validate({"schema": 1, "devices": devices} | recovery))
    assert (lab.devices[0].recovery or lab.recovery) == RecoveryRules(reboot=False, come_back_s=0)


@pytest.mark.parametrize("name", list(map(needing_shell, SHELLS)))
def test_shells_and_programs_of_devices_understand_every_question(
    name: str, tmp_path: Path
) -> None:
    device = with_all_programs(name, tmp_path)

    def ask(script: str) -> str:
        command = [*device.shell, "-c", script]
        env = {"PATH": device.path, "TMPDIR": str(tmp_path)}
        completed = subprocess.run(command, capture_output=True, env=env, timeout=60, check=False)
        assert b"syntax" not in completed.stderr
        return completed.stdout.decode()

    answer = ask(script_for(PLATFORMS["linux-x64"], str(device.workdir)))
    checks = answers(answer)
    assert checks.vitals.uptime_s is not None
    assert checks.vitals.free_ram_bytes is not None
    assert checks.vitals.free_storage_bytes is not None
    assert checks.vitals.write_problem is None
    assert checks.exec_exit == 7
    assert (checks.account or "").startswith("uid=")
    requests = {line for line in answer.splitlines() if line.startswith("@qnn-harness:")}
    facts = ask(f"set -- {shlex.quote(str(device.workdir))}\n{FACTS_SCRIPT}")
    parsed = parse_facts(facts)
    assert parsed.machine == platform.machine()
    assert parsed.ram_bytes is not None
    assert parsed.coprocessors is not None
    assert facts.rstrip().endswith("@qnn-harness:end")
    assert len(requests) == len((*VITALS_QUESTIONS.split(), *QUESTIONS.split(), "end"))
