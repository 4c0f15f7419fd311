"""Where the nodes of a case's model ran, for its record, and what is said of refused ones."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from harness.contexts.compiler.compile_jobs import compile_options
from harness.contexts.compiler.compiler import CompileError, CompileJob, run_jobs
from harness.contexts.sources.contexts import Source
from harness.contexts.sources.onnx_model import OnnxModel
from harness.contexts.sources.onnx_nodes import OnnxNodes
from harness.ground.errors import HarnessError
from harness.ground.files.scratch import scratch_folder
from harness.libraries.containers.graph_nodes import (
    CPU,
    NPU,
    Assigned,
    Placed,
    figures_of,
    is_as_in_file,
    place_row,
    placed_as,
    transfers_in,
)
from harness.probe.ort_plan import CPU_EP
from harness.run.bench.case_session import CaseSession, Observation, TargetFailure
from harness.run.bench.session import SessionModel
from harness.verdict.failure.diagnosis import diagnosed
from harness.verdict.failure.error import ErrorRecord, signature
from harness.verdict.failure.refused_nodes import (
    RefusedNode,
    messages_of,
    refusal_text,
    refused_nodes,
)
from harness.verdict.failure.verdict import Verdict

ON: Final[Mapping[str, str]] = {"htp": NPU, "gpu": "GPU", "cpu": CPU}
"""What a node runs on that QNN's provider took, by backend."""

_WHAT_HELPS: Final = (
    "`--fallback allow` lets such nodes run on the CPU, and the record tells which; without it "
    "none may"
)
_BLAMES: Final = re.compile(r"This session contains graph nodes that are assigned to the default")


def session_figures(
    model: OnnxNodes, assigned: Assigned, refused: list[RefusedNode], on: str
) -> dict[str, object]:
    """The nodes of a session of ORT as figures of a record.

    `transfers` are null where ORT changed nodes, so that the file does not tell them. There are no
    figures where no session was made and no node is known to be refused.
    """
    if not assigned:
        return refusals(model, refused, on)
    reasons = {(one.name, one.op_type): one.reason for one in refused if one.reason is not None}
    placed = placed_as(model.nodes, assigned, reasons)
    figures = figures_of(placed, model.sizes)
    if not is_as_in_file(model.nodes, placed) and len({part for part, _, _ in assigned}) > 1:
        figures["transfers"] = None
    return figures


def refusals(model: OnnxNodes, refused: list[RefusedNode], on: str) -> dict[str, object]:
    """The nodes of a model of which some were refused, and nothing else is known, as figures."""
    no = "the provider names no reason"
    why = {(one.name, one.op_type): one.reason or no for one in refused}
    reasons = [
        (one, f"it lies within {one.within}" if one.within else why.get(one.key))
        for one in model.nodes
    ]
    # how the provider would have cut it is not known
    rows = [
        place_row(Placed(node, CPU if reason else on, None, reason)) for node, reason in reasons
    ]
    return {"nodes": rows} if refused else {}


def _named(refused: Iterable[RefusedNode], model: OnnxNodes) -> Iterator[RefusedNode]:
    """Refused nodes by the names that people see, where it is known which an unnamed one is."""
    for one in refused:
        same = [node.name for node in model.nodes if node.key == (one.name, one.op_type)]
        yield replace(one, name=same[0]) if len(same) == 1 else one


def _carried(
    case: CaseSession, made: SessionModel, assigned: Assigned, sizes: Mapping[str, int]
) -> object:
    """What is carried over in the graph as this computer's ORT cuts it; None if that is another.

    It is the same compiler for the same HTP, and ORT writes the graph with its partitions.
    """
    target = case.target
    if case.placement.backend != "htp" or not made.models:
        return None
    model = target.provisioner.onnx.path(made.models[0])
    host, options = target.provisioner.catalog.compiler_host(target.compiler), target.htp_arch
    with scratch_folder() as folder:
        job = CompileJob(
            "cut", "it is not cut", model, folder, compile_options(options), fallback=True
        )
        if run_jobs(host, [job])[job.job] is not None:
            return None
        cut = OnnxNodes.of(folder / "context.onnx")
    return transfers_in(cut.nodes, {**sizes, **cut.sizes}, assigned)


def _assigned(told: object, on: str) -> Iterator[tuple[str | None, str, list[tuple[str, str]]]]:
    for at, one in enumerate(told if isinstance(told, list) else []):
        match one:
            case {"ep": str(ep), "nodes": list(nodes)}:
                named = [(n[0], n[1]) for n in nodes if _is_named(n)]
                own = ep != CPU_EP
                yield (str(at), on, named) if own else (None, CPU, named)


def _is_named(node: Any) -> bool:
    return isinstance(node, list) and len(node) == 2 and all(isinstance(n, str) for n in node)


def placed_session(case: CaseSession, made: SessionModel, seen: Observation) -> Observation:
    """Notes where the nodes of a session ran; where it was not made, says which were refused.

    ORT's own words blame whoever asked for no fallback.
    """
    model, steps = OnnxNodes.of(made.path), seen.run.transcript.steps
    on = ON[case.placement.backend]
    refused = refused_nodes(line.text for step in steps for line in step.logs)
    told = [step.data.get("assigned") for step in steps if step.verb == "ort-placement"]
    assigned = [*_assigned(told[-1], on)] if told else []
    figures = session_figures(model, assigned, refused, on)
    if assigned and figures["transfers"] is None:
        with contextlib.suppress(HarnessError):
            figures["transfers"] = _carried(case, made, assigned, model.sizes)
    case.notes.measurements.update(figures)
    error = seen.verdict.error
    if error is None or not refused or not _BLAMES.search(error.message):
        return seen
    words = refusal_text(_named(refused, model), model.shapes(), _WHAT_HELPS)
    plain = error.model_copy(
        update={
            "message": words,
            "signature": signature(error.api, error.code, words),
            "chain": tuple(link for link in error.chain if not _BLAMES.search(link.message)),
            "first_cause": None,
            "diagnosis": None,
        }
    )
    verdict = replace(seen.verdict, error=diagnosed("failed", plain, foreseen=case.foreseen))
    case.notes.came_to(verdict)
    return replace(seen, verdict=verdict)


def refused_compile(
    case: CaseSession, error: CompileError, sources: Iterable[Source]
) -> TargetFailure:
    """The failure of a model that a compiler refused; notes its nodes where some are the cause."""
    case.notes.makers += filter(None, [case.placement.compiler])
    refused = refused_nodes(messages_of(error.output))
    models = [*{one.path for one in sources if isinstance(one, OnnxModel)}]
    if not refused or not any(_BLAMES.search(one) for one in error.chain):
        return TargetFailure(Verdict("failed", "target", ErrorRecord.of(message=str(error))))
    model = OnnxNodes.of(models[0]) if len(models) == 1 else OnnxNodes(())
    words = refusal_text(_named(refused, model), model.shapes(), _WHAT_HELPS)
    what = str(error).partition(": ")[0]
    case.notes.measurements.update(refusals(model, refused, NPU))
    plain = ErrorRecord.of(message=f"{words}\n{what}")
    return TargetFailure(Verdict("failed", "target", plain))
