"""Whether contexts that share a spill-fill buffer behaved: one check for each promise (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from harness.contexts.spill_fill import SharingPlan
from harness.probe.transcript import Transcript
from harness.results.checks import Check, held, unseen
from harness.results.memory_figures import MemorySamples, memory_samples
from harness.results.record import ErrorRecord
from harness.results.refusal import is_of_any_request

# A size is refused when the context is made, or when it is used for the first time.
_MAY_REFUSE: Final = ("context-load", "io-run")


@dataclass(frozen=True)
class SharingFigures:
    """What one process showed; `digests` are the outputs of every execution by context."""

    samples: MemorySamples
    digests: Mapping[int, frozenset[tuple[int, ...]]]
    failed_context: int | None
    failed_verb: str | None
    failed_code: int | None

    def record(self) -> dict[str, object]:
        """The figures as they stand in a record's measurements."""
        return self.samples.record()


def sharing_figures(transcript: Transcript) -> SharingFigures:
    """Takes the figures out of a process that ran `sharing_session`."""
    digests: dict[int, set[tuple[int, ...]]] = {}
    for step in transcript.steps:
        found = step.data.get("digests")
        if step.verb == "io-run" and step.ok and step.context is not None:
            numbers = tuple(one for one in found or () if type(one) is int)
            digests.setdefault(step.context, set()).add(numbers)
    failure = transcript.first_failure
    return SharingFigures(
        memory_samples(transcript),
        {context: frozenset(seen) for context, seen in digests.items()},
        failure.context if failure else None,
        failure.verb if failure else None,
        failure.code if failure else None,
    )


def judge_sharing(
    sharing: SharingPlan,
    figures: SharingFigures,
    reference: SharingFigures | None,
    *,
    memory_part: float,
) -> list[Check]:
    """The checks of a process that came to a good end.

    `reference` loaded the same contexts with buffers of their own; None for that strategy itself.
    `memory_part`: how much of the spill-fill of all contexts a figure may be off.
    """
    saved = [] if reference is None else [_saved(sharing, figures, reference, memory_part)]
    return [
        *saved,
        _given_back(sharing, figures, memory_part),
        _same_outputs(figures, reference),
    ]


def judge_undersized(
    sharing: SharingPlan, figures: SharingFigures, error: ErrorRecord | None
) -> Check:
    """Whether a buffer that is too small was refused where it is too small, and with a code.

    `error` is what the process failed with; one that would have met any context decides nothing.
    """
    name = "undersized_refused"
    context, code = figures.failed_context, figures.failed_code
    told = f"contexts {list(sharing.undersized)} need more than {sharing.group_bytes} bytes"
    if figures.failed_verb is None:
        return held(name, False, f"{told}, and nothing was refused")
    refused = context in sharing.undersized and code not in (None, 0)
    refused = refused and figures.failed_verb in _MAY_REFUSE
    if error is not None and error.diagnosis is not None and is_of_any_request(error):
        why = (
            f"{figures.failed_verb} of context {context} failed otherwise: {error.diagnosis.words}"
        )
        return unseen(name, why, context=context, code=code)
    how = f"{figures.failed_verb} of context {context} gave {code}"
    return held(name, refused, f"{told}; {how}", context=context, code=code)


def _saved(
    sharing: SharingPlan,
    figures: SharingFigures,
    reference: SharingFigures,
    memory_part: float,
) -> Check:
    name = "memory_saved"
    own = reference.samples.growth("before", "executed")
    shared = figures.samples.growth("before", "executed")
    if own is None or shared is None:
        return unseen(name, "there are no samples to compare")
    if not (reference.samples.visible or figures.samples.visible):
        return unseen(name, "the backend shares no buffers with a DSP here")
    slack = memory_part * sum(sharing.needs)
    if own + slack < sum(sharing.needs) or not sum(sharing.needs):
        why = f"without sharing {own} bytes were seen of the {sum(sharing.needs)} that they need"
        return unseen(name, why, seen_bytes=own)
    saved, expected = own - shared, sharing.expected_saving_bytes
    return held(
        name,
        abs(saved - expected) <= slack,
        f"expected to save {expected} bytes, saved {saved}: {own} without sharing, {shared} with",
        saved_bytes=saved,
        expected_bytes=expected,
        tolerance_bytes=round(slack),
    )


def _given_back(sharing: SharingPlan, figures: SharingFigures, memory_part: float) -> Check:
    name = "memory_given_back"
    left = figures.samples.growth("before", "freed")
    if left is None:
        return unseen(name, "there is no sample behind the last context")
    if not figures.samples.visible:
        return unseen(name, "the backend shares no buffers with a DSP here")
    slack = memory_part * sum(sharing.needs)
    reason = f"shared buffers hold {left} bytes more than before the first context"
    return held(name, left <= slack, reason, left_bytes=left, tolerance_bytes=round(slack))


def _same_outputs(figures: SharingFigures, reference: SharingFigures | None) -> Check:
    name = "outputs_equal"
    unsteady = [at for at, seen in figures.digests.items() if len(seen) > 1]
    if unsteady:
        return held(name, False, f"the outputs of contexts {unsteady} are not always the same")
    if not figures.digests and (reference is None or not reference.digests):
        return unseen(name, "nothing was executed to the end")
    if reference is None:
        return held(name, True, "they are what ONNX Runtime computes on the CPU, every time")
    wrong = [at for at, seen in reference.digests.items() if figures.digests.get(at) != seen]
    how = f"differ for contexts {wrong}" if wrong else "equal those without sharing"
    return held(name, not wrong, f"outputs {how}")
