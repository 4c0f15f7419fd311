"""What pytest and pytest-xdist do not promise is used in one file, and said there."""

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
    *("node_reporters", "node_reporters_ordered", "open_reports"),
    *("reprcrash", "reprtraceback", "reprentries", "errorstring"),
}


def used(source: str) -> set[str]:
    """What of pytest's and pytest-xdist's insides a file imports or reaches into."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            found |= {node.module} if node.module and not node.level else set()
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.Attribute):
            found |= {node.attr}
        elif isinstance(node, ast.FunctionDef):
            found |= {node.name}
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("getattr", "hasattr"):
            found |= {one.value for one in node.args if isinstance(one, ast.Constant)}
    packages = {name for name in found if str(name).partition(".")[0] in ("_pytest", "xdist")}
    return packages | found & INTERNAL


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("from _pytest.runner import runtestprotocol", {"_pytest.runner"}),
        ("def f():\n    import xdist.dsession", {"xdist.dsession"}),
        ("self._reporter._tw._file = self._file", {"_tw"}),
        ("getattr(report.longrepr, 'reprcrash', None)", {"reprcrash"}),
        ("class A(pytest.Module):\n    def _getobj(self): ...", {"_getobj"}),
        ("from pytest import fixture\nself._item = config.stash", set()),
    ],
)
def test_what_is_found(source: str, says: set[str]) -> None:
    assert used(source) == says


def test_no_other_file_uses_any() -> None:
    elsewhere = {
        path.relative_to(HARNESS).as_posix(): found
        for path in HARNESS.rglob("*.py")
        if path != ONE_FILE and (found := used(path.read_text()))
    }
    assert not elsewhere
    assert {"_tw", "_getobj", "_pytest.runner"} <= used(ONE_FILE.read_text())


def test_each_part_says_what_fails_without_it() -> None:
    tree = ast.parse(ONE_FILE.read_text())
    parts = [one for one in tree.body if isinstance(one, ast.FunctionDef | ast.ClassDef)]
    silent = [
        one.name
        for one in parts
        if not ({"Without it", "Without this", "without this", "Without these"} & phrases(one))
    ]
    assert len(parts) > 10
    assert not silent


def phrases(part: ast.FunctionDef | ast.ClassDef) -> set[str]:
    words = (ast.get_docstring(part) or "").replace(",", "").split()
    return {" ".join(pair) for pair in pairwise(words)}
