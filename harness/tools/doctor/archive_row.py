"""What an acceptance archive comes to, as a row of docs/devices.md."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter, ValidationError

from harness.ground import ConfigError, counted
from harness.tools.doctor.check import Checked, DoctorReport

COLUMNS: Final = ("Device", "System", "QNN", "Layers that work", "What did not")
_REPORT: Final = "report.json"
_MOST_BYTES: Final = 1 << 20
_MOST_CHARS: Final = 200


def read_archive(path: Path) -> DoctorReport:
    """The report in an archive of `doctor --acceptance`. Raises ConfigError for anything else."""
    try:
        with zipfile.ZipFile(path) as packed, packed.open(_REPORT) as file:
            told = file.read(_MOST_BYTES + 1)
    except (OSError, KeyError, zipfile.BadZipFile, zlib.error, RuntimeError, ValueError) as error:
        problem = f"is no archive of `doctor --acceptance`: {error}"
        raise ConfigError(problem, file=path) from None
    if len(told) > _MOST_BYTES:
        raise ConfigError(f"its {_REPORT} is larger than {_MOST_BYTES} bytes", file=path)
    try:
        return TypeAdapter(DoctorReport).validate_json(told, extra="ignore")
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        problem = f"its {_REPORT} is not one of `doctor`: {first['msg']}"
        raise ConfigError(problem, file=path, field=where) from None


def row_of(report: DoctorReport) -> str:
    """A line of a Markdown table with `COLUMNS` (pure)."""
    steps = [one for one in report.checks if one.group == "acceptance"]
    good = [one.name for one in steps if one.status == "ok"]
    bad = [one for one in steps if one.status in ("warn", "fail", "unknown")]
    cells = (
        _found(report, "SoC"),
        _found(report, "system"),
        _found(report, "runtime"),
        f"{counted(len(good), 'step')}: {', '.join(good)}" if good else "none",
        "; ".join(f"{one.name}: {one.found}"[:_MOST_CHARS] for one in bad) or "-",
    )
    return f"| {' | '.join(map(_cell, cells))} |"


def _found(report: DoctorReport, name: str) -> str:
    found: list[Checked] = [
        one for one in report.checks if (one.group, one.name) == ("device", name)
    ]
    return found[0].found if found else "not told"


def _cell(text: str) -> str:
    kept = "".join(one if one.isprintable() else " " for one in text)
    for mark in "\\|<>`*_[]":
        kept = kept.replace(mark, f"\\{mark}")
    return kept
