"""Results of the checks of `qnn-harness doctor`, and their exit code (pure)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, get_args

from harness.core.json_record import Schema1
from harness.core.yaml_document import shown

CheckGroup = Literal["host", "lab", "device", "acceptance"]
Status = Literal["ok", "warn", "fail", "unknown", "not-applicable"]

_MAX_CHARS: Final = 600


class CheckResult(NamedTuple):
    """The result of one check; see `Checked`."""

    status: Status
    found: str
    advice: str = ""


@dataclass(frozen=True)
class Checked:
    """The result of one check.

    `group` is its kind, `subject` is `host`, `lab`, or the name of a device, and `name` is the
    checked property. `found` is the result, `advice` the action to take, empty if none is needed.
    Texts are one line each, whatever a device printed.
    """

    group: CheckGroup
    subject: str
    name: str
    status: Status
    found: str
    advice: str = ""

    def __post_init__(self) -> None:
        for field in ("subject", "name", "found", "advice"):
            object.__setattr__(self, field, one_line(getattr(self, field)))


@dataclass(frozen=True)
class Summary:
    """The number of checks by status, and the exit code.

    `exit_code`: 0 nothing is red, 1 something is, 2 the input is wrong, 3 no device is reachable.
    """

    ok: int
    warn: int
    fail: int
    unknown: int
    not_applicable: int
    exit_code: int


@dataclass(frozen=True)
class DoctorReport:
    """The result of one call of `qnn-harness doctor`."""

    schema: Schema1
    checks: tuple[Checked, ...]
    summary: Summary


REACHABLE: Final = "reachable"
LAB_FILE: Final = "devices.yaml"


def exit_code_of(checks: Sequence[Checked]) -> int:
    """Return the exit code for these checks (pure)."""
    if any(check.name == LAB_FILE and check.status == "fail" for check in checks):
        return 2
    contacts = [check for check in checks if check.group == "device" and check.name == REACHABLE]
    if contacts and all(check.status == "fail" for check in contacts):
        return 3
    return 1 if any(check.status == "fail" for check in checks) else 0


def report_of(checks: Iterable[Checked]) -> DoctorReport:
    """Return the report of these checks."""
    listed = tuple(checks)
    count = Counter(check.status for check in listed)
    counts = {status.replace("-", "_"): count[status] for status in get_args(Status)}
    return DoctorReport(1, listed, Summary(**counts, exit_code=exit_code_of(listed)))


def one_line(text: str) -> str:
    """Return `text` on one line, printable, and at most 600 characters long."""
    plain = "".join(char if char.isprintable() else " " for char in text)
    return shown(" ".join(plain.split()), _MAX_CHARS)
