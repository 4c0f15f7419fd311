"""Every room imports only from rooms below it, and the plug-in stays cheap to load."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Collection
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TREES = (ROOT, ROOT / "harness")

# From top to bottom; a room may import itself and what stands behind it.
ROOMS = (
    "cli",
    "nightly",
    "minimize",
    "bisect",
    "pytest_plugin",
    "farm",
    "doctor",
    "experiments",
    "bench",
    "workbench",
    "history",
    "report",
    "results",
    "failure",
    "fit",
    "contexts",
    "probe",
    "runtimes",
    "store",
    "lab",
    "labgrid",
    "evidence",
    "adb",
    "ssh",
    "transport",
    "host",
    "simulator",
    "qnn",
    "artefacts",
    "yaml_lines",
    "live",
    "files",
    "errors",
)


def imported_rooms(source: str) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names = [node.module]
            if node.module == "harness":
                names = [f"harness.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        found |= {name.split(".")[1] for name in names if name.startswith("harness.")}
    return found - {"__version__"}


@pytest.mark.parametrize(
    "path", sorted((ROOT / "harness").rglob("*.py")), ids=lambda p: p.relative_to(ROOT).as_posix()
)
def test_imports_go_down(path: Path) -> None:
    room = path.relative_to(ROOT / "harness").parts[0].removesuffix(".py")
    if room == "__init__":
        return
    allowed = set(ROOMS[ROOMS.index(room) :])
    assert imported_rooms(path.read_text()) <= allowed


def imported_files(module: str, source: str, known: Collection[str]) -> set[str]:
    """The modules of the harness that one imports, wherever in it, also for its types alone."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= names & set(known) or {node.module}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return (found & set(known)) - {module, "harness"}


def test_no_files_import_each_other_in_a_circle() -> None:
    paths = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for path in (ROOT / "harness").rglob("*.py")
    }
    imports = {name: imported_files(name, path.read_text(), paths) for name, path in paths.items()}
    assert sum(map(len, imports.values())) > len(paths)
    assert list(TopologicalSorter(imports).static_order())  # raises CycleError, which names it


def test_files_stay_small() -> None:
    """At most 450 lines a file; a room holds one subject, however many files that takes."""
    assert not [room for room in ROOMS if not list((ROOT / "harness" / room).rglob("*.py"))]
    files = [*(ROOT / "harness").rglob("*"), *(ROOT / "suites").glob("*.py")]
    code = [path for path in files if path.suffix in {".py", ".c", ".cpp", ".h", ".sh"}]
    lines = {path.name: len(path.read_bytes().splitlines()) for path in code}
    assert not {name: count for name, count in lines.items() if count > 450}


def test_every_file_says_what_it_is_for() -> None:
    silent = [
        path.relative_to(ROOT).as_posix()
        for folder in ("harness", "suites", "tests")
        for path in (ROOT / folder).rglob("*.py")
        if path.read_text().strip() and not ast.get_docstring(ast.parse(path.read_text()))
    ]
    assert not silent


def test_loading_the_plugin_does_not_load_the_heavy_libraries() -> None:
    code = (
        "import sys, harness.pytest_plugin.plugin\n"
        "heavy = {'onnx', 'numpy', 'pydantic', 'adbutils', 'jinja2', 'yaml', 'xdist'}\n"
        "heavy &= set(sys.modules)\n"
        "sys.exit(f'loaded: {sorted(heavy)}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_page_on_the_tree_has_every_room_in_its_place() -> None:
    page = (ROOT / "docs/architecture.md").read_text()
    assert tuple(re.findall(r"^\| `harness/(\w+)/` \|", page, re.MULTILINE)) == ROOMS


def test_the_docs_name_files_that_there_are() -> None:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    named = {
        (page.name, name)
        for page in pages
        for name in re.findall(r"`([a-z_]+(?:/[\w.]+)+\.(?:py|c|h|j2|sh|tsv))`", page.read_text())
    }
    assert ("architecture.md", "failure/rules.py") in named
    gone = [one for one in named if not any((root / one[1]).exists() for root in TREES)]
    assert not gone
