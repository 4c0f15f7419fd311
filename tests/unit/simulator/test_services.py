"""Names of shell services, as adb clients of all ages write them, and the property table."""

import pytest

from harness.simulator.boot_files import banner, device_properties, getprop_text
from harness.simulator.services import ShellRequest, parse_shell


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("shell,v2,raw:ls -l", ShellRequest("ls -l", v2=True)),
        ("shell,v2,TERM=xterm-256color,pty:", ShellRequest("", v2=True)),
        ("shell:echo a:b", ShellRequest("echo a:b", v2=False)),
        ("shell:a\nb", ShellRequest("a\nb", v2=False)),
        ("exec:cat", ShellRequest("cat", v2=False)),
        ("exec:", None),
        ("shell", None),
    ],
)
def test_names(name: str, expected: ShellRequest | None) -> None:
    assert parse_shell(name) == expected


def test_devices_differ_in_their_serial_numbers() -> None:
    serials = {device_properties(name, "QCS8550")["ro.serialno"] for name in ("a", "b", "a")}
    assert len(serials) == 2


def test_texts_of_properties() -> None:
    table = {"ro.product.name": "n", "ro.product.model": "m;x", "b": "[2]"}
    assert getprop_text(table) == "[b]: [[2]]\n[ro.product.model]: [m;x]\n[ro.product.name]: [n]\n"
    assert banner(table).startswith(
        b"device::ro.product.name=n;ro.product.model=m_x;ro.product.device=;features=shell_v2,"
    )
