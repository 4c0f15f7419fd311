"""A model as ops, and its backends: ONNX Runtime on the CPU, and QNN on a device."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from harness.bisect.search_loop import run_case
from harness.core.errors import ConfigError, InfraError
from harness.core.state_folders import cache_root
from harness.diagnosis.refused_nodes import messages_of, refusal_text, refused_nodes
from harness.models.compiler import CompileError, CompileJob, InputFile, ReferenceJob, run_jobs
from harness.models.context_cache import (
    compile_options,
    compiled_binary,
    read_metadata,
    tensor_order,
)
from harness.models.onnx_model import all_inputs, graphs_within, inlined
from harness.plugin.user_files import isolated_arguments
from harness.probe.build import ProbeBuilder
from harness.results.output_drift import KEPT
from harness.results.record import CaseRecord
from harness.results.run_folder import OUTPUTS, RunFolder
from harness.runtimes.pypi import CompilerHost

if TYPE_CHECKING:
    import numpy as np
    import onnx


INSIDE: Final = "__in"
"""Suffix of an input that another op of the same model outputs; no other name has `__`."""

_QUANTISE, _DEQUANTISE = "QuantizeLinear", "DequantizeLinear"
_SHAPES: Final = frozenset({"Shape", "Size"})
_RANDOM: Final = frozenset(
    {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial"}
)
_UNUSUAL: Final = re.compile(r"[^A-Za-z0-9]+")


@dataclass(frozen=True)
class TensorKind:
    """Type of a tensor: numpy's name of its elements, and its shape."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        import numpy as np

        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


@dataclass(frozen=True)
class Op:
    """A node, or a node with those that quantise its output.

    `op` is the node's name, `nodes` are the indices of all nodes in the model, `gives` the output
    tensors, `zero` is the zero point of quantised ones.
    """

    op: str
    type: str
    nodes: tuple[int, ...]
    gives: tuple[str, ...]
    zero: int = 0


