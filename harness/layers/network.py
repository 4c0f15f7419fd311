"""A model taken apart, and what calculates it: ONNX Runtime on the CPU, and backends of QNN."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from harness.bench.session import SESSION_OUTPUTS
from harness.bisect.loop import run_case
from harness.core.cache import cache_root
from harness.core.errors import ConfigError, InfraError
from harness.diagnosis.refused_nodes import messages_of, refusal_text, refused_nodes
from harness.models.compile import (
    compile_options,
    made_binary,
    read_metadata,
    tensor_order,
)
from harness.models.compiler import (
    CompileError,
    CompileJob,
    InputFile,
    ReferenceJob,
    run_jobs,
)
from harness.models.onnx_model import all_inputs, graphs_within, inlined
from harness.plugin.own_contexts import nothing_beside
from harness.probe.build import ProbeBuilder
from harness.results.drift import KEPT
from harness.results.record import CaseRecord
from harness.results.run_folder import OUTPUTS, RunFolder
from harness.runtimes.pypi import CompilerHost

if TYPE_CHECKING:
    import numpy as np
    import onnx


INSIDE: Final = "__in"
"""Behind the name of an input that an op of the same model gives; no other name has two of `_`."""

_QUANTISE, _DEQUANTISE = "QuantizeLinear", "DequantizeLinear"
_SHAPES: Final = frozenset({"Shape", "Size"})
_RANDOM: Final = frozenset(
    {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial"}
)
_UNUSUAL: Final = re.compile(r"[^A-Za-z0-9]+")


@dataclass(frozen=True)
class TensorKind:
    """What is known of a tensor: numpy's name of its elements, and its shape."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        import numpy as np

        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


@dataclass(frozen=True)
class Op:
    """What is looked at as one: a node, or a node with what quantises its output.

    `op` is the node's name, `nodes` are places of all nodes in the model, `gives` the tensors that
    come out, whose values stand for `zero` where they are that (of quantised ones).
    """

    op: str
    type: str
    nodes: tuple[int, ...]
    gives: tuple[str, ...]
    zero: int = 0


