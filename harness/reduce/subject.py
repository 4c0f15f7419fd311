"""The case that is to be made smaller or handed over: its contexts, and how it is run."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar, get_args

from pydantic import BaseModel, Field

from harness.bench.executorch import methods_to_run, open_program
from harness.bisect.match import Point
from harness.bisect.request import where_pytest_starts, where_to_run
from harness.containers.artefact import Artefact
from harness.containers.manifest import (
    Expects,
    Manifest,
    PieceEntry,
    RunPlan,
    TensorEntry,
)
from harness.containers.open import open_artefact
from harness.core.axes import ENGINES, EXECUTORCH, QNN, Engine
from harness.core.cache import cache_root
from harness.core.errors import ConfigError, HarnessError
from harness.core.socs import SOCS
from harness.lab.inventory import Lab
from harness.models.artefact_sources import Given, contexts_of, own_folder
from harness.models.context_file import ContextFile, ContextFiles
from harness.models.contexts import Contexts, SourceList, required
from harness.models.metadata import entries, tensors_of
from harness.models.source import ANY_DISTANCE, Context, Residency
from harness.plugin.own_contexts import TESTS, is_of_a_file, named_way
from harness.probe.build import ProbeBuilder
from harness.reduce.handover import (
    LoadedGraph,
    NamedTensor,
    RunnerInputs,
    entries_of,
    model_files,
    write_case,
)
from harness.results.case_names import split_node_id
from harness.results.record import CaseRecord
from harness.results.run_folder import RunFolder, run_folders
from harness.runtimes.catalog import Catalog

_SIMPLER: Final[tuple[Residency, ...]] = ("sequential", "window")
"""What is tried instead of `resident`: the fewer are loaded at once, the simpler."""

Element = TypeVar("Element")


@dataclass(frozen=True)
class Way:
    """A way to run contexts: which ones, by their numbers, in the order in which they are loaded.

    Contexts with one number are one binary with one set of inputs.
    """

    order: tuple[int, ...]
    residency: Residency

    @classmethod
    def at(cls, point: Point) -> Way:
        """The way that a search calls so. Raises ValueError for what is none."""
        residency, order = point
        known: dict[str, Residency] = {one: one for one in get_args(Residency)}
        if residency not in known:
            raise ValueError(f"{residency!r} is no residency")
        return cls(tuple(map(int, order.split(","))), known[residency])

    @property
    def point(self) -> Point:
        return self.residency, ",".join(map(str, self.order))

    @property
    def reversed(self) -> Way:
        return replace(self, order=self.order[::-1])


@dataclass(frozen=True)
class WayAnswer:
    """Whether a way fails as it is to; `context` is the place in its order where it does."""

    fails: bool
    context: int | None = None


Ask = Callable[[Way], WayAnswer]
"""Whether a way fails. It is asked again and again, and always answers alike for a way."""


def shrunk(start: Way, ask: Ask) -> Iterator[Way]:
    """Ever smaller ways that fail, beginning with `start`, which does.

    Nothing can be left away of the last one: it passes without any one of its contexts. Contexts
    keep their order. One context again and again, and a simpler residency, are tried first. The
    same answers lead to the same ways.
    """
    best = start
    yield best
    for step in (_cut, _one_kind, _cut, _simpler, _cut, _fewer_kinds, _fewer):
        for smaller in step(best, ask):
            best = smaller
            yield best


def without(
    items: Sequence[Element], fails: Callable[[Sequence[Element]], bool]
) -> Iterator[list[Element]]:
    """Ever fewer of the items, in their order, that still fail together; at least one is left.

    Of the last ones none can be left away alone. What is left away at once is doubled after each
    success. If most of n items are needed, n sets are asked for; if few matter, some log n for each
    of these.
    """
    left = list(items)
    while True:
        before, at, size = len(left), 0, 1
        while at < len(left):
            size = min(size, len(left) - at, len(left) - 1)
            fewer = left[:at] + left[at + size :]
            if size and fails(fewer):
                left = fewer
                yield left
                size *= 2
            elif size > 1:
                size //= 2
            else:
                at, size = at + 1, 1
        if len(left) == before:
            return


def _simpler(way: Way, ask: Ask) -> Iterator[Way]:
    for residency in _SIMPLER:
        if residency == way.residency or len(way.order) == 1:
            return
        if ask(found := replace(way, residency=residency)).fails:
            yield found
            return


def _cut(way: Way, ask: Ask) -> Iterator[Way]:
    context = ask(way).context
    if context is not None and context + 1 < len(way.order):
        found = replace(way, order=way.order[: context + 1])
        if ask(found).fails:
            yield found


def _fewer_kinds(way: Way, ask: Ask) -> Iterator[Way]:
    """Leaves away all equal contexts together: there are fewer such kinds to try."""
    kinds = list(dict.fromkeys(way.order))
    if len(kinds) == len(way.order):
        return

    def having(some: Sequence[int]) -> Way:
        return replace(way, order=tuple(one for one in way.order if one in some))

    for fewer in without(kinds, lambda some: ask(having(some)).fails):
        yield having(fewer)


def _fewer(way: Way, ask: Ask) -> Iterator[Way]:
    def having(some: Sequence[int]) -> Way:
        return replace(way, order=tuple(way.order[at] for at in some))

    for fewer in without(range(len(way.order)), lambda some: ask(having(some)).fails):
        yield having(fewer)


def _one_kind(way: Way, ask: Ask) -> Iterator[Way]:
    """Tries only the context that failed, or the one before it, instead of many different ones."""
    context = ask(way).context
    if context is None or len(set(way.order)) == 1:
        return
    for kind in dict.fromkeys(reversed(way.order[max(0, context - 1) : context + 1])):
        if ask(found := replace(way, order=(kind,) * len(way.order))).fails:
            yield found
            return


_MOST: Final = 4096
_MOST_RUNS: Final = 100
_PLAIN: Final = re.compile(r"float(16|32|64)|[us]?(int|fixed)(8|16|32|64)|bool8")
_ENDS: Final[tuple[Literal["inputs", "outputs"], ...]] = ("inputs", "outputs")
_ENDINGS: Final = ("passed", "failed", "crashed", "hung")
_TAKEN: Final = "FILE::test_contexts[...], a case of `qnn-harness run FILE`"
_OTHER_ENGINE: Final = (
    "that engine loads a file as it is; its contexts are taken apart by running the file without "
    "--engine"
)


class LoadedBinary(BaseModel, extra="forbid", frozen=True):
    """One of the binaries that a case loads, with its inputs and what it should give (files).

    It has `inputs` that were given, or `made_up` ones.
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
    """A case: which contexts, in which order, how and where they are run."""

    case: str
    kinds: tuple[LoadedBinary, ...]
    order: Annotated[tuple[int, ...], Field(max_length=_MOST)]
    plan: RunPlan
    devices: tuple[str, ...]
    lab: Path
    expects: Expects | None = None
    model: dict[str, Path] = {}
    """What was compiled, by the names that its files have in a bundle."""

    @property
    def way(self) -> Way:
        return Way(self.order, self.plan.residency)

    def names(self, way: Way) -> list[str]:
        """What the contexts of a way are called, in its order."""
        return [self.kinds[one].name for one in way.order]

    def packed(self, way: Way, plan: RunPlan) -> tuple[Manifest, dict[str, Path]]:
        """The manifest of a way, and the files that it names."""
        files: dict[str, Path] = {}
        entries = {one: self._entry(one, f"context-{one}", files) for one in set(way.order)}
        plan = plan.model_copy(update={"residency": way.residency})
        return Manifest(pieces=tuple(entries[one] for one in way.order), plan=plan), files

    def _entry(self, number: int, name: str, files: dict[str, Path]) -> PieceEntry:
        kind = self.kinds[number]

        def tensors(what: str, given: Sequence[Path]) -> tuple[TensorEntry, ...]:
            named = {f"{name}.{what}-{at}.raw": path for at, path in enumerate(given)}
            files.update(named)
            sized = ((file, path.stat().st_size) for file, path in named.items())
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

    def bundle(self, path: Path, way: Way, ran: CaseRecord, expects: Expects) -> None:
        """Packs a way that ran and ended so. Raises ConfigError, InfraError."""
        manifest, files = self.packed(way, versions_of(self.plan, ran))
        packed = manifest.model_copy(update={"expects": expects, "model": entries_of(self.model)})
        graphs, inputs = dict[str, LoadedGraph](), dict[str, list[str]]()
        for number in dict.fromkeys(way.order):
            kind, name = self.kinds[number], f"context-{number}"
            inputs[f"{name}.bin"] = [f"{name}.input-{at}.raw" for at in range(len(kind.read))]
            files |= dict(zip(inputs[f"{name}.bin"], kind.read, strict=True))
            if kind.graph is not None:
                graphs[f"{name}.bin"] = kind.graph
        write_case(path, packed, ran, files | self.model, graphs, inputs)


