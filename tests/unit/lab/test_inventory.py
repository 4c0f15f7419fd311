"""devices.yaml: the shipped one, its commented example, and every kind of mistake."""

import re
from pathlib import Path

import pytest

from harness.core.errors import ConfigError
from harness.core.socs import HTP_ARCHS
from harness.dsp.simulated_dsp import DspLimits
from harness.lab.device_config import (
    AdbDeviceConfig,
    LocalDeviceConfig,
    SimulatedDeviceConfig,
    SshDeviceConfig,
)
from harness.lab.inventory import SIMULATED_LAB, Lab, lab_model, load_lab, shipped_lab
from harness.lab.lab_device import unknown_arch
from harness.notify.channels import load_channels
from harness.runtimes.catalog import Catalog
from harness.transport.adb_address import SshAddress, TcpAddress
from harness.transport.adb_server import AdbServer, SeenDevice
from harness.transport.ssh_connection import SshLogin
from tests.snapshots import Snapshot

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
        ("false", None),
        ("{}", DspLimits(arch=73, vtcm_mb=8)),
        (
            "{sessions: 2, vtcm_mb: 4, unsigned_pd: false}",
            DspLimits(arch=73, sessions=2, vtcm_mb=4, unsigned_pd=0),
        ),
    ],
)
def test_a_board_with_a_dsp_shows_its_soc(
    tmp_path: Path, entry: str, limits: DspLimits | None
) -> None:
    (device,) = simulated(lab_of(tmp_path, f"{ON_ARM}    dsp: {entry}\n"))
    assert device.shows_soc is (limits is not None)
    assert (device.dsp and device.dsp.limits(device.htp_arch, 8)) == limits


def test_what_a_missing_lab_is_told(tmp_path: Path, snapshot: Snapshot) -> None:
    with snapshot.raises(ConfigError):
        load_lab(tmp_path / "lab.yaml")
    with pytest.raises(ConfigError, match="1A2B' is not attached: no adb server at"):
        load_lab(tmp_path / "devices.yaml", names=["1A2B", "sim-v73"])
    with snapshot.raises(ConfigError):
        load_lab(tmp_path / "devices.yaml")


def test_a_device_that_is_neither_listed_nor_attached_is_told_what_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, snapshot: Snapshot
) -> None:
    phone = SeenDevice("1A2B", "device")
    monkeypatch.setattr(AdbServer, "is_running", lambda _: True)
    monkeypatch.setattr(AdbServer, "devices", lambda _: [phone])
    monkeypatch.setenv("ANDROID_SERIAL", "9Z")
    (tmp_path / "lab.yaml").write_text(REAL)
    lab = load_lab(tmp_path / "lab.yaml", names=["1A2B", "9Z"])
    assert lab.select(["1A2B"])[0].name == "1a2b"
    for name in ("9Z", "phome", "sim-9"):
        with snapshot.raises(ConfigError):
            lab.select([name])


def test_devices_that_need_no_file(snapshot: Snapshot) -> None:
    assert shipped_lab(["sim-v75", "sim-arm64"]) == shipped_lab([]) == SIMULATED_LAB
    assert shipped_lab(["phone"]) is shipped_lab(["sim-v73", "mine"]) is None
    for name in ("simv73", "sim-arm46"):
        with snapshot.raises(ConfigError):
            shipped_lab(["phone", name])


def test_a_name_that_no_file_can_have_is_a_mistake_of_the_user(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="File name too long"):
        load_lab(tmp_path / ("x" * 300))


def test_who_has_no_lab_runs_on_the_first_of_the_shipped_one() -> None:
    shipped = load_lab(SIMULATED_LAB)
    first = load_lab(ROOT / "devices.yaml").devices
    assert shipped.devices[: len(first)] == first
    others = {device.htp_arch for device in shipped.devices[len(first) :]}
    assert others == {arch for arch in HTP_ARCHS if arch >= 68} - {73}
    assert shipped.select() == [shipped.devices[0]]


def test_the_shipped_example_is_valid_when_uncommented(tmp_path: Path) -> None:
    before, marker, example = (ROOT / "devices.yaml").read_text().partition("that you need.\n")
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


