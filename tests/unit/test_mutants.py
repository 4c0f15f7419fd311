"""What finds weak tests by night is itself shown to find them."""

from __future__ import annotations

import ast
import re
import subprocess
import sys

import pytest

from tests.nightly.mutants import EQUIVALENT, ROOT, equivalents, mutants, pure_files
from tests.nightly.mutation_run import Tally


def test_every_pure_file_has_mutants_each_of_which_changes_one_statement() -> None:
    files = pure_files()
    assert len(files) > 60
    for file in ("harness/answers/merging/shards.py",):
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


@pytest.mark.nightly
def test_a_short_run_tells_what_became_of_each() -> None:
    options = ["--seconds", "1", "--seed", "1", "--file", "harness/answers/merging/shards.py"]
    done = subprocess.run(
        [sys.executable, "-m", "tests.nightly.mutation_run", *options],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    found = re.search(r"^all +(\d+) of (\d+) killed", done.stdout, re.M)
    assert found, done.stdout + done.stderr
    killed, judged = map(int, found.groups())
    survived = re.findall(
        r"^(?:survived|unreached): harness/answers/merging/shards.py:\d+$", done.stdout, re.M
    )
    assert judged > 20
    assert 0.5 * judged < killed == judged - len(survived)


def test_the_rate_is_of_those_that_change_anything() -> None:
    tally = Tally(killed=3, survived=1, equivalent=9)
    assert tally.rate == 0.75
    assert str(tally) == "3 of 4 killed (75.0%), 9 equivalent"


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
