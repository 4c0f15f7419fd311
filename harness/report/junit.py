"""junit.xml, made from the journal's records; the measurements become properties.

It is what Jenkins' junit-10.xsd allows, and what pytest, Jenkins and GitLab read beyond it: `file`
and `line` of a case, its properties, its attachments. It is bounded, whatever a device said.
"""

from __future__ import annotations

import hashlib
import itertools
import re
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from junitparser import Error, Failure, JUnitXml, Skipped, TestSuite

from harness.files.whole_file import written_whole
from harness.report.summary import shortened
from harness.results.record import CaseRecord, final_attempts, is_figure

# What XML 1.0 allows at all; everything else cannot even be escaped.
_ILLEGAL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_PLAIN = re.compile(r"[\w .:;,/|()\[\]{}+*=@#!?-]*", re.ASCII)
_MAX_PROPERTY_CHARS = 1000
_MAX_PROPERTIES = 500
_MAX_TEXT_CHARS = 20_000
_MAX_ATTACHMENTS = 100


def junit_parts(records: Iterable[CaseRecord], *, run: str, logs: str = "") -> Iterator[bytes]:
    """The document, piece by piece: a suite per suite, the last attempt of each case (pure).

    Failed, crashed and hung are failures, `error` is an error; unsupported and skipped are
    skipped, with that as their type, and so is an expected failure, with type pytest.xfail as
    pytest writes it. `logs` is the path of the run's folder from where a CI system looks for
    attachments, the document's own folder by default.
    """
    suites: dict[str, list[CaseRecord]] = {}
    for record in final_attempts(records):
        suites.setdefault(record.suite, []).append(record)
    heads, of_all, all_s = [], Counter[type](), 0.0
    for name, members in suites.items():
        results = Counter[type](type(_result(record)) for record in members)
        took_s = sum(record.duration_s for record in members)
        suite = _counted(TestSuite(_bounded(legal(name))), results, took_s)
        suite.skipped = results[Skipped]
        suite.timestamp = min(record.started for record in members).isoformat()
        heads.append(suite)
        of_all, all_s = of_all + results, all_s + took_s
    document = _counted(JUnitXml(_bounded(legal(run))), of_all, all_s)
    yield b'<?xml version="1.0" encoding="UTF-8"?>\n' + _opened(document)
    for suite, members in zip(heads, suites.values(), strict=True):
        yield b"\n" + _opened(suite)
        yield from (b"\n" + _case(record, logs).encode() for record in members)
        yield b"\n</testsuite>"
    yield b"\n</testsuites>\n"


def write_junit(
    records: Iterable[CaseRecord], path: Path, *, run: str, root: Path | None = None
) -> None:
    """Writes the document in one step; attachments are named from `root`, if it lies in there.

    Raises OSError.
    """
    inside = root is not None and path.is_relative_to(root)
    logs = path.parent.relative_to(root).as_posix() if root and inside else ""
    with written_whole(path) as stream:
        stream.writelines(junit_parts(records, run=run, logs="" if logs == "." else logs))


def legal(text: str) -> str:
    """The text without the characters that XML cannot hold."""
    return _ILLEGAL.sub("", text)


def _counted(element: JUnitXml | TestSuite, results: Counter[type], took_s: float) -> Any:
    """The element, with how many cases it has by the kind of their result, and their time."""
    element.tests = results.total()
    element.failures, element.errors = results[Failure], results[Error]
    element.time = round(took_s, 3)
    return element


def _opened(element: JUnitXml | TestSuite) -> bytes:
    """Its first tag: what stands in it is too much to be held as objects."""
    tag: bytes = element.tostring()
    return tag.removesuffix(b"/>").rstrip() + b">"


def _element(tag: str, attributes: Mapping[str, object], inside: str = "") -> str:
    """An element; `inside` is XML already.

    As objects of a library, the properties of 100,000 cases take five times as long.
    """
    told = "".join(f" {key}={_quoted(str(value))}" for key, value in attributes.items())
    return f"<{tag}{told}>{inside}</{tag}>" if inside else f"<{tag}{told}/>"


def _quoted(text: str) -> str:
    return f'"{text}"' if _PLAIN.fullmatch(text) else quoteattr(legal(text))


@lru_cache(4096)
def _named(key: str) -> str:
    return _quoted(_bounded(key))


