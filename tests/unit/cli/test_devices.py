"""The notes below the table of `qnn-harness devices`."""

from pathlib import Path

from click.testing import CliRunner

from harness.cli.devices import PREPARES, ListedDevice, note_lines
from harness.cli.main import commands


def row(name: str, *findings: str) -> ListedDevice:
    return ListedDevice(
        name=name,
        serial=name,
        configured=True,
        enabled=True,
        simulated=True,
        findings=list(findings),
    )


def test_what_many_devices_have_is_said_once() -> None:
    rows = [row(f"sim-{number}", PREPARES) for number in range(6)]
    rows[1].findings.append("is warm")
    assert note_lines(rows) == [
        f"sim-0, sim-1, sim-2, sim-3 and 2 more: {PREPARES}",
        "sim-1: is warm",
    ]
    assert note_lines(rows[4:]) == [f"sim-4, sim-5: {PREPARES}"]
    assert note_lines([row("sim-0")]) == []


def test_an_adb_server_that_is_gone_is_one_error(tmp_path: Path) -> None:
    device = "  - {{name: farm-0{}, host: rack, serial: s{}, soc: QCS8550, target: linux-arm64}}\n"
    lab = "schema: 1\nhosts:\n  - {name: rack, host: 127.0.0.1, port: 1}\ndevices:\n"
    (file := tmp_path / "devices.yaml").write_text(lab + "".join(map(device.format, "123", "123")))
    listed = CliRunner().invoke(
        commands, ["devices", "list", f"--lab={file}"], standalone_mode=False
    )
    (error,) = (line for line in listed.stderr.splitlines() if line.startswith("error: "))
    assert error.startswith("error: farm-01, farm-02, farm-03: ")
    assert listed.return_value == 3
    completed = CliRunner().invoke(
        commands, ["devices", "list", f"--lab={file}", "--json"], standalone_mode=False
    )
    assert (completed.return_value, completed.stderr) == (3, "")
    assert completed.stdout.count("127.0.0.1:1: ") >= 3
