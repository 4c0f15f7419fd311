"""The plug-in with each pytest and pytest-xdist that it allows, on each Python that is here."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.nightly.matrix import (
    HERE,
    OLDEST,
    PYTESTS,
    PYTHONS,
    XDISTS,
    Cell,
    cells,
    limits,
    program_of,
    runs,
)

LAB = """schema: 1
devices:
  - {name: one, simulated: true, soc: QCS8550, target: linux-x64}
  - {name: two, simulated: true, soc: SM8650, target: linux-x64}
"""
UNIT = ("ending", "neighbours", "notices", "parallel", "scheduler", "terminal")
SLOWER = (
    "test_live.py::test_each_device_and_the_run_have_a_line_while_it_goes_on",
    "test_parallel.py::test_what_a_worker_said_of_a_case_that_it_died_in_is_not_counted[end-call]",
    "test_programs_beside.py::test_pytest_refuses_programs_beside_a_named_file",
    "test_retries.py::test_the_lab_is_tried_again_and_given_up_in_the_end",
)
# what comes to each part of pytest_internals.py
SELECTION = (
    *(f"tests/unit/run/pytest_plugin/test_{name}.py" for name in UNIT),
    *(f"tests/integration/run/pytest_plugin/{name}" for name in SLOWER),
)
TIMEOUT_S = 600


def test_the_table_begins_with_what_is_required() -> None:
    assert limits()["pytest"] == f"pytest>={PYTESTS[0]}"
    assert limits()["pytest-xdist"].startswith(f"pytest-xdist>={XDISTS[0]},")
    assert {cell.pytest for cell in cells()} == set(PYTESTS)
    assert {cell.python for cell in cells()} == {*PYTHONS, HERE}
    assert OLDEST in cells()


@pytest.mark.nightly
@pytest.mark.parametrize("cell", cells(), ids=str)
def test_cell(cell: Cell, tmp_path: Path, show_figures: Callable[..., None]) -> None:
    if program_of(cell.python) is None:
        pytest.skip(f"there is no Python {cell.python} here")
    (tmp_path / "devices.yaml").write_text(LAB)
    # what this run is told by variables is not for those
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    for words in runs(cell, SELECTION, tmp_path):
        done = subprocess.run(
            words,
            cwd=Path(__file__).parents[2],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        show_figures(f"{cell}: {done.stdout.rstrip().splitlines()[-1]}")
        assert done.returncode == 0, done.stdout
