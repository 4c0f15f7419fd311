"""What any log tells of its failures: the same table as for our own records (pure)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Annotated, Final, Literal

from pydantic import Field

from harness.ground.facts.codes import describe, dsp_errors
from harness.ground.facts.ort_errors import qnn_code_in
from harness.verdict.failure.any_log import LogText
from harness.verdict.failure.chain import is_benign, link_of
from harness.verdict.failure.error import Confidence, Part
from harness.verdict.failure.rule import CONFIDENCES, FittingRule, Rule, Symptoms, findings
from harness.verdict.failure.rules import RULES

MAX_SHOWN: Final = 8

# How frameworks speak of the calls that a rule may ask for.
_CALLS: Final = tuple(
    (re.compile(pattern), api)
    for pattern, api in (
        (
            r"(?i)context from (?:context )?binary|create from binary|EpContext model",
            "QnnContext_createFromBinary",
        ),
        (r"(?i)failed to create (?:qnn )?context\b", "QnnContext_createFromBinary"),
        (r"(?i)create (?:qnn )?device\b|device_?handle|device creation", "QnnDevice_create"),
        (r"(?i)backend_?handle|initialize backend", "QnnBackend_create"),
        (r"(?i)graph_? ?execut\w+|running QNN_", "QnnGraph_execute"),
    )
)
# A number without any of these may be anybody's: 1008 and 14001 are errors of other programs, too.
_OURS: Final = re.compile(
    r"(?i)qnn|htp|hexagon|[acs]dsp|rpc|skel\b|stub\b|snapdragon|genie|qualcomm|adreno|0x8000|npu"
)
# What a run of this harness had found beforehand, as its summary says it.
_FORESEEN: Final = re.compile(r"\bpreflight (?:error|warning) ([a-z][a-z0-9-]{2,40}): (.{1,300})")
_API: Final = re.compile(r"\bQnn[A-Z][A-Za-z]{2,24}_[a-z][A-Za-z]{2,40}\b")


class ExplainedLine(Part):
    """A line of the log, counted from 1, that shows a cause."""

    number: int
    text: str


class Explained(Part):
    """One cause that fits a log, and the lines that show it."""

    id: str
    confidence: Confidence
    words: str
    fix: str | None
    threads: tuple[str, ...]
    lines: tuple[ExplainedLine, ...]


class Explanation(Part):
    """All causes that fit a log, the answer first; none where nothing is recognised."""

    schema_version: Annotated[Literal[1], Field(alias="schema")] = 1
    diagnoses: tuple[Explained, ...]


def explain(lines: Sequence[LogText], rules: Sequence[Rule] = RULES) -> Explanation:
    """The causes that fit a log, as sure as its lines make them."""
    return explained_by(symptoms_in(lines), lines, rules)


def explained_by(
    symptoms: Symptoms, lines: Sequence[LogText], rules: Sequence[Rule] = RULES
) -> Explanation:
    """The causes that fit these symptoms, which are those of the lines."""
    told = [(one, _explained(one, symptoms, lines)) for one in findings(symptoms, rules)]
    # a number that stands in another program's line alone is the last of its equals
    told.sort(key=lambda one: (CONFIDENCES.index(one[0].confidence), _is_foreign(*one)))
    return Explanation(diagnoses=tuple(explained for _, explained in told))


def dsp_numbers(symptoms: Symptoms) -> list[str]:
    """What the numbers of the DSP's runtime in a log mean, as far as they have names."""
    named = (describe(code) for code in symptoms.codes)
    told = ((info, *dsp_errors()[info.code]) for info in named if info.code in dsp_errors())
    return [
        f"{info.hex} is {name}" + (f": {meaning}" if meaning else "")
        for info, name, meaning in told
        if info.component == "dsp"
    ]


def symptoms_in(lines: Sequence[LogText]) -> Symptoms:
    """What the lines of a log show: calls, codes, texts; any may be another process's."""
    telling = [line.text for line in lines if not is_benign(line.text)]
    texts = tuple(dict.fromkeys(telling))
    apis: dict[str, None] = {}
    for text in texts:
        apis |= dict.fromkeys(found[0] for found in _API.finditer(text))
        apis |= dict.fromkeys(api for pattern, api in _CALLS if pattern.search(text))
    ours = bool(apis) or any(_OURS.search(text) for text in texts)
    return Symptoms(
        outcome="failed",
        apis=tuple(apis),
        codes=tuple(dict.fromkeys(code for text in texts for code in _codes_in(text) if ours)),
        said=texts,
        evidence=texts,
        foreseen=tuple(
            (found[1], found[2]) for text in texts if (found := _FORESEEN.search(text)) is not None
        ),
    )


def _codes_in(text: str) -> Iterator[int]:
    link = link_of(text)
    if link.code is not None:
        yield link.code
    elif (named := qnn_code_in(text)) is not None:
        yield named[0]


def _explained(found: FittingRule, symptoms: Symptoms, lines: Sequence[LogText]) -> Explained:
    known = found.diagnosis(symptoms.codes)
    shown = set(found.lines) or _that_name(found, lines)
    return Explained(
        id=known.id,
        confidence=found.confidence,
        words=known.words,
        fix=known.fix,
        threads=found.rule.links,
        lines=tuple(
            ExplainedLine(number=line.number, text=line.text)
            for line in [line for line in lines if line.text in shown][:MAX_SHOWN]
        ),
    )


def _is_foreign(found: FittingRule, explained: Explained) -> bool:
    by_code = not found.lines and bool(explained.lines)
    return by_code and not any(_OURS.search(line.text) for line in explained.lines)


def _that_name(found: FittingRule, lines: Sequence[LogText]) -> set[str]:
    """The lines that name a code by which a rule fits."""
    codes = {code for sign in found.rule.signs for code in sign.codes}
    return {line.text for line in lines if codes.intersection(_codes_in(line.text))}
