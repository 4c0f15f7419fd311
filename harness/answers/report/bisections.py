"""The bisections kept in a folder of reports, as reports of runs and the site list them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.answers.report.document import Line, Span, Table
from harness.answers.report.pages import clip, link
from harness.ground.files.whole_file import read_json
from harness.verdict.results.run_numbers import ordered

_RESULT = "result.json"
_RESULTS = f"*-bisect/{_RESULT}"
_MAX_BYTES = 64 << 20
_MOST = 200
_MAX_CHARS = 300


@dataclass(frozen=True)
class Listed:
    """A bisection as a list shows it; `link` is seen from the folder of reports."""

    name: str
    case: str
    axes: str
    answer: str
    runs: int
    link: str


def bisections_in(reports: Path) -> list[Listed]:
    """The bisections of a folder, the newest first, at most 200, without unreadable ones."""
    try:
        folders = ordered(file.parent for file in reports.glob(_RESULTS))[-_MOST:]
    except OSError:
        return []
    files = (one / _RESULT for one in reversed(folders))
    return [one for one in map(_read, files) if one is not None]


def of_cases(found: Iterable[Listed], cases: Iterable[str]) -> list[Listed]:
    """The bisections of these cases, with whatever parameters (pure)."""
    tests = {case.partition("[")[0] for case in cases}
    return [one for one in found if one.case.partition("[")[0] in tests]


def listed(found: Iterable[Listed], reports: str = "") -> Table:
    """Bisections as a table; `reports` leads from the page to the folder of reports (pure)."""
    rows: list[Sequence[Line]] = [
        (Span(one.name, link=reports + one.link), one.axes, one.answer, str(one.runs), one.case)
        for one in found
    ]
    return Table("", ("Bisection", "Axes", "Answer", "Runs", "Case"), rows, "stacked long")


def _read(file: Path) -> Listed | None:
    """What a result says, which anybody may have edited."""
    try:
        content = read_json(file, _MAX_BYTES)
    except (OSError, ValueError):
        return None
    if not isinstance(content, dict) or content.get("kind") != "bisect":
        return None
    answer, axes, runs = (content.get(key) for key in ("answer", "axes", "runs"))
    return Listed(
        name=file.parent.name,
        case=_short(content.get("case")),
        axes=", ".join(map(_short, axes)) if isinstance(axes, list) else "",
        answer=_short(answer.get("text") if isinstance(answer, dict) else "not over"),
        runs=len(runs) if isinstance(runs, list) else 0,
        link=link(f"{file.parent.name}/report.html"),
    )


def _short(value: object) -> str:
    return clip(" ".join(str(value).split()), _MAX_CHARS)
