"""ONNX models that a user has: their nodes, shapes and inputs, compiled as those built in code."""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from harness.containers.graph_nodes import GraphNode
from harness.core.cache import cache_root
from harness.core.deadline import Deadline
from harness.core.errors import ConfigError
from harness.core.guard import spawn_guarded
from harness.core.names_inside import name_problem, open_inside
from harness.core.whole_file import read_bounded, scratch_folder, sha256_of
from harness.models.compiler import (
    BYTES_A_SECOND,
    WAIT_S,
    output_text,
    own_environment,
    worker_command,
)
from harness.models.context_file import Files
from harness.models.metadata import Tensor
from harness.models.models import Model
from harness.models.source import IN_RANGE, MADE_UP, READ
from harness.models.tensor_files import TensorFiles, require_few_bytes, sample_names

if TYPE_CHECKING:
    import numpy as np
    import onnx


Users = Mapping[str, Sequence["onnx.NodeProto"]]

_QUANTISE, _DEQUANTISE = "QuantizeLinear", "DequantizeLinear"
_SAME_VALUES: Final = frozenset(
    {"Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"}
)
_LARGEST: Final = 1e30
"""A range that goes further is none."""


def quantised_ranges(model: onnx.ModelProto) -> dict[str, tuple[float, float]]:
    """Return the least and the largest value that the model quantises an input to, by input.

    Of an input that is quantised itself they are those of its type.
    """
    users: dict[str, list[onnx.NodeProto]] = {}
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    for node in model.graph.node:
        for name in node.input:
            users.setdefault(name, []).append(node)
        for attribute in node.attribute if node.op_type == "Constant" else ():
            if attribute.name == "value" and node.output:
                constants[node.output[0]] = attribute.t
    ranges = {}
    for tensor in model.graph.input:
        # a scale that is calculated, for each channel, or in a type that numpy does not know
        with contextlib.suppress(KeyError, TypeError, ValueError, IndexError):
            node = next(_quantising(tensor.name, users), None)
            if node is not None:
                ranges[tensor.name] = _range(node, constants)
    return ranges


def _quantising(name: str, users: Users) -> Iterator[onnx.NodeProto]:
    left, seen = [name], {name}
    while left:
        for node in users.get(left.pop(), ()):
            if node.op_type in (_QUANTISE, _DEQUANTISE):
                yield node
            elif node.op_type in _SAME_VALUES and node.output and node.output[0] not in seen:
                left.append(node.output[0])
                seen.add(node.output[0])


def _range(node: onnx.NodeProto, constants: Mapping[str, onnx.TensorProto]) -> tuple[float, float]:
    """Return the range of a node that quantises. Raises ValueError where there is none."""
    import numpy as np
    from onnx import numpy_helper

    zeros = numpy_helper.to_array(constants[node.input[2]])
    info = np.iinfo(zeros.dtype)
    if node.op_type == _DEQUANTISE:
        return int(info.min), int(info.max)
    zero, scale = int(zeros.item()), numpy_helper.to_array(constants[node.input[1]]).item()
    low, high = (info.min - zero) * scale, (info.max - zero) * scale
    if not -_LARGEST < low < high < _LARGEST:
        raise ValueError(f"{low} to {high} is no range")
    return low, high


WORKER: Final = Path(__file__).with_name("shapes_worker.py")
MOST_NODES: Final = 200_000
"""How many nodes a model comes to at most, with those of its functions at each call."""

MOST_GROWTH: Final = 16 << 20
"""What its shapes, and the nodes of its functions at each call, are beside twice its bytes."""
MOST_CPU_S: Final = 15
"""How long shapes are inferred of a model without bytes, see `BYTES_A_SECOND`."""

_MOST_BYTES: Final = 2 << 30
_BYTES_BY_BYTE: Final = 4
_MOST_WORDS: Final = 1 << 16


def shaped(path: Path) -> onnx.ModelProto:
    """Return a model with its tensors' shapes, and without the content of its large tensors.

    It is one for all who ask: nobody may change it. Raises ConfigError for what is no model, and
    for one that takes more time or memory than a model does.
    """
    try:
        status = path.stat()
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror or error}", file=path) from error
    return _shaped(path, (status.st_size, status.st_ino, status.st_mtime_ns))


