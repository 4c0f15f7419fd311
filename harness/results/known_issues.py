"""known_issues.yaml: expected failures, with their conditions and expiry dates."""

from __future__ import annotations

import datetime
import operator
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field, StrictBool, StrictInt, WithJsonSchema

from harness.core.engine import ENGINES
from harness.core.errors import ConfigError
from harness.core.json_record import Part, Schema1
from harness.core.matrix_axes import BACKENDS, IN_AXES, VERSIONS
from harness.core.outgoing_text import counted, first_names
from harness.core.socs import HTP_ARCHS, SOCS, TARGETS
from harness.core.versions import QnnVersion, VersionRange
from harness.core.yaml_document import (
    Text,
    check_document,
    duplicate_names,
    entries_of,
    matching,
    read_document,
)
from harness.results.record import CaseRecord

MAX_PATTERN_CHARS: Final = 200
MAX_LINES: Final = 50
MAX_LINE_CHARS: Final = 500
_MAX_PATTERN_BYTES: Final = 256 << 10
"""The memory of a compiled pattern, which bounds the time for a character, too."""


@cache
def compiled_pattern(text: str) -> Any:
    """Compile a regular expression by RE2, whose time is linear in the text that it searches.

    Raises ValueError for one that RE2 does not take, such as with look-around or back references.
    """
    import re2  # few runs have patterns

    if not text or len(text) > MAX_PATTERN_CHARS:
        raise ValueError(f"must be 1 to {MAX_PATTERN_CHARS} characters")
    options = re2.Options()
    options.log_errors, options.max_mem = False, _MAX_PATTERN_BYTES
    try:
        return re2.compile(text, options)
    except re2.error as error:
        problem = error.args[0].decode("utf-8", "replace")
        raise ValueError(f"is not a valid RE2 regular expression: {problem}") from error


