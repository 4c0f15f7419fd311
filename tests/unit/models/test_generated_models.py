"""Models of one operator, and MobileNet-v2 with the twin that has the same weights."""

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from harness.models import builtin_models
from harness.models.builtin_models import Model
from harness.models.generated_models import OPERATORS

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
    if bits := {"8bit": 8, "16bit": 16}.get(name.rpartition("-")[2]):  # they are any values
        assert x.min() < 2**bits * 0.05
        assert x.max() > 2**bits * 0.95


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


def test_what_an_operator_cannot_take_is_not_given() -> None:
    assert Model("sqrt-float").inputs()["x"].min() > 0
    divisors = np.abs(Model("div-float").inputs()["x"])
    assert divisors.min() >= 0.25


FLOAT, TWIN = Model("mobilenet-v2"), Model("mobilenet-v2-8bit")


def test_the_twin_has_the_same_weights() -> None:
    float_ones = {tensor.name: tensor for tensor in FLOAT.build().graph.initializer}
    twins = {tensor.name: tensor for tensor in TWIN.build().graph.initializer}
    for layer in builtin_models.layers():
        if not layer.channels[0]:
            continue
        for kind, rounding in (("w", 1e-6), ("b", 0.5)):
            name = f"{layer.name}_{kind}"
            scale, zero = (
                numpy_helper.to_array(twins[f"{name}_{part}"]) for part in ("scale", "zero")
            )
            whole = numpy_helper.to_array(twins[name]).astype("f8") - zero.astype("f8")
            expected = numpy_helper.to_array(float_ones[name])
            assert np.abs(whole * scale - expected).max() <= float(scale) * (rounding + 1e-3), name


@pytest.mark.parametrize(
    ("least", "most", "scale", "zero"),
    [
        (0.0, 6.0, 6 / 255, 0),
        (-1.0, 1.0, 2 / 255, 128),
        (-2.0, -1.0, 2 / 255, 255),
        (1, 5, 5 / 255, 0),
    ],
)
def test_quantization_holds_zero(least: float, most: float, scale: float, zero: int) -> None:
    encoding = builtin_models.quantization(least, most)
    assert encoding == (pytest.approx(scale), zero)