def _case(record: CaseRecord, logs: str) -> str:
    name = record.case.removeprefix(record.file).removeprefix("::")
    module = record.file.removesuffix(".py").replace("/", ".") if name else record.suite
    told: dict[str, object] = {
        "name": _bounded(name or record.case),
        "classname": _bounded(module),
        "time": f"{record.duration_s:.3f}",
        "file": _bounded(record.file),
    }
    if record.line is not None:
        told["line"] = record.line
    properties = "".join(
        f"<property name={_named(key)} value={_quoted(value[:_MAX_PROPERTY_CHARS])}/>"
        for key, value in itertools.islice(_properties(record), _MAX_PROPERTIES)
    )
    inside = _element("properties", {}, properties)
    result = _result(record)
    if result is not None:
        inside += result.tostring().decode()
    if attached := _attachments(record, logs):
        inside += _element("system-out", {}, escape(legal(attached), {"\r": "&#13;"}))
    return _element("testcase", told, inside)


def _attachments(record: CaseRecord, logs: str) -> str:
    """A line for each log, as Jenkins' plug-in for attachments and GitLab read them."""
    paths = [f"{logs}/{log}" if logs else log for log in record.logs]
    plain = [path for path in paths if path.isprintable() and "]]" not in path]
    return "\n".join(f"[[ATTACHMENT|{path}]]" for path in plain[:_MAX_ATTACHMENTS])


def _bounded(name: str) -> str:
    """A name of at most 1,000 characters that no other has."""
    if len(name) <= _MAX_PROPERTY_CHARS:
        return name
    name = legal(name)
    return f"{name[: _MAX_PROPERTY_CHARS - 20]}...{hashlib.sha256(name.encode()).hexdigest()[:16]}"


def _result(record: CaseRecord) -> Failure | Error | Skipped | None:
    headline = legal(_headline(record))
    if record.expected is not None and record.is_bad:
        return Skipped(legal(f"{record.expected.known_issue}: {headline}"), "pytest.xfail")
    if record.fixed is not None and record.fixed.fails:
        return Failure(legal(f"fixed? {', '.join(record.fixed.known_issues)}"), "passed")
    if record.outcome == "passed":
        return None
    if record.outcome in ("unsupported", "skipped"):
        why = headline or str(record.measurements.get("skip_reason") or "")[:_MAX_PROPERTY_CHARS]
        told = f"{record.outcome}: {why}" if why else record.outcome
        return Skipped(legal(told), record.outcome)
    kind = Error if record.outcome == "error" else Failure
    result = kind(headline or record.outcome, f"{record.outcome}.{record.cause}")
    if (error := record.error) is not None:
        lines = [
            error.message,
            "",
            f"signature: {error.signature}",
            *record.logs[:_MAX_ATTACHMENTS],
        ]
        result.text = legal(shortened("\n".join(lines), _MAX_TEXT_CHARS))
    return result


def _headline(record: CaseRecord) -> str:
    error = record.error
    if error is None:
        return ""
    code = [] if error.code is None else [str(error.code)]
    parts = [part for part in (error.api, *code, error.symbol) if part]
    first = error.message.strip().partition("\n")[0][:300]
    return ": ".join(part for part in (" ".join(parts), first) if part)[:_MAX_PROPERTY_CHARS]


def _properties(record: CaseRecord) -> Iterator[tuple[str, str]]:
    for key in ("outcome", "cause", "attempt"):
        yield key, _plain(getattr(record, key))
    if record.outputs is not None:
        yield "outputs", record.outputs
    if record.expected is not None:
        yield "known_issue", record.expected.known_issue
    if record.fixed is not None:
        yield "fixed", ", ".join(record.fixed.known_issues)
    for key, value in record.device or ():
        yield from _flat(f"device.{key}", value)
    for key, value in record.axes.items():
        yield from _flat(f"axes.{key}", value)
    for key, value in (record.error.model_dump() if record.error else {}).items():
        if key == "diagnosis" and value is not None:
            yield from _flat("error.diagnosis", value)
        elif key == "libraries":
            for one in record.error.libraries if record.error else ():
                yield f"error.library.{one.name}", one.text().removeprefix(f"{one.name}: ")
        elif value is not None:
            yield f"error.{key}", _plain(value)
    for key, value in record.measurements.items():
        yield from _flat(f"measurements.{key}", value)
    for log in record.logs:
        yield "log", log


def _flat(key: str, value: object) -> Iterator[tuple[str, str]]:
    """Scalars as they are, objects key by key, lists of numbers by their figures."""
    if isinstance(value, dict):
        for part, item in value.items():
            yield from _flat(f"{key}.{part}", item)
    elif isinstance(value, list):
        yield f"{key}.count", str(len(value))
        numbers = [item for item in value if is_figure(item)]
        if numbers and len(numbers) == len(value):
            for name, of in (("min", min), ("median", statistics.median), ("max", max)):
                yield f"{key}.{name}", _plain(of(numbers))
    else:
        yield key, _plain(value)


def _plain(value: object) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)