def test_what_is_left_to_the_computer_is_off_where_it_cannot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setenv("QNN_HARNESS_ARM64_LIBRARIES", "/nonexistent")
    lab = lab_of(tmp_path, ON_ARM + "    enabled: auto\n" + "  - name: other\n    serial: ABC\n")
    assert [device.name for device in lab.select()] == ["other"]
    assert [device.name for device in lab.enabled_devices()] == ["other"]
    with pytest.raises(ConfigError, match="qemu-aarch64") as caught:
        lab.select(["sim"])
    assert caught.value.choices == ["other"]


def test_an_own_cpu_is_always_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    lab = lab_of(tmp_path, SIMULATED + "    enabled: auto\n")
    assert [device.name for device in lab.select()] == ["sim"]


def test_what_a_known_soc_tells_can_be_overridden(tmp_path: Path) -> None:
    text = REAL + "    soc: SM8650\n    adreno: 751\n    workdir: /data/qnn/\n"
    (device,) = lab_of(tmp_path, text).devices
    assert (device.htp_arch, device.adreno, device.workdir) == (75, "751", "/data/qnn")


HOSTS = f"{REAL}hosts:\n"
RUNTIMES = f"{REAL}runtimes:\n"
NOTIFY = f"{REAL}notify:\n"
TWO = "schema: 1\ndevices:\n"
MISTAKES = [
    (REAL + "    socc: SM8650\n", 5, "devices[0].socc"),
    (REAL + "colour: red\n", 5, "colour"),
    ("devices:\n  - name: a\n    serial: b\n", 1, "schema"),
    ("schema: 2\ndevices:\n  - name: a\n    serial: b\n", 1, "schema"),
    ("schema: true\ndevices:\n  - name: a\n    serial: b\n", 1, "schema"),
    ("schema: 1\ndevices: []\n", 2, "devices"),
    ("schema: 1\ndevices:\n", 2, "devices"),
    ("schema: 1\ndevices:\n  - sim\n", 3, "devices[0]"),
    ("schema: 1\ndevices:\n  - serial: A\n", 3, "devices[0].name"),
    ("schema: 1\ndevices:\n  - name: phone\n", 3, "devices[0].serial"),
    ("schema: 1\ndevices:\n  - name: Phone\n    serial: A\n", 3, "devices[0].name"),
    ("schema: 1\ndevices:\n  - name: no\n    serial: A\n", 3, "devices[0].name"),
    ("schema: 1\ndevices:\n  - name: a\n    serial: a b\n", 4, "devices[0].serial"),
    (REAL + "    enabled: maybe\n", 5, "devices[0].enabled"),
    (REAL + "    enabled: auto\n", 5, "devices[0].enabled"),
    (REAL + "    prepares_gpu: true\n", 5, "devices[0].prepares_gpu"),
    (ON_ARM + "    prepares_gpu: true\n", 7, "devices[0].prepares_gpu"),
    (SIMULATED + "    shows_soc: true\n", 6, "devices[0].shows_soc"),
    (ON_ARM.replace("QCS8550", "SA8295") + "    shows_soc: true\n", 7, "devices[0].shows_soc"),
    (SIMULATED + "    dsp: true\n", 6, "devices[0].dsp"),
    (ON_ARM + "    dsp: 8\n", 7, "devices[0].dsp"),
    (ON_ARM + "    shows_soc: false\n    dsp: true\n", 7, "devices[0].shows_soc"),
    (ON_ARM.replace("QCS8550", "SM8850") + "    dsp: true\n", 7, "devices[0].dsp"),
    (ON_ARM + "    dsp: {sessions: 65}\n", 7, "devices[0].dsp.sessions"),
    (ON_ARM + "    dsp:\n      vtcm_mb: 8\n      handle: 4\n", 9, "devices[0].dsp.handle"),
    (REAL + "    simulated: 'yes'\n", 5, "devices[0].simulated"),
    (REAL + "    target: android\n", 5, "devices[0].target"),
    (REAL + "    htp_arch: 74\n", 5, "devices[0].htp_arch"),
    (REAL + "    soc: SM8650\n    htp_arch: 73\n", 6, "devices[0].htp_arch"),
    (REAL + "    workdir: /\n", 5, "devices[0].workdir"),
    (REAL + "    workdir: /data/../etc\n", 5, "devices[0].workdir"),
    (REAL + "    tags: [a, 3]\n", 5, "devices[0].tags[1]"),
    (REAL + "    host: far\n", 5, "devices[0].host"),
    (SIMULATED + "    serial: x\n", 6, "devices[0].serial"),
    (SIMULATED + "    target: android-arm64\n", 6, "devices[0].target"),
    (SIMULATED + "    storage_limit_mb: 0\n", 6, "devices[0].storage_limit_mb"),
    (SIMULATED.replace("QCS8550", "QCS8551"), 5, "devices[0].soc"),
    (SIMULATED.replace("QCS8550", "QCS610"), 5, "devices[0].soc"),
    (SIMULATED.replace("    soc: QCS8550\n", ""), 3, "devices[0].soc"),
    (HOSTS + "  - name: h\n    ssh: -oX\n", 7, "hosts[0].ssh"),
    (HOSTS + "  - name: h\n    port: 1\n", 6, "hosts[0].host"),
    (HOSTS + "  - {name: h, socket: /tmp/x, ssh: far}\n", 6, "hosts[0].socket"),
    (HOSTS + "  - name: h\n    host: h\n    port: 0\n", 8, "hosts[0].port"),
    (HOSTS + "  - {name: h, host: a}\n  - {name: h, host: b}\n", 7, "hosts[1].name"),
    (REAL.replace("serial: ABC", "address: ssh://-oX/ABC"), 4, "devices[0].address"),
    (REAL + "    address: adb://h/ABC\n", 4, "devices[0].serial"),
    (REAL.replace("serial: ABC", "serial: ssh://h/ABC"), 4, "devices[0].serial"),
    (REAL.replace("serial: ABC", "address: qa@rb3"), 4, "devices[0].address"),
    (BOARD.replace("    address: qa@rb3\n", ""), 3, "devices[0].address"),
    (BOARD.replace("qa@rb3", "ssh://qa@rb3/X"), 5, "devices[0].address"),
    (BOARD.replace("qa@rb3", "-oX"), 5, "devices[0].address"),
    (BOARD + "    serial: A\n", 6, "devices[0].serial"),
    (BOARD + "    host: h\nhosts:\n  - {name: h, ssh: a}\n", 6, "devices[0].host"),
    (BOARD.replace("ssh", "usb"), 4, "devices[0].transport"),
    # one sshd, whoever logs in there
    (BOARD + "  - {name: b, transport: ssh, address: 'root@RB3:22'}\n", 6, "devices[1].address"),
    (LOCAL + "  - {name: b, transport: local}\n", 5, "devices[1].transport"),
    (LOCAL + "    serial: A\n", 5, "devices[0].serial"),
    (SIMULATED + "    transport: ssh\n", 6, "devices[0].transport"),
    (
        f"{TWO}  - {{name: a, address: adb://h/A}}\n  - {{name: b, address: adb://h/A}}\n",
        4,
        "devices[1].address",
    ),
    (REAL + "  - name: phone\n    serial: D\n", 5, "devices[1].name"),
    (REAL + "  - name: other\n    serial: ABC\n", 6, "devices[1].serial"),
    (
        f"{TWO}  - {{name: a, serial: 'localhost:5'}}\n  - {{name: b, serial: '127.0.0.1:5'}}\n",
        4,
        "devices[1].serial",
    ),
    (REAL + "    pool: p\n", 5, "devices[0].pool"),
    (REAL + "    soc: SM8650\n    pool: phone\n", 6, "devices[0].pool"),
    (
        f"{TWO}  - {{name: a, serial: A, soc: SM8650, pool: p}}\n"
        "  - {name: b, serial: B, soc: SM8650, tags: [hot], pool: p}\n",
        4,
        "devices[1].pool",
    ),
    (REAL + "    power: ''\n", 5, "devices[0].power"),
    (LOCAL + "    power: x\n", 5, "devices[0].power"),
    (SIMULATED + "    power: x\n", 6, "devices[0].power"),
    ("", 1, None),
    ("- a\n", 1, None),
    (RUNTIMES + "  - {name: pypi, kind: aar, path: a}\n", 6, "runtimes[0].name"),
    (RUNTIMES + "  - {name: a, kind: foldr, path: a}\n", 6, "runtimes[0].kind"),
    (RUNTIMES + "  - {name: a, kind: qairt}\n", 6, "runtimes[0].path"),
    (RUNTIMES + "  - {name: a, kind: maven, repository: m}\n", 6, "runtimes[0].coordinates"),
    (RUNTIMES + "  - {name: a, kind: aar, path: x, toolchain: y}\n", 6, "runtimes[0].toolchain"),
    (RUNTIMES + 2 * "  - {name: a, kind: aar, path: x}\n", 7, "runtimes[1].name"),
    (
        RUNTIMES + '  - {name: a, kind: maven, coordinates: "g:a", repository: "ftp://x"}\n',
        6,
        "runtimes[0].repository",
    ),
    (RUNTIMES + "  - {name: a, kind: folder, path: x, target: mars}\n", 6, "runtimes[0].target"),
    (RUNTIMES + '  - {kind: qairt-url, url: "http://a/v.zip"}\n', 6, "runtimes[0].url"),
    (RUNTIMES + "  - {kind: qairt-url, sha256: {2.4.0: x}}\n", 6, "runtimes[0].sha256.2.4.0"),
    (NOTIFY + "  - {name: a, url: 'json://a b'}\n", 6, "notify[0].url"),
    (NOTIFY + "  - {name: a, url: 'json://a', colour: red}\n", 6, "notify[0].colour"),
    (NOTIFY + "  - {name: a, url: 'json://a', on: [new]}\n", 6, "notify[0]"),
    (NOTIFY + 2 * "  - {name: a, url: 'json://b'}\n", 7, "notify[1].name"),
]


