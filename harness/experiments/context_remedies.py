"""Remedies for contexts that do not all fit: other ways to load them, and what each of them gives.

Each is tried in a process of its own, and its outputs are compared with those of the contexts when
they are loaded one after the other. First come the remedies, then plans and measurements, then what
is made of them, which is pure.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from types import MappingProxyType
from typing import Any, Final, NoReturn, cast

from harness.bench.bench import Bench, refused_compile
from harness.bench.case_session import TargetFailure
from harness.core.context_options import OptionValue
from harness.core.engine import CASE_TIMEOUT_S
from harness.core.errors import ConfigError
from harness.core.files import scratch_folder
from harness.diagnosis.error_record import ErrorRecord
from harness.diagnosis.verdict import Verdict
from harness.experiments.latency import memory_samples
from harness.experiments.spill_fill_sharing import spill_fill_bytes
from harness.models.builtin_models import Model
from harness.models.compiler import CompileError
from harness.models.context_cache import prefix_of
from harness.models.context_metadata import entries, memory_bytes, needs
from harness.models.contexts import Source
from harness.models.session_plan import DeployedContext, Residency, Schedule, schedule
from harness.probe.ort_plan import io_bind, io_release, io_run, memory_sample
from harness.probe.plan import DEFAULT_WINDOW, Plan, Settings, Step
from harness.probe.transcript import StepResult, Transcript
from harness.results.probe_figures import loaded_contexts
from harness.results.record import held, whole_numbers

MIB: Final = 1 << 20
_PDS: Final = 4
"""The protection domains that a process opens at most."""
_EMULATED_S: Final = 4.0
"""Time of a context on an emulated DSP."""
_AGAIN: Final = 8
"""The number of contexts that execute a second time, for the steady latency."""
_QUIET: Final = Settings(memory="off")


@dataclass(frozen=True)
class Remedy:
    """One way to load contexts, so that more of them fit or that they load sooner.

    `costs` and `forbids` are texts for the user. `qnn`, `ort` and `executorch` are the lines to
    write for each of them, "" if there are none; tried values replace the braces (`lines`).
    `since` is the oldest QNN that was seen to know it. `options` are context options by name, those
    that depend on the contexts without a value.
    """

    name: str
    title: str
    costs: str
    forbids: str
    qnn: str
    ort: str
    executorch: str
    since: str
    options: Mapping[str, OptionValue | None]
    residency: Residency

    def lines(self, options: Mapping[str, object]) -> dict[str, str]:
        """Return what to write with QNN, ORT and ExecuTorch for the options that were tried."""
        lines = {"qnn": self.qnn, "ort": self.ort, "executorch": self.executorch}
        return {name: line.format_map(options) for name, line in lines.items() if line}


def _table() -> Mapping[str, Remedy]:
    text = files("harness.experiments").joinpath("context-remedies.tsv").read_text("utf-8")
    remedies = {}
    for line in text.splitlines()[1:]:
        name, title, costs, forbids, qnn, ort, executorch, since, options, residency = line.split(
            "\t"
        )
        pairs = (option.partition("=") for option in options.split())
        values = {key: int(value) if value == "1" else value or None for key, _, value in pairs}
        lines = qnn, ort, executorch, since
        remedies[name] = Remedy(
            name, title, costs, forbids, *lines, values, cast("Residency", residency)
        )
    return MappingProxyType(remedies)


REMEDIES: Final = _table()
"""All remedies by name, `sequential` first: the others' outputs are compared with its."""


