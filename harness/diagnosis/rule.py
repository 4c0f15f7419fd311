"""What a rule of the table of known failures is made of, and when it fits (pure)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Final

from harness.core.codes import RANGE_ENDS, describe, same_code
from harness.diagnosis.chain import MAX_LINE_CHARS, is_benign, messages_of
from harness.diagnosis.error import Confidence, Diagnosis

CONFIDENCES: Final[tuple[Confidence, ...]] = ("known", "likely", "possible")
"""`known`: a line states the cause. `likely`: that is what mostly stands behind such a line.
`possible`: one of several, as with every code that stands alone."""

_GITHUB: Final = "https://github.com"


@dataclass(frozen=True)
class Symptoms:
    """What is known of one failure, or of a whole log.

    `apis` are the calls that failed, `codes` their own and those that their chain names. `said` are
    the lines of the library and the probe, `evidence` lines of the device's logs of that time,
    which may be another process's. The lines of a log of unknown origin are both. `foreseen` is
    what preflight had said of it: code and explanation of each finding.
    """

    outcome: str
    apis: tuple[str, ...] = ()
    codes: tuple[int, ...] = ()
    said: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()
    foreseen: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Sign:
    """What a failure must look like; everything given must hold.

    `text` and `evidence`: found in a line of what was said, or of the device's logs; `absent`:
    found in no line of either. `codes`: one of them was named. `api` matches the whole name of a
    call that failed, `outcome` is the case's. `foreseen` matches the whole code of a finding of
    preflight, which says why it must fail; the rest of the sign says that it failed so. `says` is
    what this sign adds to the words of its rule; `\\g<1>` in it is a group of `text` or `evidence`.
    """

    confidence: Confidence
    text: str = ""
    evidence: str = ""
    absent: str = ""
    codes: tuple[int, ...] = ()
    api: str = ""
    outcome: str = ""
    foreseen: str = ""
    says: str = ""

    def said_by(self, lines: Iterable[str]) -> str | None:
        """What this sign adds to the words of its rule, from the first line that shows it."""
        found = (re.search(self.text or self.evidence, line[:MAX_LINE_CHARS]) for line in lines)
        match = next((one for one in found if one is not None), None)
        return match.expand(self.says) if self.says and match is not None else None

    def foretold(self, symptoms: Symptoms) -> str | None:
        """What preflight said that this sign is about."""
        fitting = (said for code, said in symptoms.foreseen if re.fullmatch(self.foreseen, code))
        return next(fitting, None) if self.foreseen else None

    def found(self, symptoms: Symptoms) -> tuple[str, ...] | None:
        """The lines that show it, None if a failure does not look like this."""
        cheap = (
            not self.codes or any(same_code(a, b) for a in self.codes for b in symptoms.codes),
            not self.api or any(re.fullmatch(self.api, api) for api in symptoms.apis),
            not self.outcome or self.outcome == symptoms.outcome,
            not self.foreseen or self.foretold(symptoms) is not None,
            bool(self.codes or self.api or self.outcome or self.text or self.evidence),
        )
        if not all(cheap):
            return None
        said = _found(self.text, symptoms.said)
        seen = _found(self.evidence, symptoms.evidence)
        if (self.text and not said) or (self.evidence and not seen):
            return None
        if _found(self.absent, (*symptoms.said, *symptoms.evidence)):
            return None
        return tuple(dict.fromkeys((*said, *seen)))


known: Final = partial(Sign, "known")
"""A line that states the cause."""

likely: Final = partial(Sign, "likely")
"""A line behind which mostly this cause stands."""

possible: Final = partial(Sign, "possible")
"""A code, or a line that follows from several causes."""


@dataclass(frozen=True)
class Rule:
    """One cause of failures; it may be one if any of the signs fits.

    `apart`: what tells it from causes that look alike. `threads` are public ones, as `owner/repo`
    or `owner/repo#number`. `unrelated`: any request would have met it, since the DSP, its process,
    its memory or the libraries failed. So it never counts as a refusal of what was asked.
    """

    id: str
    words: str
    fix: str
    apart: str
    threads: tuple[str, ...]
    signs: tuple[Sign, ...]
    unrelated: bool = True

    @property
    def links(self) -> tuple[str, ...]:
        return tuple(f"{_GITHUB}/{thread.replace('#', '/issues/')}" for thread in self.threads)

    @cached_property
    def all_signs(self) -> tuple[Sign, ...]:
        """Its signs, and the messages that tell of it according to the table of messages."""
        heard = (
            known(messages_of("known", self.id)),
            possible(messages_of("consequence", self.id)),
        )
        return (*self.signs, *(sign for sign in heard if sign.text))

    def finding(self, symptoms: Symptoms) -> FittingRule | None:
        """How sure it is that a failure is of this kind, and by which lines; None if it is not."""
        for confidence in CONFIDENCES:
            fitting = [
                (sign, lines)
                for sign in self.all_signs
                if sign.confidence == confidence and (lines := sign.found(symptoms)) is not None
            ]
            if fitting:
                shown = dict.fromkeys(line for _, lines in fitting for line in lines)
                told = (sign.foretold(symptoms) for sign in self.signs)
                more = (sign.said_by(lines) for sign, lines in fitting)
                return FittingRule(
                    self,
                    confidence,
                    tuple(shown),
                    next((one for one in told if one is not None), None),
                    next((one for one in more if one is not None), None),
                )
        return None


@dataclass(frozen=True)
class FittingRule:
    """A rule that fits, how sure that is, and the lines that show it (none: a code does).

    `foretold` is what preflight said of it, if it did; `more` what its lines add to its words.
    """

    rule: Rule
    confidence: Confidence
    lines: tuple[str, ...]
    foretold: str | None = None
    more: str | None = None

    def diagnosis(self, codes: Iterable[int]) -> Diagnosis:
        """As records hold it, with what is said of the one of these codes that it stands for."""
        rule = self.rule
        named = (describe(code) for code in codes)
        notes = (info.note for info in named if info.code in RANGE_ENDS and info.note)
        words = rule.words.replace("{note}", next(notes, ""))
        words = words if self.more is None else f"{words}: {self.more}"
        return Diagnosis(
            id=rule.id,
            confidence=self.confidence,
            words=f"as foreseen, {self.foretold}: {words}" if self.foretold else words,
            fix=rule.fix,
            thread=rule.links[0] if rule.links else None,
        )


def findings(symptoms: Symptoms, rules: Sequence[Rule]) -> list[FittingRule]:
    """All rules that fit, the answer first.

    What a line states comes first, then what lines suggest, then what codes allow. So no
    consequence stands before its cause. Among equals the order of the table decides.
    """
    fitting = [found for rule in rules if (found := rule.finding(symptoms)) is not None]
    return sorted(fitting, key=lambda found: CONFIDENCES.index(found.confidence))


def _found(pattern: str, lines: Iterable[str]) -> list[str]:
    if not pattern:
        return []
    compiled = re.compile(pattern)
    return [
        line for line in lines if compiled.search(line[:MAX_LINE_CHARS]) and not is_benign(line)
    ]
