"""A simulated board: arm64 programs start however they are started, and end when they must."""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.core.errors import DeviceTimeout
from harness.core.state_folders import cache_root
from harness.diagnosis.verdict import judge
from harness.lab.inventory import load_lab
from harness.probe.build import ProbeBuilder
from harness.probe.plan import Plan, Step, sealed
from harness.probe.plan_runner import run_plan
from harness.simulator.board import (
    CROSS_COMPILER_VARIABLE,
    find_tools,
    libc_version,
    make_board,
    soc_files,
    why_no_board,
)
from harness.simulator.boot_files import board_properties
from harness.simulator.device import SimulatedDevice
from harness.transport.adb_address import TcpAddress
from harness.transport.adb_device import AdbDevice
from harness.transport.adb_server import AdbServer
from tests.integration.simulator.conftest import AdbClient
from tests.integration.transport.adb.remote import SLACK_S
from tests.waiting import wait_for

pytestmark = [pytest.mark.needs("qemu-aarch64"), pytest.mark.needs("aarch64-linux-gnu-gcc")]

SAYS = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <gnu/libc-version.h>
extern char **environ;
int main(int argc, char **argv) {
    struct utsname name;
    uname(&name);
    printf("machine %s\nlibc %s\n", name.machine, gnu_get_libc_version());
    for (int i = 0; i < argc; i++) printf("argv %s\n", argv[i]);
    for (char **entry = environ; *entry; entry++)
        if (strncmp(*entry, "LD_", 3) == 0 || strncmp(*entry, "QEMU", 4) == 0) puts(*entry);
    FILE *file = fopen("/sys/devices/soc0/soc_id", "r");
    char text[20];
    if (file != NULL && fgets(text, sizeof text, file)) printf("soc_id %s", text);
    return argc == 2 && strcmp(argv[1], "seven") == 0 ? 7 : 0;
}
"""


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("board") / "storage"


@pytest.fixture(scope="module")
def board(adb: AdbClient, storage: Path) -> Iterator[AdbDevice]:
    """A board that tells that it is an SM8650, with a program and the probe on it."""
    board = make_board(soc_files("SM8650", 557), cache=cache_root() / "boards")
    with SimulatedDevice(
        "sim-board",
        storage=storage,
        properties=board_properties("sim-board", "SM8650"),
        public_key=adb.public_key,
        board=board,
    ) as device:
        adb.connect(device.address)
        source = storage.parent / "says.c"
        source.write_text(SAYS)
        program = storage / "data/local/tmp/says"
        subprocess.run(["aarch64-linux-gnu-gcc", source, "-o", program], check=True, timeout=60)
        probe = storage / "data/local/tmp/qnn-probe"
        probe.write_bytes(ProbeBuilder(cache_root() / "probe").build("linux-arm64").read_bytes())
        probe.chmod(0o755)
        yield AdbDevice(device.address, AdbServer(TcpAddress(port=adb.port)))


@pytest.fixture(scope="module")
def reporter(storage: Path) -> str:
    return str(storage / "data/local/tmp/says")


def output(board: AdbDevice, script: str) -> list[str]:
    completed = board.shell(script, timeout_s=60)
    assert completed.exit_code == 0, completed.stderr
    return completed.stdout.decode().splitlines()


def test_the_board_tells_the_truth_about_itself(board: AdbDevice) -> None:
    libraries = find_tools().libraries
    assert libraries is not None
    facts = (
        "uname -m; getconf GNU_LIBC_VERSION; getprop ro.product.cpu.abi\n"
        "cat /sys/devices/soc0/soc_id /sys/devices/system/soc/soc0/id; ls /sys/devices/soc0\n"
        "read -r soc < /sys/devices/soc0/machine; echo $soc\n"
        "[ -e /sys/devices/soc0/soc_id ] && [ -d /sys/devices/soc0 ] && echo there\n"
        "grep -aH '' /sys/devices/soc0/*; head -n 1 /sys/devices/soc0/soc_id\n"
        "grep -m 1 implementer /proc/cpuinfo; grep -c vendor_id /proc/cpuinfo || true"
    )
    assert output(board, facts) == [
        "aarch64",
        f"glibc {libc_version(libraries)}",
        "arm64-v8a",
        "557",
        "557",
        "machine",
        "soc_id",
        "SM8650",
        "there",
        "/sys/devices/soc0/machine:SM8650",
        "/sys/devices/soc0/soc_id:557",
        "557",
        "CPU implementer\t: 0x41",
        "0",
    ]


@pytest.mark.parametrize(
    ("script", "arguments"),
    [
        ("@ one 'two words'", ["@", "one", "two words"]),
        ("cd ${0%/*}; ./says x", ["./says", "x"]),
        ("PATH=${0%/*}:$PATH; says", ["says"]),
        ("timeout 20 @ x", ["@", "x"]),
        ("env -i sh -c '@ x'", ["@", "x"]),
        ("echo x | xargs @", ["@", "x"]),
        ("cp @ @-own; @-own x", ["@-own", "x"]),
        ("find ${0%/*} -name says -exec {} x \\;", ["@", "x"]),
    ],
)
def test_arm64_programs_start_however_they_are_started(
    board: AdbDevice, reporter: str, script: str, arguments: list[str]
) -> None:
    script = (
        script.replace("@", reporter)
        .replace("$0", reporter)
        .replace("${0%/*}", os.path.dirname(reporter))
    )
    lines = output(board, script)
    assert lines[0] == "machine aarch64"
    assert [line[5:] for line in lines if line.startswith("argv ")] == [
        argument.replace("@", reporter) for argument in arguments
    ]
    assert lines[-1] == "soc_id 557"
    assert not [line for line in lines if line.startswith(("LD_", "QEMU"))]


@pytest.mark.parametrize(("number", "name"), [(11, "SIGSEGV"), (9, "SIGKILL")])
def test_a_crash_is_a_crash(board: AdbDevice, reporter: str, number: int, name: str) -> None:
    folder = os.path.dirname(reporter)
    crash = Plan((Step("crash", {"signal": str(number)}),))
    ran = run_plan(board, f"{folder}/qnn-probe", crash, env={}, cwd=folder, timeout_s=60)
    assert ran.exit_code == 128 + number or ran.signal == number
    verdict = judge(ran)
    assert (verdict.outcome, verdict.cause) == ("crashed", "target")
    assert f"{name}" in verdict.error.message
    assert verdict.error.step == 0


def emulated(storage: Path) -> list[int]:
    """The running programs of the board."""
    pids = []
    for name in filter(str.isdecimal, os.listdir("/proc")):
        try:
            words = Path("/proc", name, "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"-L" in words and os.fsencode(storage / "system/board/root") in words:
            pids.append(int(name))
    return pids


@pytest.mark.slow
def test_a_program_that_hangs_ends_with_its_command(
    board: AdbDevice, reporter: str, storage: Path
) -> None:
    folder = os.path.dirname(reporter)
    plan = sealed(["hang"]).replace("\n", "\\n")
    hang = f"printf '{plan}' | setsid {folder}/qnn-probe & printf '{plan}' | {folder}/qnn-probe"
    start = time.monotonic()
    with pytest.raises(DeviceTimeout):
        board.shell(hang, timeout_s=3)
    assert time.monotonic() - start < 3 + SLACK_S
    wait_for(lambda: not emulated(storage), "no program is left")


CROSS, QEMU = "aarch64-linux-gnu-gcc", "qemu-aarch64"

LAB = """schema: 1
devices:
  - {name: sim, simulated: true, soc: QCS8550}
  - {name: board, simulated: true, soc: QCS8550, target: linux-arm64, enabled: auto}
