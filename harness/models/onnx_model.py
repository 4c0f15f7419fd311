"""ONNX models of users: their nodes, shapes and inputs; compiled as models built in code are."""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import re
import shlex
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from harness.containers.artefact import Tensor
from harness.containers.graph_partitions import GraphNode
from harness.core.deadline import Deadline
from harness.core.errors import ConfigError
from harness.core.files import read_bounded, scratch_folder, sha256_of
from harness.core.guarded_process import spawn_guarded
from harness.core.paths_inside import name_problem, open_inside
from harness.core.state_folders import cache_root
from harness.models.builtin_models import Model
from harness.models.compiler import (
    BYTES_A_SECOND,
    WAIT_S,
    output_text,
    own_environment,
    worker_command,
)
from harness.models.context_file import Files
from harness.models.session_plan import IN_RANGE, MADE_UP, READ
from harness.models.tensor_files import TensorFiles, require_few_bytes

if TYPE_CHECKING:
    import numpy as np
    import onnx


_QUANTISE, _DEQUANTISE = "QuantizeLinear", "DequantizeLinear"
_LARGEST: Final = 1e30
"""Largest magnitude of a range; a larger one is no range."""


def quantised_ranges(model: onnx.ModelProto) -> dict[str, tuple[float, float]]:
    """Return the least and the largest value that the model quantises each input to.

    For an input that is quantised itself they are those of its type.
    """
    quantising = {
        node.input[0]: node
        for node in reversed(model.graph.node)
        if node.op_type in (_QUANTISE, _DEQUANTISE) and node.input
    }
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    for node in model.graph.node:
        for attribute in node.attribute if node.op_type == "Constant" else ():
            if attribute.name == "value" and node.output:
                constants[node.output[0]] = attribute.t
    ranges = {}
    for tensor in model.graph.input:
        # no range if the scale is computed, per channel, or of a type that numpy does not know
        with contextlib.suppress(KeyError, TypeError, ValueError, IndexError):
            ranges[tensor.name] = _range(quantising[tensor.name], constants)
    return ranges


def _range(node: onnx.NodeProto, constants: Mapping[str, onnx.TensorProto]) -> tuple[float, float]:
    import numpy as np
    from onnx import numpy_helper

    zeros = numpy_helper.to_array(constants[node.input[2]])
    info = np.iinfo(zeros.dtype)
    if node.op_type == _DEQUANTISE:
        return int(info.min), int(info.max)
    zero, scale = int(zeros.item()), numpy_helper.to_array(constants[node.input[1]]).item()
    low, high = (info.min - zero) * scale, (info.max - zero) * scale
    if not -_LARGEST < low < high < _LARGEST:
        raise ValueError(f"{low} to {high} is not a range")
    return low, high


WORKER: Final = Path(__file__).with_name("shapes_worker.py")
MOST_NODES: Final = 200_000
"""Most nodes of a model, with those of its functions counted at each call."""

MOST_GROWTH: Final = 16 << 20
"""Most bytes that inferred shapes and inlined functions add to twice a model's size."""
MOST_CPU_S: Final = 15
"""Processor time for inferring the shapes of an empty model; larger ones: `BYTES_A_SECOND`."""

_MOST_BYTES: Final = 2 << 30
_BYTES_BY_BYTE: Final = 4
_MOST_WORDS: Final = 1 << 16


def shaped(path: Path) -> onnx.ModelProto:
    """Return a model with its tensors' shapes, and without the content of its large tensors.

    The model is shared between callers, who must not change it. Raises ConfigError for a file that
    is no model, and for one that takes too much time or memory.
    """
    try:
        status = path.stat()
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror or error}", file=path) from error
    return _shaped(path, (status.st_size, status.st_ino, status.st_mtime_ns))


