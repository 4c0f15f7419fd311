"""Slow tests are left out of a plain `make test`, told there, and run where all is insisted on."""

from __future__ import annotations

import ast
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.forked import run_module
from tests.needed import INSIST
from tests.unit.test_rooms import ROOMS

ROOT = Path(__file__).parents[2]
INTEGRATION = ROOT / "tests/integration"


def names_of_module(tree: ast.Module) -> dict[str, str]:
    """What is assigned to a name there, as written."""
    return {
        target.id: ast.unparse(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def by_day(source: str) -> Iterator[str]:
    """The tests that are run by day on a computer with packages of a distribution alone."""
    tree = ast.parse(source)
    names = names_of_module(tree)
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            marks = [ast.unparse(mark) for mark in node.decorator_list]
            said = " ".join([names.get("pytestmark", ""), *(names.get(m, m) for m in marks)])
            whole = re.sub(r"pytest\.param\(.*?marks=.*?\)", "", said)
            if not re.search(r"mark\.(slow|nightly|benchmark)\b|needs\(.?[A-Z]", whole):
                yield node.name


def test_what_is_run_by_day() -> None:
    source = """
NIGHT = pytest.mark.nightly
def test_a(): ...
@pytest.mark.slow
def test_b(): ...
@NIGHT
def test_c(): ...
@pytest.mark.parametrize("x", [1, pytest.param(2, marks=pytest.mark.nightly)])
def test_d(): ...
@pytest.mark.needs(ANDROID)
def test_e(): ...
"""
    assert list(by_day(source)) == ["test_a", "test_d"]
    assert list(by_day(f"{source}\npytestmark = pytest.mark.slow\n")) == []


def test_each_room_is_tried_by_day() -> None:
    files = {room: sorted((INTEGRATION / room).glob("test_*.py")) for room in ROOMS}
    tried = {
        room: sum(len(list(by_day(file.read_text()))) for file in found)
        for room, found in files.items()
        if found
    }
    assert len(tried) > 20
    assert [room for room, count in tried.items() if not count] == []


@pytest.mark.needs("make")
def test_they_are_run_where_all_is_insisted_on() -> None:
    def selected(environment: dict[str, str]) -> str:
        command = ["make", "--dry-run", "--old-file=.venv/.ready", "test"]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
        (found,) = re.findall(r' -m "([^"]+)"', done.stdout)
        return str(found)

    plain = {name: value for name, value in os.environ.items() if name != INSIST}
    assert selected(plain) == "not benchmark and not nightly and not slow"
    assert selected(plain | {INSIST: "1"}) == "not benchmark and not nightly"


@pytest.mark.slow
def test_what_was_left_out_is_told() -> None:
    """A worker leaves them out, and the process that began it tells."""
    file = "tests/faults/test_chaos.py"
    words = ["pytest", file, "-n1", "-p", "no:cacheprovider", "-m", "not slow"]
    done = run_module(words, ROOT, os.environ, 60, stderr=subprocess.STDOUT)
    (count,) = re.findall(rf"^    {file} \((\d+)\)$", done.stdout, re.M)
    assert f" {count} slow tests were left out " in done.stdout
