"""Private parts of pytest and pytest-xdist are used in one file, which explains them."""

from __future__ import annotations

import ast
from itertools import pairwise
from pathlib import Path

import pytest

HARNESS = Path(__file__).parents[3] / "harness"
ONE_FILE = HARNESS / "plugin/pytest_internals.py"

# attributes of pytest's objects, and methods that it calls, by name
INTERNAL = {
    *("_tw", "_width_of_current_line", "_setupstate", "_getobj", "_fixtureinfo", "_inicache"),
    *("funcnamefilter", "known_args_namespace", "global_and_fixture_disabled", "global_disabled"),
    *("reprcrash", "reprtraceback", "reprentries", "errorstring"),
}


def used(source: str) -> set[str]:
    """Return the private parts of pytest and pytest-xdist that a file uses."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            names |= {node.module} if node.module and not node.level else set()
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.Attribute):
            names |= {node.attr}
        elif isinstance(node, ast.FunctionDef):
            names |= {node.name}
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("getattr", "hasattr"):
            names |= {
                argument.value for argument in node.args if isinstance(argument, ast.Constant)
            }
    packages = {name for name in names if str(name).partition(".")[0] in ("_pytest", "xdist")}
    return packages | names & INTERNAL


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("from _pytest.runner import runtestprotocol", {"_pytest.runner"}),
        ("def f():\n    import xdist.dsession", {"xdist.dsession"}),
        ("self._reporter._tw._file = self._file", {"_tw"}),
        ("getattr(report.longrepr, 'reprcrash', None)", {"reprcrash"}),
        ("class A(pytest.Module):\n    def _getobj(self): ...", {"_getobj"}),
        ("from pytest import fixture\nself._item = config.stash", set()),
    ],
)
def test_what_is_found(source: str, expected: set[str]) -> None:
    assert used(source) == expected


def test_no_other_file_uses_any() -> None:
    elsewhere = {
        path.relative_to(HARNESS).as_posix(): names
        for path in HARNESS.rglob("*.py")
        if path != ONE_FILE and (names := used(path.read_text()))
    }
    assert not elsewhere
    assert {"_tw", "_getobj", "_pytest.runner"} <= used(ONE_FILE.read_text())


def test_each_part_says_what_fails_without_it() -> None:
    tree = ast.parse(ONE_FILE.read_text())
    parts = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    silent = [
        part.name
        for part in parts
        if not ({"Without it", "Without this", "without this", "Without these"} & phrases(part))
    ]
    assert len(parts) > 10
    assert not silent


def phrases(part: ast.FunctionDef | ast.ClassDef) -> set[str]:
    words = (ast.get_docstring(part) or "").replace(",", "").split()
    return {" ".join(pair) for pair in pairwise(words)}