@pytest.mark.parametrize(("text", "line", "field"), MISTAKES)
def test_one_mistake_is_one_line_that_names_its_place(
    tmp_path: Path, text: str, line: int, field: str | None
) -> None:
    with pytest.raises(ConfigError) as caught:
        lab_of(tmp_path, text)
    assert (caught.value.line, caught.value.field) == (line, field)
    assert len(str(caught.value).splitlines()) == 1


def test_what_is_said_of_mistakes(tmp_path: Path, snapshot: Snapshot) -> None:
    """One of each kind, with what may be meant and what is valid."""
    mistakes = []
    for text, *_ in MISTAKES[:4] + MISTAKES[10:16:2] + MISTAKES[18:36:2]:
        with pytest.raises(ConfigError) as caught:
            lab_of(tmp_path, text)
        mistakes.append(caught.value)
    assert mistakes == snapshot


def test_all_mistakes_are_reported_at_once(tmp_path: Path) -> None:
    text = (
        "schema: 1\ndevices:\n  - name: A\n    serial: x\n    colour: red\n"
        "  - name: b\n    serial: x\n    target: linux\n    host: gone\n"
        "  - name: b\n    simulated: true\n    soc: SM1\n    storage_limit_mb: big\n"
    )
    with pytest.raises(ConfigError) as caught:
        lab_of(tmp_path, text)
    places = re.findall(r"devices\.yaml:(\d+): ", str(caught.value))
    assert places == ["3", "5", "8", "9", "10", "12", "13"]