class Network:
    """An ONNX model with fixed shapes; nodes without a name, or with one of another, get one.

    Tensors are called anew, so that a file can have the name: as those of `like` where a node there
    has the same name, so that values of both are told by one name. `called` has their own names.
    """

    def __init__(self, model: onnx.ModelProto, like: Network | None = None) -> None:
        copy = type(model)()
        copy.CopyFrom(inlined(model))
        del copy.graph.initializer[:]
        copy.graph.initializer.extend(model.graph.initializer)
        self.model = copy
        self.nodes: Sequence[onnx.NodeProto] = copy.graph.node
        _name(copy.graph.node)
        self.weights = {one.name: one for one in copy.graph.initializer}
        new = _new_names(copy, self.weights, like)
        self.called = {name: own for own, name in new.items()}
        for node in self.nodes:
            _rename(node, new, new)
        for value in (*copy.graph.input, *copy.graph.output, *copy.graph.value_info):
            value.name = new.get(value.name, value.name)
        self.inputs = [one.name for one in copy.graph.input if one.name not in self.weights]
        self.kinds = _kinds(copy)
        self.made_by = {
            name: at for at, node in enumerate(self.nodes) for name in node.output if name
        }
        self.constant = self._constant(frozenset())
        self.free = self._free()
        self._users = Counter(name for node in self.nodes for name in all_inputs(node))
        self._users.update(one.name for one in copy.graph.output)

    def ops(self) -> list[Op]:
        """Every node whose output depends on an input, in order."""
        return [self._op((at,)) for at in range(len(self.nodes)) if at not in self.constant]

    def units(self) -> list[Op]:
        """The same as a quantising backend sees them: from what dequantises to what quantises.

        Shapes are constants to it.
        """
        chains = [self._chain(at) for at in range(len(self.nodes))]
        passed = self.constant | {one for chain in chains for one in chain[:-1]}
        outputs = {one.name for one in self.model.graph.output}
        return [
            self._op(chain)
            for at, chain in enumerate(chains)
            if at not in passed
            and (at not in self.free or not outputs.isdisjoint(self.nodes[at].output))
        ]

    def whole(self, wanted: Sequence[str]) -> onnx.ModelProto:
        """The model whose outputs are these tensors."""
        nodes, takes = self._behind({self.made_by[name] for name in wanted}, range(len(self.nodes)))
        return self._model([self.nodes[at] for at in nodes], takes, wanted)

    def takes(self, op: Op, *, unit: bool) -> list[str]:
        """The tensors that an op calculates with, but for constants."""
        return [one for one in self._closure(op, unit)[1] if one in self.kinds]

    def parts(self, op: Op) -> list[int]:
        """The places of all nodes that are calculated as one with an op."""
        return [at for at in self._closure(op, unit=True)[0] if at not in self.constant]

    def behind(self, op: Op) -> Iterator[tuple[int, onnx.ModelProto]]:
        """Models of an op with more and more before it, and how many ops these have.

        The op's outputs are theirs.
        """
        nodes, takes = self._behind(op.nodes, self.free)
        while makers := {self.made_by[name] for name in takes if name in self.made_by}:
            chains = [one for maker in makers for one in self._chain(maker)]
            nodes, takes = self._behind([*nodes, *chains], self.free)
            if any(name not in self.kinds for name in takes):
                return
            count = sum(at not in self.free for at in nodes)
            yield count, self._model([self.nodes[at] for at in nodes], takes, op.gives)

    def apart(self, ops: Iterable[Op], *, unit: bool) -> onnx.ModelProto:
        """A model of these ops, each by itself: all they take are inputs, all they give outputs.

        An input that another one gives has `INSIDE` behind its name.
        """
        from onnx import helper

        closures = [(op, *self._closure(op, unit)) for op in ops]
        made = {name for _, nodes, _ in closures for at in nodes for name in self.nodes[at].output}
        inputs: dict[str, str] = {}
        copies: dict[int, onnx.NodeProto] = {}
        for _, nodes, takes in closures:
            new = {name: name + INSIDE if name in made else name for name in takes}
            inputs |= new
            for at in nodes:
                node = self.nodes[at]
                if unit and node.op_type in _SHAPES:
                    copies[at] = helper.make_node(
                        "Constant", [], node.output, value=self._shape(at)
                    )
                else:
                    copies[at] = type(node).FromString(node.SerializeToString())
                    _rename(copies[at], new, {})
        gives = [name for op, _, _ in closures for name in op.gives]
        return self._model([copies[at] for at in sorted(copies)], inputs.values(), gives)

    def check_inputs(self, other: Network) -> None:
        """Raises ConfigError unless the other one takes the same inputs."""
        mine, theirs = (
            {one.called[name]: one.kinds.get(name) for name in one.inputs} for one in (self, other)
        )
        for name in dict.fromkeys([*mine, *theirs]):
            if name not in mine or name not in theirs or mine[name] != theirs[name]:
                kinds = f"{mine.get(name)} and {theirs.get(name)}"
                problem = f"the models do not take the same: input {name} is {kinds}"
                raise ConfigError(problem, field="--reference")

    def _model(
        self, nodes: Sequence[onnx.NodeProto], inputs: Iterable[str], outputs: Iterable[str]
    ) -> onnx.ModelProto:
        from onnx import helper

        used = {name for node in nodes for name in all_inputs(node)}
        graph = helper.make_graph(
            nodes,
            self.model.graph.name or "diverge",
            [self._info(name) for name in inputs],
            [self._info(name) for name in outputs],
            [one for name, one in self.weights.items() if name in used],
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

    def _chain(self, at: int) -> tuple[int, ...]:
        """A node; before one that quantises all whose output goes nowhere but into it."""
        chain = [at]
        while self.nodes[at].op_type == _QUANTISE and at not in self.free:
            before = self.made_by.get(self.nodes[chain[0]].input[0])
            if before is None or before in self.free or self.nodes[before].op_type == _QUANTISE:
                break
            names = [name for name in self.nodes[before].output if name]
            if len(names) != 1 or self._users[names[0]] != 1:
                break
            chain.insert(0, before)
        return tuple(chain)

    def _free(self) -> frozenset[int]:
        """What a backend has as a part of whatever takes it."""
        kept = [
            at
            for at, node in enumerate(self.nodes)
            if node.op_type == _DEQUANTISE
            or (node.op_type in _SHAPES and node.input[0] in self.kinds)
        ]
        shapes = (at for at in kept if self.nodes[at].op_type in _SHAPES)
        return self._constant(frozenset(shapes)) | frozenset(kept)

    def _constant(self, also: frozenset[int]) -> frozenset[int]:
        known, found = set(self.weights), set(also)
        for at, node in enumerate(self.nodes):
            if at in also or (node.op_type not in _RANDOM and set(all_inputs(node)) <= known):
                found.add(at)
                known.update(node.output)
        return frozenset(found)

    def _closure(self, op: Op, unit: bool) -> tuple[list[int], list[str]]:
        shapes = {at for at in self.free if self.nodes[at].op_type in _SHAPES} if unit else ()
        return self._behind(op.nodes, self.free if unit else self.constant, shapes)

    def _behind(
        self, nodes: Iterable[int], through: Container[int], ends: Container[int] = ()
    ) -> tuple[list[int], list[str]]:
        """Nodes with those of `through` that they take from, and what all of them take of others.

        What `ends` take is not asked for.
        """
        found, takes = set(nodes), dict[str, None]()
        left = sorted(found)
        while left:
            at = left.pop()
            for name in all_inputs(self.nodes[at]) if at not in ends else ():
                maker = self.made_by.get(name)
                if maker in found or name in self.weights:
                    continue
                if maker is not None and maker in through:
                    found.add(maker)
                    left.append(maker)
                else:
                    takes[name] = None
        return sorted(found), list(takes)

    def _shape(self, at: int) -> onnx.TensorProto:
        import numpy as np
        from onnx import numpy_helper

        node = self.nodes[at]
        shape = np.array(self.kinds[node.input[0]].shape, "i8")
        told = {one.name: one.i for one in node.attribute}
        if node.op_type == "Size":
            return numpy_helper.from_array(shape.prod().reshape(()))
        return numpy_helper.from_array(shape[told.get("start", 0) : told.get("end", len(shape))])

    def _info(self, name: str) -> onnx.ValueInfoProto:
        import numpy as np
        from onnx import helper

        kind = self.kinds[name.removesuffix(INSIDE)]
        element = helper.np_dtype_to_tensor_dtype(np.dtype(kind.dtype))
        return helper.make_tensor_value_info(name, element, kind.shape)


def _new_names(
    model: onnx.ModelProto, weights: Iterable[str], like: Network | None
) -> dict[str, str]:
    """What each tensor but weights is called, by its own name."""
    known = {} if like is None else {own: name for name, own in like.called.items()}
    same = {} if like is None else {node.name: node.output for node in like.nodes}
    taken = {name.lower() for name in (*weights, *known.values())}
    inputs = [one.name for one in model.graph.input]
    new = {own: known[own] for own in inputs if own in known}
    for node in model.graph.node:
        theirs = same.get(node.name, ())
        if {known.get(own) for own in node.output} == {*theirs}:  # whatever their order
            new |= {own: known[own] for own in node.output if own}
        elif len(theirs) == len(node.output):
            new |= {
                own: name for own, name in zip(node.output, theirs, strict=True) if own and name
            }
    for own in [*inputs, *(name for node in model.graph.node for name in node.output)]:
        if own and own not in new and own not in weights:
            short = _UNUSUAL.sub("_", own).strip("_")[-80:] or "tensor"
            new[own], number = short, 2
            while new[own].lower() in taken:
                new[own], number = f"{short}_{number}", number + 1
            taken.add(new[own].lower())
    return new


def _name(nodes: Iterable[onnx.NodeProto]) -> None:
    """Gives each node a name of its own, by its type and place where it has none."""
    listed = list(nodes)
    taken = {node.name for node in listed}
    seen: set[str] = set()
    for at, node in enumerate(listed):
        if not node.name or node.name in seen:
            name = node.name or f"{node.op_type}_{at}"
            while name in taken:
                name += f"_{at}"
            node.name = name
            taken.add(name)
        seen.add(node.name)


def _kinds(model: onnx.ModelProto) -> dict[str, TensorKind]:
    """What each tensor is, as far as it is fixed."""
    import numpy as np
    from onnx import helper

    graph = model.graph
    found = {}
    for one in (*graph.input, *graph.value_info, *graph.output):
        tensor = one.type.tensor_type
        if not one.type.HasField("tensor_type") or not tensor.HasField("shape"):
            continue
        shape = tuple(size.dim_value for size in tensor.shape.dim)
        if any(not size.HasField("dim_value") or size.dim_value < 1 for size in tensor.shape.dim):
            continue
        try:
            dtype = np.dtype(helper.tensor_dtype_to_np_dtype(tensor.elem_type))
        except (KeyError, TypeError, ValueError):
            continue
        if dtype.kind in "fiub":
            found[one.name] = TensorKind(dtype.str, shape)
    return found


def _rename(node: onnx.NodeProto, inputs: Mapping[str, str], outputs: Mapping[str, str]) -> None:
    for names, new in ((node.input, inputs), (node.output, outputs)):
        names[:] = [new.get(name, name) for name in names]
    for graph in graphs_within(node):
        for inner in graph.node:
            _rename(inner, inputs, {})
        for one in graph.output:
            one.name = inputs.get(one.name, one.name)


_RUN_TIMEOUT_S: Final = 1800.0
_LEASE_WAIT_S: Final = 600


@dataclass(frozen=True)
class Stored:
    """A tensor in a file of raw values."""

    path: Path
    kind: TensorKind

    def array(self) -> np.ndarray[Any, Any]:
        """It, read where it is looked at."""
        import numpy as np

        return np.memmap(self.path, self.kind.dtype, "r", shape=self.kind.shape)


@dataclass(frozen=True)
class Calculation:
    """A model to be calculated: what goes in and what comes out, by name."""

    model: onnx.ModelProto
    feeds: Mapping[str, Stored]
    gives: Mapping[str, TensorKind]


@dataclass(frozen=True)
class NotCalculated:
    """Why nothing was calculated; `nodes` has why of each node that is named as refused."""

    text: str
    nodes: Mapping[str, str] = field(default_factory=dict)


Calculated = dict[str, Stored] | NotCalculated
"""The outputs, or why there are none."""


class Cpu:
    """ONNX Runtime on the CPU, in a process of its own."""

    name = "ONNX Runtime on the CPU"

    def __init__(self, host: CompilerHost, folder: Path) -> None:
        self._host, self._folder, self._asked = host, folder, 0

    def ask(self, questions: Sequence[Calculation]) -> list[Calculated]:
        """The answers, in the same order. Raises InfraError."""
        jobs = []
        for question in questions:
            self._asked += 1
            folder = self._folder / f"cpu{self._asked}"
            folder.mkdir()
            model = folder / "model.onnx"
            model.write_bytes(question.model.SerializeToString())
            inputs = [
                InputFile(name, one.path, one.kind.dtype, one.kind.shape)
                for name, one in question.feeds.items()
            ]
            outputs = {name: folder / f"{at}.raw" for at, name in enumerate(question.gives)}
            what = "ONNX Runtime does not compute it on the CPU"
            jobs.append(ReferenceJob(folder.name, what, model, tuple(inputs), outputs))
        failed = run_jobs(self._host, jobs)
        return [
            NotCalculated(str(error))
            if (error := failed[job.job]) is not None
            else _values(question.gives, job.outputs)
            for question, job in zip(questions, jobs, strict=True)
        ]


def _values(gives: Mapping[str, TensorKind], files: Mapping[str, Path]) -> Calculated:
    for name, kind in gives.items():
        size = files[name].stat().st_size if name in files and files[name].exists() else 0
        if size != kind.size:
            return NotCalculated(f"of {name} there are {size} bytes and not {kind.size}")
    return {name: Stored(files[name], kind) for name, kind in gives.items()}


@dataclass(frozen=True)
class HtpPlace:
    """Where QNN runs: a device of a lab, and the architecture of its HTP."""

    lab: Path
    device: str
    htp_arch: int


class Qnn:
    """A backend of one QNN version on a device, run as `run` does it.

    HTP runs contexts that are compiled for it here, any other one a session of ONNX Runtime.
    """

    def __init__(self, host: CompilerHost, place: HtpPlace, folder: Path, backend: str) -> None:
        processor = (
            f"HTP v{place.htp_arch}" if backend == "htp" else f"the {backend.upper()} backend"
        )
        self.name = f"{processor} of QNN {host.qnn_version}"
        self._host, self._place, self._asked, self.backend = host, place, 0, backend
        self._folder = folder / f"{backend}-{host.qnn_version}"
        self._folder.mkdir()
        self._probes = ProbeBuilder(cache_root() / "probe")

    def ask(self, questions: Sequence[Calculation]) -> list[Calculated]:
        """The answers, in the same order: all are compiled in one process, and run in one run.

        Raises InfraError if the lab fails, ConfigError for a device that cannot be used.
        """
        self._asked += 1
        folder = self._folder / str(self._asked)
        folder.mkdir()
        suffix = "bin" if self.backend == "htp" else "onnx"
        files = {f"{at}.{suffix}": one for at, one in enumerate(questions)}
        for at, question in enumerate(questions):
            (folder / f"{at}.onnx").write_bytes(question.model.SerializeToString())
        answers: dict[str, Calculated] = {}
        if self.backend == "htp":
            answers |= self._compiled(files, folder)
        ready = [file for file in files if file not in answers]
        for file in ready:
            inputs = folder / "inputs" / file
            inputs.mkdir(parents=True)
            for name, one in files[file].feeds.items():
                (inputs / f"{name}.raw").hardlink_to(one.path)
        records, outputs = self._run(folder, ready) if ready else ({}, folder)
        answers |= {file: self._read(files[file], records.get(file), outputs) for file in ready}
        return [answers[file] for file in files]

    def _compiled(self, files: Mapping[str, Calculation], folder: Path) -> dict[str, NotCalculated]:
        """Makes the files, and says which could not be made."""
        jobs, refusals = [], {}
        for file in files:
            made = folder / "made" / file
            made.mkdir(parents=True)
            model, options = folder / f"{made.stem}.onnx", compile_options(self._place.htp_arch)
            jobs.append(CompileJob(file, f"{self.name} refuses it", model, made, options))
        failed = run_jobs(self._host, jobs)
        for job in jobs:
            try:
                if (refusal := failed[job.job]) is not None:
                    raise refusal
                binary, asked = made_binary(job), files[job.job]
                (metadata,) = read_metadata(self._probes, self._host.system_library, [binary])
                fed = {name: one.kind.size for name, one in asked.feeds.items()}
                gives = {name: kind.size for name, kind in asked.gives.items()}
                tensor_order(metadata, job.complaint, fed, gives)
                binary.rename(folder / job.job)
            except CompileError as error:
                nodes = refused_nodes(messages_of(error.output))
                text = refusal_text(nodes, {}, job.complaint) if nodes else str(error)
                why = {one.name: one.reason or job.complaint for one in nodes}
                refusals[job.job] = NotCalculated(text, why)
        return refusals

    def _run(self, folder: Path, files: Sequence[str]) -> tuple[dict[str, CaseRecord], Path]:
        """Runs files; their records by name, and where their outputs lie."""
        place = self._place
        arguments = ["-m", "device", "-n0", "-p", "no:cacheprovider", *nothing_beside(folder)]
        arguments += [f"--qnn-lab={place.lab.absolute()}", f"--qnn-reports={folder / 'reports'}"]
        engine = "qnn" if self.backend == "htp" else "ort"
        arguments += [f"--qnn-backend={self.backend}", f"--qnn-engine={engine}"]
        arguments += [f"--qnn-version={self._host.qnn_version}"]
        arguments += [f"--qnn-device={place.device}", f"--qnn-lease-timeout={_LEASE_WAIT_S}"]
        arguments += [f"--qnn-contexts-inputs={folder / 'inputs'}", *files]
        end = run_case(arguments, folder / "reports", folder, _RUN_TIMEOUT_S)
        if end.record is None or end.folder is None:
            stopped = end.stopped
            if stopped is not None and stopped.about != "lab":
                raise ConfigError(stopped.text)
            raise self._lost(end.problem if stopped is None else stopped.text)
        cases = RunFolder(end.folder).contents().cases
        return {str(one.axes.get("workload")): one for one in cases}, end.folder / OUTPUTS

    def _lost(self, problem: str) -> InfraError:
        return InfraError(f"the run on {self._place.device} came to no verdict: {problem}")

    def _read(self, question: Calculation, record: CaseRecord | None, outputs: Path) -> Calculated:
        if record is None:
            raise self._lost("it ended before its last case")
        if record.outcome != "passed":
            said = record.error.message if record.error else ""
            if record.cause in ("infra", "harness"):
                raise self._lost(said)
            if record.outcome == "unsupported" and self.backend != "htp":
                raise ConfigError(f"{self.name}: {said}", field="--against")
            rows: Any = record.measurements.get("nodes") or ()
            why = {one["node"]: one["reason"] for one in rows if one["reason"]}
            return NotCalculated(f"{self.name}: {record.outcome}: {said}", why)
        if self.backend == "htp":
            contexts: Any = record.measurements.get(KEPT)
            (kept,) = contexts.values()
            names = {one["name"]: f"{one['digest']}.raw" for one in kept["outputs"]}
        else:
            told: Any = record.measurements.get(SESSION_OUTPUTS)
            names = told or {}
        files = {name: outputs / file for name, file in names.items()}
        return _values(question.gives, files)
