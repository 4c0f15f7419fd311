"""The models that contexts are made of: built in code, the same to the byte everywhere.

MB are 10^6 bytes throughout. The graphs are in model_graphs.py; a model's key stands for its bytes
and its inputs.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, Self

from harness.contexts.compiler import mobilenet, model_graphs, operators
from harness.contexts.compiler.operators import DataType
from harness.ground.errors import ConfigError
from harness.ground.files.whole_file import keep_whole
from harness.ground.yaml_lines.models import did_you_mean

if TYPE_CHECKING:
    import numpy as np
    import onnx

_IR_VERSION = 9
_OPSET = 17
_MAX_MEGABYTES = 1024
_MAX_VARIANTS = 10_000

_OUTPUTS = ("y",)
_NAME = re.compile(
    r"(?P<kind>[a-z]+(?:-[a-z0-9]+)*?)(?:-(?P<size>\d{1,6})mb)?(?:-variant(?P<variant>\d{1,6}))?"
    r"(?:-by-(?P<prepare>memhandle|spill-fill))?(?:-for-v(?P<arch>\d{2}))?",
    re.ASCII,
)

Prepare = Literal["raw", "memhandle", "spill-fill"]
PREPARATIONS: Final[Mapping[Prepare, Mapping[str, str]]] = MappingProxyType(
    {
        "raw": {},
        # The graph's inputs and outputs get memType MEMHANDLE, as qnn-context-binary-generator
        # gives them for `--input_output_tensor_mem_type memhandle`.
        "memhandle": {"enable_htp_shared_memory_allocator": "1"},
        # The EPContext model says what the largest spill-fill buffer of its context is.
        "spill-fill": {"enable_htp_spill_fill_buffer": "1"},
    }
)
"""How a context can be prepared: options of ORT's QNN execution provider for the compiler."""


@dataclass(frozen=True)
class _Kind:
    """What is known of a kind of model: its graph, bounds of its size, how exact it runs.

    `graph` and `inputs` are made of a model, inputs as arrays by their names. `data_type` is the
    type of its activations, `output_type` the numpy type of its outputs.
    """

    graph: Callable[[Model], onnx.GraphProto]
    inputs: Callable[[Model], dict[str, np.ndarray[Any, Any]]]
    megabytes: tuple[int, int]
    step: int = 1
    tolerance: float = 0.0
    data_type: DataType = "uint8"
    output_type: str = "u1"
    opset: int = _OPSET
    ir_version: int = _IR_VERSION

    @classmethod
    def of(cls, operator: operators.Operator) -> _Kind:
        """A single operator as a kind of model."""
        return cls(
            operator.graph,
            operator.inputs,
            (0, 0),
            tolerance=operator.tolerance,
            data_type=operator.data_type,
            output_type=operator.numpy_type,
            opset=operators.OPSET,
            ir_version=operators.IR_VERSION,
        )


KINDS: Final[Mapping[str, _Kind]] = MappingProxyType(
    {
        # 16 products of numbers below 1 in half precision (11 bits): 16 * 2**-11 at worst
        "tiny": _Kind(
            model_graphs.tiny, model_graphs.tiny_inputs, (0, 0), 1, 0.01, "float32", "<f4"
        ),
        "weights-heavy": _Kind(
            model_graphs.weights_heavy, model_graphs.weights_heavy_inputs, (1, _MAX_MEGABYTES)
        ),
        "io-heavy": _Kind(
            model_graphs.io_heavy, model_graphs.io_heavy_inputs, (2, _MAX_MEGABYTES), 2
        ),
        "spill-heavy": _Kind(model_graphs.spill_heavy, model_graphs.spill_heavy_inputs, (1, 64)),
        # 53 layers in half precision, or in 8 bits with float32 in and out: how close these come
        # is in experiments/accuracy.py
        "mobilenet-v2": _Kind(
            mobilenet.build_float, mobilenet.make_inputs, (0, 0), 1, 0.1, "float32", "<f4"
        ),
        "mobilenet-v2-8bit": _Kind(
            mobilenet.build_quantised, mobilenet.make_inputs, (0, 0), 1, 1.0, "uint8", "<f4"
        ),
        **{name: _Kind.of(operator) for name, operator in operators.OPERATORS.items()},
    }
)


