"""Explanation of the failures in any log, by the same rules as for records (pure).

The harness's own output is such a log too; rules know its lines.
"""

from __future__ import annotations

import re
from bisect import bisect
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from math import inf
from typing import Final, Literal

from harness.core.error_codes import describe, dsp_errors, qnn_code_in
from harness.core.json_record import Part, Schema1
from harness.diagnosis.error_chain import is_benign, link_of
from harness.diagnosis.error_record import Confidence
from harness.diagnosis.line_patterns import patterns_of
from harness.diagnosis.located import Located, locate
from harness.diagnosis.log_reader import API, CLIENT, KERNEL, MAX_LINES, OURS, UNRELATED, LogText
from harness.diagnosis.rule import CONFIDENCES, FittingRule, Rule, Symptoms, excused, findings
from harness.diagnosis.rule_sources import all_rules

MAX_SHOWN: Final = 8
_MAX_CLIENTS: Final = 4
_NEAR_S: Final = 60.0
"""Lines logged longer before or after those of a process are not about it."""
_NEAR_LINES: Final = 100
# The number of such a call is a code of FastRPC, even if QNN has the same one.
_FASTRPC: Final = re.compile(r"\b(?:remote_handle\w*|fastrpc_\w+|apps_dev_init) failed\b")


class ExplainedLine(Part):
    """A line that shows a cause, counted from 1."""

    number: int
    text: str


class Explained(Part):
    """One cause that fits a log, the lines that show it, and the process if it is known.

    Causes of one `failure` belong together, the best first; failures are counted from 1.
    """

    id: str
    confidence: Confidence
    words: str
    fix: str | None
    threads: tuple[str, ...]
    lines: tuple[ExplainedLine, ...]
    process: int | None = None
    failure: int = 1


Level = Literal["cause", "located", "nothing"]


class Explanation(Part):
    """All causes that fit a log, the best first, and the place of its failure.

    `level` is `cause` if a cause fits, `located` if only a line of a failure is found, or
    `nothing` if no line tells of one. `numbers` are the meanings of the DSP runtime's codes in
    the log, as far as they have names.
    """

    schema_number: Schema1 = 1
    level: Level
    located: Located | None = None
    diagnoses: tuple[Explained, ...]
    numbers: tuple[str, ...] = ()


_Times = Mapping[int, float | None]
"""{number of a line: its time}."""


def explain(all_lines: Sequence[LogText], rules: Sequence[Rule] | None = None) -> Explanation:
    """Return the causes that fit a log, by these rules or all, and the place of its failure."""
    rules = all_rules() if rules is None else rules
    lines = [line for line in all_lines if line.for_rules]
    symptoms = symptoms_in(lines)
    whole = _explain(symptoms, lines, rules)
    fitting = {cause.id for cause in whole}
    # a rule that fits a part of the lines fits all, unless a line elsewhere excludes it
    some = [rule for rule in rules if rule.id in fitting or any(sign.absent for sign in rule.signs)]
    times = _times(lines)
    parts = [
        part
        for process, texts in _by_process(lines).items()
        for part in _by_failure(_explain(symptoms_in(texts, process), texts, some, process), times)
    ]
    parts = parts or _by_failure(whole, times)
    parts.sort(key=lambda part: CONFIDENCES.index(part[0].confidence))
    causes: list[Explained] = []
    for part in filter(None, (*parts, whole)):
        known = {cause.id: cause.failure for cause in causes}
        shown = {(cause.id, cause.lines): cause.failure for cause in causes}
        failure = shown.get((part[0].id, part[0].lines), 1 + max(known.values(), default=0))
        # a process with other lines gets its own answer, even if that is the same
        new = part[:1] if failure not in known.values() and part is not whole else []
        new = [*new, *(cause for cause in part if cause.id not in known and cause not in new)]
        failure = 1 if part is whole else failure
        causes += [cause.model_copy(update={"failure": failure}) for cause in new]
    causes.sort(key=lambda cause: cause.failure)
    located = _located(all_lines, causes, rules)
    return Explanation(
        level="cause" if causes else "located" if located else "nothing",
        located=located,
        diagnoses=tuple(causes),
        numbers=_dsp_numbers(symptoms),
    )


def _located(
    lines: Sequence[LogText], causes: Sequence[Explained], rules: Sequence[Rule]
) -> Located | None:
    """Return the place of the failure that the surest cause explains, or of any."""
    if causes:
        answer = min(causes, key=lambda cause: CONFIDENCES.index(cause.confidence))
        return locate(lines, answer.process, {line.text for line in answer.lines})
    located = locate(lines)
    if located is not None and located.in_scope:
        harmless = excused([line.text for line in lines], rules)
        located = locate([line for line in lines if line.text not in harmless])
    return located


def _times(lines: Sequence[LogText]) -> _Times:
    if any(line.origin.time is not None for line in lines):
        return {line.number: line.origin.time for line in lines}
    return {line.number: line.number * _NEAR_S / _NEAR_LINES for line in lines}


def _by_failure(causes: list[Explained], times: _Times) -> list[list[Explained]]:
    """Group the causes of one process by failure: long after the others begins another one."""
    timed = [(cause, times.get(cause.lines[0].number) if cause.lines else None) for cause in causes]
    sure = [time for cause, time in timed if time is not None and cause.confidence != "possible"]
    starts = [time for before, time in pairwise((-inf, *sorted(sure))) if time - before > _NEAR_S]
    failures: list[list[Explained]] = [[] for _ in starts] or [[]]
    for cause, time in timed:
        failures[max(0, bisect(starts, time) - 1) if time is not None else 0].append(cause)
    return [failure for failure in failures if failure]


