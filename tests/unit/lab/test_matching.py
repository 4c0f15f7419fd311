"""Devices that fit requirements, and requirements that are mistakes."""

import pytest
from hypothesis import given, strategies as st

from harness.core.errors import ConfigError
from harness.lab.device_config import AdbDeviceConfig, DeviceConfig, SimulatedDeviceConfig
from harness.lab.matching import alike, kinds, misfits
from tests.snapshots import Snapshot

SIM = SimulatedDeviceConfig(name="sim", soc="QCS8550", tags=("fast", "desk"))
UNKNOWN = AdbDeviceConfig(name="phone", serial="A")
NO_HTP = AdbDeviceConfig(name="old", serial="B", soc="QCS610", target="linux-arm64")


@pytest.mark.parametrize(
    ("device", "requirements"),
    [
        (SIM, {}),
        (SIM, {"htp_arch": 73, "soc": "QCS8550", "simulated": True}),
        (SIM, {"htp_arch": (73, 75)}),
        (SIM, {"tags": "fast"}),
        (SIM, {"tags": [], "htp_arch": ()}),
        (SIM, {"htp_arch": {73}, "target": frozenset({"linux-x64"})}),
        (SIM, {"backend": "gpu"}),
        (SIM, {"backend": "htp"}),
        (UNKNOWN, {"backend": "htp"}),
        (NO_HTP, {"backend": ("htp", "gpu")}),
        (NO_HTP, {"backend": "gpu", "engine": "ort", "compilers": "all", "qnn": "2.51.0"}),
    ],
)
def test_devices_that_fit(device: DeviceConfig, requirements: dict[str, object]) -> None:
    assert misfits(device, requirements) == []


def test_reasons(snapshot: Snapshot) -> None:
    reasons = [
        misfits(SIM, {"htp_arch": 75}),
        misfits(SIM, {"htp_arch": [75, 79]}),
        misfits(SIM, {"target": "android-arm64"}),
        misfits(SIM, {"simulated": False}),
        misfits(SIM, {"tags": ["fast", "lab", "cold"]}),
        misfits(UNKNOWN, {"soc": "X"}),
        misfits(NO_HTP, {"backend": "htp", "simulated": True}),
    ]
    assert [len(each) for each in reasons] == [1] * 6 + [2]
    assert list(map("; ".join, reasons)) == snapshot


def test_mistakes_of_a_marker(snapshot: Snapshot) -> None:
    mistakes = []
    for requirement, value in (
        ("arch", 73),
        ("backend", "npu"),
        ("htp_arch", 74),
        ("htp_arch", "73"),
        ("simulated", 1),
        ("target", "android"),
        ("tags", 3),
        ("engine", "tflite"),
        ("compilers", True),
        ("qnn", 2.51),
    ):
        with pytest.raises(ConfigError) as caught:
            misfits(SIM, {requirement: value})
        mistakes.append(caught.value)
    assert mistakes == snapshot


def test_a_kind_is_called_by_what_tells_it_apart() -> None:
    def sim(name: str, soc: str | None = "QCS8550", **more: object) -> DeviceConfig:
        return DeviceConfig.model_validate({"name": name, "simulated": True, "soc": soc} | more)

    unknown = [UNKNOWN, AdbDeviceConfig(name="phone2", serial="C")]
    alone = [sim("a"), sim("b", "SM8650"), sim("c", tags=[]), *unknown]
    named = {"a": "qcs8550", "c": "qcs8550", "b": "sm8650"}
    assert kinds(alone) == named | {device.name: device.name for device in unknown}
    real = AdbDeviceConfig(name="real", serial="A", soc="QCS8550", target="linux-x64")
    assert real not in alike(sim("a"), [real])
    assert alike(UNKNOWN, unknown) == []
    board, cold = sim("board", target="linux-arm64"), sim("cold", tags=["cold"])
    assert kinds([sim("a"), board, cold]) == {
        "a": "qcs8550-linux-x64",
        "board": "qcs8550-linux-arm64",
        "cold": "qcs8550-linux-x64-2",
    }
    assert kinds([sim("qcs8550"), sim("b")]) == dict.fromkeys(("qcs8550", "b"), "qcs8550-2")


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["QCS8550", "qcs8550", "QCS8550-2", "QCS8550-linux-x64", None]),
            st.sampled_from(["linux-x64", "linux-arm64"]),
            st.sampled_from([("fast", "cold"), ("cold", "fast"), ()]),
            st.sampled_from(["a", "b", "qcs8550", "qcs8550-linux-x64", "qcs8550-linux-x64-2"]),
        ),
        max_size=5,
        unique_by=lambda one: one[-1],
    )
)
def test_devices_are_called_the_same_exactly_if_they_are_alike(
    entries: list[tuple[str | None, str, tuple[str, ...], str]],
) -> None:
    devices = [
        DeviceConfig.model_validate(
            {"name": name, "serial": name, "soc": soc, "target": target, "tags": tags}
        )
        for soc, target, tags, name in entries
    ]
    called = kinds(devices)
    assert list(called) == [device.name for device in devices]
    for device in devices:
        same = {other.name for other in devices if called[other.name] == called[device.name]}
        assert same == {device.name, *(other.name for other in alike(device, devices))}
        assert called[device.name] == device.name or called[device.name] not in called
