"""A device whose HTP nobody knows is a mistake in devices.yaml, told with its line there."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.lab.attach import unknown_arch
from harness.lab.inventory import load_lab

LAB = "schema: 1\ndevices:\n  - {name: a, serial: s}\n  - name: b\n    serial: t\n"


@pytest.mark.parametrize(
    ("soc", "reported", "line", "problem"),
    [
        ("SM8570", None, 6, "b: soc SM8570 is unknown, did you mean 'SM8850'?"),
        ("SM8570", "SM8650", 6, "b: soc SM8570 is unknown, the device says SM8650"),
        ("SM8570", "kalama", 6, "b: soc SM8570 is unknown, did you mean 'SM8850'?"),
        ("other", None, 6, "b: soc other is unknown; if it is right, set `htp_arch`"),
        ("QCS610", None, 6, "b: QCS610 has no HTP"),
        (None, None, 4, "b: its SoC is not known: set `soc` or `htp_arch`"),
        (None, "kalama", 4, "b: its SoC is not known: set `soc` or `htp_arch`, it says kalama"),
    ],
)
def test_what_is_said_of_it(
    soc: str | None, reported: str | None, line: int, problem: str, tmp_path: Path
) -> None:
    file = tmp_path / "devices.yaml"
    file.write_text(LAB + (f"    soc: {soc}\n" if soc else ""))
    (device,) = load_lab(file).select(["b"])
    assert str(unknown_arch(device, reported, file)) == f"{file}:{line}: {problem}"
    file.unlink()
    assert str(unknown_arch(device, reported, file)) == f"{file}: {problem}"
    assert str(unknown_arch(device, reported, None)) == problem
