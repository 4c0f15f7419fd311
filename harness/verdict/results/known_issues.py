"""known_issues.yaml: failures that are expected, under which conditions, until when."""

from __future__ import annotations

import datetime
import operator
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PrivateAttr,
    StrictBool,
    StrictInt,
    WithJsonSchema,
)

from harness.ground.errors import ConfigError
from harness.ground.facts.axes import VERSIONS
from harness.ground.facts.codes import same_code
from harness.ground.facts.socs import SOCS
from harness.ground.facts.versions import QnnVersion, VersionRange
from harness.ground.yaml_lines.document import field_name, read_document
from harness.ground.yaml_lines.models import (
    SchemaOne,
    Text,
    check_document,
    entries_of,
    matching,
    names_taken_twice,
)
from harness.verdict.failure.error import ErrorRecord, Part
from harness.verdict.results.patterns import LIMIT_S, SlowPatternError, safe_pattern
from harness.verdict.results.record import CaseRecord

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
