"""2,500 hostile runs, files of state, models and events through all that reads them, nights too."""

from pathlib import Path

import pytest

from tests.integration.bounds.test_streams import peak_kb

MOST_KB = 300_000
READ = """
import contextlib, io, sys
from pathlib import Path
from tests.integration.damaged.hostile_files import KINDS
kind, folder, begin, end = sys.argv[1:]
Path(folder).mkdir()
with contextlib.redirect_stderr(io.StringIO()):
    KINDS[kind](Path(folder), range(int(begin), int(end)))
print()
"""
A_DAY = {"runs": 8, "state": 60, "models": 30, "onnx": 3, "events": 60}
A_NIGHT = {"runs": 25, "state": 300, "models": 150, "onnx": 12, "events": 300}
NIGHTS = {"runs": 24, "state": 2, "models": 3, "onnx": 2, "events": 2}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "begin", "end"),
    [pytest.param(kind, 0, number, id=kind) for kind, number in A_DAY.items()]
    + [
        pytest.param(
            *(kind, part * number, (part + 1) * number),
            id=f"{kind}-{part}",
            marks=pytest.mark.nightly,
        )
        for kind, number in A_NIGHT.items()
        for part in range(NIGHTS[kind])
    ],
)
def test_hostile_files_cost_nothing_but_themselves(
    tmp_path: Path, kind: str, begin: int, end: int
) -> None:
    peak, _ = peak_kb(READ, kind, tmp_path / "here", begin, end)
    assert peak < MOST_KB