def test_the_same_serial_on_two_adb_hosts_is_two_devices(tmp_path: Path) -> None:
    text = REAL + "  - name: b\n    serial: ABC\n    host: h\nhosts:\n  - {name: h, host: x}\n"
    assert len(lab_of(tmp_path, text).devices) == 2


def test_select(tmp_path: Path, snapshot: Snapshot) -> None:
    text = REAL + "  - name: b\n    serial: B\n  - name: c\n    serial: C\n    enabled: false\n"
    lab = lab_of(tmp_path, text)
    assert [device.name for device in lab.select()] == ["phone", "b"]
    assert [device.name for device in lab.select(["b", "phone", "b"])] == ["b", "phone"]
    assert lab.select([]) == []
    for name in ("fone", "c"):
        with snapshot.raises(ConfigError):
            lab.select([name])
    with snapshot.raises(ConfigError):
        lab_of(tmp_path, REAL + "    enabled: false\n").select()
    with snapshot.raises(ConfigError):
        lab.host("x")


def test_models_dump_as_they_are_written(tmp_path: Path) -> None:
    lab = lab_of(tmp_path, SIMULATED)
    dumped = lab.model_dump(mode="json")
    assert dumped["schema"] == 1
    assert lab_model().model_validate(dumped).devices == lab.devices