def try_remedy(
    bench: Bench,
    name: str,
    contexts: Source | Sequence[Source],
    number: int | None = None,
    *,
    window: int = DEFAULT_WINDOW,
    most_executed: int | None = None,
) -> None:
    """Load `number` contexts, taken in turn, by a remedy, execute them, and record the figures.

    Without a number each is loaded once. With `most_executed` only so many execute, the first and
    the last among them. The record's measurements get `remedy`, also if it fails: `remedy` (its
    name), `options` (those tried), `contexts` and `chosen` (how many were to load, and to execute),
    `loaded`, `executed`, `outputs_equal` (to those of the contexts one after the other), `load_us`
    (all loads together), `first_us` and `steady_us` (medians), `memory_bytes` (what the library
    shares with the DSP, or else what the processes grew by). None: not measured.

    Raises TargetFailure if it is not supported (`unsupported`), if a context does not load or
    execute, or if outputs differ. Raises ConfigError for an unknown remedy.
    """
    if name not in REMEDIES:
        raise ConfigError(f"unknown remedy {name[:80]!r}", field="remedy", choices=REMEDIES)
    remedy = REMEDIES[name]
    facts: dict[str, object] = {"remedy": name, "options": {}}
    bench.measure(remedy=facts | remedy_figures([], {}, 1))
    sources: list[Any] = list(contexts) if isinstance(contexts, Sequence) else [contexts]
    if name == "reused-io-limit":  # otherwise the library allocates memory for I/O when it loads
        models = (source for source in sources if isinstance(source, Model))
        prepared = {model: replace(model, prepare="memhandle") for model in models}
        sources = [prepared.get(source, source) for source in sources]
    deployed = [_uncompared(context) for context in bench.contexts(*sources)]
    if name == "spill-fill":
        deployed.sort(key=lambda context: -spill_fill_bytes(context.context.metadata))
    number = len(deployed) if number is None else number
    options = tried_options(remedy, [context.context.metadata for context in deployed], number)
    timeout_s = CASE_TIMEOUT_S
    if bench.device.simulated_dsp is not None:
        timeout_s += _EMULATED_S * number
    binaries = deployed
    if name == "weight-sharing":
        binaries, number = _in_pairs(bench, deployed), math.ceil(number / 2)
    processes: list[tuple[int, Transcript]] = []
    most = min(number, most_executed or number)
    executed = {place * (number - 1) // max(1, most - 1) for place in range(most)}
    facts |= {"contexts": number, "chosen": len(executed)}
    facts["options"] = words = {**options, "window": window}
    share = number
    if name == "spread-over-pds":
        share = _part_of(bench, deployed, number)
        words["processes"] = math.ceil(number / share)
    for start in range(0, number, share):
        turned = [*binaries[start % len(binaries) :], *binaries[: start % len(binaries)]]
        moves = schedule(min(share, number - start), remedy.residency, window)
        session = bench.context_plan(turned, moves, _QUIET, options=options)
        chosen = {context - start for context in executed}
        plan = remedy_plan(session, chosen, share=name == "reused-io-limit")
        result = bench.run(plan, timeout_s=timeout_s)
        processes.append((start, result.run.transcript))
        bench.measure(remedy=facts | remedy_figures(processes, {}, len(binaries)))
        result.check()
    in_turn = bench.context_plan(deployed, schedule(len(deployed), "sequential"), _QUIET)
    baseline = bench.attempt(in_turn, timeout_s=timeout_s)
    digests = output_digests([(0, baseline.run.transcript)], len(deployed))
    if name == "weight-sharing":
        digests = {
            source // 2: digests.get(source, set()) | digests.get(source + 1, set())
            for source in range(0, len(deployed), 2)
        }
    figures = remedy_figures(processes, digests, len(binaries))
    bench.measure(remedy=facts | figures)
    baseline.check()
    bench.outputs_compared()
    if len(executed) < number:
        bench.conclude(f"only {len(executed)} of {number} contexts executed, to save time here")
    reason = "outputs equal those of the contexts loaded one after the other"
    bench.expect(held("outputs_equal", figures["outputs_equal"] is True, reason))


def _uncompared(deployed: DeployedContext) -> DeployedContext:
    """Return a context whose outputs are reported as digests."""
    others = tuple(replace(other, expected=()) for other in deployed.others)
    return replace(deployed, expected=(), others=others)


def _in_pairs(bench: Bench, deployed: Sequence[DeployedContext]) -> list[DeployedContext]:
    """Compile two models each into one context, and deploy it; the last may be left alone."""
    combined: list[DeployedContext] = []
    with scratch_folder() as work:
        for pair in zip(deployed[::2], deployed[1::2], strict=False):
            models = [
                each.context.source for each in pair if isinstance(each.context.source, Model)
            ]
            if len(models) < 2:
                _refuse("the models of these contexts are not known, so they cannot be compiled")
            folder = work / str(len(combined))
            folder.mkdir()
            try:
                binary, metadata = bench.case.prepared.compile_together(models, folder)
            except CompileError as error:
                raise refused_compile(bench.case, error, models) from error
            remote = f"{bench.deploy({binary.name: binary})}/{binary.name}"
            first, second = (
                _with_graph(each, remote, entries(metadata, "graphs"), prefix_of(number))
                for number, each in enumerate(pair)
            )
            combined.append(replace(first, others=(second,)))
    if not combined:
        _refuse("there is only one context; sharing needs two models with the same weights")
    return [*combined, *deployed[2 * len(combined) :]]


def _with_graph(
    deployed: DeployedContext, remote: str, graphs: Sequence[Mapping[str, Any]], prefix: str
) -> DeployedContext:
    """Return a context as its graph of another binary, where its tensors may have a prefix."""
    own = deployed.context.metadata["graphs"][0]
    inputs = [[tensor["name"] for tensor in entries(graph, "inputs")] for graph in graphs]
    numbers = [number for number, names in enumerate(inputs) if names[0].startswith(prefix)]
    numbers += [number for number, graph in enumerate(graphs) if graph["name"] == own["name"]]
    number = numbers[0]
    names = [tensor["name"] for tensor in entries(own, "inputs")]
    files = dict(zip(names, deployed.inputs, strict=True))
    ordered = tuple(files[name.removeprefix(prefix)] for name in inputs[number])
    context = replace(deployed.context, graph=number)
    return replace(deployed, binary=remote, inputs=ordered, context=context)


def _part_of(bench: Bench, deployed: Sequence[DeployedContext], number: int) -> int:
    """Return the number of contexts of each process: equal parts, of which each fits."""
    moves = schedule(number, "resident")
    loads = Schedule(moves.moves[:number], moves.frees)
    fits = bench.attempt(bench.context_plan(deployed, loads, _QUIET)).loaded
    return math.ceil(number / max(2, math.ceil(number / max(1, fits))))


def tried_options(
    remedy: Remedy, metadata: Sequence[Mapping[str, Any]], number: int
) -> dict[str, OptionValue]:
    """Return the options of a remedy for contexts with these metadata, `number` of them.

    The limit of reused I/O is a part of the buffers, so that the estimates of all contexts in a
    protection domain together count them once. Raises TargetFailure (`unsupported`) if the remedy
    does nothing for these contexts.
    """
    graphs = [graph for context in metadata for graph in entries(context, "graphs")]
    io_bytes = max((needs({"graphs": [graph]})["io_bytes"] or 0 for graph in graphs), default=0)
    largest = max((memory_bytes({"graphs": [graph]}) for graph in graphs), default=0)
    values = {
        "spill_fill_group": max(map(spill_fill_bytes, metadata), default=0),
        "reused_io_limit_mb": math.ceil(min(1, _PDS / number) * io_bytes / MIB),
        "memory_limit_hint_mb": math.ceil(largest / MIB),
    }
    options = {
        name: values[name] if value is None else value for name, value in remedy.options.items()
    }
    if options.get("spill_fill_group") == 0:
        _refuse("no context has a spill-fill buffer that others could use")
    return options


def _refuse(reason: str) -> NoReturn:
    raise TargetFailure(Verdict("unsupported", None, ErrorRecord.of(message=reason)))


def remedy_plan(plan: Plan, executed: Collection[int], *, share: bool = False) -> Plan:
    """Return the plan of a session as a remedy's process runs it.

    Memory is sampled before the first load and after the last execution. The contexts in `executed`
    execute, some of them a second time. With `share` all have one set of buffers, which is
    registered with each of them.
    """
    steps: list[Step] = []
    bound: dict[int, str] = {}
    runs = Counter[tuple[int, str]]()
    begun = False
    for step in plan.steps:
        if step.verb != "execute":
            if step.verb.startswith("context-load") and not begun:
                steps.append(memory_sample("before"))
                begun = True
            steps += [memory_sample("executed")] if step.verb == "cleanup" else []
            steps.append(step)
            continue
        context, graph = int(step.fields["context"]), step.fields["graph"]
        runs[context, graph] += 1
        if share and bound.get(context) != graph:
            inputs = [path for key, path in step.fields.items() if key.startswith("input.")]
            steps += [io_release(context)] if context in bound else []
            steps.append(io_bind(context, "memhandle", inputs=inputs, graph=int(graph), share=True))
            bound[context] = graph
        if context in executed and (runs[context, graph] == 1 or context < _AGAIN):
            steps.append(io_run(context) if share else step)
    return replace(plan, steps=tuple(steps))


Digests = Mapping[int, set[tuple[int, ...]]]
"""The outputs of the graphs of each source."""


def _runs(transcript: Transcript) -> list[StepResult]:
    return [step for step in transcript.steps if step.verb in ("execute", "io-run") and step.ok]


def output_digests(processes: Iterable[tuple[int, Transcript]], sources: int) -> Digests:
    """Return the outputs of processes; each begins with the source of that number."""
    digests: dict[int, set[tuple[int, ...]]] = {}
    for start, transcript in processes:
        for step in _runs(transcript):
            source = (start + (step.context or 0)) % sources
            digests.setdefault(source, set()).add(tuple(whole_numbers(step.data.get("digests"))))
    return digests


def remedy_figures(
    processes: Sequence[tuple[int, Transcript]], baseline: Digests, sources: int
) -> dict[str, Any]:
    """Return the figures of a remedy's processes, whose outputs should be those of the baseline."""
    first: list[int] = []
    steady: list[int] = []
    executed, load_us, memory = 0, 0, list[int]()
    for _, transcript in processes:
        times: dict[tuple[object, object], list[int]] = {}
        for step in _runs(transcript):
            key = step.context, step.data.get("graph")
            times.setdefault(key, []).append(step.duration_us or 0)
        executed += len({context for context, _ in times})
        first += [each[0] for each in times.values()]
        steady += [time for each in times.values() for time in each[1:]]
        loads = [step for step in transcript.steps if step.verb.startswith("context-load")]
        load_us += sum(step.duration_us or 0 for step in loads if step.ok)
        samples = memory_samples(transcript)
        by_label = samples.shared_bytes if samples.visible else samples.rss_bytes
        memory += [by_label["executed"] - by_label["before"]] if "executed" in by_label else []
    outputs = output_digests(processes, sources)
    equal = [made == baseline[source] for source, made in outputs.items() if source in baseline]
    return {
        "loaded": sum(loaded_contexts(transcript.steps) for _, transcript in processes),
        "executed": executed,
        "outputs_equal": all(equal) if equal else None,
        "load_us": load_us or None,
        "first_us": round(statistics.median(first)) if first else None,
        "steady_us": round(statistics.median(steady)) if steady else None,
        "memory_bytes": sum(memory) if memory else None,
    }
