"""Which single mutations of the pure files survive the unit tests.

    python -m tests.nightly.mutation_run [--seconds 3600] [--seed N] [--file PATTERN]

First the unit tests run once, and coverage notes which of them come to which line. Then each mutant
meets those that come to its line, in a fork of a process that has collected them all: the code of
a function is exchanged where it stands; what importing a file makes is imported anew, changed.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import gc
import importlib
import importlib.abc
import importlib.util
import json
import marshal
import os
import random
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, TextIO

import hypothesis
import pytest
from _pytest.runner import runtestprotocol

from tests.nightly.mutants import ROOT, Mutant, count, equivalents, mutants, pure_files

AIM = 0.95
IMPORTED = ("numpy", "pydantic", "scipy.special", "onnx", "click", "jinja2", "rich", "yaml")
"""What a process that imports a changed file has imported before."""
ROUNDS = 20
"""A round meets every so-manieth mutant of every file, so that a short run looks everywhere."""
MOST_S = 10
"""A test that takes longer judges no mutants: those few are simulations of whole searches."""
OPTIONS = ["-q", "--assert=plain", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "not nightly"]
MEMORY = 8 << 30


# --- which tests come to a line


def room_of(file: str) -> str:
    """The floor and room of a file of the harness: `device/lab`."""
    return Path(file).parent.relative_to("harness").as_posix()


def tests_of(files: Sequence[str]) -> list[str]:
    """The unit tests of the rooms of these files."""
    rooms = [ROOT / "tests/unit" / room for room in sorted({room_of(f) for f in files})]
    own = [str(room.relative_to(ROOT)) for room in rooms if room.is_dir()]
    return (
        own if len(own) == len(rooms) else [*own, *map(str, Path("tests/unit").glob("test_*.py"))]
    )


class Lines:
    """Notes of each unit test the lines of the pure files that it comes to, and its time."""

    def __init__(self, files: Sequence[str], part: int, parts: int) -> None:
        import coverage  # only who notes lines needs it

        self._coverage = coverage.Coverage(data_file=None, include=[str(ROOT / f) for f in files])
        self._coverage.start()
        self._files, self._part, self._parts = files, part, parts
        self._took_s: dict[str, float] = {}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for at, item in enumerate(items) if at % self._parts == self._part]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._coverage.switch_context(item.nodeid)
        began = time.monotonic()
        try:
            return (yield)
        finally:
            self._took_s[item.nodeid] = time.monotonic() - began
            self._coverage.switch_context("")

    def found(self) -> dict[str, Any]:
        self._coverage.stop()
        data = self._coverage.get_data()
        lines = {file: data.contexts_by_lineno(str(ROOT / file)) for file in self._files}
        return {"lines": lines, "took_s": self._took_s}


def note_lines(files: Sequence[str], part: int, parts: int, out: Path) -> None:
    lines = Lines(files, part, parts)
    code = pytest.main([*OPTIONS, "-x", *tests_of(files)], plugins=[lines])
    if code:
        sys.exit("the unit tests fail as they are")
    out.write_text(json.dumps(lines.found()))


@dataclass
class Reached:
    """`tests[file][line]`: the tests that come there; "" is what importing does."""

    tests: dict[str, dict[int, set[str]]]
    took_s: dict[str, float]

    @classmethod
    def of(cls, parts: Sequence[dict[str, Any]]) -> Reached:
        tests: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
        took_s: dict[str, float] = {}
        for part in parts:
            took_s |= part["took_s"]
            for file, lines in part["lines"].items():
                for line, names in lines.items():
                    tests[file][int(line)] |= set(names)
        return cls(tests, took_s)

    def by(self, mutant: Mutant) -> tuple[list[str], bool]:
        """The tests that a mutant meets, those of its room first; whether imports decide it."""
        inside = self.tests.get(mutant.file, {})
        names = set().union(*(inside.get(line, set()) for line in mutant.lines))
        at_import = mutant.function is None or "" in names
        if at_import:
            names = set().union(*inside.values())
        room = f"tests/unit/{room_of(mutant.file)}/"
        names = {one for one in names if 0 <= self.took_s.get(one, -1) <= MOST_S}
        order = sorted(names, key=lambda one: (room not in one, self.took_s.get(one, 0)))
        return order, at_import


# --- one mutant against its tests


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


def forked(work: Callable[[], int], limit_s: float) -> int | None:
    """What `work` gave back in a process of its own; None if its time was over."""
    child = os.fork()
    if child == 0:
        code = 3
        try:
            os.setsid()
            nowhere = os.open(os.devnull, os.O_RDWR)
            for stream in (0, 1, 2):
                os.dup2(nowhere, stream)
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
            code = work()
        finally:
            os._exit(code)
    try:
        until = time.monotonic() + limit_s
        while time.monotonic() < until:
            pid, status = os.waitpid(child, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.002)
        return None
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(child, 0)


def without_shrinking() -> None:
    """Who fails fails: no smaller example is sought, none is kept."""
    hypothesis.settings.register_profile(
        "mutants",
        hypothesis.settings.get_profile("harness"),
        database=None,
        phases=(hypothesis.Phase.explicit, hypothesis.Phase.generate),
    )
    hypothesis.settings.load_profile("mutants")


class Importer:
    """A process that has imported nothing of the harness, and forks for each changed file."""

    def __init__(self, scratch: Path) -> None:
        self._here, there = Pipe()
        if os.fork() == 0:
            self._here.close()
            try:
                self._serve(there, scratch)
            finally:
                os._exit(0)
        there.close()

    @staticmethod
    def _serve(asked: Connection, scratch: Path) -> None:
        for name in IMPORTED:
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
        while True:
            try:
                file, code, tests, limit_s = asked.recv()
            except EOFError:
                return

            def work(file: str = file, code: bytes = code, tests: list[str] = tests) -> int:
                sys.meta_path.insert(0, Changed(file, marshal.loads(code)))
                options = [*OPTIONS, "-x", f"--basetemp={scratch / 'imported'}"]
                return int(pytest.main([*options, *tests]))

            asked.send(forked(work, limit_s))

    def passes(self, file: str, code: CodeType, tests: list[str], limit_s: float) -> bool:
        self._here.send((file, marshal.dumps(code), tests, limit_s))
        return bool(self._here.recv() == 0)


Rounds = Iterator[tuple[str, Callable[[int], bool]]]


class Judge:
    """Meets mutants in the place of pytest's loop over tests, and writes what became of each."""

    def __init__(
        self, rounds: Rounds, reached: Reached, until: float, scratch: Path, results: TextIO
    ) -> None:
        self._rounds, self._reached, self._until = rounds, reached, until
        self._scratch, self._results = scratch, results
        self._importer = Importer(scratch)
        self._items: dict[str, pytest.Item] = {}
        self._functions: dict[tuple[str, str, int], list[FunctionType]] = defaultdict(list)
        self._fit: set[str] = set()
        self._unfit: set[str] = set()

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        without_shrinking()
        self._items = {item.nodeid: item for item in session.items}
        paths = {str(ROOT / file) for file in pure_files()}
        gc.unfreeze()  # what tests/conftest.py froze would not be found
        for one in gc.get_objects():
            if isinstance(one, FunctionType) and one.__code__.co_filename in paths:
                self._functions[key_of(one.__code__)].append(one)
        gc.collect()
        gc.freeze()
        known = equivalents()
        for file, wanted in self._rounds:
            for one in mutants(file, wanted):
                if time.monotonic() >= self._until:
                    return True
                same = (one.file, one.before, one.after) in known or one.before == one.after
                became = "equivalent" if same else self._became(one)
                told = [became, one.file, one.line, one.before, one.after]
                print(json.dumps(told), file=self._results)
        return True

    def _became(self, one: Mutant) -> str:
        tests, at_import = self._reached.by(one)
        path = str(ROOT / one.file)
        code = compile(ast.fix_missing_locations(one.tree), path, "exec")
        if not at_import:
            assert one.function
            made = next(part for part in _functions(code) if key_of(part) == (path, *one.function))
            there = self._functions[(path, *one.function)]
            if there and all(made.co_freevars == now.__code__.co_freevars for now in there):
                return self._exchanged(tests, there, made)
        return self._imported(tests, one.file, code)

    def _exchanged(self, tests: list[str], there: list[FunctionType], code: CodeType) -> str:
        """A kill counts if the test that failed passes without the change."""
        while tests := [test for test in tests if test not in self._unfit]:
            failed = self._first_failure(tests, there, code)
            if failed is None:
                return "survived"
            if failed == "" or failed in self._fit:
                return "killed"
            fit = self._first_failure([failed], [], code) is None
            (self._fit if fit else self._unfit).add(failed)
        return "unreached"

    def _first_failure(
        self, tests: list[str], there: list[FunctionType], code: CodeType
    ) -> str | None:
        """The first test that fails; "" where they do not come to an end."""

        def run() -> int:
            for function in there:
                function.__code__ = code
            items = [self._items[test] for test in tests]
            for at, item in enumerate(items):
                following = items[at + 1] if at + 1 < len(items) else None
                if any(report.failed for report in runtestprotocol(item, False, following)):
                    failed.write_text(item.nodeid)
                    return 1
            return 0

        failed = self._scratch / "failed"
        failed.write_text("")
        return None if forked(run, self._limit_s(tests)) == 0 else failed.read_text()

    def _imported(self, tests: list[str], file: str, code: CodeType) -> str:
        functions = list(dict.fromkeys(test.partition("[")[0] for test in tests))
        limit_s = 20 + self._limit_s(tests)
        if file not in self._fit:
            as_it_is = compile((ROOT / file).read_text(), str(ROOT / file), "exec")
            assert self._importer.passes(file, as_it_is, functions, limit_s), f"{file}, as it is"
            self._fit.add(file)
        if not functions:
            return "unreached"
        return "survived" if self._importer.passes(file, code, functions, limit_s) else "killed"

    def _limit_s(self, tests: list[str]) -> float:
        return 10 + 5 * sum(self._reached.took_s[test] for test in tests)


