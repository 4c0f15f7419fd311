"""Single mutations of the pure files, each against the unit tests of its room: what survives?

    python -m tests.nightly.mutants [--seconds 3600] [--seed N] [--file PATTERN]

Of libraries, mutmut changes bodies of functions only, and no table; cosmic-ray begins Python anew
for each mutant. Here each is a fork of a process that has imported what tests need, and the
changed file exists in the fork only. A room's rate is of those that change anything.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import copy
import importlib.abc
import importlib.util
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType, ModuleType

import pytest

ROOT = Path(__file__).parents[2]
EQUIVALENT = Path(__file__).with_name("equivalent_mutants.tsv")
"""File, statement, what it becomes, and why no test can or should tell them apart."""
AIM = 0.95

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
IMPORTED = ("hypothesis", "numpy", "pydantic", "scipy.stats", "onnx", "click", "jinja2", "rich")


@dataclass(frozen=True)
class Mutant:
    """`tree` is a whole file with one change; `before` and `after` are the statement it is in."""

    file: str
    line: int
    before: str
    after: str
    tree: ast.Module

    def __str__(self) -> str:
        return f"{self.file}:{self.line}\n    - {self.before}\n    + {self.after}"


@dataclass
class Tally:
    killed: int = 0
    equivalent: int = 0
    survivors: list[Mutant] = field(default_factory=list)

    def __str__(self) -> str:
        judged = self.killed + len(self.survivors)
        rate = self.killed / judged if judged else 1.0
        return f"{self.killed} of {judged} killed ({rate:.0%}), {self.equivalent} equivalent"


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
            yield ast.Constant(value - 1)
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


def mutants(file: str) -> Iterator[Mutant]:
    """All of a file, in order; types and docstrings stay as they are."""
    source = (ROOT / file).read_text()

    def found(parent: ast.AST, statement: ast.stmt | None) -> Iterator[Mutant]:
        for name, value in ast.iter_fields(parent):
            if name in ("annotation", "returns", "decorator_list", "type_params"):
                continue
            nodes = value if isinstance(value, list) else [value]
            for at, node in enumerate(nodes):
                if not isinstance(node, ast.AST) or is_of_types(node):
                    continue
                own = node if isinstance(node, ast.stmt) else statement
                for changed in mutated(node):
                    assert own is not None
                    before = told(own)
                    put(parent, name, at if isinstance(value, list) else None, changed)
                    after = told(changed if own is node else own)
                    yield Mutant(file, own.lineno, before, after, whole)
                    put(parent, name, at if isinstance(value, list) else None, node)
                yield from found(node, own)

    whole = ast.parse(source)
    yield from found(whole, None)


def is_of_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def put(parent: ast.AST, name: str, at: int | None, node: ast.AST) -> None:
    if at is None:
        setattr(parent, name, node)
    else:
        getattr(parent, name)[at] = node


def told(statement: ast.AST) -> str:
    """Its first line; of one that has others inside, what stands before them."""
    return ast.unparse(ast.fix_missing_locations(copy.deepcopy(statement))).partition("\n")[0]


class Changed(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Gives one module its changed code, and leaves all others alone."""

    def __init__(self, file: str, code: CodeType) -> None:
        self._name = file.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
        self._path, self._code = ROOT / file, code

    def find_spec(self, name: str, path: object, target: object = None) -> ModuleSpec | None:
        if name != self._name:
            return None
        return importlib.util.spec_from_file_location(name, self._path, loader=self)

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        exec(self._code, module.__dict__)


def tests_of(file: str) -> list[str]:
    """The unit tests of its room, those that are called like it first."""
    room = ROOT / "tests/unit" / Path(file).parts[1]
    if not room.is_dir():
        return [str(path) for path in sorted((ROOT / "tests/unit").glob("test_*.py"))]
    stem = Path(file).stem
    return sorted(map(str, room.glob("test_*.py")), key=lambda path: (stem not in path, path))


