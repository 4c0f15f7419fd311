"""Devices that fit requirements, and requirements that are mistakes."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from harness.core.axes import BACKENDS
from harness.core.errors import ConfigError
from harness.lab.devices import AdbDeviceConfig, DeviceConfig, SimulatedDeviceConfig
from harness.lab.matching import alike, kinds, misfits

SIM = SimulatedDeviceConfig(name="sim", soc="QCS8550", tags=("fast", "desk"))
UNKNOWN = AdbDeviceConfig(name="phone", serial="A")
NO_HTP = AdbDeviceConfig(name="old", serial="B", soc="QCS610", target="linux-arm64")


@pytest.mark.parametrize(
    ("device", "requirements", "reasons"),
    [
        (SIM, {}, []),
        (SIM, {"htp_arch": 73, "soc": "QCS8550", "simulated": True}, []),
        (SIM, {"htp_arch": (73, 75)}, []),
        (SIM, {"htp_arch": 75}, ["needs htp_arch 75, has 73"]),
        (SIM, {"htp_arch": [75, 79]}, ["needs htp_arch 75 or 79, has 73"]),
        (SIM, {"target": "android-arm64"}, ["needs target android-arm64, has linux-x64"]),
        (SIM, {"simulated": False}, ["needs simulated False, has True"]),
        (SIM, {"tags": "fast"}, []),
        (SIM, {"tags": ["fast", "lab", "cold"]}, ["lacks tag lab, cold"]),
        (SIM, {"tags": None, "htp_arch": None}, []),
        (SIM, {"tags": [], "htp_arch": ()}, []),
        (SIM, {"htp_arch": {73}, "target": frozenset({"linux-x64"})}, []),
        (SIM, {"backend": "gpu"}, []),
        (SIM, {"backend": "htp"}, []),
        (UNKNOWN, {"backend": "htp"}, []),
        (UNKNOWN, {"soc": "X"}, ["needs soc X, and the lab does not say which it has"]),
        (NO_HTP, {"backend": "htp"}, ["QCS610 has no HTP"]),
        (NO_HTP, {"backend": ("htp", "gpu")}, []),
        (NO_HTP, {"backend": "gpu", "engine": "ort", "compilers": "all", "qnn": "2.51.0"}, []),
        (
            NO_HTP,
            {"backend": "htp", "simulated": True},
            ["QCS610 has no HTP", "needs simulated True, has False"],
        ),
    ],
)
def test_reasons(device: DeviceConfig, requirements: dict[str, object], reasons: list[str]) -> None:
    assert misfits(device, requirements) == reasons


@pytest.mark.parametrize(
    ("requirements", "message"),
    [
        ({"arch": 73}, "arch: unknown requirement of a device test, did you mean 'htp_arch'? (val"),
        (
            {"colour": 1},
            "colour: unknown requirement of a device test (valid: backend, engine, ",
        ),
        ({"backend": "npu"}, "backend: a device test cannot require 'npu' (valid: htp, gpu, cpu)"),
        ({"htp_arch": 74}, "htp_arch: a device test cannot require 74 (valid: 68, 69, 73, 75, "),
        ({"htp_arch": "73"}, "cannot require '73'"),
        ({"simulated": 1}, "simulated: a device test cannot require 1 (valid: True, False)"),
        ({"target": "android"}, "target: a device test cannot require 'android'"),
        ({"tags": 3}, "tags: a device test cannot require 3"),
        ({"engine": "tflite"}, "engine: a device test cannot require 'tflite' (valid: qnn, ort, "),
        ({"compilers": True}, "compilers: a device test cannot require True (valid: own, all)"),
        ({"qnn": 2.51}, 'qnn: a device test cannot require 2.51, which is no text: write "2.51"'),
    ],
)
def test_mistakes_of_a_marker(requirements: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        misfits(SIM, requirements)
    assert message in str(caught.value)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "backend": st.sampled_from(BACKENDS),
            "htp_arch": st.sampled_from([68, 73, 81]),
            "soc": st.sampled_from(["QCS8550", "QCS610"]),
            "simulated": st.booleans(),
            "tags": st.lists(st.sampled_from(["fast", "cold"]), max_size=2),
        },
    ),
    st.sampled_from([SIM, UNKNOWN, NO_HTP]),
)
def test_more_requirements_never_fit_better(
    requirements: dict[str, object], device: DeviceConfig
) -> None:
    alone = [misfits(device, {key: value}) for key, value in requirements.items()]
    assert misfits(device, requirements) == [reason for reasons in alone for reason in reasons]


def test_a_kind_is_called_by_what_tells_it_apart() -> None:
    def sim(name: str, soc: str | None = "QCS8550", **more: object) -> DeviceConfig:
        return DeviceConfig.model_validate({"name": name, "simulated": True, "soc": soc} | more)

    alone = [sim("a"), sim("b", "SM8650"), sim("c", tags=[]), UNKNOWN]
    assert kinds(alone) == {"a": "qcs8550", "c": "qcs8550", "b": "sm8650", UNKNOWN.name: "phone"}
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


def test_a_soc_that_is_called_as_another_one_with_a_number() -> None:
    socs = {"a": "QCS8550", "b": "qcs8550", "c": "QCS8550-2"}
    devices = [AdbDeviceConfig(name=name, serial=name, soc=soc) for name, soc in socs.items()]
    assert kinds(devices) == {"a": "qcs8550", "b": "qcs8550-2", "c": "qcs8550-2-2"}


def test_twins_are_of_one_kind() -> None:
    def sim(name: str, **more: object) -> DeviceConfig:
        return DeviceConfig.model_validate(
            {"name": name, "simulated": True, "soc": "QCS8550", "tags": ["a", "b"]} | more
        )

    device = sim("own")
    others = [
        device,
        sim("alike", tags=["b", "a"]),
        sim("another-soc", soc="SM8650"),
        sim("other-tags", tags=["a"]),
        AdbDeviceConfig(
            name="real", serial="A", soc="QCS8550", target="linux-x64", tags=("a", "b")
        ),
    ]
    assert [device.name for device in alike(device, others)] == ["alike"]
    assert alike(UNKNOWN, [AdbDeviceConfig(name="phone2", serial="B")]) == []
