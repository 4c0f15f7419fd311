"""The case to reduce or to bundle: its contexts, and how it is run."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar, get_args

from pydantic import BaseModel, Field

from harness.bisect.bad_condition import Point
from harness.bisect.request import choose_devices, pytest_root
from harness.containers.artefact import Artefact
from harness.containers.manifest import Expects, Manifest, PieceEntry, RunPlan, TensorEntry
from harness.containers.open import open_artefact
from harness.core.engine import DEFAULT_ENGINE, ENGINES, Engine
from harness.core.errors import ConfigError, HarnessError
from harness.core.socs import SOCS
from harness.core.state_folders import cache_root
from harness.lab.inventory import Lab
from harness.models.artefact_sources import ModelOptions, contexts_of
from harness.models.context_file import ContextFile, ContextFiles
from harness.models.context_metadata import entries, tensors_of
from harness.models.contexts import Contexts, SourceList, require_contexts
from harness.models.session_plan import ANY_DISTANCE, RESIDENCIES, Context, Residency
from harness.plugin.user_files import is_of_a_file, named_variant
from harness.probe.build import ProbeBuilder
from harness.reduce.bundle import LoadedGraph, NamedTensor, entries_of, model_files, write_case
from harness.results.case_names import split_node_id
from harness.results.record import CaseRecord
from harness.results.run_folder import RunFolder, run_folders
from harness.runtimes.catalog import Catalog

_SIMPLER: Final[tuple[Residency, ...]] = ("sequential", "window")
"""Alternatives to `resident`, simplest first: the fewer are loaded at once, the simpler."""

Element = TypeVar("Element")


@dataclass(frozen=True)
class Way:
    """A way to run contexts: their numbers in loading order, and how many are loaded at once.

    Contexts with the same number are the same binary with the same inputs.
    """

    order: tuple[int, ...]
    residency: Residency

    @classmethod
    def from_point(cls, point: Point) -> Way:
        """Return the way of a point of a search. Raises ValueError for an invalid one."""
        residency, order = point
        known: dict[str, Residency] = {mode: mode for mode in get_args(Residency)}
        if residency not in known:
            raise ValueError(f"{residency!r} is not a residency")
        return cls(tuple(map(int, order.split(","))), known[residency])

    @property
    def point(self) -> Point:
        return self.residency, ",".join(map(str, self.order))


@dataclass(frozen=True)
class WayAnswer:
    """The result of a way: whether it has the wanted failure, and the index in its order."""

    fails: bool
    context: int | None = None


RunWay = Callable[[Way], WayAnswer]
"""Return whether a way fails. It is called repeatedly, and must be deterministic."""


def shrink(start: Way, run: RunWay) -> Iterator[Way]:
    """Yield ever smaller ways that fail, beginning with `start`, which does.

    The last one is minimal: it passes without any one of its contexts. Contexts keep their order.
    Repeating a single context, and a simpler residency, are tried first. The same answers lead to
    the same ways.
    """
    best = start
    yield best
    for step in (_cut, _repeat_one, _cut, _simplify, _cut, _drop_contexts):
        for smaller in step(best, run):
            best = smaller
            yield best


def shrink_list(
    items: Sequence[Element], fails: Callable[[Sequence[Element]], bool]
) -> Iterator[list[Element]]:
    """Yield ever shorter lists of the items, in order, that still fail; at least one remains.

    No single item can be removed from the last list. The number removed at once is doubled after
    each success. If most of n items are needed, n lists are tried; if few matter, some log n for
    each of these.
    """
    remaining = list(items)
    while True:
        before, index, size = len(remaining), 0, 1
        while index < len(remaining):
            size = min(size, len(remaining) - index, len(remaining) - 1)
            fewer = remaining[:index] + remaining[index + size :]
            if size and fails(fewer):
                remaining = fewer
                yield remaining
                size *= 2
            elif size > 1:
                size //= 2
            else:
                index, size = index + 1, 1
        if len(remaining) == before:
            return


def _simplify(way: Way, run: RunWay) -> Iterator[Way]:
    for residency in _SIMPLER:
        if residency == way.residency or len(way.order) == 1:
            return
        if run(simpler := replace(way, residency=residency)).fails:
            yield simpler
            return


def _cut(way: Way, run: RunWay) -> Iterator[Way]:
    context = run(way).context
    if context is not None and context + 1 < len(way.order):
        shorter = replace(way, order=way.order[: context + 1])
        if run(shorter).fails:
            yield shorter


def _drop_contexts(way: Way, run: RunWay) -> Iterator[Way]:
    def having(indices: Sequence[int]) -> Way:
        return replace(way, order=tuple(way.order[index] for index in indices))

    for fewer in shrink_list(range(len(way.order)), lambda some: run(having(some)).fails):
        yield having(fewer)


def _repeat_one(way: Way, run: RunWay) -> Iterator[Way]:
    """Replace all contexts by the one that failed, or by the one before it."""
    context = run(way).context
    if context is None or len(set(way.order)) == 1:
        return
    for kind in dict.fromkeys(reversed(way.order[max(0, context - 1) : context + 1])):
        if run(uniform := replace(way, order=(kind,) * len(way.order))).fails:
            yield uniform
            return


_MOST: Final = 4096
_MOST_RUNS: Final = 100
_PLAIN: Final = re.compile(r"float(16|32|64)|[us]?(int|fixed)(8|16|32|64)|bool8")
_ENDS: Final[tuple[Literal["inputs", "outputs"], ...]] = ("inputs", "outputs")
_ENDINGS: Final = ("passed", "failed", "crashed", "hung")
_TAKEN: Final = "FILE::test_contexts[...], a case of `qnn-harness run FILE`"
_OTHER_ENGINE: Final = (
    "this engine loads a file as a whole; run the file without --engine to reduce its contexts"
)


class LoadedBinary(BaseModel, extra="forbid", frozen=True):
    """One of the binaries that a case loads, with the files of its inputs and expected outputs.

    Either `inputs` were given, or `made_up` ones are used.
    """

    name: str
    path: Path
    size: int
    sha256: str
    artefact: str
    origin: str
    inputs: tuple[Path, ...]
    expected: tuple[Path, ...]
    made_up: tuple[Path, ...] = ()
    graph: LoadedGraph | None = None

    @property
    def read(self) -> tuple[Path, ...]:
        return self.inputs or self.made_up


class Subject(BaseModel, extra="forbid", frozen=True):
    """A case: its contexts, their order, and how and on which devices they run."""

    case: str
    kinds: tuple[LoadedBinary, ...]
    order: Annotated[tuple[int, ...], Field(max_length=_MOST)]
    plan: RunPlan
    devices: tuple[str, ...]
    lab: Path
    expects: Expects | None = None
    model: dict[str, Path] = {}
    """The source model, by the names of its files in a bundle."""

    @property
    def way(self) -> Way:
        return Way(self.order, self.plan.residency)

    def names(self, way: Way) -> list[str]:
        return [self.kinds[number].name for number in way.order]

    def packed(self, way: Way, plan: RunPlan) -> tuple[Manifest, dict[str, Path]]:
        """Return the manifest of a way, and the files that it names."""
        files: dict[str, Path] = {}
        entries = {kind: self._entry(kind, f"context-{kind}", files) for kind in set(way.order)}
        plan = plan.model_copy(update={"residency": way.residency})
        return Manifest(pieces=tuple(entries[kind] for kind in way.order), plan=plan), files

    def _entry(self, number: int, name: str, files: dict[str, Path]) -> PieceEntry:
        kind = self.kinds[number]

        def tensors(end: str, paths: Sequence[Path]) -> tuple[TensorEntry, ...]:
            names = {f"{name}.{end}-{index}.raw": path for index, path in enumerate(paths)}
            files.update(names)
            sized = ((file, path.stat().st_size) for file, path in names.items())
            return tuple(TensorEntry(file=file, size=size) for file, size in sized)

        files[f"{name}.bin"] = kind.path
        return PieceEntry(
            file=f"{name}.bin",
            size=kind.size,
            sha256=kind.sha256,
            kind="context",
            artefact=kind.artefact,
            origin=kind.origin,
            facts={},
            inputs=tensors("input", kind.inputs),
            expected=tensors("expected", kind.expected),
        )

    def bundle(self, path: Path, way: Way, record: CaseRecord, expects: Expects) -> None:
        """Bundle a way with the record of its run. Raises ConfigError, InfraError."""
        manifest, files = self.packed(way, versions_of(self.plan, record))
        packed = manifest.model_copy(update={"expects": expects, "model": entries_of(self.model)})
        graphs, inputs = dict[str, LoadedGraph](), dict[str, list[str]]()
        for number in dict.fromkeys(way.order):
            kind, name = self.kinds[number], f"context-{number}"
            inputs[f"{name}.bin"] = [f"{name}.input-{index}.raw" for index in range(len(kind.read))]
            files |= dict(zip(inputs[f"{name}.bin"], kind.read, strict=True))
            if kind.graph is not None:
                graphs[f"{name}.bin"] = kind.graph
        write_case(path, packed, record, files | self.model, graphs, inputs)


class Reducing(BaseModel, extra="forbid", frozen=True):
    """The case to reduce, and further arguments of pytest."""

    subject: Subject
    pytest_arguments: tuple[str, ...] = ()


def find_subject(
    case: str, lab_file: Path, lab: Lab, catalog: Catalog, options: ModelOptions
) -> Subject:
    """Return the case with this name. Raises ConfigError for one that cannot be reduced."""
    base, parameters = split_node_id(case)
    file, _, test = base.partition("::")
    if test != ENGINES[DEFAULT_ENGINE].test:
        why = f"{test or case[:200]!r} is not a test of contexts in a file"
        why = _OTHER_ENGINE if any(test == engine.test for engine in ENGINES.values()) else why
        raise ConfigError(why, field="CASE", choices=[_TAKEN])
    root = pytest_root(case, "CASE")
    chosen = choose_devices(lab, case, ())
    artefact = open_artefact(root / file)
    sources = contexts_of(artefact, cache_root(), options)
    files = [source for source in sources if isinstance(source, ContextFile)]
    if len(files) < len(sources):
        soc = lab.select(chosen.devices)[0].soc
        named = chosen.named or {}
        compiler = named.get("compiler") or named.get("qnn")
        if soc is None or soc not in SOCS or compiler is None:
            problem = f"must be compiled, but its SoC ({soc}) or QNN ({compiler}) is unknown"
            raise ConfigError(problem, file=file, field="CASE", choices=[_TAKEN])
        files = _compile(sources, compiler, SOCS[soc].htp_arch, catalog)
    usual = sources.plan.residency if sources.plan is not None else "resident"
    residency, number = named_variant(parameters or "", RESIDENCIES) or (usual, len(files))
    if number > _MOST:
        raise ConfigError(f"has {number} contexts; at most {_MOST} are supported", field="CASE")
    model = model_files(artefact.path, options) if artefact.kind == "onnx" else {}
    model = {name: path for name, path in model.items() if name.startswith("model/")}
    kinds, numbers = _kinds(artefact, files, catalog)
    plan = RunPlan(
        residency=residency,
        tolerance=files[0].tolerance,
        graph=files[0].graph,
        qnn=chosen.named["qnn"] if chosen.named else None,
        backend=chosen.backend,
        target=chosen.target,
        max_error=sources.closeness.max_error,
        min_cosine=sources.closeness.min_cosine,
        min_sqnr=sources.closeness.min_sqnr,
        context_options=dict(sources.context_options),
    )
    return Subject(
        case=case,
        kinds=kinds,
        order=tuple(numbers[index % len(numbers)] for index in range(number)),
        plan=plan,
        devices=chosen.devices,
        lab=lab_file.absolute(),
        model=model,
    )


def _compile(
    sources: SourceList, compiler: str, htp_arch: int | None, catalog: Catalog
) -> list[ContextFile]:
    """Compile models to contexts, with their inputs. Raises CompileError.

    If there are limits for outputs, the reference output is the expected one.
    """
    root, limited = cache_root(), bool(sources.closeness)
    contexts = Contexts(root, catalog, ProbeBuilder(root / "probe")).of(sources, compiler, htp_arch)
    return [
        ContextFile(
            context.path,
            inputs=list(context.inputs),
            expected=list(context.expected or (context.reference if limited else ())) or None,
            tolerance=context.tolerance if context.expected else ANY_DISTANCE if limited else 0.0,
            name=str(source),
        )
        for source, context in require_contexts(contexts).items()
    ]


def _kinds(
    artefact: Artefact, files: Sequence[ContextFile], catalog: Catalog
) -> tuple[tuple[LoadedBinary, ...], list[int]]:
    """Return the distinct binaries among these contexts, and the number of each context."""
    root = cache_root()
    contexts = ContextFiles(root, catalog, ProbeBuilder(root / "probe")).contexts(files)
    name = artefact.path.name
    pieces = [piece for piece in artefact.pieces if piece.kind != "empty"]
    places = [(piece.facts.get("artefact", name), piece.origin) for piece in pieces]
    kinds: dict[tuple[Any, ...], LoadedBinary] = {}
    numbers = []
    for file, place in zip(files, places or [(name, "")], strict=True):
        context = contexts[file]
        if isinstance(context, ConfigError):
            raise context
        if context.others and (context.expected or not context.generated_inputs):
            problem = "has several graphs, each with its own files; name the one to execute"
            raise ConfigError(problem, file=artefact.path, field="--graph")
        kind = _kind(context, *place)
        key = (kind.sha256, kind.inputs, kind.expected)
        kinds.setdefault(key, kind)
        numbers.append(list(kinds).index(key))
    return tuple(kinds.values()), numbers


def _kind(context: Context, artefact: str, origin: str) -> LoadedBinary:
    return LoadedBinary(
        name=str(context.source),
        path=context.path.absolute(),
        size=context.size,
        sha256=context.sha256,
        artefact=artefact,
        origin=origin,
        # made up again from the names of tensors in each run
        inputs=() if context.generated_inputs else context.inputs,
        made_up=context.inputs if context.generated_inputs else (),
        expected=context.expected,
        graph=_graph(context),
    )


def _graph(context: Context) -> LoadedGraph | None:
    """Return the graph that is executed; None if some properties of its tensors are unknown."""
    graphs, index = entries(context.metadata, "graphs"), context.graph
    entry = graphs[index]
    try:
        inputs, outputs = (
            tuple(
                NamedTensor(name=tensor.name, data_type=tensor.data_type, shape=tensor.shape or ())
                for tensor in tensors_of(entry, kind, context.path)
            )
            for kind in _ENDS
        )
    except ConfigError:
        return None
    if not all(_PLAIN.fullmatch(tensor.data_type) for tensor in (*inputs, *outputs)):
        return None
    return LoadedGraph(
        name=str(entry.get("name")), at=index, of=len(graphs), inputs=inputs, outputs=outputs
    )


def find_record(case: str, run: Path | None, reports: Path) -> CaseRecord:
    """Return the record of a case in a run.

    Without a `run` it is the latest of the last 100 runs that has the case, if possible with a
    verdict. Raises ConfigError if none has it.
    """
    base, parameters = split_node_id(case)

    runs = [run] if run is not None else run_folders(reports)[: -_MOST_RUNS - 1 : -1]
    matches, others = list[CaseRecord](), dict[str, None]()
    for folder in runs:
        try:
            records = RunFolder.open(folder).contents().cases
        except HarnessError:
            if run is not None:
                raise
            continue  # a run of another version, or a damaged one
        in_run = [
            record
            for record in records
            if record.case == case or (parameters is None and split_node_id(record.case)[0] == base)
        ]
        matches = matches or in_run
        others |= dict.fromkeys(record.case for record in records if is_of_a_file(record.case))
        if any(expected_of(record) is not None for record in in_run):
            matches = in_run
            break
    if len(matches) == 1:
        return matches[0]
    lacks = "has no case" if run is not None else "no run has"
    problem = f"several cases are named {case}" if matches else f"{lacks} {case}"
    same_file = [name for name in others if split_node_id(name)[0] == base]
    choices = [record.case for record in matches] or same_file or [*others] or [_TAKEN]
    place = run or (folder if matches else reports)
    raise ConfigError(problem, file=place, field="CASE", choices=choices)


def expected_of(record: CaseRecord) -> Expects | None:
    """Return how a case ended, if that was a verdict about the target."""
    if record.outcome not in _ENDINGS or record.cause not in (None, "target"):
        return None
    signature = record.error.signature if record.error is not None else None
    return Expects.model_validate({"outcome": record.outcome, "signature": signature})


def versions_of(plan: RunPlan, record: CaseRecord) -> RunPlan:
    """Return a plan with the versions of a run."""
    runtime, device = record.runtime, record.device
    versions = {
        "qnn": runtime and runtime.qnn,
        "build_id": runtime and runtime.build_id,
        "soc": device and device.soc,
        "target": device and device.target,
    }
    return plan.model_copy(update={key: value for key, value in versions.items() if value})


def engine_of(case: str) -> Engine:
    """Return the engine of a case of a model file. Raises ConfigError for any other case."""
    test = split_node_id(case)[0].partition("::")[2]
    for engine in ENGINES.values():
        if engine.test == test:
            return engine
    problem = f"{test or case[:200]!r} is not a test of a file"
    raise ConfigError(problem, field="CASE", choices=[_TAKEN])


def pack_model(
    path: Path, case: str, options: ModelOptions, record: CaseRecord, expects: Expects
) -> RunPlan:
    """Bundle the model of a case as it is, for another engine, or because it gave no context.

    Raises ConfigError for a missing file, InfraError.
    """
    base, parameters = split_node_id(case)
    file = base.partition("::")[0]
    model, engine = (pytest_root(case, "CASE") / file).absolute(), engine_of(case)
    graphs = {whole.name: whole.options.graph for whole in engine.cases(model, options)}
    of_case = (name for name in graphs if (parameters or "").endswith(f"-{name}"))
    plan = RunPlan(
        tolerance=options.tolerance,
        graph=graphs.get(next(of_case, ""), options.graph),
        fallback=options.fallback,
        backend=record.placement.backend if record.placement is not None else None,
        max_error=options.closeness.max_error,
        min_cosine=options.closeness.min_cosine,
        min_sqnr=options.closeness.min_sqnr,
        context_options=dict(options.context_options),
    )
    files = model_files(model, options)
    plan = versions_of(plan, record).model_copy(update={"engine": engine.name})
    manifest = Manifest(pieces=(), model=entries_of(files), plan=plan, expects=expects)
    write_case(path, manifest, record, files, {}, {})
    return plan