def survives(file: str, code: CodeType | None, timeout_s: float) -> bool:
    """Whether the unit tests pass in a fork with this code in the place of a file's."""
    scratch = Path(tempfile.mkdtemp(prefix="mutant-"))
    child = os.fork()
    if child == 0:
        code_of_end = 3
        try:
            os.setsid()
            nowhere = os.open(os.devnull, os.O_RDWR)
            for stream in (0, 1, 2):
                os.dup2(nowhere, stream)
            if code is not None:
                sys.meta_path.insert(0, Changed(file, code))
            options = [
                "-x",
                "-q",
                "--assert=plain",
                "-p",
                "no:cacheprovider",
                f"--basetemp={scratch / 'tmp'}",
            ]
            code_of_end = int(pytest.main([*options, "-m", "not nightly", *tests_of(file)]))
        finally:
            os._exit(code_of_end)
    try:
        return ended(child, timeout_s) == 0
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        shutil.rmtree(scratch, ignore_errors=True)


def ended(child: int, timeout_s: float) -> int | None:
    """How it ended; None where its time was over, and it was ended."""
    until = time.monotonic() + timeout_s
    while time.monotonic() < until:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def equivalents() -> set[tuple[str, str, str]]:
    lines = [one for one in EQUIVALENT.read_text().splitlines() if one and one[0] != "#"]
    return {tuple(line.split("\t")[:3]) for line in lines}  # type: ignore[misc]


def run(seconds: float, seed: int, files: Sequence[str]) -> dict[str, Tally]:
    """Takes one mutant of each room after the other, at random, as long as there is time."""
    assert "harness.errors" not in sys.modules, "what is imported already is not changed in a fork"
    until, chance = time.monotonic() + seconds, random.Random(seed)
    for name in IMPORTED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    rooms: dict[str, list[str]] = defaultdict(list)
    for file in files:
        rooms[Path(file).parts[1]].append(file)
    tallies: dict[str, Tally] = {room: Tally() for room in rooms}
    limits: dict[str, float] = {}
    known = equivalents()
    while time.monotonic() < until:
        for room, inside in rooms.items():
            if time.monotonic() >= until:
                break
            if room not in limits:
                began = time.monotonic()
                assert survives(inside[0], None, 600), f"the unit tests of {room} fail as it is"
                limits[room] = 10 + 3 * (time.monotonic() - began)
            counts = [sum(1 for _ in mutants(file)) for file in inside]
            (file,) = chance.choices(inside, counts)
            at = chance.randrange(counts[inside.index(file)])
            one = next(one for number, one in enumerate(mutants(file)) if number == at)
            if (one.file, one.before, one.after) in known or one.before == one.after:
                tallies[room].equivalent += 1
                continue
            code = compile(ast.fix_missing_locations(one.tree), str(ROOT / file), "exec")
            if survives(file, code, limits[room]):
                tallies[room].survivors.append(one)
                print(f"survived: {one}", flush=True)
            else:
                tallies[room].killed += 1
    return tallies


def rate_of(tallies: dict[str, Tally]) -> float:
    killed = sum(one.killed for one in tallies.values())
    return killed / max(1, killed + sum(len(one.survivors) for one in tallies.values()))


def show(tallies: dict[str, Tally]) -> None:
    for room, tally in tallies.items():
        print(f"{room:14} {tally}")
    print(f"{'all':14} {rate_of(tallies):.1%}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--file", default="", help="only files whose path has this (a pattern)")
    asked = parser.parse_args()
    print(f"seed {asked.seed}")
    files = [one for one in pure_files() if re.search(asked.file, one)]
    tallies = run(asked.seconds, asked.seed, files)
    show(tallies)
    if rate_of(tallies) < AIM:
        sys.exit(f"fewer than {AIM:.0%} of the mutants were killed")


if __name__ == "__main__":
    main()
