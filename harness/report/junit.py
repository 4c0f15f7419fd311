"""junit.xml, made from the journal's records; measurements become properties.

It follows Jenkins' junit-10.xsd, with what pytest, Jenkins and GitLab read beyond it: `file` and
`line` of a case, its properties. Its size is bounded, whatever a device reports.
"""

from __future__ import annotations

import hashlib
import re
import statistics
import tempfile
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Any
from xml.sax.saxutils import quoteattr

from junitparser import Error, Failure, JUnitXml, Skipped, TestSuite

from harness.core.outgoing_text import shortened
from harness.results.coverage import LOST_TO, Coverage
from harness.results.record import CaseRecord, are_figures

# all but the characters of XML 1.0, which cannot even be escaped
_ILLEGAL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_PLAIN = re.compile(r"[\w .:;,/|()\[\]{}+*=@#!?-]*", re.ASCII)
_MAX_PROPERTY_CHARS = 1000
_MAX_PROPERTIES = 500
_MAX_TEXT_CHARS = 20_000
_MAX_LOGS = 100
_FIGURES = (("min", min), ("median", statistics.median), ("max", max))


def junit_parts(
    cases: Iterable[CaseRecord], coverage: Coverage, *, run: str, problem: str | None = None
) -> Iterator[bytes]:
    """Yield the document in pieces: a testsuite per suite, the last attempt of each case.

    The counts of a suite come before its cases, which are kept in a temporary file until then.
    Failed, crashed and hung are failures; a missing verdict is an error. Unsupported and skipped
    cases are skipped, with that as their type. So is an expected failure, with type pytest.xfail as
    in pytest. Cases that left no record, or a `problem` of the run, are one error together.
    """
    suites: dict[str, _Suite] = {}
    with tempfile.TemporaryFile() as written:
        for record in cases:
            start = written.tell()
            written.write(b"\n" + _case(record).encode())
            suites.setdefault(record.suite, _Suite()).add(record, start, written.tell())
        of_all, all_s = Counter[str | None](), 0.0
        for suite in suites.values():
            of_all, all_s = of_all + suite.results, all_s + suite.took_s
        if coverage.not_run or coverage.selected is None:
            problem = problem or coverage.headline()
        if problem:
            of_all["error"] += 1
        document = _counted(JUnitXml(_bounded(legal(run))), of_all, all_s)
        yield b'<?xml version="1.0" encoding="UTF-8"?>\n' + _opened(document)
        for name, suite in suites.items():
            yield b"\n" + _opened(suite.element(name))
            for start, end in zip(suite.starts, suite.ends, strict=True):
                written.seek(start)
                yield written.read(end - start)
            yield b"\n</testsuite>"
    if problem:
        yield b"\n" + _opened(_counted(TestSuite("coverage"), Counter(["error"]), 0.0))
        error = Error(_bounded(legal(problem)), "not run").tostring()
        yield b'\n<testcase name="coverage" classname="coverage" time="0.000">' + error
        yield b"</testcase>\n</testsuite>"
    yield b"\n</testsuites>\n"


@dataclass
class _Suite:
    """The counts of a suite, and the offsets of its cases."""

    starts: array[int] = field(default_factory=lambda: array("Q"))
    ends: array[int] = field(default_factory=lambda: array("Q"))
    results: Counter[str | None] = field(default_factory=Counter)
    took_s: float = 0.0
    started: datetime | None = None

    def add(self, record: CaseRecord, start: int, end: int) -> None:
        self.starts.append(start)
        self.ends.append(end)
        self.results[_kind(record)] += 1
        self.took_s += record.duration_s
        self.started = min(self.started or record.started, record.started)

    def element(self, name: str) -> TestSuite:
        element: TestSuite = _counted(TestSuite(_bounded(legal(name))), self.results, self.took_s)
        element.skipped = self.results["skipped"]
        element.timestamp = self.started.isoformat() if self.started else None
        return element


def legal(text: str) -> str:
    """Return a text without the characters that XML cannot contain."""
    return _ILLEGAL.sub("", text)


def _counted(element: JUnitXml | TestSuite, results: Counter[str | None], took_s: float) -> Any:
    element.tests = results.total()
    element.failures, element.errors = results["failure"], results["error"]
    element.time = round(took_s, 3)
    return element


def _opened(element: JUnitXml | TestSuite) -> bytes:
    tag: bytes = element.tostring()
    return tag.removesuffix(b"/>").rstrip() + b">"


def _quoted(text: str) -> str:
    return f'"{text}"' if _PLAIN.fullmatch(text) else quoteattr(legal(text))


