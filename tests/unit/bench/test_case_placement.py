"""Placements: a case runs on what its name has, and nowhere else."""

from typing import Any

import pytest
from hypothesis import given, strategies as st

from harness.bench.case_placement import Need, Placement, merge_pools
from harness.models.builtin_models import Model
from harness.models.context_file import ContextFile

NAMES = st.sampled_from("abcdef")


def placed(device: str = "sim", **axes: Any) -> Placement:
    return Placement(
        **{"device": device, "backend": "htp", "qnn": "2.51.0", "compiler": None} | axes
    )


@pytest.mark.parametrize(
    ("case_placement", "name"),
    [
        (placed(), "sim-htp-2.51.0"),
        (placed(compiler="2.51.0"), "sim-htp-2.51.0"),
        (placed(qnn="sdk:2.51.0.260929", compiler="2.51.0"), "sim-htp-sdk:2.51.0.260929"),
        (placed(compiler="2.5"), "sim-htp-2.51.0-by-2.5"),
        (placed(power="burst"), "sim-htp-2.51.0-power-burst"),
        (
            placed(backend="gpu", compiler="2.50.40", engine="ort", ort="1.31.1", pool="pool"),
            "pool-gpu-2.51.0-ort-1.31.1-by-2.50.40",
        ),
    ],
)
def test_a_case_is_called_by_where_it_runs_and_with_what(
    case_placement: Placement, name: str
) -> None:
    assert str(case_placement) == repr(case_placement) == name


@pytest.mark.parametrize(
    ("pooled", "is_shared"), [("", [False] * 3), ("b", [False] * 3), ("bc", [False, True])]
)
def test_what_only_one_device_of_a_pool_can_run_is_shared_by_none(
    pooled: str, is_shared: list[bool]
) -> None:
    placements = merge_pools([*map(placed, "abc")], dict.fromkeys(pooled, "pool"))
    assert [placement.is_shared for placement in placements] == is_shared


def test_versions_are_those_behind_the_name_of_a_source() -> None:
    sdk = placed(qnn="sdk:2.31.0.1", ort="mine:1.31.1")
    assert (placed().qnn_version, placed().axes["ort"]) == ("2.51.0", None)
    assert (sdk.qnn_version, sdk.axes["ort"]) == ("2.31.0.1", "1.31.1")


def test_what_lies_on_a_device_is_the_same_wherever_that_is() -> None:
    alone, pooled = placed("a"), placed("b", pool="p", among=("b", "c"))
    assert alone.deployment_key == pooled.deployment_key == pooled.on("c").deployment_key
    assert alone.model_copy(update={"qnn": "2.50.0"}).deployment_key != alone.deployment_key


@pytest.mark.parametrize(
    ("engine", "backend", "contexts", "models"),
    [
        ("qnn", "htp", "tiny x.bin", ""),
        ("qnn", "gpu", "x.bin", ""),
        ("ort", "htp", "", "tiny"),
        ("executorch", "htp", "", ""),
    ],
)
def test_what_a_case_is_given_depends_on_its_engine_and_its_backend(
    engine: str, backend: str, contexts: str, models: str
) -> None:
    need = Need(placed(backend=backend, engine=engine), (Model("tiny"), ContextFile("x.bin")))
    assert " ".join(map(str, need.contexts)) == contexts
    assert " ".join(map(str, need.models)) == models


@given(devices=st.lists(NAMES, min_size=1, unique=True), pooled=st.sets(NAMES), device=NAMES)
def test_a_case_runs_on_a_device_that_its_name_has_or_shares_and_on_no_other(
    devices: list[str], pooled: set[str], device: str
) -> None:
    placements = merge_pools([*map(placed, devices)], dict.fromkeys(pooled, "pool"))
    assert placements
    for placement in placements:
        may = {*devices} & pooled if placement.device_name == "pool" else {placement.device_name}
        if device in may:
            assert placement.on(device).device == device
            assert str(placement.on(device)) == str(placement)
        else:
            with pytest.raises(ValueError, match=f" {device}$"):
                placement.on(device)