@dataclass(frozen=True, order=True)
class Model:
    """One model: a kind, its size in MB where the kind has one, and which of its variants.

    - `tiny`: MatMul of [1, 16] with a 16 x 16 matrix.
    - `weights-heavy`: rows picked by index out of a table of `megabytes` MB of 8-bit weights.
      Nothing but the table is large, and whatever is not used of it stays in the binary.
    - `io-heavy`: quantised Relu with half of `megabytes` MB (even) going in and half coming out.
      Exact, and 50 times faster on the simulator than the same bytes in float32.
    - `spill-heavy`: maps of `megabytes` MB that are kept for skip connections over pooling, so that
      they outgrow the VTCM and part of them is spilled to memory and filled back.
    - `mobilenet-v2`: MobileNet-v2 for 224 x 224 pixels (mobilenet.py), in float32.
    - `mobilenet-v2-8bit`: the same with 8-bit weights and activations (QDQ), float32 in and out.
    - the names of `OPERATORS` (operators.py), as `conv-3x3-8bit`: one operator each.

    `prepare` is one of `PREPARATIONS`: how the compiler is told to make the context. `htp_arch`
    (75 for v75) is another HTP than the device's to make it for.

    Variants differ in content, so each gives a binary of its own. Raises ConfigError for a kind,
    size, variant or preparation that does not exist.
    """

    kind: str
    megabytes: int = 0
    variant: int = 0
    prepare: Prepare = "raw"
    htp_arch: int = 0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            near = did_you_mean(self.kind, KINDS)
            raise ConfigError(f"unknown model {self.kind!r}{near}", choices=KINDS)
        if self.prepare not in PREPARATIONS:
            raise ConfigError(f"unknown preparation {self.prepare!r}", choices=PREPARATIONS)
        kind = KINDS[self.kind]
        least, most = kind.megabytes
        if not least <= self.megabytes <= most or self.megabytes % kind.step:
            even = ", even" if kind.step == 2 else ""
            raise ConfigError(
                f"{self.kind} cannot have {self.megabytes} MB (valid: {least} to {most}{even})"
            )
        if not 0 <= self.variant < _MAX_VARIANTS:
            raise ConfigError(f"variant {self.variant} is not between 0 and {_MAX_VARIANTS - 1}")

    def __str__(self) -> str:
        prepared = f"-by-{self.prepare}" if self.prepare != "raw" else ""
        return f"{self.model}{prepared}" + (f"-for-v{self.htp_arch}" if self.htp_arch else "")

    # other plug-ins of pytest (allure) show parameters so
    __repr__ = __str__

    @property
    def compiled(self) -> bool:
        """Whether a compiler is started here to make its contexts: always."""
        return True

    def seen_from(self, folder: Path) -> Self:
        """Itself: it is built in code, and has no path."""
        return self

    @property
    def model(self) -> str:
        """The model's name, whatever way its context is prepared."""
        size = f"-{self.megabytes}mb" if self.megabytes else ""
        variant = f"-variant{self.variant}" if self.variant else ""
        return f"{self.kind}{size}{variant}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """The model that `str` calls so, as in io-heavy-56mb. Raises ConfigError."""
        found = _NAME.fullmatch(text)
        if found is None:
            near = did_you_mean(text, KINDS)
            raise ConfigError(f"unknown model {text[:80]!r}{near}", choices=KINDS)
        size, variant = int(found["size"] or 0), int(found["variant"] or 0)
        return cls(found["kind"], size, variant, found["prepare"] or "raw", int(found["arch"] or 0))  # type: ignore[arg-type]

    @property
    def compared(self) -> bool:
        """Whether its outputs are compared with those of ONNX Runtime on the CPU: always."""
        return True

    @property
    def tolerance(self) -> float:
        """By how much an output may differ from the reference, in units of its raw values."""
        return KINDS[self.kind].tolerance

    @property
    def data_type(self) -> DataType:
        """What its activations are made of."""
        return KINDS[self.kind].data_type

    @property
    def output_type(self) -> str:
        """The numpy type of its outputs, as raw files hold them."""
        return KINDS[self.kind].output_type

    def build(self) -> onnx.ModelProto:
        """The model."""
        from onnx import helper

        kind = KINDS[self.kind]
        return helper.make_model(
            kind.graph(self),
            producer_name="qnn-harness",
            producer_version="",
            ir_version=kind.ir_version,
            opset_imports=[helper.make_opsetid("", kind.opset)],
        )

    @property
    def recipe(self) -> str:
        """The digest of all that its bytes depend on; empty for what is in a file of a user."""
        return hashlib.sha256(f"{self.model}\n{_makers()}".encode()).hexdigest()

    def serialized(self) -> bytes:
        """The model as bytes, the same every time."""
        return bytes(self.build().SerializeToString(deterministic=True))

    def inputs(self) -> dict[str, np.ndarray[Any, Any]]:
        """Input arrays by name, in the order of the model's inputs; always the same."""
        return KINDS[self.kind].inputs(self)

    @property
    def without_inputs(self) -> Self:
        """The model alone, the same whatever inputs it is run with: itself."""
        return self

    def outputs(self) -> tuple[str, ...]:
        """The names of the outputs, in the order of the model."""
        return _OUTPUTS

    def expected(self) -> dict[str, Path]:
        """Raw files of what its outputs should be, by name: none, a reference is computed."""
        return {}


@cache
def _makers() -> str:
    """The code that builds models, and the versions of what it builds them with."""
    made = hashlib.sha256(" ".join(map(version, ("numpy", "onnx"))).encode())
    tables = Path(__file__).parent.glob("*.tsv")
    for path in sorted([*Path(__file__).parent.glob("*.py"), *tables]):
        made.update(path.read_bytes())
    return made.hexdigest()


class OnnxFiles:
    """ONNX files of models, below `<cache_root>/onnx`: for devices that make sessions of them."""

    def __init__(self, cache_root: Path) -> None:
        self._root = cache_root / "onnx"
        self._found: dict[Model, Path] = {}

    def path(self, model: Model) -> Path:
        """The model's file, made if it is missing or damaged. Raises InfraError."""
        alone = model.without_inputs
        if alone not in self._found:
            content = model.serialized()
            path = self._root / f"{alone}-{hashlib.sha256(content).hexdigest()[:16]}.onnx"
            keep_whole(path, content)
            self._found[alone] = path
        return self._found[alone]