_SIGNS = {">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt}
_COMPARISON = re.compile(r"(>=|<=|>|<)\s*(-?\d{1,15}(?:\.\d{1,15})?)", re.ASCII)
# the version of another axis in place of a number: compiler ">qnn"
_OTHER_AXIS = re.compile(rf"((?:>=|<=|>|<|==|!=)\s*)({'|'.join(VERSIONS)})", re.ASCII)
_ID = re.compile(r"[a-z0-9][a-z0-9.-]{0,79}", re.ASCII)
_LINK = re.compile(r"https://[!-~]{4,300}", re.ASCII)
_SCALAR_SCHEMA = {"type": ["string", "number", "boolean", "null"]}
_ANY_OF = {"anyOf": [_SCALAR_SCHEMA, {"type": "array", "items": _SCALAR_SCHEMA, "minItems": 1}]}


def _range(text: str) -> str:
    if is_relative(text):
        return text
    try:
        VersionRange.parse(text)
    except ConfigError as error:
        raise ValueError(error.problem) from error
    return text


def _alternatives(value: object) -> tuple[object, ...]:
    listed = value if isinstance(value, list | tuple) else [value]
    if not listed:
        raise ValueError("must list at least one value")
    if not all(item is None or isinstance(item, bool | int | float | str) for item in listed):
        raise ValueError("must be a text, a number, or a list of these")
    return tuple(listed)


_is_id = matching(_ID, "id", "must be lower-case letters, digits, dots and dashes")
_is_link = matching(_LINK, "link", "must be an https:// address")
AnyOf = Annotated[tuple[Any, ...], BeforeValidator(_alternatives), WithJsonSchema(_ANY_OF)]
Range = Annotated[Text, AfterValidator(_range)]


class IssueSignature(Part):
    """The failure that is expected.

    `api` and `code` must be equal (QNN's codes in their low 16 bits); `code: null` is a failure
    without a code. A code of ONNX Runtime counts where there is none of QNN. `message` is a regular
    expression (of RE2) that must match in a line of the error's message. Without `outcome`, the
    case may have failed, crashed or hung.
    """

    outcome: Literal["failed", "crashed", "hung"] | None = None
    """The outcome of the case (default: any of the three)."""

    api: Text | None = None
    """The call that failed; without it, a failure that names none."""

    code: StrictInt | None = None
    """Its error code, of QNN or else of ONNX Runtime; without it, a failure that has none."""

    message: Annotated[Text, AfterValidator(lambda text: compiled_pattern(text) and text)]
    """A regular expression for a line of the message; `"."` takes any."""


def _suites(alternatives: tuple[object, ...]) -> tuple[object, ...]:
    for suite in alternatives:
        if isinstance(suite, str) and (suite.startswith("test_") or suite.endswith(".py")):
            name = suite.removesuffix(".py").removeprefix("test_")
            raise ValueError(f"write `{name}`, the name of its file without test_ and .py")
    return alternatives


class Conditions(Part):
    """The conditions under which it is expected; all that are given must hold.

    `suite` is the name of the test's file without `test_` and `.py`, `test` that of the function
    without its parameters, which are `axes`.

    A condition is a value, or a list of which one value must match: a number, a text (* matches
    anything), or a comparison such as ">=60". `qnn`, `compiler` and `ort` are version ranges such
    as ">=2.47,<2.51", or a comparison with another of these, such as compiler ">qnn".
    """

    suite: Annotated[AnyOf, AfterValidator(_suites)] | None = None
    """The test's file, without `test_` and `.py`."""

    test: AnyOf | None = None
    """The test's function, without its parameters."""

    device: AnyOf | None = None
    """The device's name in devices.yaml."""

    soc: AnyOf | None = None
    """The device's SoC, such as SM8650."""

    htp_arch: AnyOf | None = None
    """The architecture of its HTP, such as 75."""

    target: AnyOf | None = None
    """The platform that libraries are built for, such as android-arm64."""

    backend: AnyOf | None = None
    """htp, gpu or cpu."""

    engine: AnyOf | None = None
    """The engine that executes the model: qnn, ort, executorch or litert."""

    qnn: Range | None = None
    """Versions of the QNN runtime."""

    compiler: Range | None = None
    """Versions of the compiler that made the contexts."""

    ort: Range | None = None
    """Versions of ONNX Runtime."""

    axes: dict[Text, AnyOf] = Field(default={})
    """Parameters of the test, by their names."""


class KnownIssue(Part):
    """One expected failure. After the day `until` the failure is no longer expected.

    `flaky` means that it comes and goes: a case that passes there is then no sign of a fix.
    """

    id: Annotated[Text, AfterValidator(_is_id)]
    """Its name in reports; no two entries have the same."""

    link: Annotated[Text, AfterValidator(_is_link)]
    """The https address of the issue in a tracker."""

    note: Text | None = None
    """A note for people."""

    signature: IssueSignature
    """The failure."""

    conditions: Conditions = Conditions()
    """The conditions under which it is expected; without them, everywhere."""

    until: datetime.date
    """The last day on which it is expected, such as 2027-06-30."""

    flaky: StrictBool = False
    """True if it comes and goes."""


class KnownIssues(Part):
    """The content of known_issues.yaml."""

    schema_number: Schema1
    """The version of the file's format."""

    known_issues: tuple[KnownIssue, ...] = ()
    """The expected failures."""


def load_known_issues(path: Path) -> tuple[KnownIssue, ...]:
    """Read known_issues.yaml. Raises one ConfigError that names every mistake by its line."""
    document = read_document(path)
    entries = entries_of(document, "known_issues")
    return check_document(
        document,
        KnownIssues,
        more=lambda _: duplicate_names(document, "known_issues", entries, "id"),
    ).known_issues


def match(record: CaseRecord, issues: Iterable[KnownIssue]) -> KnownIssue | None:
    """Return the first known issue that explains a record; None if none does.

    Only failures of the target are ever expected. An entry whose `until` lies before the day the
    case started (UTC) explains nothing.
    """
    return next((issue for issue in issues if _explains(issue, record)), None)


def _explains(issue: KnownIssue, record: CaseRecord, *, with_call: bool = True) -> bool:
    error, signature = record.error, issue.signature
    return (
        record.cause == "target"
        and error is not None
        and _day(record) <= issue.until
        and signature.outcome in (None, record.outcome)
        and not (with_call and error.api != signature.api)
        and not (with_call and not error.has_code(signature.code))
        and conditions_hold(record, issue.conditions)
        and is_in_message(signature.message, error.message)
    )


def is_in_message(pattern: str, message: str) -> bool:
    """Return whether one of the first 50 lines (500 characters each) of a message matches."""
    lines = message[: MAX_LINES * MAX_LINE_CHARS * 4].splitlines()[:MAX_LINES]
    search = compiled_pattern(pattern).search
    return any(search(line[:MAX_LINE_CHARS]) for line in lines or [""])


def fixed_issues(record: CaseRecord, issues: Iterable[KnownIssue]) -> list[KnownIssue]:
    """Return the known issues under whose conditions a case passed: they may be fixed.

    Entries that expired, are flaky, or have no conditions are not among them.
    """
    if record.outcome != "passed":
        return []
    return [
        issue
        for issue in issues
        if _day(record) <= issue.until
        and not issue.flaky
        and issue.conditions != Conditions()
        and conditions_hold(record, issue.conditions)
    ]


def _day(record: CaseRecord) -> datetime.date:
    return record.started.astimezone(datetime.UTC).date()


def conditions_hold(record: CaseRecord, conditions: Conditions) -> bool:
    """Return whether a case meets the conditions."""
    facts = _facts(record)
    for name in ("suite", "test", "device", "soc", "htp_arch", "target", "backend", "engine"):
        alternatives = getattr(conditions, name)
        if alternatives is not None and not matches_any(facts.get(name), alternatives):
            return False
    for name in VERSIONS:
        condition = getattr(conditions, name)
        if condition is not None and not _version_within(_version(record, name), condition, record):
            return False
    return all(
        name in record.axes and matches_any(record.axes[name], alternatives)
        for name, alternatives in conditions.axes.items()
    )


def _facts(record: CaseRecord) -> Mapping[str, object]:
    device = record.device
    extra = (device.model_extra if device else None) or {}
    soc = SOCS.get((device.soc if device else None) or "")
    return {
        "suite": record.suite,
        "test": record.function,
        "backend": record.axes.get("backend"),
        "engine": record.engine,
        "device": device.name if device else None,
        "soc": device.soc if device else None,
        "target": device.target if device else None,
        "htp_arch": extra.get("htp_arch") or (soc.htp_arch if soc else None),
    }


def is_relative(condition: str) -> bool:
    """Return whether a range refers to the version of another axis, as in compiler ">qnn"."""
    return _OTHER_AXIS.fullmatch(condition.strip()) is not None


def matches_any(value: object, alternatives: Sequence[object]) -> bool:
    """Return whether a value matches one of the alternatives of a condition."""
    return any(_matches(value, alternative) for alternative in alternatives)


def _matches(value: object, alternative: object) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if isinstance(alternative, str):
        comparison = _COMPARISON.fullmatch(alternative.strip())
        if comparison is None:
            return isinstance(value, int | float | str) and fnmatchcase(str(value), alternative)
        if not number:
            return False
        assert isinstance(value, int | float)
        return bool(_SIGNS[comparison[1]](value, float(comparison[2])))
    return value == alternative and isinstance(value, bool) is isinstance(alternative, bool)


def _version(record: CaseRecord, name: str) -> object:
    return record.axes.get(name) or getattr(record.runtime, name, None)


def _version_within(value: object, condition: str, record: CaseRecord) -> bool:
    other = _OTHER_AXIS.fullmatch(condition.strip())
    if other is not None:
        condition = f"{other[1]}{_version(record, other[2])}"
    try:
        return QnnVersion.parse(str(value)) in VersionRange.parse(condition)
    except ConfigError:
        return False


def review_lines(
    cases: Iterable[CaseRecord],
    issues: Sequence[KnownIssue],
    today: datetime.date,
    collected: CollectedTests | None = None,
) -> list[str]:
    """Return a line for each entry that expired, is fixed or too wide, or can never match.

    A run is mostly a part of the matrix, so that it proves nothing if none of its cases meets an
    entry's conditions. If none of the `collected` tests can meet them, the entry can never match
    (None: the tests are unknown).
    """
    lines = []
    fixed: dict[str, list[str]] = {}
    failing = Counter[str | None]()
    matched = set[str]()
    near: dict[str, CaseRecord] = {}
    for case in cases:
        failing[case.known_issue] += 1
        for issue in issues:
            signature = issue.signature
            is_short = signature.message and None in (signature.api, signature.code)
            if is_short and _explains(issue, case, with_call=False) and not match(case, [issue]):
                near[issue.id] = case
        for name in case.fixed.known_issues if case.fixed else ():
            fixed.setdefault(name, []).append(case.case)
        if collected is not None:
            open_issues = (issue for issue in issues if issue.id not in matched)
            matched |= {issue.id for issue in open_issues if match(case, [issue])}
    for issue in issues:
        if issue.until < today:
            lines.append(f"known issue {issue.id} expired on {issue.until}; review it")
        elif (record := near.get(issue.id)) and record.error and not failing[issue.id]:
            wanted = f"api: {record.error.api or 'null'}, code: {record.error.code or 'null'}"
            text = "its message and conditions match a failure, but not its `api` and `code`; write"
            lines.append(f"known issue {issue.id}: {text} `{wanted}`  [first: {record.case}]")
        elif passed := fixed.get(issue.id):
            text = f"{counted(len(passed), 'case')} passed under its conditions"
            if still := failing[issue.id]:
                text += f", {still} failed as expected; limit its conditions to these"
            else:
                text = f"fixed? {text}; remove it, or limit its conditions"
            lines.append(f"known issue {issue.id}: {text}  [first: {passed[0]}]")
        elif collected and issue.id not in matched and (why := never_matches(issue, collected)):
            lines.append(f"known issue {issue.id} can never match: {why}")
    return lines


_MOST_SHOWN: Final = 8


@dataclass
class CollectedTests:
    """All tests, whether or not they were selected for this run.

    `tests` has for each (suite, test) the values of its axes, by their texts. `suites` names all
    suites, collected or not; None if tests are unknown. `devices` and `socs` are those of the lab.
    """

    tests: dict[tuple[str, str], dict[str, dict[str, object]]] = field(default_factory=dict)
    suites: frozenset[str] | None = frozenset()
    devices: frozenset[str] = frozenset()
    socs: frozenset[str] = frozenset()

    def add(self, suite: str, test: str, axes: Mapping[str, object]) -> None:
        """Add a case."""
        known = self.tests.setdefault((suite, test), {})
        for name, value in axes.items():
            known.setdefault(name, {}).setdefault(repr(value), value)


def never_matches(issue: KnownIssue, collected: CollectedTests) -> str | None:
    """Return why no case can meet an entry's conditions, whatever is selected; None if one can.

    Versions count only if they contradict each other, since the available ones depend on the lab.
    """
    return next(_reasons(issue.conditions, collected), None)


def _reasons(conditions: Conditions, collected: CollectedTests) -> Iterator[str]:
    known: dict[str, Iterable[object]] = {
        "engine": ENGINES,
        "backend": BACKENDS,
        "target": TARGETS,
        "htp_arch": HTP_ARCHS,
        "soc": {*SOCS, *collected.socs},
        "device": collected.devices,
    }
    for name, values in known.items():
        condition = getattr(conditions, name)
        if condition is not None and values and not _any_matches(values, condition):
            yield f"no {name} is {_shown(condition)}"
    for name in VERSIONS:
        condition = getattr(conditions, name)
        if condition is not None and not is_relative(condition) and _contradicts_itself(condition):
            yield f"no version of {name} is {condition}"
    yield from _unmet_tests(conditions, collected)


def _unmet_tests(conditions: Conditions, collected: CollectedTests) -> Iterator[str]:
    suite = conditions.suite
    if collected.suites is None:
        return
    # the tests of a file that was not collected are unknown
    if suite is None and collected.suites - {names[0] for names in collected.tests}:
        return
    candidates = {
        names: axes
        for names, axes in collected.tests.items()
        if suite is None or matches_any(names[0], suite)
    }
    if not candidates:
        if suite is not None and not _any_matches(collected.suites, suite):
            yield f"no suite is called {_shown(suite)}{_existing(sorted(collected.suites))}"
        return
    owner = "its suite" if suite is not None else "any suite"
    if (tests := conditions.test) is not None:
        names = {test for _, test in candidates}
        candidates = {key: axes for key, axes in candidates.items() if matches_any(key[1], tests)}
        if not candidates:
            yield f"no test of {owner} has the name {_shown(tests)}{_existing(sorted(names))}"
            return
        owner = "its test"
    missing = [
        name
        for name in conditions.axes
        if name not in IN_AXES and all(name not in axes for axes in candidates.values())
    ]
    if missing:
        yield f"no case of {owner} has the axis {', '.join(missing)}"
        return
    for name, alternatives in conditions.axes.items():
        values = [value for axes in candidates.values() for value in axes.get(name, {}).values()]
        if name not in IN_AXES and not _any_matches(values, alternatives):
            existing = _existing(map(str, values))
            yield f"in no case of {owner} {name} is {_shown(alternatives)}{existing}"


def _any_matches(values: Iterable[object], alternatives: Sequence[object]) -> bool:
    return any(matches_any(value, alternatives) for value in values)


def _contradicts_itself(text: str) -> bool:
    version_range = VersionRange.parse(text)
    bounds = [bound.parts for _, bound in version_range.clauses]
    least = [(0,), *bounds, *((*parts[:-1], parts[-1] + 1) for parts in bounds)]
    # longer than any bound, so that all parts of each bound are compared
    zeros = (0,) * max(map(len, bounds))
    return not any(QnnVersion((*parts, *zeros)) in version_range for parts in least)


def _existing(names: Iterable[str]) -> str:
    shown = _shown(dict.fromkeys(filter(None, names)))
    return f" (there are: {shown})" if shown else ""


def _shown(values: Iterable[object]) -> str:
    return first_names(map(str, values), _MOST_SHOWN)
