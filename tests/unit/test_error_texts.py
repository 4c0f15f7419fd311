"""The texts of errors that a user can meet stand in a test, or in a page; how many do not may fall.

A text is known by three words in a row of what stands in it, or by all of a shorter one.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
MOST_UNTOLD = 37
"""It may only fall: who adds an error adds a test that says its words."""

# What only other code meets is caught there, and told in words of its own.
INSIDE = {
    *("AssertionError", "EOFError", "KeyError", "NotImplementedError", "OSError", "TypeError"),
    *("StopIteration", "ValueError", "RuntimeError", "ConnectionError", "BrokenPipeError"),
    *(
        "ProtocolError",
        "BadPacket",
        "ElfError",
        "Unmeasured",
        "InternalError",
        "TimeoutError",
        "AttributeError",
    ),
}
_WORD = re.compile(r"[^\W_]+(?:[-'][^\W_]+)*")
_RUN = 3


def words(text: str) -> list[str]:
    return _WORD.findall(re.sub(r"\\(.)", r"\1", text).lower())


def runs(text: str) -> Iterator[tuple[str, ...]]:
    said = words(text)
    for at in range(max(1, len(said) - _RUN + 1)):
        yield tuple(said[at : at + _RUN])


def told() -> set[tuple[str, ...]]:
    """All that tests and pages say; texts go on over the ends of lines."""
    found: set[tuple[str, ...]] = set()
    for path in (*(ROOT / "tests").rglob("*.py"), *(ROOT / "docs").rglob("*.md")):
        said = words(path.read_text().replace("\\n", " "))
        found.update(zip(said, said[1:], said[2:], strict=False))
        found.update(itertools.pairwise(said))
    return found


def parts_of(node: ast.expr, names: dict[str, list[ast.expr]]) -> Iterator[list[str]]:
    """The parts that are always the same, of each text that an expression can be."""
    match node:
        case ast.Constant(value=str() as text):
            yield [text]
        case ast.JoinedStr(values=values):
            yield [part.value for part in values if isinstance(part, ast.Constant)]
        case ast.IfExp(body=one, orelse=other):
            yield from parts_of(one, names)
            yield from parts_of(other, names)
        case ast.Name(id=name):
            for one in names.get(name, []):
                yield from parts_of(one, {})


def error_texts() -> Iterator[tuple[str, int, list[str]]]:
    """File, line and fixed parts of each text that an error of ours is made with."""
    for path in sorted((ROOT / "harness").rglob("*.py")):
        for function in ast.walk(ast.parse(path.read_text())):
            if not isinstance(function, ast.FunctionDef):
                continue
            names: dict[str, list[ast.expr]] = {}
            for node in ast.walk(function):
                if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                    names.setdefault(node.targets[0].id, []).append(node.value)
            for node in ast.walk(function):
                if (made := error_made(node)) is not None:
                    typed = ast.unparse(made.func) == "PydanticCustomError"
                    for argument in made.args[typed : typed + 1]:
                        for parts in parts_of(argument, names):
                            yield str(path.relative_to(ROOT)), node.lineno, parts  # type: ignore[attr-defined]


def error_made(node: ast.AST) -> ast.Call | None:
    if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
        made = node.exc
        name = made.func.id if isinstance(made.func, ast.Name) else ""
        return made if name not in INSIDE else None
    if isinstance(node, ast.Return) and isinstance(node.value, ast.Call):
        name = node.value.func.id if isinstance(node.value.func, ast.Name) else ""
        return node.value if name.endswith("Error") and name not in INSIDE else None
    return None


def test_the_texts_of_errors_stand_in_tests() -> None:
    known = told()
    untold = {
        f"{file}:{line}: {' ... '.join(parts)}"
        for file, line, parts in error_texts()
        if any(len(words(part)) > 1 for part in parts)
        and not any(one in known for part in parts for one in runs(part))
    }
    listed = "\n".join(sorted(untold))
    assert len(untold) <= MOST_UNTOLD, f"no test says one of the {len(untold)} texts:\n{listed}"
    assert len(untold) > MOST_UNTOLD - 10, f"lower MOST_UNTOLD to {len(untold)}"
