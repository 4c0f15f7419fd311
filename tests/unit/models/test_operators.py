"""Models of one operator: valid, of the type that they are called by, and fed as they need it."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from harness.models.generated_models import OPERATORS
from harness.models.models import Model

NAMES = list(OPERATORS)
SUFFIXES = {"float32": "float", "uint8": "8bit", "uint16": "16bit"}


def ends_of(name: str) -> dict[str, onnx.TypeProto.Tensor]:
    built = Model(name).build().graph
    return {tensor.name: tensor.type.tensor_type for tensor in (*built.input, *built.output)}


@pytest.mark.parametrize("name", NAMES)
def test_an_operator_is_a_valid_model_of_its_type(name: str) -> None:
    model = Model(name)
    onnx.checker.check_model(model.build(), full_check=True)
    ends = ends_of(name)
    assert set(ends) == {"x", "y"}
    types = {onnx.helper.tensor_dtype_to_np_dtype(end.elem_type) for end in ends.values()}
    assert types == {np.dtype(model.data_type)} == {np.dtype(model.output_type)}
    assert name.endswith(f"-{SUFFIXES[model.data_type]}")
    (x,) = model.inputs().values()
    assert tuple(side.dim_value for side in ends["x"].shape.dim) == x.shape
    assert x.dtype == model.data_type


@pytest.mark.parametrize("name", NAMES)
def test_inputs_of_variants_differ_and_are_the_same_every_time(name: str) -> None:
    drawn = [Model(name, variant=seed).inputs()["x"] for seed in (0, 1, 0)]
    np.testing.assert_array_equal(drawn[0], drawn[2])
    assert not np.array_equal(drawn[0], drawn[1])


@pytest.mark.parametrize("name", [name for name in NAMES if OPERATORS[name].bits == 32])
def test_half_precision_holds_what_goes_in(name: str) -> None:
    x = Model(name).inputs()["x"]
    np.testing.assert_array_equal(x.astype("<f2").astype("<f4"), x)
    assert np.abs(x).max() > 3


@pytest.mark.parametrize("bits", [8, 16])
def test_quantised_inputs_are_any_values(bits: int) -> None:
    x = Model(f"add-{bits}bit").inputs()["x"]
    assert x.min() < 2**bits * 0.01
    assert x.max() > 2**bits * 0.99


def test_what_an_operator_cannot_take_is_not_given() -> None:
    assert Model("sqrt-float").inputs()["x"].min() > 0
    divisors = np.abs(Model("div-float").inputs()["x"])
    assert divisors.min() >= 0.25


def test_each_arithmetic_has_the_layers_of_networks() -> None:
    for suffix in SUFFIXES.values():
        kinds = {name.removesuffix(f"-{suffix}") for name in NAMES if name.endswith(f"-{suffix}")}
        assert kinds >= {"add", "conv-3x3", "gelu", "matmul", "mul", "sigmoid", "softmax"}
