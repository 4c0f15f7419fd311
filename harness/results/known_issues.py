"""known_issues.yaml: failures that are expected, under which conditions, until when."""

from __future__ import annotations

import datetime
import operator
import re
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PrivateAttr,
    StrictBool,
    StrictInt,
    WithJsonSchema,
)

from harness.core.axes import AXES, IN_AXES, VERSIONS
from harness.core.codes import same_code
from harness.core.errors import ConfigError
from harness.core.outgoing_text import counted
from harness.core.socs import HTP_ARCHS, SOCS, TARGETS
from harness.core.versions import QnnVersion, VersionRange
from harness.core.yaml_document import (
    SchemaOne,
    Text,
    check_document,
    entries_of,
    field_name,
    matching,
    names_taken_twice,
    read_document,
)
from harness.diagnosis.error import ErrorRecord, Part
from harness.results.record import CaseRecord

LIMIT_S: Final = 1.0
"""Processor time (seconds) that a pattern may take for one message."""

MAX_PATTERN_CHARS: Final = 200
MAX_LINES: Final = 50
MAX_LINE_CHARS: Final = 500
_MOST: Final = {"*+": 2, "?|": 6}


class UnsafePatternError(ValueError):
    """The pattern is no regular expression, or one that could take unreasonably long."""


class SlowPatternError(Exception):
    """The pattern takes too long, so that nobody knows whether it would be found."""


class SafePattern:
    """A pattern that is looked for once in each text, and never for longer than the limit."""

    def __init__(self, text: str, limit_s: float = LIMIT_S) -> None:
        import regex  # few runs have patterns

        self.text = text
        self._pattern = regex.compile(text)
        self._limit_s = limit_s
        self._known: dict[str, bool] = {}
        self._is_slow = False

    def found_in(self, message: str) -> bool:
        """Whether it is found in one of the message's first 50 lines (500 characters each).

        Raises SlowPatternError if that takes longer than the limit, and from then on for every
        message that was not looked at before.
        """
        lines = message[: MAX_LINES * MAX_LINE_CHARS * 4].splitlines()[:MAX_LINES]
        looked_at = "\n".join(line[:MAX_LINE_CHARS] for line in lines)
        if looked_at not in self._known:
            self._known[looked_at] = self._search(looked_at.split("\n"))
        return self._known[looked_at]

    def _search(self, lines: list[str]) -> bool:
        if self._is_slow:
            raise SlowPatternError(self.text)
        left_s = self._limit_s
        try:
            for line in lines:
                began = time.process_time()
                if self._pattern.search(line, timeout=left_s):
                    return True
                left_s = max(left_s - (time.process_time() - began), 0.001)
        except TimeoutError as error:
            self._is_slow = True
            raise SlowPatternError(self.text) from error
        return False


@cache
def safe_pattern(text: str) -> SafePattern:
    """A pattern of those that are allowed, which mean the same to `re` and to `regex`.

    Allowed are literals, classes, plain groups, up to two of `*` and `+`, up to six of `?` and `|`,
    and exact counts `{n}` up to 100 of one character or class. Repeated groups, other counts,
    look-around, back references and flags are refused: they are what mostly takes long. Raises
    UnsafePatternError.
    """
    if not text or len(text) > MAX_PATTERN_CHARS:
        raise UnsafePatternError(f"must be 1 to {MAX_PATTERN_CHARS} characters")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            re.compile(text)  # `regex` would take more, such as \p{L} and sets of sets
    except (re.error, OverflowError, Warning) as error:  # \UFFFFFFFF is no character
        raise UnsafePatternError(f"is not a regular expression: {error}") from error
    counts = dict.fromkeys(_MOST, 0)
    before = ""
    for token in _tokens(text):
        # one behind a quantifier makes it lazy or possessive
        if token[0] in "*+?{" and not (token in "?+" and before[0] in "*+?{"):
            if before == ")":
                raise UnsafePatternError("a repeated group is not allowed")
            _count(token, counts)
        elif token == "|":
            _count(token, counts)
        elif token.startswith("(?") and token != "(?:":
            raise UnsafePatternError(f"{token} is not allowed; only plain groups and (?: are")
        elif re.fullmatch(r"\\[1-9]", token):
            raise UnsafePatternError("a back reference is not allowed")
        elif "[:" in re.sub(r"\\.", "..", token):
            raise UnsafePatternError("[: is not allowed in a class; put a backslash before [")
        before = token
    return SafePattern(text)