def test_sources_of_all_kinds(tmp_path: Path) -> None:
    text = """  - {name: sdk, kind: qairt, path: ../sdk, toolchain: aarch64-oe-linux-gcc9.3}
  - {name: mine, kind: folder, path: /libs, version: 2.31.0, target: linux-arm64}
  - {name: app, kind: aar, path: app.aar}
  - {name: maven, kind: maven, coordinates: "com.qualcomm.qti:qnn-runtime", repository: m2}
  - {name: web, kind: maven, coordinates: "a:b", repository: "https://maven.example.com/x"}
"""
    lab = lab_of(tmp_path, RUNTIMES + text)
    kinds = [(source.name, source.kind) for source in lab.runtimes]
    assert kinds[:3] == [("sdk", "qairt"), ("mine", "folder"), ("app", "aar")]
    assert kinds[3:] == [("maven", "maven"), ("web", "maven")]
    origins = [source.origin for source in Catalog.of(lab, {}, tmp_path / "cache").sources]
    assert origins[:3] == [str(tmp_path / "../sdk"), "/libs", str(tmp_path / "app.aar")]
    assert origins[3] == f"com.qualcomm.qti:qnn-runtime in {tmp_path / 'm2'}"


def test_an_ort_is_no_source(tmp_path: Path, snapshot: Snapshot) -> None:
    ort = "  - {name: ort, kind: maven, repository: m2, coordinates: 'a:onnxruntime-android-qnn'}\n"
    lab = lab_of(tmp_path, RUNTIMES + ort)
    with snapshot.raises(ConfigError):
        Catalog.of(lab, {}, tmp_path / "cache")


def test_secrets_of_channels_come_from_the_environment_and_are_shown_nowhere(
    tmp_path: Path, snapshot: Snapshot
) -> None:
    channels = "  - {name: team, url: 'slack://${A}/${B}/#lab'}\n  - {name: whole, url: '${URL}'}\n"
    first, second = lab_of(tmp_path, NOTIFY + channels).notify
    environment = {"A": "T1", "B": "T2\n", "URL": "json://${A}"}
    assert first.address(environment) == "slack://T1/T2/#lab"
    assert second.address(environment) == "json://${A}", "what is filled in is no more filled in"
    assert "slack" not in repr(first)
    for lacking in ({}, {"A": "x"}, {"A": "x", "B": " "}):
        with snapshot.raises(ConfigError):
            first.address(lacking)


def test_channels_are_read_whatever_else_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "devices.yaml"
    path.write_text("schema: 1\ndevices: [{nome: x}]\nnotify: [{name: a, url: 'json://a'}]\n")
    assert [channel.name for channel in load_channels(path)] == ["a"]
    path.write_text("devices: []\nnotify: {a: b}\n")
    with pytest.raises(ConfigError) as caught:
        load_channels(path)
    assert (caught.value.line, caught.value.field) == (2, "notify")
    with pytest.raises(ConfigError):
        load_channels(tmp_path / "none.yaml")


def test_a_device_whose_htp_nobody_knows_is_a_mistake_with_its_line(
    tmp_path: Path, snapshot: Snapshot
) -> None:
    file = tmp_path / "devices.yaml"
    mistakes = []
    for soc, reported, line in (
        ("SM8570", None, 7),
        ("SM8570", "SM8650", 7),
        ("SM8570", "kalama", 7),
        ("other", None, 7),
        ("QCS610", None, 7),
        (None, None, 5),
        (None, "kalama", 5),
    ):
        entry = "  - name: b\n    serial: t\n" + f"    soc: {soc}\n" * bool(soc)
        (device,) = lab_of(tmp_path, REAL + entry).select(["b"])
        mistakes.append(unknown_arch(device, reported, file))
        assert mistakes[-1].line == line
        file.unlink()
        assert unknown_arch(device, reported, file).line is None
    assert mistakes == snapshot
