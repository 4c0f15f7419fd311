"""A name of a class, a type or a type variable stands for one thing, wherever it is read."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

HARNESS = Path(__file__).parents[2] / "harness"
TWO_MEANINGS: frozenset[str] = frozenset()
"""It may only become smaller."""


def types_of(tree: ast.Module) -> Iterator[str]:
    """What a module calls its classes, and what it assigns to a name that is written like one."""
    for one in tree.body:
        if isinstance(one, ast.ClassDef):
            yield one.name
        targets = one.targets if isinstance(one, ast.Assign) else []
        for target in [one.target] if isinstance(one, ast.AnnAssign) else targets:
            if isinstance(target, ast.Name) and target.id[:1].isupper() and not target.id.isupper():
                yield target.id


def test_no_two_types_have_one_name() -> None:
    trees = [ast.parse(path.read_text()) for path in HARNESS.rglob("*.py")]
    classes = [one.name for tree in trees for one in tree.body if isinstance(one, ast.ClassDef)]
    types = [name for tree in trees for name in types_of(tree)]
    often = {name for name, times in Counter(types).items() if times > 1 and name[0] != "_"}
    assert len(classes) > 500
    assert len(types) > len(classes) + 100
    assert often == TWO_MEANINGS


def test_what_is_a_name_of_a_type() -> None:
    text = """
class Shape: ...
_Own = Literal["a"]
Answer = Literal["a", "b"]
Said: TypeAlias = Answer | None
Some = TypeVar("Some")
MOST: Final = 1
log = Said
def Odd(): Inner = 1
"""
    assert [*types_of(ast.parse(text))] == ["Shape", "Answer", "Said", "Some"]
