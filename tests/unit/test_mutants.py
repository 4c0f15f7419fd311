"""What finds weak tests by night is itself shown to find them."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys

import pytest

from tests.nightly.mutants import EQUIVALENT, ROOT, equivalents, mutants, pure_files
from tests.nightly.mutation_run import Tally, summary


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


def test_a_summary_has_each_room_and_all() -> None:
    rooms = ("harness/device/lab/health.py", "harness/answers/merging/shards.py")
    judged = [
        *(["killed", rooms[0], 3, "a", "b"] for _ in range(2)),
        ["survived", rooms[1], 4, "c", "d"],
        ["unreached", rooms[0], 9, "e", "f"],
        ["equivalent", rooms[1], 5, "g", "h"],
    ]
    told, total = summary(map(json.dumps, judged))
    assert told == [
        f"survived: {rooms[1]}:4\n    - c\n    + d",
        f"unreached: {rooms[0]}:9\n    - e\n    + f",
        "answers/merging        0 of 1 killed (0.0%), 1 equivalent",
        "device/lab             2 of 3 killed (66.7%), 0 equivalent",
        "all                    2 of 4 killed (50.0%), 1 equivalent",
    ]
    assert total == Tally(killed=2, survived=2, equivalent=1)


def test_nothing_that_was_met_is_a_summary_too() -> None:
    told, total = summary([])
    assert (told, total) == (
        ["all                    0 of 0 killed (100.0%), 0 equivalent"],
        Tally(),
    )


def test_a_pattern_that_no_pure_file_has_is_told() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.nightly.mutation_run", "--file", "no/such/file"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert (done.returncode, done.stderr) == (1, "no pure file has 'no/such/file' in its path\n")


@pytest.mark.slow
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
