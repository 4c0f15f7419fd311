"""Generate docs/reference/failures.md: rules with examples, and the codes of preflight.

`python -m tests.unit.diagnosis.failure_page` writes it; a test compares.
"""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Final

from harness.app.checks import CODES as APP_CODES
from harness.diagnosis.explain_log import explain
from harness.diagnosis.rule import CONFIDENCES, Rule
from harness.diagnosis.rule_sources import own_rules
from harness.runtimes.preflight_findings import CODES as PREFLIGHT_CODES, Code
from tests.unit.diagnosis.failure_rows import LOG_ROWS, ROWS, Row, answer_to, lines_of

RULES = own_rules()

PAGE: Final = Path(__file__).parents[3] / "docs/reference/failures.md"
_MOST: Final = 3
_MAX_CHARS: Final = 118
"""So that a terminal, or whoever cuts a log at 120 columns, cuts none of them."""
_CHAPTERS: Final = {
    "dsp-restarted": "On the way to the processor",
    "newer-context": "Loading contexts",
    "opencl-driver": "Preparing and executing graphs",
}
"""The chapters by their first rule."""
_FINDINGS: Final[Mapping[str, Mapping[str, Code]]] = {
    "Preflight findings": PREFLIGHT_CODES,
    "Findings in Android apps": APP_CODES,
}


def page() -> str:
    """Return the page; what precedes its first chapter is written by hand."""
    shown = examples()
    parts = [PAGE.read_text("utf-8").partition(f"\n## {_CHAPTERS[RULES[0].id]}\n")[0]]
    for rule in RULES:
        parts += [f"\n## {_CHAPTERS[rule.id]}\n"] if rule.id in _CHAPTERS else []
        parts.append(_entry(rule, shown[rule.id]))
    for title, codes in _FINDINGS.items():
        parts.append(f"\n## {title}\n\n| code | usual severity | meaning | source |\n")
        parts.append("|---|---|---|---|\n")
        parts += [
            f"| `{code.name}` | {code.severity} | {code.meaning} | {_link(code.thread)} |\n"
            for code in codes.values()
        ]
    return "".join(parts)


def _link(url: str | None) -> str:
    return f"<{url}>" if url else ""


@cache
def examples() -> dict[str, dict[str, list[str]]]:
    """Return examples of each cause, by id and confidence: logs with that answer, as one line."""
    shown: dict[str, dict[str, list[str]]] = {rule.id: {} for rule in RULES}
    for expected, text in LOG_ROWS:
        if expected is not None:
            _add(shown, expected, text)
    for row in ROWS:
        if row.expected is not None:
            for text in _logs_of(row):
                if _add(shown, row.expected, text):
                    break
    return shown


def _logs_of(row: Row) -> Iterator[str]:
    """Yield the lines that a case logs of its failure, less or more of them."""
    message = "\n".join((*row.lines, *row.evidence))
    call = f"{row.api} returned {row.code}" if row.code is not None else f"{row.api} failed"
    yield message or f"{call}\n{row.message or ''}"
    yield "\n".join((call, message))


def _add(shown: dict[str, dict[str, list[str]]], expected: str, text: str) -> bool:
    name, confidence = expected.split()
    lines = shown[name].setdefault(confidence, [])
    if len(lines) >= _MOST:
        return True
    for short in _shorter(text):
        if len(short) <= _MAX_CHARS and answer_to(short) == expected:
            if short not in lines:
                lines.append(short)
            return True
    return False


def _shorter(text: str) -> Iterator[str]:
    """A log in one line: all of it, what shows its cause, and ever less of its beginning."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    yield " / ".join(lines)
    causes = explain(lines_of(text)).diagnoses
    telling = list(dict.fromkeys(line.text for line in causes[0].lines)) if causes else []
    for some in (telling, lines):
        whole = " / ".join(some)
        for begin in [0, *(space.end() for space in re.finditer(r" ", whole))]:
            for end in (len(whole), begin + _MAX_CHARS - 8):
                yield (
                    ("... " if begin else "")
                    + whole[begin:end]
                    + ("" if end >= len(whole) else " ...")
                )


def _entry(rule: Rule, shown: dict[str, list[str]]) -> str:
    examples_text = "".join(
        f"    {confidence}: {line}\n"
        for confidence in CONFIDENCES
        for line in shown.get(confidence, ())
    )
    threads = ", ".join(
        f"[{thread}]({link})" for thread, link in zip(rule.links, rule.urls, strict=True)
    )
    words = rule.cause.replace("{note}", "...")
    text = f"\n- **Threads**: {threads}" if threads else ""
    return (
        f"\n### {rule.id}\n\n{words[0].upper()}{words[1:]}.\n\n{examples_text}\n"
        f"- **How to tell**: {rule.distinction}.\n- **What helps**: {rule.fix}.{text}\n"
    )


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
