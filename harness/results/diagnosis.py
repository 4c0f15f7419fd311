"""Of which known kind a failure is, what helps, and who wrote about it: rules and their use (pure).

The rules themselves are in diagnosis_rules.py. What none of them recognises stays unknown: better
no diagnosis than a guess, since everything that was said stands in the record anyway.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from harness.qnn.codes import same_code
from harness.results.benign import is_benign
from harness.results.parts import Part, Text

MAX_LINES: Final = 400
MAX_EVIDENCE_LINES: Final = 2000
MAX_LINE_CHARS: Final = 500


class Diagnosis(Part):
    """What is known of this kind of failure: in words, what helps, and a public thread about it."""

    id: Text
    words: Text
    fix: Text | None = None
    thread: Text | None = None

    def text(self) -> str:
        """One line for a person."""
        parts = [f"{self.id}: {self.words}", self.fix or "", self.thread or ""]
        return "; ".join(part for part in parts if part)


@dataclass(frozen=True)
class Symptoms:
    """What is known of one failure.

    `codes` are the call's own and those that its chain names; `said` the lines of the library and
    the probe; `evidence` lines of the device's logs of that time, which may be another process's.
    """

    outcome: str
    api: str | None = None
    codes: tuple[int, ...] = ()
    said: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True)
class Sign:
    """What a failure must look like; everything given must hold.

    `codes`: one of them was named. `text` and `evidence`: found in a line of what was said, or of
    the device's logs. `api` matches the whole name of the call, `outcome` is the case's.
    """

    codes: tuple[int, ...] = ()
    text: str = ""
    evidence: str = ""
    api: str = ""
    outcome: str = ""

    def fits(self, symptoms: Symptoms) -> bool:
        """Whether a failure looks like this. A sign without any condition fits nothing."""
        conditions = (
            not self.codes or any(same_code(a, b) for a in self.codes for b in symptoms.codes),
            not self.text or _found(self.text, symptoms.said),
            not self.evidence or _found(self.evidence, symptoms.evidence),
            not self.api or re.fullmatch(self.api, symptoms.api or "") is not None,
            not self.outcome or self.outcome == symptoms.outcome,
        )
        return self != Sign() and all(conditions)


@dataclass(frozen=True)
class Rule:
    """One kind of failure; it has one if any of the signs fits."""

    diagnosis: Diagnosis
    signs: tuple[Sign, ...]

    def fits(self, symptoms: Symptoms) -> bool:
        """Whether a failure is of this kind."""
        return any(sign.fits(symptoms) for sign in self.signs)


def decide(symptoms: Symptoms, rules: Sequence[Rule]) -> Diagnosis | None:
    """The diagnosis of the first rule that fits; None if the failure is of no known kind."""
    return next((rule.diagnosis for rule in rules if rule.fits(symptoms)), None)


def _found(pattern: str, lines: Sequence[str]) -> bool:
    searched = (line[:MAX_LINE_CHARS] for line in lines if not is_benign(line))
    return any(re.search(pattern, line) for line in searched)
