"""`qnn_problem_file`: the error that stopped a run, for the program that started it."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Final, Literal

from pydantic import BaseModel

from harness.core.bounded_json import parse_model
from harness.core.errors import ConfigError, HarnessError, VersionError
from harness.core.files import read_bounded

_MAX_BYTES: Final = 64 * 1024
_MAX_CHARS: Final = 4000


class Problem(BaseModel, extra="forbid", frozen=True):
    """The reason why no case was run: the versions, the case, any other input, or the lab.

    `field` is the option or the entry of a file that is at fault, if there is one.
    """

    about: Literal["versions", "case", "input", "lab"]
    text: str
    field: str | None = None

    @classmethod
    def of(cls, error: HarnessError) -> Problem:
        text = str(error)[:_MAX_CHARS].encode("utf-8", "replace").decode()
        if not isinstance(error, ConfigError):
            return cls(about="lab", text=text)
        about: Literal["versions", "case", "input"] = "input"
        if isinstance(error, VersionError):
            about = "versions"
        elif error.field == "qnn_only_case":
            about = "case"
        return cls(about=about, text=text, field=error.field)


def write_problem(file: Path, problem: Problem) -> None:
    """Write the problem; if that fails, there is no file."""
    with contextlib.suppress(OSError):
        file.write_text(problem.model_dump_json() + "\n", encoding="utf-8")


def read_problem(file: Path) -> Problem | None:
    """Return the problem of a run; None if there is none, or if it cannot be read."""
    try:
        return parse_model(Problem, read_bounded(file, _MAX_BYTES))
    except (OSError, ValueError):
        return None
