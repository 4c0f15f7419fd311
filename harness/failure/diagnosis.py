"""Of which known kind a failure is: the table of rules put to an error record (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final

from harness.failure.error import Diagnosis, ErrorRecord
from harness.failure.rules import RULES, Rule, Symptoms
from harness.qnn.codes import RANGE_ENDS, describe

_MAX_LINES: Final = 400
_MAX_EVIDENCE_LINES: Final = 2000
EARLIER: Final = "before that, "
"""Begins the line of a message that tells of an earlier failure, which is no sign of this one."""


def symptoms_of(outcome: str, error: ErrorRecord, evidence: Iterable[str] = ()) -> Symptoms:
    """What a record says of its failure; of `evidence` the last lines count."""
    codes = [error.code, *(link.code for link in error.chain)]
    lines = [line for line in error.message.splitlines() if not line.startswith(EARLIER)]
    said = dict.fromkeys([*(link.message for link in error.chain), *lines])
    return Symptoms(
        outcome=outcome,
        api=error.api,
        codes=tuple(dict.fromkeys(code for code in codes if code)),
        said=tuple(islice(said, _MAX_LINES)),
        evidence=tuple(evidence)[-_MAX_EVIDENCE_LINES:],
    )


def diagnosed(
    outcome: str,
    error: ErrorRecord,
    evidence: Iterable[str] = (),
    rules: Sequence[Rule] = RULES,
) -> ErrorRecord:
    """The record with the diagnosis that fits; unchanged where none does.

    What is known already stays unless all that is known now says otherwise.
    """
    found = decide(symptoms_of(outcome, error, evidence), rules)
    if found is None:
        return error
    if "{note}" in found.words:
        named = (describe(code) for code in _codes(error))
        ends = (info for info in named if info.code in RANGE_ENDS)
        note = next((info.note for info in ends if info.note), "")
        found = found.model_copy(update={"words": found.words.replace("{note}", note)})
    return error.model_copy(update={"diagnosis": found})


def decide(symptoms: Symptoms, rules: Sequence[Rule]) -> Diagnosis | None:
    """The diagnosis of the first rule that fits; None if the failure is of no known kind."""
    return next((rule.diagnosis for rule in rules if rule.fits(symptoms)), None)


def is_unrelated(error: ErrorRecord | None, rules: Sequence[Rule] = RULES) -> bool:
    """Whether a failure is of a kind that any request would have met."""
    known = None if error is None else error.diagnosis
    return known is not None and any(
        rule.unrelated for rule in rules if rule.diagnosis.id == known.id
    )


def _codes(error: ErrorRecord) -> list[int]:
    return [code for code in (error.code, *(link.code for link in error.chain)) if code]