def inlined(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model with its tensors' shapes and its functions inlined.

    It has no content of large weights. Raises ConfigError as `shaped`.
    """
    with scratch_folder() as folder:
        path = folder / "model.onnx"
        path.write_bytes(model.SerializeToString())
        return _read(path, inline=True)


@lru_cache(maxsize=16)
def _shaped(path: Path, version: tuple[int, int, int]) -> onnx.ModelProto:
    del version  # part of the cache's key: a changed file is read again
    return _read(path, inline=False)


def _read(path: Path, *, inline: bool) -> onnx.ModelProto:
    import onnx

    size = path.stat().st_size
    most_bytes = _MOST_BYTES + _BYTES_BY_BYTE * size
    most_s = MOST_CPU_S + size // BYTES_A_SECOND
    with scratch_folder() as folder, tempfile.TemporaryFile() as output:
        shaped_path, refusal = folder / "made.onnx", folder / "refusal.txt"
        files = {"model": path.absolute(), "made": shaped_path, "refusal": refusal}
        bounds = {"most_nodes": MOST_NODES, "most_growth": MOST_GROWTH, "most_bytes": most_bytes}
        request = {**files, **bounds, "most_cpu_s": most_s, "inline": inline}
        command = worker_command(WORKER, folder, request)
        env = own_environment(OPENBLAS_NUM_THREADS="1")
        with spawn_guarded(command, env=env, cwd=folder, stdout=output, stderr=output) as child:
            code = child.wait(Deadline(most_s + WAIT_S))
        if shaped_path.exists() and code == 0:
            return onnx.load(shaped_path, load_external_data=False)
        last = output_text(output).strip().splitlines()[-1:] or ["no output"]
        if code == 0 and refusal.exists():
            problem = read_bounded(refusal, _MOST_WORDS).decode("utf-8")
        else:
            ending = "was stopped" if code is None else f"ended with exit code {code}"
            problem = (
                f"the inference of its shapes {ending} (limits: {most_s} s of CPU time, "
                f"{most_bytes >> 20} MiB): {last[0][:500]}"
            )
    raise ConfigError(f"cannot be read as an ONNX model: {problem}", file=path)


_MAX_BYTES: Final = (2 << 30) - 1  # what protobuf can hold
_MOST_DIMENSIONS: Final = 32  # of numpy 1
_SEED: Final = 0
_UNUSUAL: Final = re.compile(r"[^A-Za-z0-9_.]+")


@dataclass(frozen=True)
class OnnxModel(Model):
    """An .onnx file, with its weights in it or beside it.

    Inputs are generated, the same every time, unless `input_files` has raw files in the model's
    order; `inputs_key` is the digest of their content. Outputs are compared with `expected_files`,
    or, with a `tolerance` above 0 (in units of the raw values), with those of ONNX Runtime on the
    CPU; else only with each other. `digest` is that of the model with its weights.
    """

    path: Path = Path()
    digest: str = ""
    tolerance: float = 0.0
    input_files: tuple[Path, ...] = ()
    expected_files: tuple[Path, ...] = ()
    inputs_key: str = ""

    @classmethod
    def of(
        cls, path: Path, tolerance: float = 0.0, *, inputs: Files = None, expected: Files = None
    ) -> Self:
        """Return the model in a file, with files of its tensors, as for `ContextFile`.

        Raises ConfigError for a model that cannot be compiled here (inputs without a fixed shape,
        more than 2 GB), and for files that are not those of the model's tensors.
        """
        loaded = read_model(path)
        tensors = _tensors(_inputs(loaded), "input", path)
        name, files = _UNUSUAL.sub("_", path.name), TensorFiles(cache_root())
        model = cls(name, path=path, digest=_digest(loaded), tolerance=tolerance)
        if expected is not None:
            outputs = OnnxSurface.of(path).require_outputs(path)
            wanted = files.resolve("expected", expected, outputs, path)
            model = replace(model, expected_files=wanted)
        if inputs is None:
            require_few_bytes(tensors, path)
            return model
        return model.reading(files.resolve("inputs", inputs, tensors, path))

    def __post_init__(self) -> None:
        if not 0 <= self.tolerance < float("inf"):
            problem = f"{self.tolerance} is not 0 or more"
            raise ConfigError(problem, file=self.path, field="tolerance")

    def reading(self, files: tuple[Path, ...]) -> Self:
        """Return this model with inputs from raw files, in the order of the model."""
        key = hashlib.sha256(" ".join(map(sha256_of, files)).encode()).hexdigest()
        return replace(self, input_files=files, inputs_key=key)

    @property
    def without_inputs(self) -> Self:
        """This model as the file has it, without inputs and expected outputs."""
        return replace(self, tolerance=0.0, input_files=(), expected_files=(), inputs_key="")

    @property
    def compared(self) -> bool:
        """True if an output that differs is a failure, and not only reported."""
        return self.tolerance > 0 or bool(self.expected_files)

    @property
    def recipe(self) -> str:
        """Empty: the file is read each time, as it may have changed."""
        return ""

    def build(self) -> onnx.ModelProto:
        """Return the model, weights included. Raises ConfigError if the file has changed."""
        loaded = read_model(self.path)
        if _digest(loaded) != self.digest:
            raise ConfigError("was changed while it was in use", file=self.path)
        return loaded

    @property
    def inputs_are(self) -> str:
        """Description of the inputs, in plain words."""
        if self.input_files:
            return READ
        return IN_RANGE if quantised_ranges(read_model(self.path, weights=False)) else MADE_UP

    def inputs(self) -> dict[str, np.ndarray[Any, Any]]:
        """Return the inputs of the files, else numbers in the ranges that the model quantises to.

        Without such a range they are from -1 to 1, integers 0 or 1, which index any table.
        """
        import numpy as np
        from onnx import helper

        random = np.random.default_rng(_SEED)
        model, arrays = read_model(self.path, weights=False), {}
        ranges = quantised_ranges(model)
        for index, tensor in enumerate(_inputs(model)):
            shape, kind = _shape(tensor, "input", self.path), tensor.type.tensor_type.elem_type
            dtype = np.dtype(helper.tensor_dtype_to_np_dtype(kind))
            if self.input_files:
                arrays[tensor.name] = np.fromfile(self.input_files[index], dtype).reshape(shape)
            elif dtype.kind == "f":
                low, high = ranges.get(tensor.name, (-1, 1))
                arrays[tensor.name] = random.uniform(low, high, shape).astype(dtype)
            else:
                low, high = map(int, ranges.get(tensor.name, (0, 1)))
                arrays[tensor.name] = random.integers(low, high, shape, endpoint=True).astype(dtype)
        return arrays

    def outputs(self) -> tuple[str, ...]:
        """Return the names of the outputs, in the order of the model."""
        return tuple(tensor.name for tensor in read_model(self.path, weights=False).graph.output)

    def expected(self) -> dict[str, Path]:
        """Return the user's raw files of expected outputs, by name."""
        return dict(zip(self.outputs(), self.expected_files, strict=False))


@dataclass(frozen=True)
class OnnxSurface:
    """Inputs and outputs of a model, and the files of its weights.

    An output of no known shape or type has size 0. `weight_files` are names relative to the
    model's folder.
    """

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    weight_files: tuple[str, ...]

    @classmethod
    def of(cls, path: Path) -> Self:
        """Return the surface of a model. Raises ConfigError for one that cannot be read.

        That includes inputs without a fixed shape, and weights outside of the model's folder.
        """
        loaded = read_model(path, weights=False)
        places = {_place(tensor, path): None for tensor in _external(loaded)}
        outputs = []
        for output in loaded.graph.output:
            kind, dtype, size = output.type.tensor_type, _dtype(output), 0
            shape = tuple(max(side.dim_value, 0) for side in kind.shape.dim)
            if dtype is not None and kind.HasField("shape"):
                size = math.prod(shape) * dtype.itemsize
            outputs.append(Tensor(output.name, size, _type_name(dtype), shape))
        return cls(_tensors(_inputs(loaded), "input", path), tuple(outputs), tuple(places))

    @property
    def results(self) -> list[tuple[str, str, tuple[int, ...]]]:
        """Names, types and shapes of the outputs, with 0 for an unknown size."""
        return [(tensor.name, tensor.data_type, tensor.shape or ()) for tensor in self.outputs]

    def require_outputs(self, path: Path, field: str = "expected") -> tuple[Tensor, ...]:
        """Return the outputs. Raises ConfigError if a shape is not known before the model runs."""
        if unknown := ", ".join(tensor.name for tensor in self.outputs if not tensor.size):
            problem = f"output {unknown} has no fixed shape, so its size is unknown"
            raise ConfigError(f"{problem}; remove it from the outputs", file=path, field=field)
        return self.outputs


def require_alike(path: Path, original: Path | None) -> None:
    """Raise ConfigError unless the original, if there is one, has the tensors of the model."""
    if original is None:
        return
    surface, other = OnnxSurface.of(path), OnnxSurface.of(original)
    for kind, expected, actual in (
        ("inputs", surface.inputs, other.inputs),
        ("outputs", [row[:2] for row in surface.results], [row[:2] for row in other.results]),
    ):
        if expected != actual:
            tensors_text = "; ".join(", ".join(map(str, tensors)) for tensors in (actual, expected))
            problem = f"names or types of its {kind} differ from {path.name}: {tensors_text}"
            raise ConfigError(problem, file=original, field="reference")


def read_model(path: Path, *, weights: bool = True) -> onnx.ModelProto:
    """Return the model in a file; without `weights` the shared one of `shaped`.

    Raises ConfigError for a file that is no model, or is beyond the bounds of `shaped`.
    """
    import onnx

    shapes = shaped(path)
    if not weights:
        return shapes
    try:
        model = onnx.load(path, load_external_data=False)
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror or error}", file=path) from error
    remaining = _MAX_BYTES
    for tensor in _external(model):
        content = _weights(tensor, path, remaining)
        remaining -= len(content)
        tensor.raw_data, tensor.data_location = content, onnx.TensorProto.DEFAULT
        del tensor.external_data[:]
    return model


