"""Which files of harness/ name one member of a kind: those that the next member will touch.

    python -m tests.touched_files [COMMIT ...]

For each kind the newest member stands for the next one. A file counts if its code names that one,
so the files of its own count, too; docstrings and comments do not.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Final

ROOT = Path(__file__).parents[1]
CODE: Final = frozenset({".py", ".c", ".cpp", ".h", ".j2", ".js", ".sh"})
_SSH: Final = "SshBoard|SharedConnection|SshLogin|login_at"
AXES: Final = frozenset({"qnn", "ort", "compiler"})

Test = Callable[[str, str], bool]
"""Whether a file counts, by its path and its code."""


@dataclass(frozen=True)
class Kind:
    """A kind of things. `members` are tried from the newest: the first that any file names."""

    members: tuple[Test, ...]
    most: int
    """So many files at most name it today; it may only become fewer."""


def named(pattern: str, within: str = "", without: str = "\0") -> Test:
    """Whether the code has a pattern, and the path `within` and not `without`."""
    return lambda path, code: (
        within in path and without not in path and re.search(pattern, code) is not None
    )


def lists_axes(path: str, code: str) -> bool:
    """Whether at least two axes stand side by side in a list, tuple, set or dict."""
    if not path.endswith(".py") or sum(axis in code for axis in AXES) < 2:
        return False
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Tuple | ast.List | ast.Set | ast.Dict):
            parts = node.keys if isinstance(node, ast.Dict) else node.elts
            texts = {one.value for one in parts if isinstance(one, ast.Constant)}
            if len(texts & AXES) >= 2:
                return True
    return False


KINDS: Final[Mapping[str, Kind]] = MappingProxyType(
    {
        "engine": Kind((named(r"\b(litert|LITERT)\b"), named(r"\b(executorch|EXECUTORCH)\b")), 6),
        "axis": Kind((lists_axes,), 2),
        # adb's tunnels use ssh, and are no part of this way to a device
        "transport": Kind((named(_SSH, without="/adb/"), named("AdbDevice")), 8),
        "container format": Kind((named(r"\bdlc\b|Dlc"),), 6),
        "failure rule": Kind((named("pd-exhausted"),), 1),
        "report section": Kind((named("drift", within="/report/"),), 3),
    }
)


def code_of(path: str, text: str) -> str:
    """A file without its docstrings and comments."""
    if not path.endswith(".py"):
        return text
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            said = [one for one in node.body if not _is_text(one)]
            node.body = said or [ast.Pass()]
    return ast.unparse(tree)


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def files_of(commit: str | None) -> Iterator[tuple[str, str]]:
    """The files of harness/ as they lie here, or those of a commit, with their texts."""
    if commit is None:
        for path in sorted((ROOT / "harness").rglob("*")):
            if path.suffix in CODE:
                yield path.relative_to(ROOT).as_posix(), path.read_text()
        return
    command = ["git", "archive", commit, "harness"]
    packed = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        for member in archive:
            file = archive.extractfile(member) if Path(member.name).suffix in CODE else None
            if file is not None:
                yield member.name, file.read().decode()


def touched(files: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """The files that name the newest member of each kind."""
    texts = list(files)
    code = cache(code_of)

    def hits(test: Test) -> list[str]:
        # to take docstrings and comments out of a file takes long, and few have such words at all
        return [path for path, text in texts if test(path, text) and test(path, code(path, text))]

    return {
        name: next((found for test in kind.members if (found := hits(test))), [])
        for name, kind in KINDS.items()
    }


if __name__ == "__main__":
    for commit in sys.argv[1:] or [None]:
        print(commit or "as it lies here")
        for kind, names in touched(files_of(commit)).items():
            print(f"  {kind}: {len(names)}", *names, sep="\n    ")
