"""A name of a class stands for one thing, wherever it is read."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

HARNESS = Path(__file__).parents[2] / "harness"
TWO_MEANINGS: frozenset[str] = frozenset()
"""It may only become smaller."""


def test_no_two_classes_have_one_name() -> None:
    trees = [ast.parse(path.read_text()) for path in HARNESS.rglob("*.py")]
    classes = [one.name for tree in trees for one in tree.body if isinstance(one, ast.ClassDef)]
    often = {name for name, times in Counter(classes).items() if times > 1 and name[0] != "_"}
    assert len(classes) > 500
    assert often == TWO_MEANINGS