def _external(message: Any) -> list[Any]:
    """Return all tensors in a message, at any depth, whose content lies in another file."""
    import onnx

    if isinstance(message, onnx.TensorProto):
        return [message] if message.data_location == onnx.TensorProto.EXTERNAL else []
    tensors = []
    for descriptor, value in message.ListFields():
        if descriptor.message_type is not None:
            for submessage in [value] if hasattr(value, "ListFields") else value:
                tensors += _external(submessage)
    return tensors


def _place(tensor: Any, path: Path) -> str:
    """Return the file of a tensor's content, relative to the model's folder.

    Raises ConfigError for one outside of it.
    """
    entries = {entry.key: entry.value for entry in tensor.external_data}
    place = str(entries.get("location", "")).replace("\\", "/").removeprefix("./")
    if problem := name_problem(place):
        problem_place = f"its weights {tensor.name!r} are in {place[:200]!r}"
        why = f"{problem_place}, which {problem}; they must be in its folder or below"
        raise ConfigError(why, file=path)
    return place


def _weights(tensor: Any, path: Path, max_bytes: int) -> bytes:
    """Return a tensor's content. Some versions of onnx follow links out of the model's folder."""
    place = _place(tensor, path)
    entries = {entry.key: entry.value for entry in tensor.external_data}
    try:
        offset = int(entries.get("offset", "0"))
        with open_inside(path.parent, place) as file:
            file.seek(offset)
            size = int(entries.get("length", os.fstat(file.fileno()).st_size - offset))
            content = file.read(size) if 0 <= size <= max_bytes else b""
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"its weights in {place!r} cannot be read: {why}", file=path) from error
    if len(content) != size:
        problem = f"{place!r} does not have {size} bytes from {offset} on"
        raise ConfigError(f"its weights {tensor.name!r}: {problem}", file=path)
    return content


