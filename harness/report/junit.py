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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

from harness.files.whole_file import write_whole
from harness.report.summary import shortened
from harness.results.record import CaseRecord, final_attempts, is_figure

# What XML 1.0 allows at all; everything else cannot even be escaped.
_ILLEGAL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_PLAIN = re.compile(r"[\w .:;,/|()\[\]{}+*=@#!?-]*", re.ASCII)
_MAX_PROPERTY_CHARS = 1000
_MAX_PROPERTIES = 500
_MAX_TEXT_CHARS = 20_000
_MAX_ATTACHMENTS = 100


def junit_bytes(records: Iterable[CaseRecord], *, run: str, logs: str = "") -> bytes:
    """The document: a suite per suite, the last attempt of each case (pure).

    Failed, crashed and hung are failures, `error` is an error; unsupported and skipped are
    skipped, with that as their type, and so is an expected failure, with type pytest.xfail as
    pytest writes it. `logs` is the path of the run's folder from where a CI system looks for
    attachments, the document's own folder by default.
    """
    suites: dict[str, list[CaseRecord]] = {}
    for record in final_attempts(records):
        suites.setdefault(record.suite, []).append(record)
    made, all_counts, all_s = [], Counter[str](), 0.0
    for name, members in suites.items():
        counts, cases = Counter({"testcase": len(members)}), []
        for record in members:
            result = _result(record)
            counts[result.tag if result else "passed"] += 1
            cases.append(_case(record, result, logs))
        took_s = sum(record.duration_s for record in members)
        told = {"name": _bounded(name), **_totals(counts, took_s), "skipped": counts["skipped"]}
        told["timestamp"] = min(record.started for record in members).isoformat()
        made.append(_element("testsuite", told, "\n".join(cases)))
        all_counts, all_s = all_counts + counts, all_s + took_s
    told = {"name": _bounded(run), **_totals(all_counts, all_s)}
    document = _element("testsuites", told, "\n".join(made))
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{document}\n'.encode()


def write_junit(
    records: Iterable[CaseRecord], path: Path, *, run: str, root: Path | None = None
) -> None:
    """Writes the document in one step; attachments are named from `root`, if it lies in there.

    Raises OSError.
    """
    inside = root is not None and path.is_relative_to(root)
    logs = path.parent.relative_to(root).as_posix() if root and inside else ""
    write_whole(path, junit_bytes(records, run=run, logs="" if logs == "." else logs))


def legal(text: str) -> str:
    """The text without the characters that XML cannot hold."""
    return _ILLEGAL.sub("", text)


@dataclass(frozen=True)
class _Result:
    """What became of a case that did not pass."""

    tag: str
    message: str
    type: str
    text: str = ""


def _totals(counts: Counter[str], took_s: float) -> dict[str, object]:
    return {
        "tests": counts["testcase"],
        "failures": counts["failure"],
        "errors": counts["error"],
        "time": f"{took_s:.3f}",
    }


def _element(tag: str, attributes: Mapping[str, object], inside: str = "") -> str:
    """An element; `inside` is XML already. As objects of a library it takes five times as long."""
    told = "".join(f" {key}={_quoted(str(value))}" for key, value in attributes.items())
    return f"<{tag}{told}>{inside}</{tag}>" if inside else f"<{tag}{told}/>"


def _quoted(text: str) -> str:
    return f'"{text}"' if _PLAIN.fullmatch(text) else quoteattr(legal(text))


def _case(record: CaseRecord, result: _Result | None, logs: str) -> str:
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
        f"<property name={_quoted(_bounded(key))} value={_quoted(value[:_MAX_PROPERTY_CHARS])}/>"
        for key, value in itertools.islice(_properties(record), _MAX_PROPERTIES)
    )
    inside = _element("properties", {}, properties)
    if result is not None:
        why = {"message": result.message, "type": result.type}
        inside += _element(result.tag, why, _text_of(result.text))
    if attached := _attachments(record, logs):
        inside += _element("system-out", {}, _text_of(attached))
    return _element("testcase", told, inside)


