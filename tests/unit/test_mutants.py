"""What finds weak tests by night is itself shown to find them."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest

from tests.nightly.mutants import (
    EQUIVALENT,
    ROOT,
    Tally,
    equivalents,
    mutants,
    pure_files,
    rate_of,
)

FILE = "harness/qnn/platforms.py"


def test_every_pure_file_has_mutants_each_of_which_changes_one_statement() -> None:
    files = pure_files()
    assert len(files) > 60
    for file in ("harness/farm/shards.py",):
        assert file in files
        whole = ast.unparse(ast.parse((ROOT / file).read_text())).splitlines()
        made = 0
        for one in mutants(file):
            made += 1
            changed = ast.unparse(ast.fix_missing_locations(one.tree)).splitlines()
            assert changed != whole
            differ = [at for at, (a, b) in enumerate(zip(whole, changed, strict=False)) if a != b]
            assert differ or len(changed) != len(whole)
        assert made > 50


PROGRAM = """
from pathlib import Path
from tests.nightly.mutants import ROOT, survives
file = "harness/farm/shards.py"
wrong = (ROOT / file).read_text().replace("return ", "return None and ")
changed = compile(wrong, str(ROOT / file), "exec")
print(survives(file, None, 300), survives(file, changed, 300))
"""


@pytest.mark.nightly
def test_a_room_passes_as_it_is_and_not_with_a_fault() -> None:
    """In a process that has nothing of the harness yet, as the nightly run is one."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.stdout == "True False\n", done.stderr


def test_the_rate_is_of_those_that_change_anything() -> None:
    (one, *_) = mutants(FILE)
    tallies = {"a": Tally(killed=3, equivalent=9), "b": Tally(survivors=[one])}
    assert rate_of(tallies) == 0.75
    assert str(tallies["a"]) == "3 of 3 killed (100%), 9 equivalent"


def test_who_is_called_equivalent_still_is_a_mutant_and_has_a_reason() -> None:
    lines = [line for line in EQUIVALENT.read_text().splitlines() if line and line[0] != "#"]
    assert all(len(line.split("\t")) == 4 and line.split("\t")[3] for line in lines)
    known = equivalents()
    there = {
        (one.file, one.before, one.after)
        for file in {file for file, *_ in known}
        for one in mutants(file)
    }
    assert known - there == set()
