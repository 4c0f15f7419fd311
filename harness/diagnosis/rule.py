"""Rules of the table of known failures, and the signs by which they match (pure)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final

from pydantic import BeforeValidator, ConfigDict, Field

from harness.core.error_codes import RANGE_ENDS, describe, same_code
from harness.core.errors import ConfigError
from harness.core.json_record import Part, Schema1
from harness.core.yaml_document import check_document, read_document
from harness.diagnosis.error_chain import MAX_LINE_CHARS, is_benign, messages_of
from harness.diagnosis.error_record import FORETOLD, Confidence, Diagnosis

CONFIDENCES: Final[tuple[Confidence, ...]] = ("known", "likely", "possible")
"""`known`: a line states the cause. `likely`: it is the usual cause of such a line.
`possible`: one of several, as with every code without a line."""


@dataclass(frozen=True)
class Symptoms:
    """The facts of one failure, or of a whole log.

    `apis` are the calls that failed, `codes` theirs and those in their chain. `messages` are the
    lines of the library and the probe, `evidence` lines of the device's logs of that time, which
    may be another process's. The lines of a log of unknown origin are both. `foreseen` are the
    findings of preflight, each with code and explanation.
    """

    outcome: str
    apis: tuple[str, ...] = ()
    codes: tuple[int, ...] = ()
    messages: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()
    foreseen: tuple[tuple[str, str], ...] = ()


def _joined(pattern: object) -> object:
    """Join the parts of a long pattern in a file; an empty one stands there as null."""
    if pattern is None:
        return ""
    is_list = isinstance(pattern, list) and all(isinstance(part, str) for part in pattern)
    return "".join(pattern) if isinstance(pattern, list) and is_list else pattern


Pattern = Annotated[str, BeforeValidator(_joined)]


@dataclass(frozen=True)
class Sign:
    """A pattern of a failure; every given part must match.

    `text` and `evidence` match a line of the messages, or of the device's logs; `absent` matches
    no line of either. `codes`: one of them occurs. `api` matches the whole name of a failed call,
    `outcome` is the case's. `foreseen` matches the whole code of a finding of preflight, which
    predicted the failure; the rest of the sign confirms it. `note` is added to the cause of the
    rule; `\\g<1>` in it is a group of `text` or `evidence`.
    """

    __pydantic_config__: ClassVar = ConfigDict(extra="forbid")

    confidence: Confidence
    text: Pattern = ""
    evidence: Pattern = ""
    absent: Pattern = ""
    codes: tuple[int, ...] = ()
    api: Pattern = ""
    outcome: str = ""
    foreseen: Pattern = ""
    note: str = ""

    def foreseen_by(self, symptoms: Symptoms) -> str | None:
        """Return the explanation of the finding of preflight that matches this sign."""
        fitting = (text for code, text in symptoms.foreseen if re.fullmatch(self.foreseen, code))
        return next(fitting, None) if self.foreseen else None

    def match(self, symptoms: Symptoms) -> tuple[str, ...] | None:
        """Return the matching lines, which may be none; None if the sign does not match."""
        cheap = (
            not self.codes or any(same_code(a, b) for a in self.codes for b in symptoms.codes),
            not self.api or any(re.fullmatch(self.api, api) for api in symptoms.apis),
            not self.outcome or self.outcome == symptoms.outcome,
            not self.foreseen or self.foreseen_by(symptoms) is not None,
            bool(self.codes or self.api or self.outcome or self.text or self.evidence),
        )
        if not all(cheap):
            return None
        text_lines = _matching(self.text, symptoms.messages)
        evidence_lines = _matching(self.evidence, symptoms.evidence)
        if (self.text and not text_lines) or (self.evidence and not evidence_lines):
            return None
        if _matching(self.absent, (*symptoms.messages, *symptoms.evidence)):
            return None
        return tuple(dict.fromkeys((*text_lines, *evidence_lines)))


known: Final = partial(Sign, "known")
"""A sign that states the cause."""

likely: Final = partial(Sign, "likely")
"""A sign whose usual cause this is."""

possible: Final = partial(Sign, "possible")
"""A sign of several causes, such as a code."""


def _sign_of(entry: object) -> object:
    """Return the fields of a sign in a file, where its confidence names its text."""
    if not isinstance(entry, dict):
        return entry
    named = [confidence for confidence in CONFIDENCES if confidence in entry]
    if len(named) != 1:
        raise ValueError(f"must have one of {', '.join(CONFIDENCES)}")
    others = {key: value for key, value in entry.items() if key not in named}
    return {"confidence": named[0], "text": entry[named[0]]} | others


@dataclass(frozen=True, eq=False)
class Rule:
    """A cause of failures, which fits if any of its signs matches.

    `distinction` tells it from similar causes. `links` are public threads about it: an https
    address, or `owner/repo` or `owner/repo#number` of GitHub. `unrelated`: any request would have
    failed, since the DSP, its process, its memory or the libraries failed. So it never counts as a
    refused request.
    """

    __pydantic_config__: ClassVar = ConfigDict(extra="forbid")

    id: str
    cause: str
    fix: str
    distinction: str
    signs: tuple[Annotated[Sign, BeforeValidator(_sign_of)], ...]
    links: tuple[str, ...] = ()
    unrelated: bool = True

    @property
    def urls(self) -> tuple[str, ...]:
        return tuple(
            link
            if link.startswith("https://")
            else f"https://github.com/{link.replace('#', '/issues/')}"
            for link in self.links
        )

    @cached_property
    def all_signs(self) -> tuple[Sign, ...]:
        """Its signs, and those from the table of messages."""
        messages = (
            known(messages_of("known", self.id)),
            possible(messages_of("consequence", self.id)),
        )
        return (*self.signs, *(sign for sign in messages if sign.text))

    def finding(self, symptoms: Symptoms) -> FittingRule | None:
        """Return how the rule fits a failure, with the highest confidence; None if it does not."""
        for confidence in CONFIDENCES:
            fitting = [
                (sign, lines)
                for sign in self.all_signs
                if sign.confidence == confidence and (lines := sign.match(symptoms)) is not None
            ]
            if fitting:
                shown = dict.fromkeys(line for _, lines in fitting for line in lines)
                foretold = (sign.foreseen_by(symptoms) for sign in self.signs)
                notes = (
                    match.expand(sign.note)
                    for sign, lines in fitting
                    for line in lines
                    if sign.note
                    and (match := re.search(sign.text or sign.evidence, line[:MAX_LINE_CHARS]))
                )
                return FittingRule(
                    self,
                    confidence,
                    tuple(shown),
                    next((text for text in foretold if text is not None), None),
                    next(notes, None),
                )
        return None


@dataclass(frozen=True)
class FittingRule:
    """A rule that fits, its confidence, and the matching lines (none if a code matched).

    `foretold` is the explanation of preflight, if it predicted it; `note` is added to its cause.
    """

    rule: Rule
    confidence: Confidence
    lines: tuple[str, ...]
    foretold: str | None = None
    note: str | None = None

    def diagnosis(self, codes: Iterable[int]) -> Diagnosis:
        """Return the diagnosis for a record, with the note on the code that it is about."""
        rule = self.rule
        named = (describe(code) for code in codes)
        notes = (info.note for info in named if info.code in RANGE_ENDS and info.note)
        cause = rule.cause.replace("{note}", next(notes, ""))
        cause = cause if self.note is None else f"{cause}: {self.note}"
        return Diagnosis(
            id=rule.id,
            confidence=self.confidence,
            words=f"{FORETOLD}{self.foretold}: {cause}" if self.foretold else cause,
            fix=rule.fix,
            thread=next(iter(rule.urls), None),
        )


def findings(symptoms: Symptoms, rules: Sequence[Rule]) -> list[FittingRule]:
    """Return all rules that fit, the best first.

    They are sorted by confidence, so no consequence precedes its cause. Among equals the order of
    the table decides.
    """
    fitting = [finding for rule in rules if (finding := rule.finding(symptoms)) is not None]
    return sorted(fitting, key=lambda finding: CONFIDENCES.index(finding.confidence))


def excused(lines: Sequence[str], rules: Iterable[Rule]) -> set[str]:
    """Return the lines that a sign takes, were it not for another one that makes them harmless."""
    signs = [sign for rule in rules for sign in rule.signs if _matching(sign.absent, lines)]
    patterns = (pattern for sign in signs for pattern in (sign.text, sign.evidence))
    return {line for pattern in patterns for line in _matching(pattern, lines)}


def _matching(pattern: str, lines: Iterable[str]) -> list[str]:
    if not pattern:
        return []
    compiled = re.compile(pattern)
    return [
        line for line in lines if compiled.search(line[:MAX_LINE_CHARS]) and not is_benign(line)
    ]


class _RuleFile(Part):
    """A file of rules, in their order; `%{name}` in a pattern stands for one of `patterns`."""

    schema_number: Schema1
    patterns: dict[str, Pattern] = Field(default={})
    rules: tuple[Rule, ...]


def load_rules(path: Path) -> tuple[Rule, ...]:
    """Read the rules in a YAML file such as `rules.yaml`. Raises ConfigError for a mistake."""
    content = check_document(read_document(path), _RuleFile)
    named: dict[str, str] = {}

    def expanded(pattern: str) -> str:
        return re.sub(r"%\{(\w+)\}", lambda match: named[match[1]], pattern)

    def with_patterns(sign: Sign) -> Sign:
        names = ("text", "evidence", "absent", "api", "foreseen")
        fields: dict[str, Any] = {name: expanded(getattr(sign, name)) for name in names}
        return replace(sign, **fields)

    try:
        for name, pattern in content.patterns.items():
            named[name] = expanded(pattern)
        return tuple(
            replace(rule, signs=tuple(map(with_patterns, rule.signs))) for rule in content.rules
        )
    except KeyError as error:
        raise ConfigError(f"no pattern is called {error}", file=path, choices=[*named]) from error
