"""Single mutations of the pure files: what may stand in the place of each statement.

Of libraries, mutmut changes bodies of functions only, and no table; cosmic-ray begins Python anew
for each mutant. `mutation_run.py` runs unit tests against them.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
EQUIVALENT = Path(__file__).with_name("equivalent_mutants.tsv")
"""File, statement, what it becomes, and why no test can or should tell them apart."""

COMPARED = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
COMPUTED = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}


@dataclass(frozen=True)
class Mutant:
    """`tree` is a whole file with one change, as long as no other is asked for.

    `before` and `after` are the statement it is in. `lines` are those where a test has to come by.
    `function` is the outermost function whose body it changes, `Class.name` and its first line (as
    in `co_firstlineno`); None where it changes what importing the file makes.
    """

    file: str
    line: int
    lines: range
    before: str
    after: str
    function: tuple[str, int] | None
    tree: ast.Module

    def __str__(self) -> str:
        return f"{self.file}:{self.line}\n    - {self.before}\n    + {self.after}"


def pure_files() -> list[str]:
    """The files that say of themselves that they are pure."""
    found = []
    for path in sorted((ROOT / "harness").rglob("*.py")):
        said = ast.get_docstring(ast.parse(path.read_text())) or ""
        if "(pure)" in said.partition("\n\n")[0]:
            found.append(str(path.relative_to(ROOT)))
    return found


def other(node: ast.AST, **changed: object) -> ast.AST:
    made = copy.deepcopy(node)
    for name, value in changed.items():
        setattr(made, name, value)
    return made


def mutated(node: ast.AST) -> Iterator[ast.AST]:
    """What may stand in the place of a node."""
    match node:
        case ast.Compare(ops=[op]) if type(op) in COMPARED:
            yield other(node, ops=[COMPARED[type(op)]()])
        case ast.BinOp(op=op) if type(op) in COMPUTED and not isinstance(node.left, ast.JoinedStr):
            yield other(node, op=COMPUTED[type(op)]())
        case ast.BoolOp(op=op):
            yield other(node, op=ast.Or() if isinstance(op, ast.And) else ast.And())
            for at in range(len(node.values)):
                kept = node.values[:at] + node.values[at + 1 :]
                yield kept[0] if len(kept) == 1 else ast.BoolOp(op, kept)
        case ast.Constant(value=bool() as value):
            yield ast.Constant(not value)
        case ast.Constant(value=int() | float() as value):
            yield ast.Constant(value + 1)
        case ast.UnaryOp(op=ast.Not()):
            yield node.operand
        case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test):
            yield other(node, test=ast.UnaryOp(ast.Not(), test))
        case ast.Return(value=value) if value is not None and ast.unparse(value) != "None":
            yield ast.Return(ast.Constant(None))
        case ast.Expr(value=ast.Call()) | ast.AugAssign() | ast.Raise() | ast.Continue():
            yield ast.Pass()
        case ast.Assign(targets=[ast.Subscript() | ast.Attribute()]) | ast.Delete():
            yield ast.Pass()


def count(file: str) -> int:
    """How many mutants a file has."""
    return sum(1 for _ in _places(ast.parse((ROOT / file).read_text())))


def mutants(file: str, wanted: Callable[[int], bool] = lambda _: True) -> Iterator[Mutant]:
    """Those of a file whose number is wanted, in order; types and docstrings stay as they are."""
    whole = ast.parse((ROOT / file).read_text())
    for number, (place, node, changed, own, function) in enumerate(_places(whole)):
        if not wanted(number):
            continue
        last = getattr(node, "end_lineno", None) or own.lineno
        if isinstance(node, ast.If | ast.While):
            last = node.test.end_lineno or last
        lines = range(getattr(node, "lineno", own.lineno), last + 1)
        before = _told(own)
        _put(*place, changed)
        after = _told(changed if own is node else own)
        yield Mutant(file, own.lineno, lines, before, after, function, whole)
        _put(*place, node)


_Place = tuple[ast.AST, str, int | None]
_Function = tuple[str, int] | None


def _places(whole: ast.Module) -> Iterator[tuple[_Place, ast.AST, ast.AST, ast.stmt, _Function]]:
    """Each node that can be changed: where it stands, what it becomes, in which statement."""

    def found(
        parent: ast.AST, own: ast.stmt | None, inside: str, function: _Function
    ) -> Iterator[tuple[_Place, ast.AST, ast.AST, ast.stmt, _Function]]:
        for name, value in ast.iter_fields(parent):
            if name in ("annotation", "returns", "decorator_list", "type_params"):
                continue
            around = function
            if isinstance(parent, ast.FunctionDef) and name == "body" and function is None:
                first = min([parent.lineno, *(one.lineno for one in parent.decorator_list)])
                around = (f"{inside}{parent.name}", first)
            within = f"{inside}{parent.name}." if isinstance(parent, ast.ClassDef) else inside
            nodes = value if isinstance(value, list) else [value]
            for at, node in enumerate(nodes):
                if not isinstance(node, ast.AST) or _is_of_types(node) or _is_a_text(node):
                    continue
                statement = node if isinstance(node, ast.stmt) else own
                place = (parent, name, at if isinstance(value, list) else None)
                for changed in mutated(node):
                    assert statement is not None
                    if ast.unparse(changed) != ast.unparse(node):
                        yield place, node, changed, statement, around
                yield from found(node, statement, within, around)

    yield from found(whole, None, "", None)


def _is_of_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def _is_a_text(node: ast.AST) -> bool:
    """What is said with figures in it: the tests of texts hold that word by word."""
    return isinstance(node, ast.JoinedStr)


def _put(parent: ast.AST, name: str, at: int | None, node: ast.AST) -> None:
    if at is None:
        setattr(parent, name, node)
    else:
        getattr(parent, name)[at] = node


def _told(statement: ast.AST) -> str:
    """Its first line; of one that has others inside, what stands before them."""
    return ast.unparse(ast.fix_missing_locations(copy.deepcopy(statement))).partition("\n")[0]


def equivalents() -> set[tuple[str, str, str]]:
    lines = [one for one in EQUIVALENT.read_text().splitlines() if one and one[0] != "#"]
    return {tuple(line.split("\t")[:3]) for line in lines}  # type: ignore[misc]