def _count(token: str, counts: dict[str, int]) -> None:
    kind = next((kind for kind in counts if token in kind), None)
    if kind is not None:
        counts[kind] += 1
        if counts[kind] > _MOST[kind]:
            both = " and ".join(kind)
            raise UnsafePatternError(f"more than {_MOST[kind]} of {both} are not allowed")
    elif not re.fullmatch(r"\{(?:100|[1-9]?\d)\}", token):
        raise UnsafePatternError(
            f"{token} is not allowed; an exact count up to 100 is, as in {{8}}"
        )


def _tokens(text: str) -> Iterator[str]:
    """The pattern in pieces: escapes, classes, group openings, counts and single characters."""
    scanner = re.compile(
        r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\(\?(?:P?<[=!]?|P=|[^)\w]|[a-zA-Z-]+)|\{\d*,?\d*\}|.",
        re.DOTALL,
    )
    return (found[0] for found in scanner.finditer(text))


_SIGNS = {">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt}
_COMPARISON = re.compile(r"(>=|<=|>|<)\s*(-?\d{1,15}(?:\.\d{1,15})?)", re.ASCII)
# The version of another axis in place of a number: compiler ">qnn".
_OTHER_AXIS = re.compile(rf"((?:>=|<=|>|<|==|!=)\s*)({'|'.join(VERSIONS)})", re.ASCII)
_ID = re.compile(r"[a-z0-9][a-z0-9.-]{0,79}", re.ASCII)
_LINK = re.compile(r"https://[!-~]{4,300}", re.ASCII)
_SCALAR_SCHEMA = {"type": ["string", "number", "boolean", "null"]}
_ANY_OF = {"anyOf": [_SCALAR_SCHEMA, {"type": "array", "items": _SCALAR_SCHEMA, "minItems": 1}]}


def _pattern(text: str) -> str:
    safe_pattern(text)
    return text


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
    """What the failure must look like.

    `api` and `code` must be equal (of QNN's codes the low 16 bits); `code: null` is a failure
    without one. `message` is a regular expression that must be found in a line of the error's
    message. Where no `outcome` is named, it may have failed, crashed or hung.
    """

    outcome: Literal["failed", "crashed", "hung"] | None = None
    """How the case ended; without it, in any of the three ways."""

    api: Text | None = None
    """The call that failed; without it, a failure that names none."""

    code: StrictInt | None = None
    """Its error code; without it, a failure that has none."""

    message: Annotated[Text, AfterValidator(_pattern)]
    """A regular expression for a line of the message; `"."` takes any."""


def _suites(alternatives: tuple[object, ...]) -> tuple[object, ...]:
    for one in alternatives:
        if isinstance(one, str) and (one.startswith("test_") or one.endswith(".py")):
            name = one.removesuffix(".py").removeprefix("test_")
            raise ValueError(f"must be the name of its file without test_ and .py: {name}")
    return alternatives


class Conditions(Part):
    """Where it is expected; everything that is given must hold.

    `suite` is the name of the test's file without `test_` and `.py`, `test` that of the function
    without its parameters, which are `axes`.

    A condition is a value, or a list of values of which one must hold: a number, a text in which *
    stands for anything, or a comparison such as ">=60". `qnn`, `compiler` and `ort` are version
    ranges such as ">=2.47,<2.51", or a comparison with one of the others, such as compiler ">qnn".
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
    """What libraries are built for, such as android-arm64."""

    backend: AnyOf | None = None
    """htp, gpu or cpu."""

    engine: AnyOf | None = None
    """What executes the model: qnn, ort, executorch or litert."""

    qnn: Range | None = None
    """Versions of the QNN runtime."""

    compiler: Range | None = None
    """Versions of the compiler that made the contexts."""

    ort: Range | None = None
    """Versions of ONNX Runtime."""

    axes: dict[Text, AnyOf] = Field(default={})
    """Parameters of the test, by their names."""


class KnownIssue(Part):
    """One expected failure. After the day `until` it is expected no longer: look again.

    `flaky` says that it comes and goes: a case that passes there is then no sign of a fix.
    """

    id: Annotated[Text, AfterValidator(_is_id)]
    """What reports call it; no two entries have the same."""

    link: Annotated[Text, AfterValidator(_is_link)]
    """Where it is tracked; an https address."""

    note: Text | None = None
    """Words for people."""

    signature: IssueSignature
    """How it fails."""

    conditions: Conditions = Conditions()
    """Where it is expected; without them, everywhere."""

    until: datetime.date
    """The last day on which it is expected, such as 2027-06-30."""

    flaky: StrictBool = False
    """Whether it comes and goes."""

    _pattern_place: str = PrivateAttr("")

    @property
    def too_slow(self) -> str:
        """What to say where its pattern took too long to be looked for."""
        where = f"{self._pattern_place}: " if self._pattern_place else ""
        return (
            f"{where}known issue {self.id} is not asked: looking for its message takes more than "
            f"{LIMIT_S:g} s; write it with fewer of * + ? and |"
        )


class KnownIssues(Part):
    """All that known_issues.yaml says."""

    schema_number: SchemaOne
    """Of which version the file is."""

    known_issues: tuple[KnownIssue, ...] = ()
    """The failures that are expected."""


def load_known_issues(path: Path) -> tuple[KnownIssue, ...]:
    """Reads known_issues.yaml. Raises one ConfigError that names every mistake by its line."""
    document = read_document(path)
    entries = entries_of(document, "known_issues")
    issues = check_document(
        document,
        KnownIssues,
        more=lambda _: names_taken_twice(document, "known_issues", entries, "id"),
    ).known_issues
    for index, issue in enumerate(issues):
        place = ("known_issues", index, "signature", "message")
        issue._pattern_place = f"{path}:{document.line(place)}: {field_name(place)}"
    return issues


def match(record: CaseRecord, issues: Iterable[KnownIssue]) -> KnownIssue | None:
    """The first known issue that explains a record; None if none does.

    Only failures of the target are ever expected. An entry whose `until` lies before the day the
    case started (UTC) explains nothing, and neither does one whose pattern takes too long (see
    `not_asked`).
    """
    explaining = (issue for issue in _that_may_explain(record, issues) if _says(record, issue))
    return next(explaining, None)


def not_asked(record: CaseRecord, issues: Iterable[KnownIssue]) -> list[KnownIssue]:
    """The known issues that might explain a record, if their pattern did not take too long."""
    return [issue for issue in _that_may_explain(record, issues) if _says(record, issue) is None]


def passed_anyway(record: CaseRecord, issues: Iterable[KnownIssue]) -> list[KnownIssue]:
    """The known issues under whose conditions a case passed: they may be fixed.

    Entries that are over, are flaky, or say nothing of where they are expected, are not among them.
    """
    if record.outcome != "passed":
        return []
    return [
        issue
        for issue in issues
        if _day(record) <= issue.until
        and not issue.flaky
        and issue.conditions != Conditions()
        and holds_under(record, issue.conditions)
    ]


def _that_may_explain(record: CaseRecord, issues: Iterable[KnownIssue]) -> Iterator[KnownIssue]:
    """The issues that fit a record in all but the message, which takes longest to compare."""
    if record.cause != "target" or record.error is None:
        return
    for issue in issues:
        if (
            _day(record) <= issue.until
            and _fits(record.error, record.outcome, issue.signature)
            and holds_under(record, issue.conditions)
        ):
            yield issue


def _fits(error: ErrorRecord, outcome: str, wanted: IssueSignature) -> bool:
    return (
        wanted.outcome in (None, outcome)
        and error.api == wanted.api
        and same_code(error.code, wanted.code)
    )


def _day(record: CaseRecord) -> datetime.date:
    return record.started.astimezone(datetime.UTC).date()


def _says(record: CaseRecord, issue: KnownIssue) -> bool | None:
    """Whether the message is that of an issue; None if looking for it takes too long."""
    assert record.error is not None
    try:
        return safe_pattern(issue.signature.message).found_in(record.error.message)
    except SlowPatternError:
        return None


def holds_under(record: CaseRecord, conditions: Conditions) -> bool:
    """Whether a case ran where the conditions want it."""
    facts = _facts(record)
    for name in ("suite", "test", "device", "soc", "htp_arch", "target", "backend", "engine"):
        alternatives = getattr(conditions, name)
        if alternatives is not None and not one_holds(facts.get(name), alternatives):
            return False
    for name in VERSIONS:
        wanted = getattr(conditions, name)
        if wanted is not None and not _version_within(_version(record, name), wanted, record):
            return False
    return all(
        name in record.axes and one_holds(record.axes[name], alternatives)
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


def is_relative(wanted: str) -> bool:
    """Whether a range compares with the version of another axis, as in compiler ">qnn"."""
    return _OTHER_AXIS.fullmatch(wanted.strip()) is not None


def one_holds(value: object, alternatives: Sequence[object]) -> bool:
    """Whether a value is one of the alternatives of a condition."""
    return any(_holds(value, alternative) for alternative in alternatives)


def _holds(value: object, alternative: object) -> bool:
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


def _version_within(value: object, wanted: str, record: CaseRecord) -> bool:
    other = _OTHER_AXIS.fullmatch(wanted.strip())
    if other is not None:
        wanted = f"{other[1]}{_version(record, other[2])}"
    try:
        return QnnVersion.parse(str(value)) in VersionRange.parse(wanted)
    except ConfigError:
        return False


def review_lines(
    cases: Iterable[CaseRecord],
    issues: Sequence[KnownIssue],
    today: datetime.date,
    collected: CollectedTests | None = None,
) -> list[str]:
    """Return a line for each entry that is over, may be fixed, or can never match.

    A run is mostly a part of the matrix: it says nothing that none of its cases met an entry's
    conditions. Conditions that none of the cases `collected` can meet do say something (None: not
    known).
    """
    lines = []
    fixed: dict[str, list[str]] = {}
    met = set[str]()
    for case in cases:
        for name in case.fixed.known_issues if case.fixed else ():
            fixed.setdefault(name, []).append(case.case)
        if collected is not None:
            met |= {one.id for one in issues if one.id not in met and match(case, [one])}
    for issue in issues:
        if issue.until < today:
            lines.append(f"known issue {issue.id} expired on {issue.until}: look at it again")
        elif passed := fixed.get(issue.id):
            where = f"{counted(len(passed), 'case')} passed where it is expected"
            lines.append(f"known issue {issue.id}: fixed? {where}  [first: {passed[0]}]")
        elif collected and issue.id not in met and (why := never_matches(issue, collected)):
            lines.append(f"known issue {issue.id} can never match: {why}")
    return lines


_MOST_SHOWN: Final = 8


@dataclass
class CollectedTests:
    """What tests there are, whether or not they were chosen for this run.

    `tests` has for each (suite, test) the values of its axes, by their texts. `suites` names those
    that are there although nothing was collected of them; None: nothing is known of tests.
    `devices` and `socs` are those of the lab.
    """

    tests: dict[tuple[str, str], dict[str, dict[str, object]]] = field(default_factory=dict)
    suites: frozenset[str] | None = frozenset()
    devices: frozenset[str] = frozenset()
    socs: frozenset[str] = frozenset()

    def add(self, suite: str, test: str, axes: Mapping[str, object]) -> None:
        """Takes note of one case."""
        known = self.tests.setdefault((suite, test), {})
        for name, value in axes.items():
            known.setdefault(name, {}).setdefault(repr(value), value)


def never_matches(issue: KnownIssue, collected: CollectedTests) -> str | None:
    """Why no case can meet an entry's conditions, whatever is chosen; None if one can.

    Versions count only where they contradict each other: which there are depends on the lab.
    """
    return next(_reasons(issue.conditions, collected), None)


def _reasons(conditions: Conditions, collected: CollectedTests) -> Iterator[str]:
    known: dict[str, Iterable[object]] = {
        **{axis.name: axis.values for axis in AXES.values() if axis.values},
        "target": TARGETS,
        "htp_arch": HTP_ARCHS,
        "soc": {*SOCS, *collected.socs},
        "device": collected.devices,
    }
    for name, values in known.items():
        wanted = getattr(conditions, name)
        if wanted is not None and values and not _any_holds(values, wanted):
            yield f"no {name} is {_shown(wanted)}"
    for name in VERSIONS:
        wanted = getattr(conditions, name)
        if wanted is not None and not is_relative(wanted) and _contradicts_itself(wanted):
            yield f"no version of {name} is {wanted}"
    yield from _unmet_tests(conditions, collected)


def _unmet_tests(conditions: Conditions, collected: CollectedTests) -> Iterator[str]:
    suite = conditions.suite
    if collected.suites is None:
        return
    # of a file that was not collected, nobody knows which tests it has
    if suite is None and collected.suites - {names[0] for names in collected.tests}:
        return
    here = {
        names: axes
        for names, axes in collected.tests.items()
        if suite is None or one_holds(names[0], suite)
    }
    if not here:
        if suite is not None and not _any_holds(collected.suites, suite):
            yield f"no suite is called {_shown(suite)}"
        return
    whose = "its suite" if suite is not None else "any suite"
    if conditions.test is not None:
        here = {names: axes for names, axes in here.items() if one_holds(names[1], conditions.test)}
        if not here:
            yield f"no test of {whose} is called {_shown(conditions.test)}"
            return
        whose = "its test"
    missing = [
        name
        for name in conditions.axes
        if name not in IN_AXES and all(name not in axes for axes in here.values())
    ]
    if missing:
        yield f"no case of {whose} has the axis {', '.join(missing)}"
        return
    for name, wanted in conditions.axes.items():
        values = [value for axes in here.values() for value in axes.get(name, {}).values()]
        if name not in IN_AXES and not _any_holds(values, wanted):
            shown = _shown(dict.fromkeys(map(str, values)))
            yield f"in no case of {whose} {name} is {_shown(wanted)} (there are: {shown})"


def _any_holds(values: Iterable[object], wanted: Sequence[object]) -> bool:
    return any(one_holds(value, wanted) for value in values)


def _contradicts_itself(text: str) -> bool:
    wanted = VersionRange.parse(text)
    bounds = [bound.parts for _, bound in wanted.clauses]
    least = [(0,), *bounds, *((*parts[:-1], parts[-1] + 1) for parts in bounds)]
    # longer than any bound, so that it is compared with each to its last part
    zeros = (0,) * max(map(len, bounds))
    return not any(QnnVersion((*parts, *zeros)) in wanted for parts in least)


def _shown(values: Iterable[object]) -> str:
    listed = [str(value) for value in values]
    more = len(listed) - _MOST_SHOWN
    return ", ".join(listed[:_MOST_SHOWN]) + (f", and {more} more" if more > 0 else "")