def key_of(code: CodeType) -> tuple[str, str, int]:
    return code.co_filename, code.co_qualname, code.co_firstlineno


def _functions(code: CodeType) -> Iterator[CodeType]:
    """All code inside a module's, its classes and its functions."""
    for inside in code.co_consts:
        if isinstance(inside, CodeType):
            yield inside
            yield from _functions(inside)


def rounds(files: Sequence[str], seed: int, part: int, parts: int) -> Rounds:
    """File after file, round after round: which of a file's mutants are a part's in this round."""
    chance = random.Random(seed)
    turns = {file: [chance.randrange(ROUNDS * parts) for _ in range(count(file))] for file in files}
    for turn in range(part, ROUNDS * parts, parts):
        for file, of_file in turns.items():
            yield file, lambda number, own=of_file, turn=turn: own[number] == turn  # type: ignore[misc]


def judge(files: Sequence[str], asked: argparse.Namespace, out: Path) -> None:
    notes = [json.loads(one.read_text()) for one in asked.folder.glob("lines-*.json")]
    scratch = asked.folder / f"scratch-{asked.part}"
    scratch.mkdir()
    chosen = rounds(files, asked.seed, asked.part, asked.parts)
    until = time.monotonic() + asked.seconds
    with out.open("w", buffering=1) as results:
        met = Judge(chosen, Reached.of(notes), until, scratch, results)
        pytest.main([*OPTIONS, f"--basetemp={scratch / 'tmp'}", *tests_of(files)], plugins=[met])