def _digest(model: onnx.ModelProto) -> str:
    return hashlib.sha256(model.SerializeToString(deterministic=True)).hexdigest()


def _inputs(model: onnx.ModelProto) -> list[Any]:
    weights = {tensor.name for tensor in model.graph.initializer}
    return [tensor for tensor in model.graph.input if tensor.name not in weights]


def _dtype(tensor: Any) -> np.dtype[Any] | None:
    import numpy as np
    from onnx import helper

    try:
        dtype: np.dtype[Any] = np.dtype(
            helper.tensor_dtype_to_np_dtype(tensor.type.tensor_type.elem_type)
        )
    except (KeyError, TypeError, ValueError):
        return None
    return None if dtype.hasobject else dtype


def _onnx_type(tensor: Any) -> str:
    from onnx import TensorProto

    names: dict[int, str] = {number: name.lower() for name, number in TensorProto.DataType.items()}
    return names.get(number := tensor.type.tensor_type.elem_type, f"type {number}")


def _type_name(dtype: np.dtype[Any] | None) -> str:
    if dtype is None:
        return "unknown"
    return "bool8" if dtype.kind == "b" else dtype.name


def _tensors(value_infos: Iterable[Any], kind: str, path: Path) -> tuple[Tensor, ...]:
    tensors = []
    for value_info in value_infos:
        shape, dtype = _shape(value_info, kind, path), _dtype(value_info)
        if dtype is None:
            problem = f"{kind} {value_info.name}: {_onnx_type(value_info)} is not supported"
            raise ConfigError(problem, file=path)
        size = math.prod(shape) * dtype.itemsize
        tensors.append(Tensor(value_info.name, size, _type_name(dtype), shape))
    return tuple(tensors)


