"""From the state of a grid search to its answer (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from harness.bisect.answers import Place, Verdict
from harness.bisect.board import Board
from harness.bisect.frontier import Spot, Turned, first_good, last_bad
from harness.bisect.grid_findings import Cell, GridFinding, GridKind, How


def finding(
    board: Board,
    kind: GridKind,
    turned: Turned | None,
    *,
    notes: tuple[str, ...] = (),
    witnesses: tuple[Place, ...] = (),
) -> GridFinding:
    """What is known of a board, as the answer of its search."""
    spec, evidence = board.spec, board.evidence
    cells = _cells(board, turned, all_alike=kind == "no-change")
    edge_good: tuple[Spot, ...] = ()
    edge_bad: tuple[Spot, ...] = ()
    if turned is not None:
        known = board.known(turned)
        edge_good = tuple(sorted(turned.spot(spot) for spot in first_good(known.good)))
        edge_bad = tuple(sorted(turned.spot(spot) for spot in last_bad(known.bad)))
    verdicts = set(board.verdicts.values())
    unsure = _beside_unknown(board, cells, (*edge_good, *edge_bad))
    return GridFinding(
        kind=kind,
        axes=spec.axes,
        cells=cells,
        newer=turned.newer if turned else None,
        edge_good=tuple(map(board.place, edge_good)),
        edge_bad=tuple(map(board.place, edge_bad)),
        unsure=unsure,
        mattered=_mattered(board, cells),
        verdict=verdicts.pop() if len(verdicts) == 1 else None,
        witnesses=witnesses,
        confidence=board.confidence() if kind in ("frontier", "no-change") else None,
        runs=evidence.runs,
        unknown=evidence.unknown,
        tallies=dict(evidence.tallies),
        notes=notes,
    )


def _cells(board: Board, turned: Turned | None, *, all_alike: bool) -> dict[Place, Cell]:
    known = None if turned is None else board.known(turned)
    everywhere = next(iter(board.verdicts.values()), None) if all_alike else None
    cells = {}
    for row, column in np.ndindex(*board.shape):
        spot = (int(row), int(column))
        verdict = board.verdicts.get(spot)
        how: How = "run" if verdict else "open"
        if not board.testable[spot]:
            how = "untestable"
        elif verdict is None and everywhere is not None:
            verdict, how = everywhere, "concluded"
        if verdict is None and known is not None and turned is not None:
            at = turned.spot(spot)
            verdict = "good" if known.good[at] else "bad" if known.bad[at] else None
            if how == "untestable" and not _whatever_way(board, spot, verdict):
                verdict = None
            how = "concluded" if verdict and how == "open" else how
        cells[board.place(spot)] = Cell(verdict, how)
    return cells


def _whatever_way(board: Board, spot: Spot, verdict: Verdict | None) -> bool:
    """Whether this can be concluded; if corners are not known, only if all ways that fit agree."""
    if verdict is None or board.corners_testable():
        return True
    for way in board.ways():
        known = board.known(way)
        if not (known.good if verdict == "good" else known.bad)[way.spot(spot)]:
            return False
    return True


def _beside_unknown(
    board: Board, cells: Mapping[Place, Cell], edge: Iterable[Spot]
) -> frozenset[Place]:
    """Which of these have a neighbour of which nothing is known."""
    unsure = set()
    for row, column in edge:
        for spot in ((row - 1, column), (row + 1, column), (row, column - 1), (row, column + 1)):
            inside = 0 <= spot[0] < board.shape[0] and 0 <= spot[1] < board.shape[1]
            if inside and cells[board.place(spot)].verdict is None:
                unsure.add(board.place((row, column)))
    return frozenset(unsure)


def _mattered(board: Board, cells: Mapping[Place, Cell]) -> tuple[bool | None, bool | None]:
    rows, columns = board.spec.rows, board.spec.columns
    along_rows = [[cells[row, column].verdict for row in rows] for column in columns]
    along_columns = [[cells[row, column].verdict for column in columns] for row in rows]
    return _differs(along_rows), _differs(along_columns)


def _differs(lines: Iterable[list[Verdict | None]]) -> bool | None:
    """Whether a line holds both verdicts; None if a line with gaps still might."""
    lines = list(lines)
    if any({"good", "bad"} <= set(line) for line in lines):
        return True
    return None if any(None in line for line in lines if len(line) > 1) else False