class Network:
    """An ONNX model with fixed shapes; nodes without a unique name get one.

    Tensors get new names, which files can have: those of `like` if a node there has the same name,
    so that values of both models have one name. `original_names` has the old ones.
    """

    def __init__(self, model: onnx.ModelProto, like: Network | None = None) -> None:
        copy = type(model)()
        copy.CopyFrom(inlined(model))
        del copy.graph.initializer[:]
        copy.graph.initializer.extend(model.graph.initializer)
        self.model = copy
        self.nodes: Sequence[onnx.NodeProto] = copy.graph.node
        _name(copy.graph.node)
        self.weights = {tensor.name: tensor for tensor in copy.graph.initializer}
        new = _new_names(copy, self.weights, like)
        self.original_names = {name: original for original, name in new.items()}
        for node in self.nodes:
            _rename(node, new, new)
        for value in (*copy.graph.input, *copy.graph.output, *copy.graph.value_info):
            value.name = new.get(value.name, value.name)
        names = (tensor.name for tensor in copy.graph.input)
        self.inputs = [name for name in names if name not in self.weights]
        self.kinds = _kinds(copy)
        self.producers = {
            name: index for index, node in enumerate(self.nodes) for name in node.output if name
        }
        self.constant = self._constant(frozenset())
        self.folded = self._foldable()
        self._users = Counter(name for node in self.nodes for name in all_inputs(node))
        self._users.update(tensor.name for tensor in copy.graph.output)

    def ops(self) -> list[Op]:
        """Return every node whose output depends on an input, in order."""
        return [self._op((i,)) for i in range(len(self.nodes)) if i not in self.constant]

    def units(self) -> list[Op]:
        """Return the ops as a quantising backend sees them: from dequantising to quantising nodes.

        Shapes are constants to it.
        """
        chains = [self._chain(i) for i in range(len(self.nodes))]
        passed = self.constant | {i for chain in chains for i in chain[:-1]}
        outputs = {tensor.name for tensor in self.model.graph.output}
        return [
            self._op(chain)
            for index, chain in enumerate(chains)
            if index not in passed
            and (index not in self.folded or not outputs.isdisjoint(self.nodes[index].output))
        ]

    def with_outputs(self, outputs: Sequence[str]) -> onnx.ModelProto:
        last = {self.producers[name] for name in outputs}
        nodes, inputs = self._with_producers(last, range(len(self.nodes)))
        return self._model([self.nodes[i] for i in nodes], inputs, outputs)

    def inputs_of(self, op: Op, *, unit: bool) -> list[str]:
        """Return the tensors that an op calculates with, without constants."""
        return [name for name in self._closure(op, unit)[1] if name in self.kinds]

    def nodes_of(self, op: Op) -> list[int]:
        """Return the indices of all nodes that are calculated as one with an op."""
        return [i for i in self._closure(op, unit=True)[0] if i not in self.constant]

    def models_before(self, op: Op) -> Iterator[tuple[int, onnx.ModelProto]]:
        """Yield models of an op with more and more ops before it, and the numbers of their ops.

        The op's outputs are theirs.
        """
        nodes, inputs = self._with_producers(op.nodes, self.folded)
        while makers := {self.producers[name] for name in inputs if name in self.producers}:
            chains = [i for maker in makers for i in self._chain(maker)]
            nodes, inputs = self._with_producers([*nodes, *chains], self.folded)
            if any(name not in self.kinds for name in inputs):
                return
            count = sum(i not in self.folded for i in nodes)
            yield count, self._model([self.nodes[i] for i in nodes], inputs, op.gives)

    def isolated(self, ops: Iterable[Op], *, unit: bool) -> onnx.ModelProto:
        """Return a model of these ops, each by itself, with all their inputs and outputs.

        An input that another op outputs has `INSIDE` behind its name.
        """
        from onnx import helper

        closures = [(op, *self._closure(op, unit)) for op in ops]
        outputs = {name for _, nodes, _ in closures for i in nodes for name in self.nodes[i].output}
        inputs: dict[str, str] = {}
        copies: dict[int, onnx.NodeProto] = {}
        for _, nodes, input_names in closures:
            new = {name: name + INSIDE if name in outputs else name for name in input_names}
            inputs |= new
            for index in nodes:
                node = self.nodes[index]
                if unit and node.op_type in _SHAPES:
                    copies[index] = helper.make_node(
                        "Constant", [], node.output, value=self._shape(index)
                    )
                else:
                    copies[index] = type(node).FromString(node.SerializeToString())
                    _rename(copies[index], new, {})
        gives = [name for op, _, _ in closures for name in op.gives]
        return self._model([copies[i] for i in sorted(copies)], inputs.values(), gives)

    def check_inputs(self, other: Network) -> None:
        """Raise ConfigError unless the other network has the same inputs."""
        mine, theirs = (
            {each.original_names[name]: each.kinds.get(name) for name in each.inputs}
            for each in (self, other)
        )
        for name in dict.fromkeys([*mine, *theirs]):
            if name not in mine or name not in theirs or mine[name] != theirs[name]:
                kinds = f"{mine.get(name)} and {theirs.get(name)}"
                problem = f"the inputs of the models differ: {name} is {kinds}"
                raise ConfigError(problem, field="--reference")

    def _model(
        self, nodes: Sequence[onnx.NodeProto], inputs: Iterable[str], outputs: Iterable[str]
    ) -> onnx.ModelProto:
        from onnx import helper

        used = {name for node in nodes for name in all_inputs(node)}
        graph = helper.make_graph(
            nodes,
            self.model.graph.name or "layers",
            [self._info(name) for name in inputs],
            [self._info(name) for name in outputs],
            [tensor for name, tensor in self.weights.items() if name in used],
            sparse_initializer=self.model.graph.sparse_initializer,
        )
        return helper.make_model(
            graph, opset_imports=self.model.opset_import, ir_version=self.model.ir_version
        )

    def _op(self, nodes: tuple[int, ...]) -> Op:
        first, last = self.nodes[nodes[0]], self.nodes[nodes[-1]]
        gives = tuple(name for name in last.output if name and name in self.kinds)
        zero = 0
        if last.op_type == _QUANTISE and len(last.input) > 2 and last.input[2] in self.weights:
            from onnx import numpy_helper

            points = numpy_helper.to_array(self.weights[last.input[2]])
            zero = int(points.ravel()[0]) if points.size == 1 else 0
        return Op(first.name, first.op_type, nodes, gives, zero)

    def _chain(self, index: int) -> tuple[int, ...]:
        """Return a node; for a quantising one with the nodes before it that only it uses."""
        chain = [index]
        while self.nodes[index].op_type == _QUANTISE and index not in self.folded:
            before = self.producers.get(self.nodes[chain[0]].input[0])
            if before is None or before in self.folded or self.nodes[before].op_type == _QUANTISE:
                break
            names = [name for name in self.nodes[before].output if name]
            if len(names) != 1 or self._users[names[0]] != 1:
                break
            chain.insert(0, before)
        return tuple(chain)

    def _foldable(self) -> frozenset[int]:
        """Return the nodes that a backend folds into their users."""
        folded = [
            index
            for index, node in enumerate(self.nodes)
            if node.op_type == _DEQUANTISE
            or (node.op_type in _SHAPES and node.input[0] in self.kinds)
        ]
        shapes = (i for i in folded if self.nodes[i].op_type in _SHAPES)
        return self._constant(frozenset(shapes)) | frozenset(folded)

    def _constant(self, also: frozenset[int]) -> frozenset[int]:
        known, constant = set(self.weights), set(also)
        for index, node in enumerate(self.nodes):
            if index in also or (node.op_type not in _RANDOM and set(all_inputs(node)) <= known):
                constant.add(index)
                known.update(node.output)
        return frozenset(constant)

    def _closure(self, op: Op, unit: bool) -> tuple[list[int], list[str]]:
        shapes = {i for i in self.folded if self.nodes[i].op_type in _SHAPES} if unit else ()
        return self._with_producers(op.nodes, self.folded if unit else self.constant, shapes)

    def _with_producers(
        self, nodes: Iterable[int], through: Container[int], ends: Container[int] = ()
    ) -> tuple[list[int], list[str]]:
        """Return nodes with the producers among `through`, and the tensors that they take.

        The inputs of `ends` are left out.
        """
        included, inputs = set(nodes), dict[str, None]()
        pending = sorted(included)
        while pending:
            index = pending.pop()
            for name in all_inputs(self.nodes[index]) if index not in ends else ():
                maker = self.producers.get(name)
                if maker in included or name in self.weights:
                    continue
                if maker is not None and maker in through:
                    included.add(maker)
                    pending.append(maker)
                else:
                    inputs[name] = None
        return sorted(included), list(inputs)

    def _shape(self, index: int) -> onnx.TensorProto:
        import numpy as np
        from onnx import numpy_helper

        node = self.nodes[index]
        shape = np.array(self.kinds[node.input[0]].shape, "i8")
        ends = {attribute.name: attribute.i for attribute in node.attribute}
        if node.op_type == "Size":
            return numpy_helper.from_array(shape.prod().reshape(()))
        return numpy_helper.from_array(shape[ends.get("start", 0) : ends.get("end", len(shape))])

    def _info(self, name: str) -> onnx.ValueInfoProto:
        import numpy as np
        from onnx import helper

        kind = self.kinds[name.removesuffix(INSIDE)]
        element = helper.np_dtype_to_tensor_dtype(np.dtype(kind.dtype))
        return helper.make_tensor_value_info(name, element, kind.shape)