class Minimizing(BaseModel, extra="forbid", frozen=True):
    """What is to be made smaller, and how long."""

    subject: Subject
    repeat: Annotated[int, Field(ge=1, le=1000)] | None = None
    max_runs: Annotated[int, Field(ge=1)] = 200
    run_timeout_s: Annotated[int, Field(ge=1)] = 1800
    pytest_arguments: tuple[str, ...] = ()


def subject_of(
    case: str,
    lab_file: Path,
    lab: Lab,
    catalog: Catalog,
    given: Given,
) -> Subject:
    """The case of that name. Raises ConfigError for one that cannot be taken apart."""
    base, parameters = split_node_id(case)
    file, _, test = base.partition("::")
    if test != QNN.test:
        why = f"{test or case[:200]!r} is no test of contexts in a file"
        why = _OTHER_ENGINE if test in TESTS else why
        raise ConfigError(why, field="CASE", choices=[_TAKEN])
    root = where_pytest_starts(case, "CASE")
    where = where_to_run(lab, case, (), None)
    artefact = open_artefact(root / file)
    sources = contexts_of(artefact, cache_root(), given)
    files = [one for one in sources if isinstance(one, ContextFile)]
    if len(files) < len(sources):
        soc = lab.select(where.devices)[0].soc
        named = where.named or {}
        compiler = named.get("compiler") or named.get("qnn")
        if soc is None or soc not in SOCS or compiler is None:
            problem = f"is compiled here: by which QNN, for which SoC? {soc} by {compiler}"
            raise ConfigError(problem, file=file, field="CASE", choices=[_TAKEN])
        files = _compiled(sources, compiler, SOCS[soc].htp_arch, catalog)
    usual = sources.plan.residency if sources.plan is not None else "resident"
    residency, number = named_way(parameters or "") or (usual, len(files))
    if number > _MOST:
        raise ConfigError(f"has {number} contexts; {_MOST} are the most", field="CASE")
    model = model_files(artefact.path, given) if artefact.kind == "onnx" else {}
    model = {name: path for name, path in model.items() if name.startswith("model/")}
    kinds, numbers = _kinds(artefact, files, catalog)
    plan = RunPlan(
        residency=residency,
        tolerance=files[0].tolerance,
        graph=files[0].graph,
        qnn=where.named["qnn"] if where.named else None,
        backend=where.backend,
        target=where.target,
        max_error=sources.closeness.max_error,
        min_cosine=sources.closeness.min_cosine,
        min_sqnr=sources.closeness.min_sqnr,
    )
    return Subject(
        case=case,
        kinds=kinds,
        order=tuple(numbers[at % len(numbers)] for at in range(number)),
        plan=plan,
        devices=where.devices,
        lab=lab_file.absolute(),
        model=model,
    )


