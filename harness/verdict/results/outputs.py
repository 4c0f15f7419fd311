"""What outputs were compared with: a reference, each other, or nothing (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from harness.probe.plan import Plan, Step
from harness.probe.transcript import StepResult, Transcript
from harness.verdict.results.json_value import whole_numbers

Outputs = Literal["reference", "agreement", "unverified"]
"""What outputs were compared with: what was expected, those of the same inputs, or nothing."""

_LOADS: Final = ("context-load", "executorch-program")
_NO_OPTIONS: Final = ("context", "file")
_OWN_BUFFERS: Final = ("execute", "executorch-run", "ort-run")
_EXECUTES: Final = (*_OWN_BUFFERS, "io-run")


@dataclass(frozen=True)
class Execution:
    """One step that executed a graph.

    `compared`: with what was expected. `work` says of what binary, graph and inputs, so that equal
    ones have to give equal outputs; None where the plan does not tell. `digests` are hashes of the
    outputs, none if there are none.
    """

    verb: str
    work: tuple[str, ...] | None
    compared: bool
    digests: tuple[int, ...]


def executions(plan: Plan, transcript: Transcript) -> Iterator[Execution]:
    """The executions of one process whose outputs were seen, right or wrong."""
    binaries: dict[str, str] = {}
    bound: dict[str, Step] = {}
    done = {step.step: step for step in transcript.steps if step.ok or step.error == "mismatch"}
    for number, step in enumerate(plan.steps):
        context = step.fields.get("context", "0")
        if step.verb in _LOADS:
            binaries[context] = step.fields["file"]
        elif step.verb == "ort-session":  # options may change what the same model computes
            options = (one for key, one in step.fields.items() if key not in _NO_OPTIONS)
            binaries[context] = " ".join((*options, step.fields["file"]))
        elif step.verb == "io-bind":
            bound[context] = step
        elif step.verb in _EXECUTES and (result := done.get(number)) is not None:
            by = bound.get(context) if step.verb == "io-run" else step
            yield _execution(step.verb, _work(binaries.get(context), by), result)


def outputs_of(seen: Sequence[Execution]) -> Outputs | None:
    """What is known of the outputs of all these; None if nothing was executed."""
    if not seen:
        return None
    alone = [one for one in seen if not one.compared]
    if not alone:
        return "reference"
    groups = _by_work(alone)
    told = all(one.work is not None and one.digests for one in alone)
    agree = all(len(found) > 1 and len(set(found)) == 1 for found in groups.values())
    return "agreement" if told and agree else "unverified"


def disagreement(seen: Iterable[Execution]) -> str | None:
    """Which executions gave different outputs for the same inputs, in words; None if none did.

    Executions with kept buffers are left to who planned them: such buffers may hold anything.
    """
    for work, found in _by_work(one for one in seen if one.verb in _OWN_BUFFERS).items():
        outputs = [
            at for at, column in enumerate(zip(*found, strict=False)) if len(set(column)) > 1
        ]
        if outputs:
            name = work[0].rpartition("/")[2]
            return (
                f"the same inputs gave different outputs: {len(set(found))} different ones in "
                f"{len(found)} executions of {name}, graph {work[1]}, output {outputs[0]}"
            )
    return None


def _by_work(seen: Iterable[Execution]) -> Mapping[tuple[str, ...], list[tuple[int, ...]]]:
    groups: dict[tuple[str, ...], list[tuple[int, ...]]] = {}
    for one in seen:
        if one.work is not None and one.digests:
            groups.setdefault(one.work, []).append(one.digests)
    return groups


def _work(binary: str | None, step: Step | None) -> tuple[str, ...] | None:
    if binary is None or step is None:
        return None
    inputs = [text for key, text in step.fields.items() if key.startswith("input.")]
    return (binary, step.fields.get("graph", "0"), *inputs)


def _execution(verb: str, work: tuple[str, ...] | None, result: StepResult) -> Execution:
    outputs = result.data.get("outputs")
    told = outputs if isinstance(outputs, list) else []
    compared = bool(told) and all(isinstance(one, dict) and "max_abs" in one for one in told)
    # runs of a step that was wrong may differ from each other
    digests = whole_numbers(result.data.get("digests")) if result.ok else []
    return Execution(verb, work, compared, tuple(digests))
