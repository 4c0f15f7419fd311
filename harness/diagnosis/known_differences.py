"""Known failures that differences of two model files explain, by preflight and the rules (pure)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from harness.core.socs import SOCS
from harness.diagnosis.rule import Rule, Symptoms, findings
from harness.models.inspection_report import ContextReport, Inspection
from harness.runtimes.preflight import ContextFacts, PreflightInput, TargetFacts, preflight
from harness.runtimes.preflight_findings import Finding


def known_failures(a: Inspection, b: Inspection, rules: Sequence[Rule]) -> list[Finding]:
    """Return the failures of B on the device and with the runtime that A was made for, and of A.

    What fails with the other one, too, is left out.
    """
    first, second = (
        [replace(context, file=name) for context in side.contexts if context.graphs]
        for name, side in (("A", a), ("B", b))
    )
    if not first or not second:
        return []
    return [*_failures(second, first, rules), *_failures(first, second, rules)]


def _failures(
    contexts: Sequence[ContextReport], others: Sequence[ContextReport], rules: Sequence[Rule]
) -> Iterator[Finding]:
    target, works = _facts(others[0]), f"where {others[0].file} works"
    known = [soc.name for soc in SOCS.values() if soc.soc_model == target.soc_model][:1]
    same_htp = [soc.name for soc in SOCS.values() if soc.htp_arch == target.htp_arch]
    found: dict[str, Finding] = {}
    for soc in known or (None, *same_htp):
        device = TargetFacts("android-arm64", soc, target.htp_arch)
        usual, new = (
            preflight(PreflightInput((), device, "htp", [*map(_facts, side)], target.compiler))
            for side in (others, contexts)
        )
        codes = {finding.code for finding in usual}
        for finding in new:
            # of a SoC that is not known only the VTCM matters
            if finding.code not in codes and (known or not soc or finding.code == "context-vtcm"):
                found.setdefault(finding.code, finding)
    for finding in found.values():
        yield finding.model_copy(update={"explanation": f"{works}, {finding.explanation}"})
    limit, more = (
        min(_number(context, "memory_alloc_limit") or 0 for context in side)
        for side in (contexts, others)
    )
    if 0 < limit < more:
        file, needs = contexts[0].file, max(context.memory_bytes or 0 for context in contexts)
        refusal = f"requires estimated allocation of {more << 10} KB, limit is {limit << 10} KB"
        for fitting in findings(Symptoms("failed", messages=(refusal,)), rules)[:1]:
            yield Finding(
                code=fitting.rule.id,
                severity="warning" if needs > limit << 20 else "info",
                files=(file,),
                explanation=f"{works}, graphs of {file} that need more than {limit:,} MiB are "
                f"rejected (memory_alloc_limit; {more:,} MiB in {others[0].file}); its largest "
                f"context needs {needs:,} bytes",
                fix=fitting.rule.fix,
                thread=next(iter(fitting.rule.urls), None),
            )


def _facts(context: ContextReport) -> ContextFacts:
    """Return the facts for preflight; old binaries name HTP and VTCM among the options only."""
    tensors = (each for graph in context.graphs for each in (*graph.inputs, *graph.outputs))
    return ContextFacts(
        context.file,
        ".".join((context.build_id or "").removeprefix("v").split(".")[:3]),
        context.htp_arch or _number(context, "min_arch"),
        context.vtcm_bytes or (_number(context, "vtcm_mb") or 0) << 20,
        context.memory_bytes,
        context.soc_model,
        any(tensor.data_type.startswith("float") for tensor in tensors),
    )


def _number(context: ContextReport, option: str) -> int | None:
    match = re.match(r"\d{1,6}\b", context.compiler_options.get(option, ""), re.ASCII)
    return int(match[0]) if match else None
