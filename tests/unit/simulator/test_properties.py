"""The property table of a simulated device."""

from __future__ import annotations

from harness.simulator.programs import (
    banner,
    device_properties,
    getprop_text,
)


def test_a_device_for_a_soc() -> None:
    table = device_properties("sim-v73", "QCS8550")
    assert table["ro.soc.model"] == "QCS8550"
    assert table["ro.soc.manufacturer"] == "QTI"
    assert table["ro.product.cpu.abilist"] == "x86_64"
    assert table["ro.build.version.sdk"] == "34"
    assert list(table) == sorted(table)


def test_who_its_commands_run_as_is_told() -> None:
    names = ("ro.build.type", "ro.debuggable", "ro.secure")
    tables = [device_properties("a", "QCS8550", root=root) for root in (False, True)]
    assert [[table[name] for name in names] for table in tables] == [
        ["user", "0", "1"],
        ["userdebug", "1", "0"],
    ]
    assert [table["ro.build.fingerprint"].split(":")[2] for table in tables] == [
        "user/test-keys",
        "userdebug/test-keys",
    ]


def test_devices_differ_in_their_serial_numbers() -> None:
    serials = {device_properties(name, "QCS8550")["ro.serialno"] for name in ("a", "b", "a")}
    assert len(serials) == 2


def test_texts() -> None:
    table = {"ro.product.name": "n", "ro.product.model": "m;x", "b": "[2]"}
    assert getprop_text(table) == "[b]: [[2]]\n[ro.product.model]: [m;x]\n[ro.product.name]: [n]\n"
    assert banner(table).startswith(
        b"device::ro.product.name=n;ro.product.model=m_x;ro.product.device=;features=shell_v2,"
    )
