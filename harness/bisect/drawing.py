"""A grid as text for a terminal (pure)."""

from __future__ import annotations

from typing import Final

from harness.bisect.answers import Place
from harness.bisect.grid_findings import Cell, GridFinding
from harness.bisect.specs import GridSpec

LEGEND: Final = (
    "* at the edge, ! contradicts, (...) concluded from others without a run, "
    "n/a cannot be tested, ? not known"
)


def draw(spec: GridSpec, finding: GridFinding) -> str:
    """The grid with its rows and columns named, a legend below; lines end without spaces."""
    marked = {**dict.fromkeys((*finding.edge_good, *finding.edge_bad), "*")}
    marked |= dict.fromkeys(finding.witnesses, "!")
    titles = [f"{spec.axes[0]} \\ {spec.axes[1]}", *spec.columns]
    lines = [titles]
    for row in spec.rows:
        cells = [_word((row, column), finding, marked) for column in spec.columns]
        lines.append([row, *cells])
    widths = [max(len(line[i]) for line in lines) for i in range(len(titles))]
    text = [
        "  ".join(part.ljust(width) for part, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]
    return "\n".join([*text, LEGEND])


def _word(at: Place, finding: GridFinding, marked: dict[Place, str]) -> str:
    cell = finding.cells[at]
    return _plain(cell) + marked.get(at, "")


def _plain(cell: Cell) -> str:
    if cell.how == "untestable":
        return f"n/a ({cell.verdict})" if cell.verdict else "n/a"
    if cell.verdict is None:
        return "?"
    return cell.verdict if cell.how == "run" else f"({cell.verdict})"
