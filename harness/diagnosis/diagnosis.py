"""The diagnosis of an error record by the table of rules (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from harness.diagnosis.error_record import ErrorRecord
from harness.diagnosis.rule import Rule, Symptoms, findings
from harness.diagnosis.rule_sources import all_rules
from harness.runtimes.preflight_findings import Finding

_MAX_LINES: Final = 400
_MAX_EVIDENCE_LINES: Final = 2000
PD_EXHAUSTED: Final = "pd-exhausted"
"""The diagnosis of a context that finds no room."""

EARLIER: Final = "before that, "
"""The start of a line of a message about an earlier failure, which is no sign of this one."""


@dataclass(frozen=True)
class Foreseen:
    """The findings of preflight for a case, whose `contexts` are loaded in turn, if known."""

    findings: tuple[Finding, ...] = ()
    contexts: tuple[str, ...] = ()

    def of(self, context: int | None) -> tuple[tuple[str, str], ...]:
        """Return (code, explanation) of the findings that may explain a failure of a context."""
        count = len(self.contexts)
        failing = self.contexts[context % count] if count and context is not None else None
        return tuple(
            (finding.code, finding.explanation)
            for finding in self.findings
            if finding.severity != "info" and (not count or finding.context in (None, failing))
        )


NOTHING: Final = Foreseen()


def symptoms_of(
    outcome: str, error: ErrorRecord, evidence: Iterable[str] = (), foreseen: Foreseen = NOTHING
) -> Symptoms:
    """Return the symptoms in an error record and in the last lines of `evidence`."""
    codes = [error.code, *(link.code for link in error.chain)]
    lines = [line for line in error.message.splitlines() if not line.startswith(EARLIER)]
    hidden = [library.text() for library in error.libraries if library.hides]
    messages = dict.fromkeys([*(link.message for link in error.chain), *lines, *hidden])
    return Symptoms(
        outcome=outcome,
        apis=(error.api,) if error.api else (),
        codes=tuple(dict.fromkeys(code for code in codes if code)),
        messages=tuple(islice(messages, _MAX_LINES)),
        evidence=tuple(evidence)[-_MAX_EVIDENCE_LINES:],
        foreseen=foreseen.of(error.context),
    )


def diagnosed(
    outcome: str,
    error: ErrorRecord,
    evidence: Iterable[str] = (),
    rules: Sequence[Rule] | None = None,
    foreseen: Foreseen = NOTHING,
) -> ErrorRecord:
    """Return the record with the diagnosis that fits; unchanged if none does.

    An existing diagnosis is replaced only if another rule fits now. The default are all rules.
    """
    symptoms = symptoms_of(outcome, error, evidence, foreseen)
    fitting = findings(symptoms, all_rules() if rules is None else rules)
    if not fitting:
        return error
    return error.model_copy(update={"diagnosis": fitting[0].diagnosis(symptoms.codes)})


def is_unrelated(error: ErrorRecord | None) -> bool:
    """Return whether any request would have failed like this."""
    if error is None or error.diagnosis is None:
        return False
    return any(rule.unrelated for rule in all_rules() if rule.id == error.diagnosis.id)