def _shape(tensor: Any, kind: str, path: Path) -> tuple[int, ...]:
    if (rank := len(tensor.type.tensor_type.shape.dim)) > _MOST_DIMENSIONS:
        problem = f"{kind} {tensor.name} has {rank} dimensions, more than {_MOST_DIMENSIONS}"
        raise ConfigError(problem, file=path)
    sides = tensor.type.tensor_type.shape.dim
    if any(size.dim_value <= 0 for size in sides):
        shape = ", ".join(str(size.dim_value or size.dim_param or "?") for size in sides)
        raise ConfigError(
            f"{kind} {tensor.name} has the shape [{shape}], but QNN needs fixed dimensions; after "
            "`pip install onnxruntime`, for each such input, run `python -m onnxruntime.tools."
            f"make_dynamic_shape_fixed --input_name {shlex.quote(tensor.name)} --input_shape "
            f"SIZE,SIZE,... {shlex.quote(path.name)} fixed.onnx`",
            file=path,
        )
    return tuple(size.dim_value for size in tensor.type.tensor_type.shape.dim)


@dataclass(frozen=True)
class OnnxNodes:
    """The nodes of a model, each before those of its subgraphs.

    `inputs` and `outputs` are the model's, without weights. `kinds` has the type and shape of each
    tensor in words, `sizes` its bytes if the shape is known.
    """

    nodes: tuple[GraphNode, ...]
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    kinds: dict[str, str] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, path: Path) -> Self:
        """Return the nodes of a model. Raises ConfigError for a file that is no model."""
        model = shaped(path)
        graph = model.graph
        kinds, sizes = {}, {}
        for tensor in (*graph.input, *graph.value_info, *graph.output):
            kinds[tensor.name], size = _kind(tensor)
            if size is not None:
                sizes[tensor.name] = size
        inputs = tuple(tensor.name for tensor in _inputs(model))
        outputs = tuple(tensor.name for tensor in graph.output)
        return cls(tuple(_nodes(graph, frozenset())), inputs, outputs, kinds, sizes)

    def shapes(self) -> dict[str, str]:
        """Return the types and shapes of each node's inputs, by the node's name."""
        return {
            node.name: ", ".join(self.kinds[name] for name in node.reads if name in self.kinds)
            for node in self.nodes
        }


def _nodes(graph: Any, weights: Set[str], parent: str | None = None) -> Iterator[GraphNode]:
    known = weights | {tensor.name for tensor in graph.initializer}
    for index, node in enumerate(graph.node):
        name = node.name or f"{node.op_type}_{index}"
        reads = dict.fromkeys(read for read in all_inputs(node) if read not in known)
        writes = tuple(filter(None, node.output))
        yield GraphNode(name, node.op_type, tuple(reads), writes, not node.name, parent)
        for inner in graphs_within(node):
            yield from _nodes(inner, known, name)


def all_inputs(node: Any) -> list[str]:
    """Return the names of a node's inputs, with those that its subgraphs take from outside."""
    inputs = [name for name in node.input if name]
    for graph in graphs_within(node):
        local = {tensor.name for tensor in (*graph.input, *graph.initializer)}
        local |= {name for inner in graph.node for name in inner.output}
        reads = [name for inner in graph.node for name in all_inputs(inner)]
        reads += [tensor.name for tensor in graph.output]
        inputs += [name for name in reads if name not in local]
    return inputs


def graphs_within(node: Any) -> Iterator[Any]:
    """Yield the subgraphs of a node."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def _kind(tensor: Any) -> tuple[str, int | None]:
    kind, dtype, size = tensor.type.tensor_type, _dtype(tensor), None
    if dtype is None:
        return _onnx_type(tensor), None
    if not kind.HasField("shape"):
        return f"{dtype.name}, shape unknown", None
    dims = [dim.dim_value or dim.dim_param or "?" for dim in kind.shape.dim]
    if all(isinstance(dim, int) for dim in dims):
        size = int(math.prod(dims)) * dtype.itemsize
    return f"{dtype.name} [{', '.join(map(str, dims))}]", size
