"""Where the nodes of a case's model ran, for its record, and what is said of refused ones."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from harness.contexts.compiler.compiler import CompileError
from harness.contexts.sources.contexts import Source
from harness.contexts.sources.onnx_model import OnnxModel
from harness.contexts.sources.onnx_nodes import OnnxNodes
from harness.libraries.containers.graph_nodes import (
    CPU,
    NPU,
    figures_of,
    place_row,
    placed_as,
)
from harness.probe.ort_plan import CPU_EP
from harness.probe.transcript import Transcript
from harness.run.bench.case_bench import CaseBench, Observation, TargetFailure
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
    model: OnnxNodes, transcript: Transcript, backend: str
) -> tuple[dict[str, object], list[RefusedNode]]:
    """The nodes of a session of ORT as figures of a record, and those that QNN refused.

    Figures are empty where no session was made and no node is known to be refused.
    """
    lines = [line.text for step in transcript.steps for line in step.logs]
    refused = refused_nodes(lines)
    told = [step.data.get("assigned") for step in transcript.steps if step.verb == "ort-placement"]
    known = [*_assigned(told[-1], ON[backend])] if told else []
    if known:
        reasons = {one.name: one.reason for one in refused if one.reason is not None}
        return figures_of(placed_as(model.nodes, known, reasons), model.sizes), refused
    return refusals(model, refused, ON[backend]), refused


def refusals(model: OnnxNodes, refused: list[RefusedNode], on: str) -> dict[str, object]:
    """The nodes of a model of which some were refused, and nothing else is known, as figures."""
    no = "the provider names no reason"
    why = {(one.name, one.op_type): one.reason or no for one in refused}
    reasons = [(one, why.get((one.name, one.op_type))) for one in model.nodes]
    # how the provider would have cut it is not known
    rows = [place_row(node, CPU if reason else on, reason) for node, reason in reasons]
    return {"nodes": rows} if refused else {}


def _assigned(told: object, on: str) -> Iterator[tuple[str | None, str, list[tuple[str, str]]]]:
    for at, one in enumerate(told if isinstance(told, list) else []):
        match one:
            case {"ep": str(ep), "nodes": list(nodes)}:
                named = [(n[0], n[1]) for n in nodes if _is_named(n)]
                own = ep != CPU_EP
                yield (str(at), on, named) if own else (None, CPU, named)


def _is_named(node: Any) -> bool:
    return isinstance(node, list) and len(node) == 2 and all(isinstance(n, str) for n in node)


def placed_session(case: CaseBench, path: Path, seen: Observation) -> Observation:
    """Notes where the nodes of a session ran; where it was not made, says which were refused.

    ORT's own words blame whoever asked for no fallback.
    """
    model = OnnxNodes.of(path)
    figures, refused = session_figures(model, seen.run.transcript, case.placement.backend)
    case.notes.measurements.update(figures)
    error = seen.verdict.error
    if error is None or not refused or not _BLAMES.search(error.message):
        return seen
    words = refusal_text(refused, model.shapes(), _WHAT_HELPS)
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
    case: CaseBench, error: CompileError, sources: Iterable[Source]
) -> TargetFailure:
    """The failure of a model that a compiler refused; notes its nodes where some are the cause."""
    case.notes.makers += filter(None, [case.placement.compiler])
    refused = refused_nodes(messages_of(error.output))
    models = [*{one.path for one in sources if isinstance(one, OnnxModel)}]
    if not refused or not any(_BLAMES.search(one) for one in error.chain):
        return TargetFailure(Verdict("failed", "target", ErrorRecord.of(message=str(error))))
    model = OnnxNodes.of(models[0]) if len(models) == 1 else OnnxNodes(())
    words = refusal_text(refused, model.shapes(), _WHAT_HELPS)
    what = str(error).partition(": ")[0]
    case.notes.measurements.update(refusals(model, refused, NPU))
    plain = ErrorRecord.of(message=f"{words}\n{what}")
    return TargetFailure(Verdict("failed", "target", plain))