"""


def program(folder: Path, name: str, script: str) -> Path:
    folder.mkdir(exist_ok=True)
    file = folder / name
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)
    return file


def test_a_compiler_without_its_c_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lacking = program(tmp_path, "cross", f'exec {CROSS} -nostdinc "$@"')
    monkeypatch.setenv("QNN_HARNESS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv(CROSS_COMPILER_VARIABLE, str(lacking))
    file = tmp_path / "devices.yaml"
    file.write_text(LAB)
    lab = load_lab(file)
    assert [device.name for device in lab.enabled_devices()] == ["sim"]
    why = lab.why_off(lab.devices[1])
    assert str(lacking) in why
    assert "apt install libc6-dev-arm64-cross" in why
    assert "dlfcn.h" in why
    monkeypatch.delenv(CROSS_COMPILER_VARIABLE)
    assert [device.name for device in load_lab(file).enabled_devices()] == ["sim", "board"]


def test_an_emulator_that_does_not_run_it(tmp_path: Path) -> None:
    program(tmp_path / "bin", QEMU, "echo 'error: no such CPU' >&2; exit 1")
    environment = os.environ | {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    why = why_no_board(tmp_path / "cache", environment)
    assert why.startswith(f"{tmp_path}/bin/{QEMU} ")
    assert "no such CPU" in why


def test_what_worked_is_tried_again_only_when_it_changes(tmp_path: Path) -> None:
    used = tmp_path / "used"
    counting = f'echo >>{used}; exec {shutil.which(CROSS)} "$@"'
    environment = os.environ | {
        CROSS_COMPILER_VARIABLE: str(program(tmp_path / "bin", "cross", counting))
    }

    def tries() -> int:
        assert why_no_board(tmp_path / "cache", environment) is None
        return len(used.read_text())

    assert (tries(), tries()) == (1, 1)
    program(tmp_path / "bin", "cross", f"{counting} ")
    assert (tries(), tries()) == (2, 2)
    folders = [path.name for path in (tmp_path / "cache").iterdir() if path.is_dir()]
    assert [name.partition("-")[0] for name in folders] == ["board"]