def inlined(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model with its tensors' shapes and its functions' nodes in place of their calls.

    It has no content of large weights. Raises ConfigError as `shaped`.
    """
    with scratch_folder() as folder:
        path = folder / "model.onnx"
        path.write_bytes(model.SerializeToString())
        return _read(path, inline=True)


@lru_cache(maxsize=16)
def _shaped(path: Path, version: tuple[int, int, int]) -> onnx.ModelProto:
    del version  # a file that was changed is another one
    return _read(path, inline=False)


def _read(path: Path, *, inline: bool) -> onnx.ModelProto:
    import onnx

    size = path.stat().st_size
    most_bytes = _MOST_BYTES + _BYTES_BY_BYTE * size
    most_s = MOST_CPU_S + size // BYTES_A_SECOND
    with scratch_folder() as folder, tempfile.TemporaryFile() as output:
        made, refusal = folder / "made.onnx", folder / "refusal.txt"
        request = {
            "model": path.absolute(),
            "made": made,
            "refusal": refusal,
            "inline": inline,
            "most_nodes": MOST_NODES,
            "most_growth": MOST_GROWTH,
            "most_cpu_s": most_s,
            "most_bytes": most_bytes,
        }
        command = worker_command(WORKER, folder, request)
        environment = own_environment(OPENBLAS_NUM_THREADS="1")
        with spawn_guarded(
            command, env=environment, cwd=folder, stdout=output, stderr=output
        ) as child:
            code = child.wait(Deadline(most_s + WAIT_S))
        if made.exists() and code == 0:
            return onnx.load(made, load_external_data=False)
        last = output_text(output).strip().splitlines()[-1:] or ["it wrote nothing"]
        if code == 0 and refusal.exists():
            problem = read_bounded(refusal, _MOST_WORDS).decode("utf-8")
        else:
            ended = "was stopped" if code is None else f"ended with exit code {code}"
            problem = (
                f"a process that may take {most_s} s of a processor and {most_bytes >> 20} MiB "
                f"to infer its shapes {ended}: {last[0][:500]}"
            )
    raise ConfigError(f"cannot be read as an ONNX model: {problem}", file=path)


_MAX_BYTES: Final = (2 << 30) - 1  # what protobuf can hold
_MOST_DIMENSIONS: Final = 32  # of numpy 1
_SEED: Final = 0
_UNUSUAL: Final = re.compile(r"[^A-Za-z0-9_.]+")


@dataclass(frozen=True)
class OnnxModel(Model):
    """An .onnx file, with its weights in it or beside it.

    Inputs are made up, the same every time, unless there are `read`: raw files in the order of the
    model, as are those of `wanted`. `inputs_key` stands for what these hold. Outputs have to be
    as `wanted`, or if they may differ `within` more than 0, as those of ONNX Runtime on the CPU; by
    `within` in units of the raw values. Else they are only compared with each other. `digest` is
    that of the model with its weights, `sample` the name of these inputs where there are several.
    """

    path: Path = Path()
    digest: str = ""
    within: float = 0.0
    read: tuple[Path, ...] = ()
    wanted: tuple[Path, ...] = ()
    inputs_key: str = ""
    sample: str = ""

    @classmethod
    def of(
        cls, path: Path, within: float = 0.0, *, inputs: Files = None, expected: Files = None
    ) -> Self:
        """The model in a file, with files of its tensors, as for `ContextFile`.

        Raises as `each`.
        """
        return cls.each(path, within, inputs=inputs, expected=expected, samples=[""])[0]

    @classmethod
    def each(
        cls,
        path: Path,
        within: float = 0.0,
        *,
        inputs: Files = None,
        expected: Files = None,
        samples: Sequence[str] | None = None,
    ) -> tuple[Self, ...]:
        """The model with each set of inputs: a folder of folders has several.

        Raises ConfigError for what cannot be compiled here: inputs without a fixed shape, more than
        2 GB; and for files that are not those of the model's tensors.
        """
        if samples is None:
            samples = sample_names("inputs", inputs, path) or [""]
        loaded = read_model(path)
        tensors = _tensors(_inputs(loaded), "input", path)
        digest = hashlib.sha256(_bytes(loaded)).hexdigest()
        files, name = TensorFiles(cache_root()), _UNUSUAL.sub("_", path.name)
        outputs = () if expected is None else OnnxSurface.of(path).require_outputs(path)
        if inputs is None:
            require_few_bytes(tensors, path)
        models = []
        for sample in samples:
            wanted = tuple[Path, ...]()
            if expected is not None:
                wanted = files.given("expected", expected, outputs, path, sample=sample)
            model = cls(name, path=path, digest=digest, within=within, wanted=wanted, sample=sample)
            if inputs is not None:
                model = model.reading(files.given("inputs", inputs, tensors, path, sample=sample))
            models.append(model)
        return tuple(models)

    def __post_init__(self) -> None:
        if not 0 <= self.within < float("inf"):
            raise ConfigError(f"{self.within} is not 0 or more", file=self.path, field="tolerance")

    def __str__(self) -> str:
        return super().__str__() + (f"#{self.sample}" if self.sample else "")

    __repr__ = __str__

    def reading(self, files: tuple[Path, ...]) -> Self:
        """The same with inputs from raw files, in the order of the model."""
        key = hashlib.sha256(" ".join(map(sha256_of, files)).encode()).hexdigest()
        return replace(self, read=files, inputs_key=key)

    @property
    def without_inputs(self) -> Self:
        """The model in the file."""
        return replace(self, within=0.0, read=(), wanted=(), inputs_key="", sample="")

    @property
    def compared(self) -> bool:
        """Whether an output that differs is wrong, and not only told."""
        return self.within > 0 or bool(self.wanted)

    @property
    def tolerance(self) -> float:
        """By how much an output may differ from the reference, in units of its raw values."""
        return self.within

    @property
    def recipe(self) -> str:
        """None: the file is read each time, as it may have changed."""
        return ""

    def build(self) -> onnx.ModelProto:
        """The model, weights included. Raises ConfigError if it is not the one it was."""
        loaded = read_model(self.path)
        if hashlib.sha256(_bytes(loaded)).hexdigest() != self.digest:
            raise ConfigError("was changed while it was in use", file=self.path)
        return loaded

    @property
    def inputs_are(self) -> str:
        """What its inputs are, in plain words."""
        if self.read:
            return READ
        return IN_RANGE if quantised_ranges(read_model(self.path, weights=False)) else MADE_UP

    def inputs(self) -> dict[str, np.ndarray[Any, Any]]:
        """Those of files; else numbers in the ranges that the model quantises them for.

        Other ones are from -1 to 1, whole ones 0 and 1: places in any table.
        """
        import numpy as np
        from onnx import helper

        random = np.random.default_rng(_SEED)
        model, made = read_model(self.path, weights=False), {}
        ranges = quantised_ranges(model)
        for at, one in enumerate(_inputs(model)):
            shape, kind = _shape(one, "input", self.path), one.type.tensor_type.elem_type
            dtype = np.dtype(helper.tensor_dtype_to_np_dtype(kind))
            if self.read:
                made[one.name] = np.fromfile(self.read[at], dtype).reshape(shape)
            elif dtype.kind == "f":
                made[one.name] = random.uniform(*ranges.get(one.name, (-1, 1)), shape).astype(dtype)
            else:
                low, high = map(int, ranges.get(one.name, (0, 1)))
                made[one.name] = random.integers(low, high, shape, endpoint=True).astype(dtype)
        return made

    def outputs(self) -> tuple[str, ...]:
        """The names of the outputs, in the order of the model."""
        return tuple(one.name for one in read_model(self.path, weights=False).graph.output)

    def expected(self) -> dict[str, Path]:
        """Raw files of what its outputs should be, by name, as far as somebody gave them."""
        return dict(zip(self.outputs(), self.wanted, strict=False))


@dataclass(frozen=True)
class OnnxSurface:
    """What is seen of a model from outside: its tensors, and the files that lie beside it.

    `outputs` is None where not all have a shape that is known, which `open` ones have not;
    `results` are their names, types and shapes, 0 where one is not known. `beside` are the files of
    its weights, by their names as seen from the model's folder.
    """

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...] | None
    beside: tuple[str, ...]
    results: tuple[tuple[str, str, tuple[int, ...]], ...] = ()
    open: tuple[str, ...] = ()

    @classmethod
    def of(cls, path: Path) -> Self:
        """The surface of a model. Raises ConfigError for one that cannot be read.

        That includes inputs without a fixed shape, and weights outside of the model's folder.
        """
        loaded = read_model(path, weights=False)
        places = {_place(one, path): None for one in _external(loaded)}
        outputs = loaded.graph.output
        unknown = tuple(
            one.name
            for one in outputs
            if not one.type.tensor_type.HasField("shape")
            or any(size.dim_value <= 0 for size in one.type.tensor_type.shape.dim)
        )
        return cls(
            _tensors(_inputs(loaded), "input", path),
            None if unknown else _tensors(outputs, "output", path),
            tuple(places),
            tuple(_result(one) for one in outputs),
            unknown,
        )

    def require_outputs(self, path: Path, field: str = "expected") -> tuple[Tensor, ...]:
        """The outputs. Raises ConfigError where the shape of one is not known before it runs."""
        if self.outputs is None:
            problem = (
                f"output {', '.join(self.open)} has no fixed shape; graphs with fixed ones run"
            )
            raise ConfigError(f"{problem}: take it out of the outputs", file=path, field=field)
        return self.outputs


def require_alike(path: Path, original: Path | None) -> None:
    """Raises ConfigError unless an original, if there is one, has the tensors of a model."""
    if original is None:
        return
    own, other = OnnxSurface.of(path), OnnxSurface.of(original)
    for what, mine, its in (
        ("inputs", own.inputs, other.inputs),
        ("outputs", [one[:2] for one in own.results], [one[:2] for one in other.results]),
    ):
        if mine != its:
            told = "; ".join(", ".join(map(str, one)) for one in (its, mine))
            problem = f"its {what} are not those of {path.name}, by name and type: {told}"
            raise ConfigError(problem, file=original, field="reference")


def read_model(path: Path, *, weights: bool = True) -> onnx.ModelProto:
    """The model in a file; without `weights` as `shaped` has it, which nobody may change.

    Raises ConfigError for what is no model, and what is beyond the bounds of `shaped`.
    """
    import onnx

    shapes = shaped(path)
    if not weights:
        return shapes
    try:
        model = onnx.load(path, load_external_data=False)
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror or error}", file=path) from error
    left = _MAX_BYTES
    for tensor in _external(model):
        content = _weights(tensor, path, left)
        left -= len(content)
        tensor.raw_data, tensor.data_location = content, onnx.TensorProto.DEFAULT
        del tensor.external_data[:]
    return model


def _external(message: Any) -> list[Any]:
    """All tensors in a message whose content lies in another file, wherever they stand."""
    import onnx

    if isinstance(message, onnx.TensorProto):
        return [message] if message.data_location == onnx.TensorProto.EXTERNAL else []
    found = []
    for descriptor, value in message.ListFields():
        if descriptor.message_type is not None:
            for one in [value] if hasattr(value, "ListFields") else value:
                found += _external(one)
    return found


def _place(tensor: Any, path: Path) -> str:
    """The file that a tensor's content lies in, as seen from the model's folder.

    Raises ConfigError for one outside of it.
    """
    told = {entry.key: entry.value for entry in tensor.external_data}
    place = str(told.get("location", "")).replace("\\", "/").removeprefix("./")
    if problem := name_problem(place):
        where = f"its weights {tensor.name!r} lie in {place[:200]!r}"
        why = f"{where}, which {problem}: they must lie in its folder or below"
        raise ConfigError(why, file=path)
    return place


def _weights(tensor: Any, path: Path, most: int) -> bytes:
    """What a tensor holds; the library reads through links, in some versions also of outside."""
    place = _place(tensor, path)
    told = {entry.key: entry.value for entry in tensor.external_data}
    try:
        offset = int(told.get("offset", "0"))
        with open_inside(path.parent, place) as file:
            file.seek(offset)
            size = int(told.get("length", os.fstat(file.fileno()).st_size - offset))
            content = file.read(size) if 0 <= size <= most else b""
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"its weights in {place!r} cannot be read: {why}", file=path) from error
    if len(content) != size:
        held = f"{place!r} has not the {size} bytes from {offset} on that it says"
        raise ConfigError(f"its weights {tensor.name!r}: {held}", file=path)
    return content


def _bytes(model: onnx.ModelProto) -> bytes:
    return bytes(model.SerializeToString(deterministic=True))


def _inputs(model: onnx.ModelProto) -> list[Any]:
    weights = {one.name for one in model.graph.initializer}
    return [one for one in model.graph.input if one.name not in weights]


def _tensors(listed: Iterable[Any], what: str, path: Path) -> tuple[Tensor, ...]:
    import numpy as np
    from onnx import helper

    found = []
    for one in listed:
        shape, kind = _shape(one, what, path), one.type.tensor_type.elem_type
        try:
            dtype = np.dtype(helper.tensor_dtype_to_np_dtype(kind))
        except (KeyError, TypeError, ValueError) as error:
            problem = f"{what} {one.name}: nobody knows elements of type {kind}"
            raise ConfigError(problem, file=path) from error
        name = "bool8" if dtype.kind == "b" else dtype.name
        found.append(Tensor(one.name, math.prod(shape) * dtype.itemsize, name, shape))
    return tuple(found)


def _result(output: Any) -> tuple[str, str, tuple[int, ...]]:
    from onnx import TensorProto

    kind = output.type.tensor_type
    name = TensorProto.DataType.Name(kind.elem_type).lower()
    known = {"float": "float32", "double": "float64", "bool": "bool8"}
    shape = tuple(max(size.dim_value, 0) for size in kind.shape.dim)
    return output.name, known.get(name, name), shape


def _shape(tensor: Any, what: str, path: Path) -> tuple[int, ...]:
    shape: list[int] = []
    if (rank := len(tensor.type.tensor_type.shape.dim)) > _MOST_DIMENSIONS:
        problem = f"{what} {tensor.name} has {rank} dimensions; {_MOST_DIMENSIONS} are the most"
        raise ConfigError(problem, file=path)
    for at, size in enumerate(tensor.type.tensor_type.shape.dim):
        if size.dim_value <= 0:
            named = f" ({size.dim_param})" if size.dim_param else ""
            raise ConfigError(
                f"{what} {tensor.name}: dimension {at}{named} is not fixed, and QNN needs fixed "
                "ones: `python -m onnxruntime.tools.make_dynamic_shape_fixed` fixes them",
                file=path,
            )
        shape.append(size.dim_value)
    return tuple(shape)


@dataclass(frozen=True)
class OnnxNodes:
    """The nodes of a model, each before those of the graphs within it.

    `inputs` and `outputs` are the model's own, without weights. `kinds` has of each tensor its type
    and shape in words, `sizes` its bytes where the shape is known.
    """

    nodes: tuple[GraphNode, ...]
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    kinds: dict[str, str] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, path: Path) -> Self:
        """The nodes of a model. Raises ConfigError for what is no model."""
        graph = shaped(path).graph
        weights = {one.name for one in graph.initializer}
        nodes = tuple(_nodes(graph, weights))
        kinds, sizes = {}, {}
        for one in (*graph.input, *graph.value_info, *graph.output):
            kinds[one.name], size = _kind(one)
            if size is not None:
                sizes[one.name] = size
        inputs = tuple(one.name for one in graph.input if one.name not in weights)
        outputs = tuple(one.name for one in graph.output)
        return cls(nodes, inputs, outputs, kinds, sizes)

    def shapes(self) -> dict[str, str]:
        """Type and shape of what each node reads, by the node's name."""
        return {
            one.name: ", ".join(self.kinds[name] for name in one.reads if name in self.kinds)
            for one in self.nodes
        }


def _nodes(graph: Any, weights: Set[str], within: str | None = None) -> Iterator[GraphNode]:
    own = weights | {one.name for one in graph.initializer}
    for at, node in enumerate(graph.node):
        name = node.name or f"{node.op_type}_{at}"
        reads = dict.fromkeys(one for one in all_inputs(node) if one not in own)
        writes = tuple(filter(None, node.output))
        yield GraphNode(name, node.op_type, tuple(reads), writes, not node.name, within)
        for inner in graphs_within(node):
            yield from _nodes(inner, own, name)


def all_inputs(node: Any) -> list[str]:
    """All that a node takes, also what graphs within it take from outside."""
    found = [name for name in node.input if name]
    for graph in graphs_within(node):
        own = {one.name for one in (*graph.input, *graph.initializer)}
        own |= {name for inner in graph.node for name in inner.output}
        taken = [name for inner in graph.node for name in all_inputs(inner)]
        found += [name for name in (*taken, *(one.name for one in graph.output)) if name not in own]
    return found


def graphs_within(node: Any) -> Iterator[Any]:
    """The graphs that are attributes of a node."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def _kind(tensor: object) -> tuple[str, int | None]:
    """Type and shape in words, and bytes where all dimensions are known."""
    import numpy as np
    from onnx import helper

    kind = tensor.type.tensor_type  # type: ignore[attr-defined]
    try:
        dtype = np.dtype(helper.tensor_dtype_to_np_dtype(kind.elem_type))
    except (KeyError, TypeError, ValueError):
        return f"type {kind.elem_type}", None
    if not kind.HasField("shape"):
        return f"{dtype.name}, of no known shape", None
    dims = [one.dim_value or one.dim_param or "?" for one in kind.shape.dim]
    known = all(isinstance(one, int) for one in dims)
    size = math.prod(dims) * dtype.itemsize if known else None
    return f"{dtype.name} [{', '.join(map(str, dims))}]", size