@lru_cache(4096)
def _named(key: str) -> str:
    return _quoted(_bounded(key))


def _property(key: str, value: object) -> str:
    return f"<property name={_named(key)} value={_quoted(_plain(value)[:_MAX_PROPERTY_CHARS])}/>"


def _case(record: CaseRecord) -> str:
    file, _, name = record.case.partition("::")
    module = file.removesuffix(".py").replace("/", ".") if name else record.suite
    line = "" if record.line is None else f' line="{record.line}"'
    properties = "".join(_properties(record)[:_MAX_PROPERTIES])
    inside = f"<properties>{properties}</properties>"
    result = _result(record)
    if result is not None:
        inside += result.tostring().decode()
    return (
        f"<testcase name={_quoted(_bounded(name or record.case))} classname={_named(module)}"
        f' time="{record.duration_s:.3f}" file={_named(file)}{line}>{inside}</testcase>'
    )


def _bounded(name: str) -> str:
    if len(name) <= _MAX_PROPERTY_CHARS:
        return name
    name = legal(name)
    return f"{name[: _MAX_PROPERTY_CHARS - 20]}...{hashlib.sha256(name.encode()).hexdigest()[:16]}"


def _kind(record: CaseRecord) -> str | None:
    """Return the tag of a case's result; None if it passed."""
    if record.standing in LOST_TO:
        return "error"
    if record.standing == "known":
        return "skipped"
    if record.breaks_strictness:
        return "failure"
    if record.outcome == "passed":
        return None
    return "skipped" if record.outcome in ("unsupported", "skipped") else "failure"


def _result(record: CaseRecord) -> Failure | Error | Skipped | None:
    kind = _kind(record)
    if kind is None:
        return None
    error, headline = record.error, ""
    if error is not None:
        first = error.message.strip().partition("\n")[0][:300]
        headline = legal(": ".join(filter(None, (error.call, first)))[:_MAX_PROPERTY_CHARS])
    if record.standing == "known":
        return Skipped(legal(f"{record.known_issue}: {headline}"), "pytest.xfail")
    if record.fixed is not None and record.fixed.fails:
        return Failure(legal(f"fixed? {', '.join(record.fixed.known_issues)}"), "passed")
    if kind == "skipped":
        why = headline or str(record.measurements.get("skip_reason") or "")[:_MAX_PROPERTY_CHARS]
        text = f"{record.outcome}: {why}" if why else record.outcome
        return Skipped(legal(text), record.outcome)
    result = (Error if kind == "error" else Failure)(
        headline or record.outcome, f"{record.outcome}.{record.cause}"
    )
    if error is not None:
        lines = [error.message, "", f"signature: {error.signature}", *record.logs[:_MAX_LOGS]]
        result.text = legal(shortened("\n".join(lines), _MAX_TEXT_CHARS))
    return result


def _properties(record: CaseRecord) -> list[str]:
    error = record.error
    properties = [_property(key, getattr(record, key)) for key in ("outcome", "cause", "attempt")]
    if record.outputs is not None:
        properties.append(_property("outputs", record.outputs))
    if record.expected is not None:
        properties.append(_property("known_issue", record.known_issue))
    if record.fixed is not None:
        properties.append(_property("fixed", ", ".join(record.fixed.known_issues)))
    properties += _flat("device.", dict(record.device or ()))
    properties += _flat("axes.", record.axes)
    for key, value in (error.model_dump() if error else {}).items():
        if key == "diagnosis" and value is not None:
            properties += _flat("error.diagnosis.", value)
        elif key == "libraries":
            for library in error.libraries if error else ():
                text = library.text().removeprefix(f"{library.name}: ")
                properties.append(_property(f"error.library.{library.name}", text))
        elif value is not None:
            properties.append(_property(f"error.{key}", value))
    properties += _flat("measurements.", record.measurements)
    properties += [_property("log", log) for log in record.logs]
    return properties


def _flat(before: str, values: Mapping[str, Any]) -> list[str]:
    """Return properties for scalars, for objects key by key, and for summaries of lists."""
    properties = []
    for name, value in values.items():
        if isinstance(value, dict):
            properties += _flat(f"{before}{name}.", value)
        elif isinstance(value, list):
            properties.append(_property(f"{before}{name}.count", len(value)))
            if value and are_figures(value):
                properties += [
                    f'<property name={_named(f"{before}{name}.{figure}")} value="{of(value)}"/>'
                    for figure, of in _FIGURES
                ]
        else:
            properties.append(_property(before + name, value))
    return properties


def _plain(value: object) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)
