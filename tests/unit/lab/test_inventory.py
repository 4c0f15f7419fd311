"""devices.yaml: the shipped one, its commented example, and every kind of mistake."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from harness.core.errors import ConfigError
from harness.core.socs import HTP_ARCHS
from harness.core.yaml_document import check_document, parse_document
from harness.dsp.dsp import DspLimits
from harness.lab.devices import (
    DEFAULT_WORKDIR,
    AdbDeviceConfig,
    LocalDeviceConfig,
    SimulatedDeviceConfig,
    SshDeviceConfig,
)
from harness.lab.inventory import SIMULATED_LAB, Lab, load_lab, shipped_lab
from harness.transport.adb_address import SshAddress, TcpAddress
from harness.transport.ssh_connection import SshLogin
from tests.properties import reached, reaches

ROOT = Path(__file__).parents[3]
LOCAL = "schema: 1\ndevices:\n  - name: here\n    transport: local\n"
BOARD = "schema: 1\ndevices:\n  - name: board\n    transport: ssh\n    address: qa@rb3\n"
SIMULATED = "schema: 1\ndevices:\n  - name: sim\n    simulated: true\n    soc: QCS8550\n"
ON_ARM = f"{SIMULATED}    target: linux-arm64\n"
REAL = "schema: 1\ndevices:\n  - name: phone\n    serial: ABC\n"


def lab_of(tmp_path: Path, text: str) -> Lab:
    path = tmp_path / "devices.yaml"
    path.write_text(text)
    return load_lab(path)


def simulated(lab: Lab) -> list[SimulatedDeviceConfig]:
    return [device for device in lab.devices if isinstance(device, SimulatedDeviceConfig)]


def mistakes_of(tmp_path: Path, text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        lab_of(tmp_path, text)
    return str(caught.value).replace(f"{tmp_path}/devices.yaml:", "").splitlines()


def test_the_shipped_lab() -> None:
    device, board, twin, with_dsp = simulated(load_lab(ROOT / "devices.yaml"))
    assert (device.name, device.simulated, device.soc) == ("sim-v73", True, "QCS8550")
    assert (device.htp_arch, device.adreno, device.target) == (73, "740", "linux-x64")
    assert (board.name, board.htp_arch, board.target) == ("sim-arm64", 73, "linux-arm64")
    assert (twin.name, twin.htp_arch, twin.shows_soc) == ("sim-arm64-sm8650", 75, True)
    prepare = (device.prepares_gpu, board.prepares_gpu, twin.prepares_gpu)
    assert prepare == (True, False, False)
    assert (device.enabled, board.enabled, twin.enabled) == (True, "auto", "auto")
    assert (with_dsp.name, with_dsp.htp_arch, with_dsp.enabled) == ("sim-v73-dsp", 73, "auto")
    assert [bool(config.dsp) for config in (device, board, twin, with_dsp)] == [False] * 3 + [True]


@pytest.mark.parametrize(
    ("entry", "limits"),
    [
        ("true", DspLimits(arch=73, vtcm_mb=8)),
        ("{}", DspLimits(arch=73, vtcm_mb=8)),
        (
            "{sessions: 2, vtcm_mb: 4, unsigned_pd: false}",
            DspLimits(arch=73, sessions=2, vtcm_mb=4, unsigned_pd=0),
        ),
    ],
)
def test_a_board_with_a_dsp_shows_its_soc(tmp_path: Path, entry: str, limits: DspLimits) -> None:
    (device,) = simulated(lab_of(tmp_path, f"{ON_ARM}    dsp: {entry}\n"))
    assert device.shows_soc
    assert device.dsp is not None
    assert device.dsp.limits(device.htp_arch, 8) == limits


def test_a_board_without_a_dsp(tmp_path: Path) -> None:
    for text in (ON_ARM, f"{ON_ARM}    dsp: false\n"):
        (device,) = simulated(lab_of(tmp_path, text))
        assert (device.dsp, device.shows_soc) == (None, False)


def test_what_a_missing_lab_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"lab.yaml: no such file; --lab FILE names") as caught:
        load_lab(tmp_path / "lab.yaml")
    assert "`qnn-harness init` writes one" in str(caught.value)
    named = re.findall(r"sim-[\w-]+", str(caught.value))
    assert sorted(named) == sorted(device.name for device in load_lab(SIMULATED_LAB).devices)


def test_devices_that_need_no_file() -> None:
    assert shipped_lab(["sim-v75", "sim-arm64"]) == shipped_lab([]) == SIMULATED_LAB
    assert shipped_lab(["phone"]) is None
    for name, meant in (
        ("simv73", "sim-v73"),
        ("sim-arm46", "sim-arm64"),
    ):
        problem = f"simulates no {name!r}, did you mean {meant!r}"
        with pytest.raises(ConfigError, match=re.escape(problem)):
            shipped_lab(["phone", name])


def test_a_name_that_no_file_can_have_is_a_mistake_of_the_user(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: File name too long"):
        load_lab(tmp_path / ("x" * 300))


def test_who_has_no_lab_runs_on_the_first_of_the_shipped_one() -> None:
    shipped = load_lab(SIMULATED_LAB)
    first = load_lab(ROOT / "devices.yaml").devices
    assert shipped.devices[: len(first)] == first
    others = {device.htp_arch for device in shipped.devices[len(first) :]}
    assert others == {arch for arch in HTP_ARCHS if arch >= 68} - {73}
    assert shipped.select() == [shipped.devices[0]]
    assert shipped_lab(["sim-arm64", "sim-v73"]) == shipped_lab([]) == SIMULATED_LAB
    assert shipped_lab(["sim-v73", "mine"]) is None


def test_the_shipped_example_is_valid_when_uncommented(tmp_path: Path) -> None:
    before, marker, example = (ROOT / "devices.yaml").read_text().partition("of what you need.\n")
    uncommented = "".join(
        line.removeprefix("#").removeprefix(" ") for line in example.splitlines(keepends=True)
    )
    lab = lab_of(tmp_path, before + marker + uncommented)
    names = ["sim-v73", "sim-arm64", "sim-arm64-sm8650", "sim-v73-dsp"]
    names += ["phone", "board", "ssh-board", "far-phone"]
    assert [device.name for device in lab.devices] == names
    assert [device.soc for device in lab.devices][4:] == ["SM8650", "QCS9100", "QCS6490", "SM8750"]
    assert lab.host("lab-pc").port == 5037


@pytest.mark.parametrize(
    ("host", "device", "server"),
    [
        ("host: h, port: 9", "serial: A, host: x", TcpAddress("h", 9)),
        ("ssh: qa@h", "serial: A, host: x", SshAddress("qa@h")),
        (
            "ssh: 'h:22', host: 10.0.0.7, port: 9",
            "serial: A, host: x",
            SshAddress("h", 22, "10.0.0.7", 9),
        ),
        ("host: h", "address: adb://a/A", TcpAddress("a")),
        ("host: h", "address: 'ssh://qa@[::1]:22/A'", SshAddress("qa@::1", 22)),
        ("host: h", "serial: A", TcpAddress()),
    ],
)
def test_where_the_server_of_a_device_listens(
    tmp_path: Path, host: str, device: str, server: object
) -> None:
    text = f"schema: 1\nhosts: [{{name: x, {host}}}]\ndevices: [{{name: d, {device}}}]\n"
    lab = lab_of(tmp_path, text)
    (config,) = lab.devices
    assert isinstance(config, AdbDeviceConfig)
    assert (config.server(lab), config.serial) == (server, "A")


def test_a_board_that_ssh_leads_to(tmp_path: Path) -> None:
    lab = lab_of(tmp_path, BOARD + "  - {name: b, transport: ssh, address: 'rb3:2222'}\n")
    board, other = lab.devices
    assert isinstance(board, SshDeviceConfig)
    assert isinstance(other, SshDeviceConfig)
    assert (board.login, board.serial) == (SshLogin("qa@rb3"), "qa@rb3")
    assert (other.login, other.serial) == (SshLogin("rb3", 2222), "rb3:2222")
    assert board.workdir == "/var/tmp/qnn-harness"
    assert [device.location(lab) for device in lab.devices] == ["ssh:rb3:22", "ssh:rb3:2222"]


def test_this_computer_as_a_device(tmp_path: Path) -> None:
    lab = lab_of(tmp_path, LOCAL)
    (here,) = lab.devices
    assert isinstance(here, LocalDeviceConfig)
    assert (here.serial, here.workdir) == ("this-computer", "/var/tmp/qnn-harness")
    assert here.location(lab) == "local"


AUTO = SIMULATED + "    target: linux-arm64\n    enabled: auto\n"


def test_what_is_left_to_the_computer_is_off_where_it_cannot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setenv("QNN_HARNESS_ARM64_LIBRARIES", "/nonexistent")
    lab = lab_of(tmp_path, AUTO + "  - name: other\n    serial: ABC\n")
    assert [device.name for device in lab.select()] == ["other"]
    assert [device.name for device in lab.enabled_devices()] == ["other"]
    with pytest.raises(ConfigError) as caught:
        lab.select(["sim"])
    assert "device 'sim' is off: this computer lacks qemu-aarch64 (apt install qemu-u" in str(
        caught.value
    )
    assert "(valid: other)" in str(caught.value)


def test_an_own_cpu_is_always_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    lab = lab_of(tmp_path, SIMULATED + "    enabled: auto\n")
    assert [device.name for device in lab.select()] == ["sim"]


def test_defaults_of_a_real_device(tmp_path: Path) -> None:
    (device,) = lab_of(tmp_path, REAL).devices
    assert (device.simulated, device.enabled, device.workdir) == (False, True, DEFAULT_WORKDIR)
    assert isinstance(device, AdbDeviceConfig)
    assert (device.soc, device.htp_arch, device.target, device.host) == (None, None, None, None)
    assert device.tags == ()


def test_what_a_known_soc_tells_can_be_overridden(tmp_path: Path) -> None:
    text = REAL + "    soc: SM8650\n    adreno: 751\n    workdir: /data/qnn/\n"
    (device,) = lab_of(tmp_path, text).devices
    assert (device.htp_arch, device.adreno, device.workdir) == (75, "751", "/data/qnn")


def test_an_unknown_soc_is_allowed_for_a_real_device(tmp_path: Path) -> None:
    (device,) = lab_of(tmp_path, REAL + "    soc: SM9999\n    htp_arch: 81\n").devices
    assert (device.soc, device.htp_arch) == ("SM9999", 81)


ONE_MISTAKE = [
    (REAL + "    socc: SM8650\n", "5: devices[0].socc: unknown key, did you mean 'soc'? (valid: "),
    (REAL + "    host_name: x\n", "5: devices[0].host_name: unknown key"),
    ("schema: 1\ndevice:\n  - a\n", "2: device: unknown key, did you mean 'devices'? (valid: "),
    (
        REAL + "colour: red\n",
        "5: colour: unknown key (valid: schema, hosts, labgrid, devices, health, recovery, gate, "
        "runtimes, notify)",
    ),
    ("devices:\n  - name: a\n    serial: b\n", "1: schema: is missing"),
    (
        "schema: 2\ndevices:\n  - name: a\n    serial: b\n",
        "1: schema: is of schema 2; this version reads schema 1: a newer qnn-harness wrote it, so ",
    ),
    (
        "schema: true\ndevices:\n  - name: a\n    serial: b\n",
        "1: schema: unknown value 'true' (valid: 1)",
    ),
    ("schema: 1\ndevices: []\n", "2: devices: "),
    ("schema: 1\ndevices:\n", "2: devices: must be a list"),
    ("schema: 1\ndevices: sim\n", "2: devices: must be a list"),
    ("schema: 1\ndevices:\n  - sim\n", "3: devices[0]: must be a mapping"),
    ("schema: 1\ndevices:\n  - serial: A\n", "3: devices[0].name: is missing"),
    ("schema: 1\ndevices:\n  - name: phone\n", "3: devices[0].serial: is missing: a device needs"),
    ("schema: 1\ndevices:\n  - name: Phone\n    serial: A\n", "3: devices[0].name: must be lower"),
    ("schema: 1\ndevices:\n  - name: ../x\n    serial: A\n", "3: devices[0].name: must be lower"),
    ("schema: 1\ndevices:\n  - name: no\n    serial: A\n", "3: devices[0].name: must be text: put"),
    (
        "schema: 1\ndevices:\n  - name: a\n    serial: 0123\n",
        "4: devices[0].serial: must be text: ",
    ),
    ("schema: 1\ndevices:\n  - name: a\n    serial: a b\n", "4: devices[0].serial: must be 1 to"),
    (
        REAL + "    enabled: maybe\n",
        "5: devices[0].enabled: must be true or false",
    ),
    (REAL + "    enabled: auto\n", "5: devices[0].enabled: must be true or false"),
    (
        REAL + "    prepares_gpu: true\n",
        "5: devices[0].prepares_gpu: is a key of `transport: simulated` only (valid: name, tr",
    ),
    (
        SIMULATED + "    target: linux-arm64\n    prepares_gpu: true\n",
        "7: devices[0].prepares_gpu: only the GPU backend of a linux-x64 device can",
    ),
    (REAL + "    shows_soc: true\n", "5: devices[0].shows_soc: is a key of `transport: simula"),
    (SIMULATED + "    shows_soc: true\n", "6: devices[0].shows_soc: needs target linux-arm64"),
    (
        SIMULATED.replace("QCS8550", "SA8295") + "    target: linux-arm64\n    shows_soc: true\n",
        "7: devices[0].shows_soc: the number that kernels give to SA8295 is not known (valid: ",
    ),
    (REAL + "    dsp: true\n", "5: devices[0].dsp: is a key of `transport: simulated` only (v"),
    (SIMULATED + "    dsp: true\n", "6: devices[0].dsp: needs target linux-arm64"),
    (ON_ARM + "    dsp: 8\n", "7: devices[0].dsp: must be true, false or a mapping of limits"),
    (
        f"{ON_ARM}    shows_soc: false\n    dsp: true\n",
        "7: devices[0].shows_soc: is needed by `dsp`: by the SoC the libraries choose their skel",
    ),
    (
        ON_ARM.replace("QCS8550", "SM8850") + "    dsp: true\n",
        "7: devices[0].dsp: no DSP of SM8850 can be simulated, but of these SoCs (valid: SM8350, ",
    ),
    (
        f"{ON_ARM}    dsp: {{sessions: 65}}\n",
        "7: devices[0].dsp.sessions: must be at most 64",
    ),
    (
        f"{ON_ARM}    dsp:\n      vtcm_mb: 8\n      handle: 4\n",
        "9: devices[0].dsp.handle: unknown key, did you mean 'handles'? (valid: sessions, ",
    ),
    (
        f"{ON_ARM}    dsp: {{mapped_mb: 1.5}}\n",
        "7: devices[0].dsp.mapped_mb: must be a whole number",
    ),
    (REAL + "    enabled: 1\n", "5: devices[0].enabled: must be true or false"),
    (REAL + "    simulated: 'yes'\n", "5: devices[0].simulated: must be true or false"),
    (REAL + "    target: android\n", "5: devices[0].target: unknown value 'android', did you mean"),
    (REAL + "    htp_arch: 74\n", "5: devices[0].htp_arch: unknown HTP architecture (valid: 68, "),
    (REAL + "    htp_arch: v73\n", "5: devices[0].htp_arch: must be a whole number"),
    (REAL + "    htp_arch: 73.5\n", "5: devices[0].htp_arch: must be a whole number"),
    (REAL + "    soc: SM8650\n    htp_arch: 73\n", "6: devices[0].htp_arch: is 73, but SM8650 has"),
    (
        REAL + "    soc: QCS610\n    htp_arch: 68\n",
        "6: devices[0].htp_arch: is 68, but QCS610 has no",
    ),
    (REAL + "    workdir: data/x\n", "5: devices[0].workdir: must be an absolute path"),
    (REAL + "    workdir: /\n", "5: devices[0].workdir: must be an absolute path"),
    (REAL + "    workdir: /data/../etc\n", "5: devices[0].workdir: must be an absolute path"),
    (REAL + "    tags: fast\n", "5: devices[0].tags: must be a list"),
    (REAL + "    tags: [a, 3]\n", '5: devices[0].tags[1]: must be text: put it in quotes, "3"'),
    (
        REAL + "    storage_limit_mb: 5\n",
        "5: devices[0].storage_limit_mb: is a key of `transport: s",
    ),
    (REAL + "    host: far\n", "5: devices[0].host: no such adb host (valid: (none))"),
    (
        REAL + "    host: fat\nhosts:\n  - name: far\n    host: h\n",
        "did you mean 'far'? (valid: far)",
    ),
    (
        SIMULATED + "    serial: x\n",
        "6: devices[0].serial: is a key of `transport: adb` only (valid",
    ),
    (SIMULATED + "    workdir: /x\n", "6: devices[0].workdir: is a key of `transport: adb` and"),
    (
        SIMULATED + "    target: android-arm64\n",
        "6: devices[0].target: unknown value 'android-arm64' (valid: linux-x64, ",
    ),
    (SIMULATED + "    storage_limit_mb: 0\n", "6: devices[0].storage_limit_mb: "),
    (
        SIMULATED.replace("QCS8550", "QCS8551"),
        "5: devices[0].soc: cannot be simulated, did you mean",
    ),
    (SIMULATED.replace("QCS8550", "QCS610"), "5: devices[0].soc: cannot be simulated"),
    (SIMULATED.replace("    soc: QCS8550\n", ""), "3: devices[0].soc: is missing (valid: SM8350, "),
    (REAL + "hosts:\n  - name: h\n    ssh: -oX\n", "7: hosts[0].ssh: must be a computer that ssh"),
    (
        REAL + "hosts:\n  - name: h\n    port: 1\n",
        "6: hosts[0].host: is missing, and so are `ssh` ",
    ),
    (
        REAL + "hosts:\n  - {name: h, socket: /tmp/x, ssh: far}\n",
        "hosts[0].socket: stands in place of `ssh`",
    ),
    (
        REAL.replace("serial: ABC", "address: ssh://-oX/ABC"),
        "4: devices[0].address: must be the address of a device; [user@]host[:port] needs ",
    ),
    (REAL + "    address: adb://h/ABC\n", "4: devices[0].serial: `address` says that already"),
    (
        REAL.replace("serial: ABC", "serial: ssh://h/ABC"),
        "4: devices[0].serial: is the address of a device: write it as `address`",
    ),
    (
        REAL.replace("serial: ABC", "address: qa@rb3"),
        "4: devices[0].address: must be the address of a device; [user@]host[:port] needs ",
    ),
    (BOARD.replace("    address: qa@rb3\n", ""), "3: devices[0].address: is missing (valid: [user"),
    (
        BOARD.replace("qa@rb3", "ssh://qa@rb3/X"),
        "5: devices[0].address: must be a computer that ssh",
    ),
    (BOARD.replace("qa@rb3", "-oX"), "5: devices[0].address: must be a computer that ssh knows: ["),
    (BOARD.replace("qa@rb3", "qa@rb3:0"), "5: devices[0].address: must be a computer that ssh kn"),
    (LOCAL + "  - {name: b, transport: local}\n", "5: devices[1].transport: 'local' is taken alre"),
    (BOARD + "    serial: A\n", "6: devices[0].serial: is a key of `transport: adb` o"),
    (BOARD + "    host: h\nhosts:\n  - {name: h, ssh: a}\n", "6: devices[0].host: is a key of"),
    (
        BOARD.replace("ssh", "usb"),
        "4: devices[0].transport: unknown value 'usb' (valid: adb, ssh, local, simulated)",
    ),
    # one sshd, whoever logs in there
    (
        BOARD + "  - {name: b, transport: ssh, address: 'root@RB3:22'}\n",
        "6: devices[1].address: 'root@RB3:22' is taken already by line 5",
    ),
    (LOCAL + "    serial: A\n", "5: devices[0].serial: is a key of `transport: adb` only"),
    (LOCAL + "    address: h\n", "5: devices[0].address: is a key of `transport: adb` and"),
    (SIMULATED + "    transport: ssh\n", "6: devices[0].transport: unknown value 'ssh' (valid: si"),
    (SIMULATED + "    address: adb://h/A\n", "6: devices[0].address: is a key of `transport: adb`"),
    (
        "schema: 1\ndevices:\n  - {name: a, address: adb://h/A}\n  - {name: b, address: adb://h/A}\n",
        "4: devices[1].address: 'adb://h/A' is taken already by line 3",
    ),
    (REAL + "hosts:\n  - name: h\n    host: h\n    port: 0\n", "8: hosts[0].port: "),
    (REAL + "hosts:\n  - name: h\n    host: a b\n", "7: hosts[0].host: "),
    (
        REAL + "hosts:\n  - {name: h, host: a}\n  - {name: h, host: b}\n",
        "7: hosts[1].name: 'h' is ",
    ),
    (
        REAL + "  - name: phone\n    serial: D\n",
        "5: devices[1].name: 'phone' is taken already by l",
    ),
    (
        REAL + "  - name: other\n    serial: ABC\n",
        "6: devices[1].serial: 'ABC' is taken already by",
    ),
    (
        "schema: 1\ndevices:\n  - {name: a, serial: 'localhost:5555'}\n"
        "  - {name: b, serial: '127.0.0.1:5555'}\n",
        "4: devices[1].serial: '127.0.0.1:5555' is taken already by line 3",
    ),
    (REAL + "    pool: p\n", "5: devices[0].pool: takes devices whose `soc` is given"),
    (
        REAL + "    soc: SM8650\n    pool: phone\n",
        "6: devices[0].pool: is the name of a device, too",
    ),
    (
        "schema: 1\ndevices:\n  - {name: a, serial: A, soc: SM8650, pool: p}\n"
        "  - {name: b, serial: B, soc: SM8650, tags: [hot], pool: p}\n",
        "4: devices[1].pool: is that of a, which has other `tags`",
    ),
    (
        "",
        "1: is empty "
        "(valid: schema, hosts, labgrid, devices, health, recovery, gate, runtimes, notify)",
    ),
    (
        "- a\n",
        "1: must be a mapping of keys to values "
        "(valid: schema, hosts, labgrid, devices, health, recovery, gate, runtimes, notify)",
    ),
]


@pytest.mark.parametrize(("text", "expected"), ONE_MISTAKE)
def test_one_mistake_is_one_line_that_names_its_place(
    tmp_path: Path, text: str, expected: str
) -> None:
    mistakes = mistakes_of(tmp_path, text)
    if text.startswith("schema: 1\ndevice:"):
        assert mistakes.pop() == "1: devices: is missing"
    assert len(mistakes) == 1
    assert expected in mistakes[0]


def test_all_mistakes_are_reported_at_once(tmp_path: Path) -> None:
    text = (
        "schema: 1\ndevices:\n  - name: A\n    serial: x\n    colour: red\n"
        "  - name: b\n    serial: x\n    target: linux\n    host: gone\n"
        "  - name: b\n    simulated: true\n    soc: SM1\n    storage_limit_mb: big\n"
    )
    assert [line.partition(": ")[0] for line in mistakes_of(tmp_path, text)] == (
        ["3", "5", "8", "9", "10", "12", "13"]
    )


def test_the_choices_are_listed(tmp_path: Path) -> None:
    (mistake,) = mistakes_of(tmp_path, REAL + "    target: windows\n")
    assert mistake.endswith("(valid: android-arm64, linux-arm64, linux-x64)")


def test_the_error_carries_its_parts(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        lab_of(tmp_path, REAL + "    htp_arch: 74\n")
    error = caught.value
    assert (error.line, error.field, error.exit_code) == (5, "devices[0].htp_arch", 2)
    assert error.choices == ["68", "69", "73", "75", "79", "81"]


def test_the_same_serial_on_two_adb_hosts_is_two_devices(tmp_path: Path) -> None:
    text = REAL + "  - name: b\n    serial: ABC\n    host: h\nhosts:\n  - {name: h, host: x}\n"
    assert len(lab_of(tmp_path, text).devices) == 2


def test_select(tmp_path: Path) -> None:
    text = REAL + "  - name: b\n    serial: B\n  - name: c\n    serial: C\n    enabled: false\n"
    lab = lab_of(tmp_path, text)
    assert [device.name for device in lab.select()] == ["phone", "b"]
    assert [device.name for device in lab.select(["b", "phone", "b"])] == ["b", "phone"]
    assert lab.select([]) == []
    with pytest.raises(ConfigError) as caught:
        lab.select(["fone"])
    assert str(caught.value) == (
        f"{tmp_path}/devices.yaml: devices: device 'fone' is not in the lab, "
        "did you mean 'phone'? (valid: phone, b)"
    )
    with pytest.raises(ConfigError, match="device 'c' is disabled"):
        lab.select(["c"])


def test_a_lab_with_nothing_enabled(tmp_path: Path) -> None:
    lab = lab_of(tmp_path, REAL + "    enabled: false\n")
    with pytest.raises(ConfigError, match="no device is enabled"):
        lab.select()


def test_an_unknown_host(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="adb host 'x' is not in the lab"):
        lab_of(tmp_path, REAL).host("x")


def test_models_are_frozen_and_dump_as_they_are_written(tmp_path: Path) -> None:
    lab = lab_of(tmp_path, SIMULATED)
    with pytest.raises(ValueError):
        lab.devices[0].name = "other"  # type: ignore[misc]
    dumped = lab.model_dump(mode="json")
    assert dumped["schema"] == 1
    assert Lab.model_validate(dumped).devices == lab.devices


def test_a_device_made_in_code_gets_the_same_defaults() -> None:
    device = SimulatedDeviceConfig(name="sim", soc="SM8650")
    assert (device.htp_arch, device.target) == (75, "linux-x64")


keys = st.sampled_from(
    ["name", "serial", "soc", "target", "htp_arch", "host", "simulated", "tags", "x", "workdir"]
)
values = st.sampled_from(
    [None, True, 1, -3, 73, 2.5, "", "a", "QCS8550", "linux-x64", [], ["a"], [[1]], {}, {"a": 1}]
)


@reaches(0.5)
@given(
    st.lists(st.one_of(values, st.dictionaries(keys, values)), max_size=3),
    st.lists(st.one_of(values, st.dictionaries(keys, values)), max_size=2),
)
def test_whatever_stands_there_is_a_lab_or_a_configerror(
    devices: list[object], hosts: list[object]
) -> None:
    import json

    from harness.lab.inventory import mistakes_between_fields

    text = json.dumps({"schema": 1, "devices": devices, "hosts": hosts}, indent=1)
    problem = ""
    try:
        check_document(parse_document(text, "f"), Lab, more=mistakes_between_fields)
    except ConfigError as error:
        problem = str(error)
    if problem:
        reached()
    assert all(line.startswith(("f:", "and ")) for line in problem.splitlines())