def _new_names(
    model: onnx.ModelProto, weights: Iterable[str], like: Network | None
) -> dict[str, str]:
    """Return the new name of each tensor but weights, by its original one."""
    known = {} if like is None else {old: name for name, old in like.original_names.items()}
    same = {} if like is None else {node.name: node.output for node in like.nodes}
    used = {name.lower() for name in (*weights, *known.values())}
    inputs = [tensor.name for tensor in model.graph.input]
    new = {old: known[old] for old in inputs if old in known}
    for node in model.graph.node:
        theirs = same.get(node.name, ())
        if {known.get(old) for old in node.output} == {*theirs}:  # in any order
            new |= {old: known[old] for old in node.output if old}
        elif len(theirs) == len(node.output):
            new |= {
                old: name for old, name in zip(node.output, theirs, strict=True) if old and name
            }
    for old in [*inputs, *(name for node in model.graph.node for name in node.output)]:
        if old and old not in new and old not in weights:
            short = _UNUSUAL.sub("_", old).strip("_")[-80:] or "tensor"
            new[old], number = short, 2
            while new[old].lower() in used:
                new[old], number = f"{short}_{number}", number + 1
            used.add(new[old].lower())
    return new


def _name(nodes: Iterable[onnx.NodeProto]) -> None:
    """Give each node a unique name, by its type and index if it has none."""
    listed = list(nodes)
    used = {node.name for node in listed}
    visited: set[str] = set()
    for index, node in enumerate(listed):
        if not node.name or node.name in visited:
            name = node.name or f"{node.op_type}_{index}"
            while name in used:
                name += f"_{index}"
            node.name = name
            used.add(name)
        visited.add(node.name)