def _text_of(text: str) -> str:
    return escape(legal(text), {"\r": "&#13;"})


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


def _result(record: CaseRecord) -> _Result | None:
    headline = _headline(record)
    if record.expected is not None and record.is_bad:
        return _Result("skipped", f"{record.expected.known_issue}: {headline}", "pytest.xfail")
    if record.fixed is not None and record.fixed.fails:
        return _Result("failure", f"fixed? {', '.join(record.fixed.known_issues)}", "passed")
    if record.outcome == "passed":
        return None
    if record.outcome in ("unsupported", "skipped"):
        why = headline or str(record.measurements.get("skip_reason") or "")[:_MAX_PROPERTY_CHARS]
        told = f"{record.outcome}: {why}" if why else record.outcome
        return _Result("skipped", told, record.outcome)
    tag = "error" if record.outcome == "error" else "failure"
    kind = f"{record.outcome}.{record.cause}"
    return _Result(tag, headline or record.outcome, kind, _text(record))


def _headline(record: CaseRecord) -> str:
    error = record.error
    if error is None:
        return ""
    code = [] if error.code is None else [str(error.code)]
    parts = [part for part in (error.api, *code, error.symbol) if part]
    first = error.message.strip().partition("\n")[0][:300]
    return ": ".join(part for part in (" ".join(parts), first) if part)[:_MAX_PROPERTY_CHARS]


def _text(record: CaseRecord) -> str:
    error = record.error
    if error is None:
        return ""
    told = [error.message, "", f"signature: {error.signature}", *record.logs[:_MAX_ATTACHMENTS]]
    return shortened("\n".join(told), _MAX_TEXT_CHARS)


def _properties(record: CaseRecord) -> Iterator[tuple[str, str]]:
    for key in ("outcome", "cause", "attempt"):
        yield key, _plain(getattr(record, key))
    if record.outputs is not None:
        yield "outputs", record.outputs
    if record.expected is not None:
        yield "known_issue", record.expected.known_issue
    if record.fixed is not None:
        yield "fixed", ", ".join(record.fixed.known_issues)
    for key, value in (record.device.model_dump() if record.device else {}).items():
        yield from _flat(f"device.{key}", value)
    for key, value in record.axes.items():
        yield from _flat(f"axes.{key}", value)
    for key, value in (record.error.model_dump() if record.error else {}).items():
        if key == "diagnosis" and value is not None:
            yield from _flat("error.diagnosis", value)
        elif key == "libraries":
            yield from _libraries(record)
        elif value is not None:
            yield f"error.{key}", _plain(value)
    for key, value in record.measurements.items():
        yield from _flat(f"measurements.{key}", value)
    for log in record.logs:
        yield "log", log


def _libraries(record: CaseRecord) -> Iterator[tuple[str, str]]:
    for one in record.error.libraries if record.error else ():
        yield f"error.library.{one.name}", one.text().removeprefix(f"{one.name}: ")


def _flat(key: str, value: object) -> Iterator[tuple[str, str]]:
    """Scalars as they are, objects key by key, lists of numbers by their figures."""
    if isinstance(value, dict):
        for part, item in value.items():
            yield from _flat(f"{key}.{part}", item)
    elif isinstance(value, list):
        yield f"{key}.count", str(len(value))
        numbers = [item for item in value if is_figure(item)]
        if numbers and len(numbers) == len(value):
            yield from _figures(key, numbers)
    else:
        yield key, _plain(value)


def _figures(key: str, numbers: Sequence[int | float]) -> Iterator[tuple[str, str]]:
    yield f"{key}.min", _plain(min(numbers))
    yield f"{key}.median", _plain(statistics.median(numbers))
    yield f"{key}.max", _plain(max(numbers))


def _plain(value: object) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)