# --- all of it


@dataclass
class Tally:
    killed: int = 0
    survived: int = 0
    equivalent: int = 0

    @property
    def rate(self) -> float:
        """Of those that are none of the equivalent."""
        judged = self.killed + self.survived
        return self.killed / judged if judged else 1.0

    def __str__(self) -> str:
        judged = self.killed + self.survived
        return f"{self.killed} of {judged} killed ({self.rate:.1%}), {self.equivalent} equivalent"


def side_by_side(work: str, asked: argparse.Namespace, folder: Path, seconds: float) -> list[Path]:
    """As many processes as there are processors do their parts; raises where one fails."""
    parts = len(os.sched_getaffinity(0))
    begun = []
    for part in range(parts):
        out = folder / f"{work}-{part}.json"
        command = [sys.executable, "-m", "tests.nightly.mutation_run", work, "--file", asked.file]
        command += ["--seed", str(asked.seed), "--seconds", str(seconds), "--folder", str(folder)]
        command += ["--part", str(part), "--parts", str(parts)]
        with (folder / f"{work}-{part}.log").open("w") as log:
            begun.append((subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log), out))
    for part, (process, out) in enumerate(begun):
        if process.wait() or not out.exists():
            sys.exit((folder / f"{work}-{part}.log").read_text()[-4000:])
    return [out for _, out in begun]


def run(asked: argparse.Namespace, folder: Path) -> None:
    began = time.monotonic()
    side_by_side("lines", asked, folder, asked.seconds)
    left_s = asked.seconds - (time.monotonic() - began)
    judged = side_by_side("judged", asked, folder, max(60.0, left_s))
    told, total = summary(line for out in judged for line in out.read_text().splitlines())
    print("\n".join(told))
    if total == Tally():
        sys.exit("no mutant was met: these files have none, or there was no time")
    if total.rate < AIM:
        sys.exit(f"fewer than {AIM:.0%} of the mutants were killed")


def summary(judged: Iterable[str]) -> tuple[list[str], Tally]:
    """Who survives, and a line for each room and for all; and the last of these (pure)."""
    tallies: dict[str, Tally] = defaultdict(Tally)
    total = Tally()
    survivors = []
    for became, file, line, before, after in map(json.loads, judged):
        for tally in (tallies[room_of(file)], total):
            tally.killed += became == "killed"
            tally.equivalent += became == "equivalent"
            tally.survived += became in ("survived", "unreached")
        if became in ("survived", "unreached"):
            survivors.append(f"{became}: {file}:{line}\n    - {before}\n    + {after}")
    rooms = [f"{room:22} {tally}" for room, tally in sorted(tallies.items())]
    return [*sorted(survivors), *rooms, f"{'all':22} {total}"], total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("work", nargs="?", choices=("lines", "judged"), help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--file", default="", help="only files whose path has this (a pattern)")
    parser.add_argument("--part", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--parts", type=int, default=1, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    files = [one for one in pure_files() if re.search(asked.file, one)]
    if not files:
        sys.exit(f"no pure file has {asked.file!r} in its path")
    match asked.work:
        case "lines":
            note_lines(files, asked.part, asked.parts, asked.folder / f"lines-{asked.part}.json")
        case "judged":
            judge(files, asked, asked.folder / f"judged-{asked.part}.json")
        case _:
            print(f"seed {asked.seed}")
            with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
                run(asked, Path(folder))


if __name__ == "__main__":
    main()