def _kinds(model: onnx.ModelProto) -> dict[str, TensorKind]:
    import numpy as np
    from onnx import helper

    graph = model.graph
    kinds = {}
    for value_info in (*graph.input, *graph.value_info, *graph.output):
        tensor = value_info.type.tensor_type
        if not value_info.type.HasField("tensor_type") or not tensor.HasField("shape"):
            continue
        shape = tuple(size.dim_value for size in tensor.shape.dim)
        if any(not size.HasField("dim_value") or size.dim_value < 1 for size in tensor.shape.dim):
            continue
        try:
            dtype = np.dtype(helper.tensor_dtype_to_np_dtype(tensor.elem_type))
        except (KeyError, TypeError, ValueError):
            continue
        if dtype.kind in "fiub":
            kinds[value_info.name] = TensorKind(dtype.str, shape)
    return kinds


def _rename(node: onnx.NodeProto, inputs: Mapping[str, str], outputs: Mapping[str, str]) -> None:
    for names, new in ((node.input, inputs), (node.output, outputs)):
        names[:] = [new.get(name, name) for name in names]
    for graph in graphs_within(node):
        for inner in graph.node:
            _rename(inner, inputs, {})
        for output in graph.output:
            output.name = inputs.get(output.name, output.name)


_RUN_TIMEOUT_S: Final = 1800.0
_LEASE_WAIT: Final = "10m"


@dataclass(frozen=True)
class Stored:
    """A tensor in a file of raw values."""

    path: Path
    kind: TensorKind

    def array(self) -> np.ndarray[Any, Any]:
        import numpy as np

        return np.memmap(self.path, self.kind.dtype, "r", shape=self.kind.shape)


@dataclass(frozen=True)
class Calculation:
    """A model to be calculated, with its inputs and outputs by name."""

    model: onnx.ModelProto
    feeds: Mapping[str, Stored]
    gives: Mapping[str, TensorKind]


@dataclass(frozen=True)
class NotCalculated:
    """Reason why nothing was calculated; `nodes` has those of nodes that are named as refused."""

    text: str
    nodes: Mapping[str, str] = field(default_factory=dict)


Calculated = dict[str, Stored] | NotCalculated
"""The outputs, or the reason why there are none."""


class Cpu:
    """ONNX Runtime on the CPU, in its own process."""

    name = "ONNX Runtime on the CPU"

    def __init__(self, host: CompilerHost, folder: Path) -> None:
        self._host, self._folder, self._count = host, folder, 0

    def calculate(self, calculations: Sequence[Calculation]) -> list[Calculated]:
        jobs = []
        for calculation in calculations:
            self._count += 1
            folder = self._folder / f"cpu{self._count}"
            folder.mkdir()
            model = folder / "model.onnx"
            model.write_bytes(calculation.model.SerializeToString())
            inputs = [
                InputFile(name, tensor.path, tensor.kind.dtype, tensor.kind.shape)
                for name, tensor in calculation.feeds.items()
            ]
            outputs = {name: folder / f"{i}.raw" for i, name in enumerate(calculation.gives)}
            complaint = "ONNX Runtime cannot run it on the CPU"
            jobs.append(ReferenceJob(folder.name, complaint, model, tuple(inputs), outputs))
        failed = run_jobs(self._host, jobs)
        return [
            NotCalculated(str(error))
            if (error := failed[job.job]) is not None
            else _values(calculation.gives, job.outputs)
            for calculation, job in zip(calculations, jobs, strict=True)
        ]


def _values(gives: Mapping[str, TensorKind], files: Mapping[str, Path]) -> Calculated:
    for name, kind in gives.items():
        size = files[name].stat().st_size if name in files and files[name].exists() else 0
        if size != kind.size:
            return NotCalculated(f"{name} has {size} bytes instead of {kind.size}")
    return {name: Stored(files[name], kind) for name, kind in gives.items()}


@dataclass(frozen=True)
class HtpDevice:
    """A device of a lab, and the architecture of its HTP."""

    lab: Path
    device: str
    htp_arch: int


