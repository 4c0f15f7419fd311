"""JSON Schemas of the files that people and programs exchange with the harness.

`python -m harness.results.schema` writes them to docs/schema; with `--check` it says whether they
are current.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import TypeAdapter

from harness.lab.checks import DoctorReport
from harness.lab.inventory import Lab
from harness.results.bisection_result import BisectionResult
from harness.results.known_issues import KnownIssues
from harness.results.record import Line
from harness.results.whole_file import write_whole

FOLDER: Final = Path("docs/schema")
_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schemas() -> dict[str, str]:
    """Name of each schema file and its text."""
    made = {
        # As it is written: every key is there.
        "results.schema.json": _schema(Line, "A line of results.jsonl", "serialization"),
        "doctor.schema.json": _schema(DoctorReport, "What doctor --json prints", "serialization"),
        "bisect.schema.json": _schema(
            BisectionResult, "What bisect --json prints, and its result.json", "validation"
        ),
        "devices.schema.json": _schema(Lab, "devices.yaml", "validation"),
        "known_issues.schema.json": _schema(KnownIssues, "known_issues.yaml", "validation"),
    }
    return {name: json.dumps(schema, indent=2) + "\n" for name, schema in made.items()}


def outdated(folder: Path) -> list[str]:
    """The names of the files in `folder` that are not what `schemas` makes."""
    return [name for name, text in schemas().items() if _read(folder / name) != text]


def main(arguments: Sequence[str]) -> int:
    """Writes the files, or with --check only compares them; 1 if they are not current."""
    if list(arguments) == ["--check"]:
        wrong = outdated(FOLDER)
        for name in wrong:
            print(f"{FOLDER / name} is not current: run `python -m harness.results.schema`")
        return 1 if wrong else 0
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in schemas().items():
        write_whole(FOLDER / name, text.encode())
    return 0


def _schema(model: Any, title: str, mode: Literal["serialization", "validation"]) -> dict[str, Any]:
    made = TypeAdapter(model).json_schema(by_alias=True, mode=mode)
    return {"$schema": _DIALECT} | made | {"title": title}


def _read(path: Path) -> str | None:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
