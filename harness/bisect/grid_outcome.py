"""From the state of a grid search to its answer (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from harness.bisect.answers import Place, Verdict
from harness.bisect.board import Board
from harness.bisect.frontier import Spot, Turned, first_good, last_bad
from harness.bisect.grid_findings import Cell, GridFinding, GridKind, How


def finding(
    board: Board,
    kind: GridKind,
    ways: Sequence[Turned] = (),
    *,
    notes: tuple[str, ...] = (),
    witnesses: tuple[Place, ...] = (),
) -> GridFinding:
    """What is known of a board, as the answer of its search; only what all of `ways` agree on."""
    spec, evidence = board.spec, board.evidence
    cells = _cells(board, ways, all_alike=kind == "no-change")
    edge_good: tuple[Spot, ...] = ()
    edge_bad: tuple[Spot, ...] = ()
    turned = ways[0] if ways else None
    if turned is not None:
        good, bad = board.agreed(ways)
        up, down = first_good(board.turn(good, turned)), last_bad(board.turn(bad, turned))
        edge_good = tuple(sorted(turned.spot(spot) for spot in up))
        edge_bad = tuple(sorted(turned.spot(spot) for spot in down))
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
        assumed=_assumed(board) if ways or kind == "no-change" else None,
    )


def _assumed(board: Board) -> str | None:
    newer = board.spec.newer
    if newer is None or board.spec.every:
        return None
    row, column = board.spec.axes
    if newer[0] == newer[1]:
        return f"newer {row} and newer {column} are both better, or both worse"
    return f"of newer {row} and newer {column}, one is better and the other worse"


def _cells(board: Board, ways: Sequence[Turned], *, all_alike: bool) -> dict[Place, Cell]:
    good, bad = board.agreed(ways)
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
        if verdict is None:
            verdict = "good" if good[spot] else "bad" if bad[spot] else None
            how = "concluded" if verdict and how == "open" else how
        cells[board.place(spot)] = Cell(verdict, how)
    return cells


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