class Qnn:
    """HTP of one QNN version on a device, which runs contexts as `qnn-harness run` does."""

    def __init__(self, host: CompilerHost, device: HtpDevice, folder: Path) -> None:
        self.name = f"HTP v{device.htp_arch} of QNN {host.qnn_version}"
        self._host, self._device, self._count = host, device, 0
        self._folder = folder / f"htp-{host.qnn_version}"
        self._folder.mkdir()
        self._probes = ProbeBuilder(cache_root() / "probe")

    def calculate(self, calculations: Sequence[Calculation]) -> list[Calculated]:
        """Return the results, in the same order; compiled in one process, run in one run.

        Raises InfraError if the lab fails, ConfigError for a device that cannot be used.
        """
        self._count += 1
        folder = self._folder / str(self._count)
        folder.mkdir()
        files = {f"{index}.bin": calculation for index, calculation in enumerate(calculations)}
        for index, calculation in enumerate(calculations):
            (folder / f"{index}.onnx").write_bytes(calculation.model.SerializeToString())
        answers: dict[str, Calculated] = {**self._compiled(files, folder)}
        ready = [file for file in files if file not in answers]
        for file in ready:
            inputs = folder / "inputs" / file
            inputs.mkdir(parents=True)
            for name, tensor in files[file].feeds.items():
                (inputs / f"{name}.raw").hardlink_to(tensor.path)
        records, outputs = self._run(folder, ready) if ready else ({}, folder)
        answers |= {file: self._read(files[file], records.get(file), outputs) for file in ready}
        return [answers[file] for file in files]

    def _compiled(self, files: Mapping[str, Calculation], folder: Path) -> dict[str, NotCalculated]:
        """Compile the files; return the refusals."""
        jobs, refusals = [], {}
        for file in files:
            target = folder / "made" / file
            target.mkdir(parents=True)
            model, options = folder / f"{target.stem}.onnx", compile_options(self._device.htp_arch)
            jobs.append(CompileJob(file, f"{self.name} refuses it", model, target, options))
        failed = run_jobs(self._host, jobs)
        for job in jobs:
            try:
                if (refusal := failed[job.job]) is not None:
                    raise refusal
                binary, calculation = compiled_binary(job), files[job.job]
                (metadata,) = read_metadata(self._probes, self._host.system_library, [binary])
                fed = {name: tensor.kind.size for name, tensor in calculation.feeds.items()}
                gives = {name: kind.size for name, kind in calculation.gives.items()}
                tensor_order(metadata, job.complaint, fed, gives)
                binary.rename(folder / job.job)
            except CompileError as error:
                nodes = refused_nodes(messages_of(error.output))
                text = refusal_text(nodes, {}, job.complaint) if nodes else str(error)
                why = {node.name: node.reason or job.complaint for node in nodes}
                refusals[job.job] = NotCalculated(text, why)
        return refusals

    def _run(self, folder: Path, files: Sequence[str]) -> tuple[dict[str, CaseRecord], Path]:
        """Run files; return their records by name, and the folder of their outputs."""
        device = self._device
        arguments = ["-m", "device", "-n0", "-p", "no:cacheprovider", *isolated_arguments(folder)]
        arguments += [f"--qnn-lab={device.lab.absolute()}", f"--qnn-reports={folder / 'reports'}"]
        arguments += ["--qnn-backend=htp", "--qnn-engine=qnn"]
        arguments += [f"--qnn-version={self._host.qnn_version}"]
        arguments += [f"--qnn-device={device.device}", "-o", f"qnn_lease_timeout={_LEASE_WAIT}"]
        arguments += [f"--qnn-inputs={folder / 'inputs'}", *files]
        end = run_case(arguments, folder / "reports", folder, _RUN_TIMEOUT_S)
        if end.record is None or end.folder is None:
            stopped = end.stopped
            if stopped is not None and stopped.about != "lab":
                raise ConfigError(stopped.text)
            raise self._lost(end.problem if stopped is None else stopped.text)
        cases = RunFolder(end.folder).contents().cases
        return {str(record.axes.get("workload")): record for record in cases}, end.folder / OUTPUTS

    def _lost(self, problem: str) -> InfraError:
        return InfraError(f"the run on {self._device.device} got no verdict: {problem}")

    def _read(self, job: Calculation, record: CaseRecord | None, outputs: Path) -> Calculated:
        if record is None:
            raise self._lost("the run ended before its last case")
        if record.outcome != "passed":
            message = record.error.message if record.error else ""
            if record.cause in ("infra", "harness"):
                raise self._lost(message)
            return NotCalculated(f"{self.name}: {record.outcome}: {message}")
        contexts: Any = record.measurements.get(KEPT)
        (context,) = contexts.values()
        files = {each["name"]: outputs / f"{each['digest']}.raw" for each in context["outputs"]}
        return _values(job.gives, files)
