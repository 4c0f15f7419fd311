"""Of which known kind a failure is: the table of rules put to an error record (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from harness.diagnosis.error import ErrorRecord
from harness.diagnosis.rule import Rule, Symptoms, findings
from harness.diagnosis.rules import RULES
from harness.runtimes.findings import Finding

_MAX_LINES: Final = 400
_MAX_EVIDENCE_LINES: Final = 2000
EARLIER: Final = "before that, "
"""The start of a message's line that tells of an earlier failure. It is no sign of this one."""


@dataclass(frozen=True)
class Foreseen:
    """What preflight said of a case, whose `contexts` are taken in turn; none if nobody knows."""

    findings: tuple[Finding, ...] = ()
    contexts: tuple[str, ...] = ()

    def of(self, context: int | None) -> tuple[tuple[str, str], ...]:
        """Code and explanation of what may be the reason of a failure, with its context."""
        known = len(self.contexts)
        failing = self.contexts[context % known] if known and context is not None else None
        return tuple(
            (one.code, one.explanation)
            for one in self.findings
            if one.severity != "info" and (not known or one.context in (None, failing))
        )


NOTHING: Final = Foreseen()


def symptoms_of(
    outcome: str,
    error: ErrorRecord,
    evidence: Iterable[str] = (),
    foreseen: Foreseen = NOTHING,
) -> Symptoms:
    """What a record says of its failure; of `evidence` the last lines count."""
    codes = [error.code, *(link.code for link in error.chain)]
    lines = [line for line in error.message.splitlines() if not line.startswith(EARLIER)]
    hidden = [one.text() for one in error.libraries if one.hides]
    said = dict.fromkeys([*(link.message for link in error.chain), *lines, *hidden])
    return Symptoms(
        outcome=outcome,
        apis=(error.api,) if error.api else (),
        codes=tuple(dict.fromkeys(code for code in codes if code)),
        said=tuple(islice(said, _MAX_LINES)),
        evidence=tuple(evidence)[-_MAX_EVIDENCE_LINES:],
        foreseen=foreseen.of(error.context),
    )


def diagnosed(
    outcome: str,
    error: ErrorRecord,
    evidence: Iterable[str] = (),
    rules: Sequence[Rule] = RULES,
    foreseen: Foreseen = NOTHING,
) -> ErrorRecord:
    """The record with the diagnosis that fits; unchanged where none does.

    A diagnosis that is there already stays, unless all that is known now says otherwise.
    """
    symptoms = symptoms_of(outcome, error, evidence, foreseen)
    found = findings(symptoms, rules)
    if not found:
        return error
    return error.model_copy(update={"diagnosis": found[0].diagnosis(symptoms.codes)})


def is_unrelated(error: ErrorRecord | None) -> bool:
    """Whether a failure is of a kind that any request would have met."""
    known = None if error is None else error.diagnosis
    return known is not None and any(rule.unrelated for rule in RULES if rule.id == known.id)