def _compiled(
    sources: SourceList, compiler: str, htp_arch: int | None, catalog: Catalog
) -> list[ContextFile]:
    """What a compiler makes of models, with their inputs. Raises CompileError where it does not.

    Where limits are asked of outputs, these are told against the reference, which is expected then.
    """
    root, limited = cache_root(), bool(sources.closeness)
    made = Contexts(root, catalog, ProbeBuilder(root / "probe")).of(sources, compiler, htp_arch)
    return [
        ContextFile(
            one.path,
            inputs=list(one.inputs),
            expected=list(one.expected or (one.reference if limited else ())) or None,
            tolerance=one.tolerance if one.expected else ANY_DISTANCE if limited else 0.0,
            name=str(source),
        )
        for source, one in required(made).items()
    ]


def _kinds(
    artefact: Artefact, files: Sequence[ContextFile], catalog: Catalog
) -> tuple[tuple[LoadedBinary, ...], list[int]]:
    """The different ones among these contexts, and which each of them is."""
    root = cache_root()
    read = ContextFiles(root, catalog, ProbeBuilder(root / "probe")).contexts(files)
    name = artefact.path.name
    pieces = [piece for piece in artefact.pieces if piece.kind != "empty"]
    places = [(one.facts.get("artefact", name), one.origin) for one in pieces]
    kinds: dict[tuple[Any, ...], LoadedBinary] = {}
    numbers = []
    for file, place in zip(files, places or [(name, "")], strict=True):
        context = read[file]
        if isinstance(context, ConfigError):
            raise context
        if context.others and (context.expected or not context.generated_inputs):
            problem = "has several graphs, each with files of its own: name the one to execute"
            raise ConfigError(problem, file=artefact.path, field="--graph")
        kind = _kind(context, *place)
        known = (kind.sha256, kind.inputs, kind.expected)
        kinds.setdefault(known, kind)
        numbers.append(list(kinds).index(known))
    return tuple(kinds.values()), numbers


def _kind(context: Context, artefact: str, origin: str) -> LoadedBinary:
    return LoadedBinary(
        name=str(context.source),
        path=context.path.absolute(),
        size=context.size,
        sha256=context.sha256,
        artefact=artefact,
        origin=origin,
        # made up anew from the names of tensors, whoever runs them
        inputs=() if context.generated_inputs else context.inputs,
        made_up=context.inputs if context.generated_inputs else (),
        expected=context.expected,
        graph=_graph(context),
    )


