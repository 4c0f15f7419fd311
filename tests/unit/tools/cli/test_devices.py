"""What `qnn-harness devices` says below its table."""

from __future__ import annotations

from harness.tools.cli.devices import PREPARES, ListedDevice, remark_lines


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
    assert remark_lines(rows) == [
        f"sim-0, sim-1, sim-2, sim-3 and 2 more: {PREPARES}",
        "sim-1: is warm",
    ]
    assert remark_lines(rows[4:]) == [f"sim-4, sim-5: {PREPARES}"]
    assert remark_lines([row("sim-0")]) == []