def _explain(
    symptoms: Symptoms, lines: Sequence[LogText], rules: Sequence[Rule], process: int | None = None
) -> list[Explained]:
    """Return the causes that fit, the surest first.

    Among equals, a cause shown only by a code in another program's line is last. Of the causes
    that lines of one process suggest, the earliest is first.
    """
    times = _times(lines)
    rules_found = findings(symptoms, rules)
    pairs = [(rule, _explained(rule, symptoms, lines, process)) for rule in rules_found]
    pairs.sort(
        key=lambda pair: (
            CONFIDENCES.index(pair[0].confidence),
            _is_foreign(*pair),
            times.get(pair[1].lines[0].number) or 0.0
            if process and pair[0].confidence == "likely"
            else 0.0,
        )
    )
    return [explained for _, explained in pairs]


def _by_process(lines: Sequence[LogText]) -> dict[int, list[LogText]]:
    """Return the lines of each process that uses the NPU, with those of the system."""
    processes = (line.origin.process for line in lines if CLIENT.search(line.text))
    clients = dict.fromkeys(process for process in processes if process)
    return {
        client: [line for line in lines if line.origin.process not in clients.keys() - {client}]
        for client in [*clients][:_MAX_CLIENTS]
    }


def _lines_near(lines: Sequence[LogText], process: int) -> list[LogText]:
    """Return the lines near the time of a process, and those without a time."""
    all_times = [line.origin.time for line in lines if line.origin.process == process]
    times = [time for time in all_times if time is not None]
    if not times:
        return list(lines)
    first, last = min(times) - _NEAR_S, max(times) + _NEAR_S
    return [line for line in lines if line.origin.time is None or first <= line.origin.time <= last]


def _dsp_numbers(symptoms: Symptoms) -> tuple[str, ...]:
    named = (describe(code) for code in symptoms.codes)
    errors = ((info, *dsp_errors()[info.code]) for info in named if info.code in dsp_errors())
    return tuple(
        f"{info.hex} is {name}" + (f": {meaning}" if meaning else "")
        for info, name, meaning in errors
        if info.component == "dsp"
    )


def symptoms_in(lines: Sequence[LogText], process: int | None = None) -> Symptoms:
    """Return the symptoms in the lines of a log: calls, codes, texts, of any process.

    Codes count only from processes that also name QNN or the NPU; codes of the kernel, or of an
    unknown process, only near such a line. With `process`, lines of the system count only near the
    time of that process.
    """
    clients = {line.origin.process for line in lines if CLIENT.search(line.text)}
    relevant = [
        line
        for line in lines
        if not is_benign(line.text)
        and (line.origin.process in clients or not UNRELATED.search(line.text))
    ]
    texts = tuple(dict.fromkeys(line.text for line in relevant))
    near = relevant if process is None else _lines_near(relevant, process)
    apis: dict[str, None] = {}
    places: set[object] = set()
    for line in relevant:
        calls = [match[0] for match in API.finditer(line.text)]
        calls += [api for api, call in patterns_of("call") if call.search(line.text)]
        apis |= dict.fromkeys(calls)
        if calls or OURS.search(line.text):
            places |= {_place(line), _place(line, -1), _place(line, 1)}
    coded = [line.text for line in relevant if _place(line) in places]
    return Symptoms(
        outcome="",  # a call in a log need not have failed
        apis=tuple(apis),
        codes=tuple(dict.fromkeys(code for text in coded for code in _codes_in(text))),
        messages=texts,
        evidence=tuple(dict.fromkeys(line.text for line in near)),
    )


def _place(line: LogText, offset: int = 0) -> object:
    if line.origin.process:
        return line.origin.process
    span = 1 if line.origin.process == KERNEL else _NEAR_LINES
    return span, line.number // span + (offset if span > 1 else 0)


@lru_cache(MAX_LINES)
def _codes_in(text: str) -> tuple[int, ...]:
    """Return the code in a line, cached since it is needed by each process and each cause."""
    code = link_of(text).code
    if code is None and (named := qnn_code_in(text)) is not None:
        code = named[0]
    is_fastrpc = code is not None and describe(code).component != "dsp" and _FASTRPC.search(text)
    return () if code is None or is_fastrpc else (code,)


def _explained(
    rule: FittingRule, symptoms: Symptoms, lines: Sequence[LogText], process: int | None
) -> Explained:
    diagnosis = rule.diagnosis(symptoms.codes)
    codes = {code for sign in rule.rule.signs for code in sign.codes}
    shown = set(rule.lines) or {
        line.text for line in lines if codes.intersection(_codes_in(line.text))
    }
    return Explained(
        id=diagnosis.id,
        confidence=rule.confidence,
        words=diagnosis.words,
        fix=diagnosis.fix,
        threads=rule.rule.urls,
        lines=tuple(
            ExplainedLine(number=line.number, text=line.text)
            for line in [line for line in lines if line.text in shown][:MAX_SHOWN]
        ),
        process=process,
    )


def _is_foreign(rule: FittingRule, explained: Explained) -> bool:
    by_code = not rule.lines and bool(explained.lines)
    return by_code and not any(OURS.search(line.text) for line in explained.lines)