def _graph(context: Context) -> LoadedGraph | None:
    """Return the graph that is executed; None if something of its tensors is not known."""
    graphs = entries(context.metadata, "graphs")
    told = graphs[context.graph]
    try:
        inputs, outputs = (
            tuple(
                NamedTensor(name=one.name, data_type=one.data_type, shape=one.shape or ())
                for one in tensors_of(told, kind, context.path)
            )
            for kind in _ENDS
        )
    except ConfigError:
        return None
    if not all(_PLAIN.fullmatch(one.data_type) for one in (*inputs, *outputs)):
        return None
    return LoadedGraph(
        name=str(told.get("name")), at=context.graph, of=len(graphs), inputs=inputs, outputs=outputs
    )


def record_in_run(case: str, run: Path | None, reports: Path) -> CaseRecord:
    """What the journal of a run says of a case.

    Without a `run` named it is the latest of the last 100 runs of the reports that has the case,
    with a verdict if one has that. Raises ConfigError if none has it.
    """
    base, parameters = split_node_id(case)

    def called_so(records: Iterable[CaseRecord]) -> list[CaseRecord]:
        return [
            one
            for one in records
            if one.case == case or (parameters is None and split_node_id(one.case)[0] == base)
        ]

    runs = [run] if run is not None else run_folders(reports)[: -_MOST_RUNS - 1 : -1]
    found, others = list[CaseRecord](), dict[str, None]()
    for folder in runs:
        try:
            records = RunFolder.open(folder).contents().cases
        except HarnessError:
            if run is not None:
                raise
            continue  # one of another version, or damaged: others have the case, or none
        here = called_so(records)
        found = found or here
        others |= dict.fromkeys(one.case for one in records if is_of_a_file(one.case))
        if any(expected_of(one) is not None for one in here):
            found = here
            break
    if len(found) == 1:
        return found[0]
    lacks = "has no case" if run is not None else "no run has"
    problem = "several cases are called so" if found else f"{lacks} {case}"
    of_its_file = [one for one in others if split_node_id(one)[0] == base]
    choices = [one.case for one in found] or of_its_file or [*others] or [_TAKEN]
    where = run or (folder if found else reports)
    raise ConfigError(problem, file=where, field="CASE", choices=choices)


def expected_of(record: CaseRecord) -> Expects | None:
    """How a case ended, if that was a verdict about the target."""
    if record.outcome not in _ENDINGS or record.cause not in (None, "target"):
        return None
    signature = record.error.signature if record.error is not None else None
    return Expects.model_validate({"outcome": record.outcome, "signature": signature})


def versions_of(plan: RunPlan, record: CaseRecord) -> RunPlan:
    """A plan with the versions that a run had."""
    runtime, device = record.runtime, record.device
    told = {
        "qnn": runtime and runtime.qnn,
        "build_id": runtime and runtime.build_id,
        "soc": device and device.soc,
        "target": device and device.target,
    }
    return plan.model_copy(update={key: value for key, value in told.items() if value})


def engine_of(case: str) -> Engine:
    """Return what runs a case of a file. Raises ConfigError for a case of no file."""
    test = split_node_id(case)[0].partition("::")[2]
    for engine in ENGINES.values():
        if engine.test == test:
            return engine
    problem = f"{test or case[:200]!r} is no test of a file"
    raise ConfigError(problem, field="CASE", choices=[_TAKEN])


def pack_model(path: Path, case: str, given: Given, ran: CaseRecord, expects: Expects) -> RunPlan:
    """Pack the model of a case as it is, for another engine, or because no context came of it.

    Raises ConfigError for a file that is gone, InfraError.
    """
    base, parameters = split_node_id(case)
    file = base.partition("::")[0]
    model, engine = (where_pytest_starts(case, "CASE") / file).absolute(), engine_of(case)
    graph = given.graph
    if graph is None and engine == EXECUTORCH:
        named = (one for one in methods_to_run(model) if (parameters or "").endswith(f"-{one}"))
        graph = next(named, None)
    plan = RunPlan(
        tolerance=given.tolerance,
        graph=graph,
        fallback=given.fallback,
        backend=ran.placement.backend if ran.placement is not None else None,
        max_error=given.closeness.max_error,
        min_cosine=given.closeness.min_cosine,
        min_sqnr=given.closeness.min_sqnr,
    )
    files = model_files(model, given)
    plan = versions_of(plan, ran).model_copy(update={"engine": engine.name})
    manifest = Manifest(pieces=(), model=entries_of(files), plan=plan, expects=expects)
    runner = None
    if engine == EXECUTORCH:
        program = open_program(model, graph or methods_to_run(model)[0])
        folder = own_folder(given.inputs, model.name)
        # nothing is made of a type without a name
        raw = program.given("inputs", folder, make=program.inputs is not None)
        runner = RunnerInputs(program.number, tuple(f"input-{at}.raw" for at in range(len(raw))))
        files |= dict(zip(runner.files, raw, strict=True))
    write_case(path, manifest, ran, files, {}, {}, runner)
    return plan
